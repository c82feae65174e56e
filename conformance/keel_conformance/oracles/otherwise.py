"""What eager PyTorch gives for a call whose arguments lie otherwise. For one operator it has several kernels: vectors
for what is dense, single elements for the rest and for strides, a library's for some; each is off in its own way.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ..cases.case import Trial
from ..trees import mapped
from .rules import flat

PIECE = 7
"""Elements of a piece: fewer than a vector has of any dtype that is computed in vectors, so that none is."""
LARGEST = 100_000
"""Elements of what is computed piece by piece."""


def otherwise(op: Any, trial: Trial, k: int, like: Tensor) -> Iterator[Tensor]:
    """Result ``k`` of an operator that is computed by elements, ``like`` eager's: of row-major arguments, of pieces."""
    for way in (_row_major, _in_pieces):
        with suppress(RuntimeError, NotImplementedError, ValueError, TypeError):
            found = way(op, trial, k, like)
            if found is not None and (found.shape, found.dtype) == (like.shape, like.dtype):
                yield found


def _row_major(op: Any, trial: Trial, k: int, like: Tensor) -> Tensor | None:
    def dense(x: Any) -> Any:
        return x.clone(memory_format=torch.contiguous_format) if isinstance(x, Tensor) else x
    return _result(op, mapped(tuple(trial.args), dense), mapped(dict(trial.kwargs), dense), k)


def _in_pieces(op: Any, trial: Trial, k: int, like: Tensor) -> Tensor | None:
    if like.numel() > LARGEST or any(isinstance(v, Tensor) for v in trial.kwargs.values()):
        return None
    # what has no dimensions does not count as a tensor when dtypes are promoted, so it stays as it is
    rows = [x.expand(like.shape).reshape(-1) if isinstance(x, Tensor) and x.dim() else x for x in trial.args]
    found = []
    for start in range(0, like.numel(), PIECE):
        some = [x[start:start + PIECE].clone() if isinstance(x, Tensor) and x.dim() else x for x in rows]
        found.append(_result(op, some, trial.kwargs, k))
    return torch.cat([x for x in found if x is not None]).reshape(like.shape) if found else None


def _result(op: Any, args: Any, kwargs: Any, k: int) -> Tensor | None:
    result = flat(op(*args, **kwargs))[k]
    return result if isinstance(result, Tensor) else None
