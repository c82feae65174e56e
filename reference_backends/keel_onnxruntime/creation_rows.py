"""Tensors of numbers that are known, as constants of ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from keel import Call
from keel_onnxruntime.onnx_values import ANY, NUMBERS, WIDE
from keel_onnxruntime.rows import MADE, Row, expand, row

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

MOST = 1 << 16
"""The most elements of a sequence that is a constant of a model."""


def rows() -> Iterator[Row]:
    names = ("full scalar_tensor new_full full_like", "ones new_ones ones_like", "zeros new_zeros zeros_like")
    for each, number in zip(names, (None, 1, 0), strict=True):
        yield row(each, ANY, partial(_filled, number), optional=MADE, results=ANY)
    yield row("arange arange.start arange.start_step", NUMBERS, _sequence, optional=(*MADE, "step"), when=_ranged)
    yield row("eye eye.m", ANY, _diagonal_of_ones, optional=MADE, when=_short)
    empty = "empty.memory_format empty_like new_empty empty_strided empty_permuted new_empty_strided"
    yield row(empty, ANY, partial(_filled, 0), optional=MADE, results=ANY)


def _short(call: Call) -> str | None:
    out: Any = call.out[0]
    why = f"onnxruntime takes {call.name} of at most {MOST} elements, which are constants of a model."
    return None if out.numel <= MOST else why


def _ranged(call: Call) -> str | None:
    """Long sequences are computed by a session, which has kernels that are exact for integers."""
    out: Any = call.out[0]
    ends = (*call.args, call.kwargs.get("step", 1))
    return None if out.dtype in WIDE and all(isinstance(end, int) for end in ends) else _short(call)


def _filled(number: Any, g: OnnxGraph, out: Any, *args: Any, **_: Any) -> Any:
    """Of ``number``, or of the last argument."""
    return expand(g, g.value(args[-1] if number is None else number, out.dtype), out.shape)


def _sequence(g: OnnxGraph, out: Any, *ends: Any, step: Any = None, **_: Any) -> Any:
    ends = ends if step is None else (*ends, step)
    if out.numel() <= MOST:
        return g.value(torch.arange(*ends, dtype=out.dtype))
    start, end, by = (0, *ends, 1) if len(ends) == 1 else (*ends, 1)[:3]
    return g.node("Range", *[torch.tensor(number, dtype=out.dtype) for number in (start, end, by)])


def _diagonal_of_ones(g: OnnxGraph, out: Any, *_: Any, **__: Any) -> Any:
    return g.value(torch.eye(*out.shape, dtype=out.dtype))
