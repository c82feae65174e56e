"""FX graphs of typed ATen calls: their rules, and their decomposition into calls that backends claim."""
