"""Whether 16-bit results are rounded to the nearest: those that are farther off may not all be on one side.

A budget of one ulp has room for cutting bits off, which no clause allows and which a long sum shows; the same is asked
of sums of products by their bias (``linear.statistics``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from keel.opset import Op

from .tracked_tensor import BITS, ulp, wide

NEAREST = 0.5 + 1 / 16
"""Ulps. Two of float32 are a 2^-12th of one of float16."""
LEAST = 48
"""Different results that have to be farther off: that they are all on one side by chance has p < 2^-47."""


def one_sided(member: Op, arguments: Sequence[Any], got: Tensor, want: Tensor) -> str:
    """What is wrong with the roundings of all elements together, if anything; ``want`` is tracked.

    An operand of another dtype, a number, or one element for all of them may be rounded first, alone or times a factor,
    which puts all results off alike.
    """
    if any(
        not isinstance(x, Tensor) or x.dtype != got.dtype or x.numel() == 1
        for x in arguments
        if isinstance(x, Tensor | float)
    ):
        return ""
    if not member.numerics.rounded_once or not (
        got.is_floating_point() and got.dtype.itemsize == 2 and got.dtype in BITS
    ):
        return ""
    value, facts = wide(want).reshape(-1), torch.finfo(got.dtype)
    size = value.abs()
    fits = (size >= 2 * facts.smallest_normal) & (size <= facts.max / 2)
    off = torch.where(fits, (got.reshape(-1).double() - value) / ulp(value, got.dtype), 0.0)
    far = off.abs() > NEAREST
    for name, side in (
        ("toward zero", off * value.sign() < 0),
        ("away from zero", off * value.sign() > 0),
        ("down", off < 0),
        ("up", off > 0),
    ):
        if not bool((far & ~side).any()) and len(value[far].unique()) >= LEAST:
            return (
                f"{int(far.sum())} of {len(value)} results are more than half an ulp off, all of them {name}: they "
                "are not rounded to the nearest."
            )
    return ""
