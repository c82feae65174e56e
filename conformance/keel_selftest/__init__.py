"""The test of the conformance suite: backends that are wrong on purpose, null backends, benign variants."""
