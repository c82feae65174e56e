"""The total of a histogram is exact even where its bins are not: each element counts in exactly one bin.

Rounding decides on which side of a bin's edge an element falls, and with small integers nearly all elements are at
edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from .tracked_tensor import BITS

breach: ByMember[Callable[[Mapping[str, Any], Tensor], str]] = ByMember()
"""What is wrong with the sum of a result's elements, by the arguments and the result; '' where nothing is."""


@breach("histc")
def counted_once(named: Mapping[str, Any], result: Tensor) -> str:
    """The bounds are numbers, which elements are compared with as they are or in the dtype of these."""
    x, low, high = named["self"].double(), float(named["min"]), float(named["max"])
    if low == high:
        least = most = x.numel()
    else:
        lows, highs = ([b, float(torch.tensor(b, dtype=result.dtype))] for b in (low, high))
        least, most = (int(((x >= a) & (x <= b)).sum()) for a, b in ((max(lows), min(highs)), (min(lows), max(highs))))
    total = float(result.double().sum())
    if most > 2 ** BITS[result.dtype] or least <= total <= most:
        return ""
    return f"The bins have {total:g} elements together, not {least}{f' to {most}' if most > least else ''}."
