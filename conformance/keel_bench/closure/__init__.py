"""Does every program end in the operator set?  Measured over PyTorch's own catalogue of operators and over models."""
