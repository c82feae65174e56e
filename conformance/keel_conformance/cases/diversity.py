"""What tells one call from another: which arguments are given and of what kind; the calls of many that differ most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from .saved_call import SavedCall, TensorSpec

T = TypeVar("T")


def facets(call: SavedCall) -> frozenset[str]:
    """Of its tensors the dtypes and ranks, of its other arguments the kind of each: its sign, whether it is whole."""
    results = {call.overload}
    for name, value in (*((str(i), v) for i, v in enumerate(call.args)), *call.kwargs.items()):
        results |= {f"{name} {kind}" for kind in _kinds(value)}
    return frozenset(results)


def _kinds(value: Any) -> Iterable[str]:
    match value:
        case TensorSpec():
            yield "own" if value.own else str(value.dtype)
            yield f"rank {min(len(value.shape), 4)}" + (", empty" if 0 in value.shape else "")
            if value.values and not isinstance(value.values[0], complex) and min(value.values) < 0:
                yield "negative"
        case bool() | None | str() | torch.dtype() | torch.memory_format():
            yield str(value)
        case int() | float():
            yield f"{type(value).__name__} {_size(value)}"
        case list() | tuple():
            yield f"{min(len(value), 4)} of them"
            if len({repr(v) for v in value}) > 1:
                yield "unequal"
            yield from {kind for v in value for kind in _kinds(v)}
        case _:
            yield repr(value)


def _size(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return "0" if value == 0 else "1" if value == 1 else "below 0" if value < 0 else "part" if value < 1 else "more"


def select_diverse(calls: Sequence[T], of: Sequence[frozenset[str]]) -> list[T]:
    """The calls, each next one that with the most facets that the calls before it lack; then again from the start."""
    left, result = list(range(len(calls))), list[int]()
    visited = frozenset[str]()
    while left:
        best = max(left, key=lambda i: (len(of[i] - visited), -i))
        if not of[best] - visited and visited:
            visited = frozenset()
            continue
        left.remove(best)
        result.append(best)
        visited |= of[best]
    return [calls[i] for i in result]
