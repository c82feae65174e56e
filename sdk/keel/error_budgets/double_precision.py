"""Values in float64, and the precision of dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WIDE = {True: torch.complex128, False: torch.float64}


def is_inexact(dtype: torch.dtype) -> bool:
    """True for dtypes that round: floats and complex ones."""
    return dtype.is_floating_point or dtype.is_complex


def is_rounded(value: Any) -> bool:
    """True for a tensor of a dtype that rounds."""
    return isinstance(value, Tensor) and is_inexact(value.dtype)


def wide(x: Any) -> Any:
    """A tensor or a dtype that rounds, in double precision; any other value as it is."""
    if isinstance(x, torch.dtype):
        return WIDE[x.is_complex] if is_inexact(x) else x
    return x.to(WIDE[x.is_complex()]) if is_rounded(x) else x


def eps(dtype: torch.dtype) -> float:
    """The distance from 1 to the next number of a dtype; 0 for a dtype that does not round."""
    return torch.finfo(dtype).eps if is_inexact(dtype) else 0.0


def tiny(dtype: torch.dtype) -> float:
    """The smallest normal number of a dtype."""
    return float(torch.finfo(dtype).smallest_normal)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each leaf changed, through lists, tuples and dicts."""
    if isinstance(value, list | tuple):
        changed = [mapped(v, change) for v in value]
        return changed if isinstance(value, list) else tuple(changed)
    if isinstance(value, dict):
        return {k: mapped(v, change) for k, v in value.items()}
    return change(value)


def has_float64(device: torch.device) -> bool:
    """True if a device computes in float64."""
    try:
        return bool((torch.ones((), dtype=torch.float64, device=device) + 1).item() == 2)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
