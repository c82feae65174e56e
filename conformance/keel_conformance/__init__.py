"""The conformance suite: what a vendor judges a backend with."""
