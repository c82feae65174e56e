"""Loops, scans and maps in programs. Unlike ``torch.cond``, these functions have no public name in PyTorch yet."""

from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as mapped

__all__ = ["associative_scan", "mapped", "scan", "while_loop"]
