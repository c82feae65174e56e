"""Products of matrices, for targets that have no library for them.

16-bit floats are multiplied and summed in float32 and rounded once. Integers wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value
from keel.loops.index import Index

from .rule_arguments import out_dtype, overloads, store

aten = torch.ops.aten


def product(b: Builder, x: Operand, y: Operand, dtype: torch.dtype | None = None) -> Value:
    """The product of two matrices, or of each pair of matrices in two batches. ``dtype`` is that of the result, which
    the call's type has.
    """
    *batch, row, column = b.at
    (k,) = b.fold_over([x.type.shape[-1]])
    return store(b, b.reduce("sum", _factor(b, x, [*batch, row, k]) * _factor(b, y, [*batch, k, column])))


def _factor(b: Builder, x: Operand, at: list[Index]) -> Value:
    """An element in the dtype in which products are summed: an integer in the result's, a float at least in float32."""
    element = b.math(x[at])
    dtype = out_dtype(b)
    wider = not dtype.is_floating_point or dtype == torch.float64
    return b.cast(element, dtype) if wider else element


RULES: Mapping[Any, Rule] = {
    **overloads(aten.mm, product, "default", "dtype"),
    **overloads(aten.bmm, product, "default", "dtype"),
    aten._int_mm.default: product,
}
