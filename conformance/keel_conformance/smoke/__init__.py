"""A first conformance suite: small programs over the operators that models are made of, judged against float64."""
