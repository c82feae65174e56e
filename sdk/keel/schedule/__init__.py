"""Schedules a part's graph: decides which tensors get memory, which kernels fuse, and the order of loops."""
