"""What PyTorch's meta kernels promise and eager PyTorch does not give: rows of one type, and their fixes."""
