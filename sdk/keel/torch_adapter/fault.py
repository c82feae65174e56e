"""What a fault of PyTorch's fake kernels is: a promise on a result that eager PyTorch does not keep, and what it
gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Size = Any
"""A size or stride: a number, a symbolic number of PyTorch's or an expression. The same arithmetic serves all."""
Given = Mapping[str, Any]
"""Arguments by parameter name."""
Strides = Callable[[Given, torch.Tensor], Sequence[Size] | None]
"""What eager gives, by the arguments and what was promised; None where the promise is kept."""


@dataclass(frozen=True)
class Fault:
    """What fake kernels promise and eager does not give: ``seen`` are the versions of PyTorch that it was seen in,
    ``results`` those that it is about, None for each of a list, ``device`` the type of those that keep the promise
    elsewhere, or are not known not to.  ``ops`` has the names of operators that are registered by what nobody may have
    imported.
    """

    ops: tuple[Callable[..., Any] | str, ...]
    seen: tuple[str, ...]
    sentence: str
    strides: Strides
    results: tuple[int, ...] | None = (0,)
    device: str | None = None


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of elements that lie one after the other, the last dimension innermost."""
    return ordered(shape, range(len(shape)))


def ordered(shape: Sequence[Size], dims: Sequence[int]) -> tuple[Size, ...]:
    """Dense strides with the dimensions in this order, the last innermost."""
    found: dict[int, Size] = {}
    step: Size = 1
    for d in reversed(dims):
        found[d], step = step, step * shape[d]
    return tuple(found[d] for d in range(len(shape)))
