"""The FX side: graphs of typed ATen calls, their verification, and their decomposition to calls that backends claim."""
