"""Does a backend run the operator set?  By dtype, as declared; over PyTorch's own catalog, as compiled and run."""
