"""From a part's graph to a launch list: which tensors get memory, which kernels merge, in which order loops run."""
