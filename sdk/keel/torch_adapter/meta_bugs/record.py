"""The record of a bug in PyTorch's meta kernels: a promise about a result that eager PyTorch does not keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Size = Any
"""A size or stride: a number, a symbolic number of PyTorch's or an expression. The same arithmetic serves all."""
NamedArguments = Mapping[str, Any]
"""Arguments by parameter name."""
Strides = Callable[[NamedArguments, torch.Tensor], Sequence[Size] | None]
"""The strides that eager gives, by the arguments and the promised result; None where the promise is kept."""
Kind = Literal["strides", "absent", "dtype", "results", "missing", "instead"]
ALL = ("2.11", "2.13", "2.14", "2.15")
"""The releases of PyTorch that have been looked at."""


@dataclass(frozen=True)
class MetaBug:
    """A wrong promise about ``ops``, in the releases ``torch_versions``, and its ``fix``, which depends on ``kind``:

    * ``strides``: a :data:`Strides` rule for each of ``results``.
    * ``dtype``: from the arguments, the dtype of each of ``results``; None where the promise is kept.
    * ``absent``: from the arguments by name, the numbers of the results that eager leaves out.
    * ``results``: all results, from the promised ones and the arguments.
    * ``missing``: the meta kernel, where PyTorch has none.
    * ``instead``: a meta kernel to ask in place of PyTorch's.

    ``results`` is None for each of a list.  ``device`` is the type of device that it is about; the promise is kept
    elsewhere, or is not known to be broken there.  An operator that may not have been imported is given by its name.
    """

    ops: tuple[Callable[..., Any] | str, ...]
    torch_versions: tuple[str, ...]
    sentence: str
    fix: Callable[..., Any]
    results: tuple[int, ...] | None = (0,)
    device: str | None = None
    kind: Kind = "strides"


def row_major(shape: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of elements that lie one after the other, the last dimension innermost."""
    return ordered(shape, range(len(shape)))


def ordered(shape: Sequence[Size], dims: Sequence[int]) -> tuple[Size, ...]:
    """Dense strides with the dimensions in this order, the last innermost."""
    strides: dict[int, Size] = {}
    step: Size = 1
    for d in reversed(dims):
        strides[d], step = step, step * shape[d]
    return tuple(strides[d] for d in range(len(shape)))


def with_dtype(value: Any, dtype: torch.dtype | None) -> Any:
    """A fake tensor of another dtype; anything else, and where ``dtype`` is None, as it is."""
    if not isinstance(value, torch.Tensor) or dtype is None or value.dtype == dtype:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)
