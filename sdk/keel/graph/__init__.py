"""The FX side: graphs of typed ATen calls, what they may contain, and how they descend to what backends claim."""
