"""Differences between devices in PyTorch's kernels that the operator set follows. A vendor's device is in no set."""

from __future__ import annotations

GELU_BY_TANH = frozenset({"cuda"})
"""Types of devices whose product with gelu computes gelu by tanh; others compute it by erf."""

OWN_CONVOLUTIONS = frozenset({"cpu", "cuda"})
"""Types of devices whose convolutions are part of PyTorch, and keep images channels-last. PyTorch promises row-major
results of the convolution that a vendor registers.
"""
