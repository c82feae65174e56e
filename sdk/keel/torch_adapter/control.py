"""Loops, scans and maps as programs write them. ``torch.cond`` has a public name; these have none yet."""

from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as mapped

__all__ = ["associative_scan", "mapped", "scan", "while_loop"]
