"""What eager PyTorch gives for a call whose arguments lie otherwise. For one operator it has several kernels: vectors
for what is dense, single elements for the rest and for strides, a library's for some; each is off in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ..cases.case import Inputs
from ..pytree import tree_map
from .error_rules import flat

PIECE = 7
"""Elements of a piece: fewer than a vector has of any dtype that is computed in vectors, so that none is."""
LARGEST = 100_000
"""Elements of what is computed piece by piece."""


def eager_variants(op: Any, inputs: Inputs, k: int, like: Tensor) -> Iterator[Tensor]:
    """Result ``k`` of an operator that is computed by elements, ``like`` eager's: of row-major arguments, of pieces."""
    for variant in (result_of(op, inputs, k, _row_major), _in_pieces(op, inputs, k, like)):
        if variant is not None and (variant.shape, variant.dtype) == (like.shape, like.dtype):
            yield variant


def result_of(op: Callable[..., Any], inputs: Inputs, k: int, change: Callable[[Any], Any]) -> Tensor | None:
    """Result ``k`` of eager PyTorch for changed arguments; None where it has none."""
    args, kwargs = tree_map(tuple(inputs.args), change), tree_map(dict(inputs.kwargs), change)
    try:
        result = flat(op(*args, **kwargs))[k]
    except Exception:  # operators written in Python refuse as they like
        return None
    return result if isinstance(result, Tensor) else None


def _row_major(x: Any) -> Any:
    return x.clone(memory_format=torch.contiguous_format) if isinstance(x, Tensor) else x


def _in_pieces(op: Callable[..., Any], inputs: Inputs, k: int, like: Tensor) -> Tensor | None:
    if not 0 < like.numel() <= LARGEST or any(isinstance(v, Tensor) for v in inputs.kwargs.values()):
        return None
    # a tensor without dimensions does not count as one in type promotion, so it stays as it is
    is_sliced = [isinstance(x, Tensor) and x.dim() > 0 for x in inputs.args]
    results = []
    with suppress(Exception):  # a piece may be no argument of the operator
        rows = [x.expand(like.shape).reshape(-1) if w else x for w, x in zip(is_sliced, inputs.args, strict=True)]
        for start in range(0, like.numel(), PIECE):
            some = [x[start : start + PIECE].clone() if w else x for w, x in zip(is_sliced, rows, strict=True)]
            results.append(flat(op(*some, **inputs.kwargs))[k])
        return torch.cat(results).reshape(like.shape)
    return None
