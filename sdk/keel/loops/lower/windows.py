"""Windows that slide over the last dimensions of images: their arguments, and whether a coordinate is inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from keel.loops.builder import Builder, Value
from keel.loops.index import Index
from keel.types import Dim


def spread(values: int | Sequence[int], n: int) -> list[int]:
    """Repeats a single value for each of ``n`` dimensions."""
    numbers = [values] if isinstance(values, int) else list(values)
    return numbers * n if len(numbers) == 1 else numbers


def inside(b: Builder, place: Index, size: Dim) -> Value:
    """True if ``place`` is a coordinate of a dimension of ``size``."""
    at = b.position(place)
    return (at >= 0) & (at < b.number(size, torch.int64))


def conjunction(masks: Sequence[Value]) -> Value:
    """True if all of ``masks`` are, of which there is at least one."""
    mask = masks[0]
    for m in masks[1:]:
        mask = mask & m
    return mask
