"""Softmax, its logarithm, and their gradients, and weights with a norm of their own."""

from __future__ import annotations

from typing import Any

import torch

from keel import torch_adapter
from keel.spec.clause import About, Clause
from keel.spec.freedoms import may_compute, may_round
from keel.spec.op import Family, Neutral
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("softmax")

Tensor = torch.Tensor
_TAGS = frozenset({"reduction"})
_NEUTRAL = Neutral({"self": ("dim", float("-inf"))})
_ROWS = (
    Clause("A row is the elements along dim; with a NaN or +inf in it, all of it is NaN.", About.NONFINITE),
    Clause("The largest element is subtracted before exponentials are taken, so none overflows.", About.NONFINITE),
    Clause(
        "16-bit floats are computed in float32 and rounded once, or not at all under half_to_float.",
        About.HALF | About.FLOAT32,
    ),
)


def _in_float32(op: Any, x: Tensor, dim: int) -> Tensor:
    """PyTorch's decomposition of ``op`` for ``x`` in the accurate dtype; row-major, as eager's result is."""
    rows = torch_adapter.decomposition_of(op)
    assert rows is not None
    result: Tensor = rows(accurate(x.contiguous()), dim, False)
    return result


@family(
    "_softmax",
    tags=_TAGS,
    neutral=_NEUTRAL,
    clauses=(
        Clause("-inf gives 0.", About.NONFINITE),
        Clause("A row of nothing but -inf gives NaN.", About.NONFINITE),
        *_ROWS,
        Clause("An exponential may be rounded to the result's dtype before it is divided by their sum.", About.HALF),
    ),
)
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """exp(x) over the sum of exp(x) along a dimension."""
    result = _in_float32(aten._softmax.default, x, dim)
    return result if half_to_float else may_round(result, x.dtype).to(x.dtype)


@family(
    "_log_softmax",
    tags=_TAGS,
    neutral=_NEUTRAL,
    clauses=(
        Clause("-inf gives -inf.", About.NONFINITE),
        Clause("A row of nothing but -inf gives NaN.", About.NONFINITE),
        *_ROWS,
        Clause("The sum of exponentials, and its logarithm, may be rounded to the result's dtype.", About.HALF),
    ),
)
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """x minus the logarithm of the sum of exp(x) along a dimension."""
    result = _in_float32(aten._log_softmax.default, x, dim)

    def by_rounded_sum() -> Tensor:
        if not x.numel():
            return result
        shifted = accurate(x) - aten.amax.default(accurate(x), [dim], True)
        total = may_round(aten.sum.dim_IntList(aten.exp.default(shifted), [dim], True), x.dtype)
        return shifted - may_round(aten.log.default(total), x.dtype)

    return result if half_to_float else may_compute(result, by_rounded_sum).to(x.dtype)


_ONCE = Clause("It has input_dtype, rounded once.", About.FLOAT32)

family.composite(
    "safe_softmax",
    "_safe_softmax",
    tags=_TAGS,
    neutral=_NEUTRAL,
    doc="softmax, but rows of nothing but -inf give 0.",
    clauses=(Clause("-inf gives 0, also where the whole row is -inf.", About.NONFINITE), *_ROWS[:2]),
)
family.composite(
    "log_softmax_backward",
    "_log_softmax_backward_data",
    tags=_TAGS,
    doc="The gradient of log_softmax.",
    clauses=("The gradient is grad - exp(output) * the row's sum of grad.", _ONCE),
)


@family(
    "_softmax_backward_data",
    tags=_TAGS,
    clauses=(
        "The gradient is output * (grad - the row's sum of output * grad).",
        _ONCE,
    ),
)
def softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """The gradient of softmax with respect to its input."""
    g, out = accurate(grad), accurate(output)
    return (out * (g - aten.sum.dim_IntList(g * out, [dim], True))).to(input_dtype)


def _other(x: Tensor, dim: int) -> list[int]:
    return [d for d in range(x.dim()) if d != dim % x.dim()]


@family(
    "_weight_norm_interface",
    clauses=(
        "The result is v * g / norm, with the norm of v over all dimensions but dim.",
        Clause("The second result is that norm, in float32 for 16-bit floats.", About.HALF | About.FLOAT32),
    ),
    tags=_TAGS,
    row_major=True,
)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """A weight by its direction and its norm, and the norm of the direction as given."""
    value = accurate(v)
    norm = aten.sqrt.default(aten.sum.dim_IntList(value * value, _other(v, dim), True))
    return (value * (accurate(g) / norm)).to(v.dtype), norm.to(torch.promote_types(g.dtype, torch.float32))


@family(
    "_weight_norm_interface_backward",
    clauses=("The gradients are those of weight_norm for the given norm.",),
    tags=_TAGS,
    row_major=True,
)
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norm: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Gradients with respect to the direction and the norm."""
    up, value, size, length = accurate(grad), accurate(v), accurate(norm), accurate(g)
    along = aten.sum.dim_IntList(up * value, _other(v, dim), True)
    dv = (length / size) * (up - value * (along / (size * size)))
    return dv.to(v.dtype), (along / size).to(g.dtype)
