"""Bounds of an integer clamp that are outside the range of the operand's dtype."""

from __future__ import annotations

from typing import Any

import torch

BY_VALUE = torch.__version__ >= (2, 15)  # type: ignore[operator]
"""PyTorch 2.15 is the first to compare such bounds by value. Older ones convert them to the dtype of the operand, in
which -1 is 255 for uint8, or raise."""


def keeps_all(bound: Any, dtype: torch.dtype, *, upper: bool) -> bool:
    """True if a lower (or ``upper``) bound lies beyond the range of ``dtype`` on the side where it has no effect."""
    info = _integers(bound, dtype)
    return info is not None and (bound > info.max if upper else bound < info.min)


def keeps_none(bound: Any, dtype: torch.dtype, *, upper: bool) -> bool:
    """True if every value of ``dtype`` violates the lower (or ``upper``) bound; PyTorch raises an error for that."""
    info = _integers(bound, dtype)
    return info is not None and (bound < info.min if upper else bound > info.max)


def _integers(bound: Any, dtype: torch.dtype) -> torch.iinfo | None:
    """The range of ``dtype``; None if PyTorch does not compare the bound by value, or if the bound is unknown."""
    if not BY_VALUE or not isinstance(bound, int | float) or dtype == torch.bool:
        return None
    return None if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
