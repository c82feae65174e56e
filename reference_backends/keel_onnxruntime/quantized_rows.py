"""Operators on integers of 8 bits with a scale, as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from keel_onnxruntime.onnx_values import SINGLE
from keel_onnxruntime.rows import Row, row

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

BYTES = frozenset({torch.int8, torch.uint8})


def rows() -> Iterator[Row]:
    """``QuantizeLinear`` has no row: it divides by the scale, where PyTorch multiplies by the rounded reciprocal."""
    yield row("_int_mm", frozenset({torch.int8}), "MatMulInteger", nonempty=True)
    name = "quantized_decomposed::dequantize_per_tensor"
    yield row(name, BYTES, _dequantized, results=SINGLE, optional=("out_dtype",))


def _dequantized(g: OnnxGraph, out: Any, x: Any, scale: float, zero: int, *_: Any, **__: Any) -> Any:
    result = g.node("DequantizeLinear", x, torch.tensor(scale), torch.tensor(zero, dtype=g.dtypes[x]))
    g.dtypes[result] = torch.float32
    return result
