"""``keel bench``: what the project promises, measured beside eager PyTorch and Inductor."""
