"""The loop level: kernels as frozen data, printed, parsed, verified, interpreted."""
