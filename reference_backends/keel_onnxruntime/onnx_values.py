"""Values of an ONNX graph: their names, their dtypes, and the dtypes that others are computed in."""

from __future__ import annotations

from collections.abc import Collection

import torch

DOUBLE = frozenset({torch.float64})
SINGLE = frozenset({torch.float32})
HALVES = frozenset({torch.float16, torch.bfloat16})
WIDE = frozenset({torch.int32, torch.int64})
INDEX = frozenset({torch.int64})
BOOL = frozenset({torch.bool})
INTS = WIDE | {torch.int16, torch.int8, torch.uint8}
REAL = SINGLE | DOUBLE
"""What most kernels of ONNX Runtime's CPU provider compute floats in. It has few for 16-bit floats."""
FLOATS = REAL | HALVES
SHORT = SINGLE | HALVES
NUMBERS = FLOATS | INTS
ANY = NUMBERS | BOOL
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.bool: torch.uint8,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.int32: torch.int64,
}
"""A dtype that has all values of another one. Results are rounded or wrapped once, when they are converted back."""
BITS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""Integers as wide as floats. A choice among bits keeps the signs of zeros and NaN."""
NAMES = dict(float32=1, uint8=2, int8=3, uint16=4, int16=5, int32=6, int64=7, bool=9, float16=10, float64=11)
NAMES |= dict(uint32=12, uint64=13, bfloat16=16)
"""The numbers of dtypes in ONNX's files (``TensorProto.DataType``)."""


class Value(str):
    """The name of a value in an ONNX graph. Other texts among the arguments of a call are not values."""


def onnx_dtype(dtype: torch.dtype) -> int:
    """The number of a dtype in ONNX's files. Raises ``KeyError`` if the backend does not take it."""
    return NAMES[str(dtype).removeprefix("torch.")]


def computed_in(dtype: torch.dtype, native: Collection[torch.dtype]) -> torch.dtype:
    """The dtype among ``native`` that values of ``dtype`` are computed in. Raises ``KeyError`` if none is as wide."""
    while dtype not in native:
        dtype = WIDER[dtype]
    return dtype
