"""How many threads eager PyTorch computes with: where work is divided decides how partial results are rounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs the block with ``count`` threads of PyTorch."""
    before = torch.get_num_threads()
    if count != before:  # setting the number takes time even if it does not change
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
