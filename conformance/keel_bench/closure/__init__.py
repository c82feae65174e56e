"""Does every program end in the operator set?  Measured over PyTorch's own catalog of operators and over models."""
