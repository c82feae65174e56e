"""What a result is before its numbers count: how many there are, device, dtype, sizes, strides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from keel import TensorType
from keel.opset import Op

from ..results.fault import Fault, Kind


def violation(member: Op, results: Sequence[Any], eager: Sequence[Any], device: torch.device) -> Fault | None:
    """The first breach of the contract; None if it is kept.

    Strides must be eager's where the member's type rule promises them, and any dense ones elsewhere. Those of
    dimensions of size 1 and of tensors without elements never count, for nothing is read by them.
    """
    if len(results) != len(eager):
        return Fault("count", f"There are {len(results)} results, not {len(eager)}.")
    for k, (got, want) in enumerate(zip(results, eager, strict=True)):
        if (difference := _violation(got, want, _promised(member, k), device)) is not None:
            kind, words = difference
            return Fault(kind, f"{f'Result {k}' if len(results) > 1 else 'The result'} {words}", k)
    return None


def as_types(eager: Sequence[Any], types: Sequence[TensorType | None]) -> list[Any]:
    """``eager``, those of which there is a type as tensors of that, without memory."""
    return [
        result
        if t is None or not isinstance(result, Tensor)
        else torch.empty_strided(t.shape, t.strides, dtype=t.dtype, device="meta")
        for result, t in zip_longest(eager, types[: len(eager)])
    ]


def same_type(a: Any, b: Any) -> bool:
    """Whether two results are of one dtype and shape, if they are tensors."""
    return not isinstance(a, Tensor) or not isinstance(b, Tensor) or (a.dtype, a.shape) == (b.dtype, b.shape)


def _violation(got: Any, want: Any, promised: bool, device: torch.device) -> tuple[Kind, str] | None:
    if not isinstance(want, Tensor):
        same = type(got) is type(want)
        return None if same else ("type", f"is a {type(got).__name__}, not a {type(want).__name__}.")
    if not isinstance(got, Tensor):
        return "type", f"is a {type(got).__name__}, not a tensor."
    if got.device.type != device.type:
        return "device", f"is on {got.device}, not on {device}."
    if got.dtype != want.dtype:
        return "dtype", f"has the dtype {_name(got.dtype)}, not {_name(want.dtype)}."
    if got.shape != want.shape:
        return "sizes", f"has the sizes {list(got.shape)}, not {list(want.shape)}."
    if got.layout != want.layout:
        return "layout", f"has the layout {got.layout}, not {want.layout}."
    if got.layout != torch.strided or not got.numel() or steps(got) == steps(want):
        return None
    if promised:
        return "strides", f"has the strides {list(got.stride())}, not {list(want.stride())}."
    return None if _dense(got) else ("strides", f"has the strides {list(got.stride())}, which are not dense.")


def steps(x: Tensor) -> list[int]:
    """The strides that matter."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n != 1]


def _dense(x: Tensor) -> bool:
    step = 1
    for s, n in sorted((s, n) for n, s in zip(x.shape, x.stride(), strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _promised(member: Op, k: int) -> bool:
    """Whether the strides of result ``k`` are; a composite's and a computed rule's are."""
    return not isinstance(member.out, tuple) or k >= len(member.out) or member.out[k].layout.exact


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
