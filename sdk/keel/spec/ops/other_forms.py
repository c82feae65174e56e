"""What other operators are by another name, with more arguments, or two in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import UNORDERED, Family, Places
from keel.spec.ops.operands import common_dtype, floating_dtype
from keel.spec.ops.statistics import accurate
from keel.spec.rules_shape import INDEXED

aten = torch.ops.aten
family = Family("other forms")
Tensor = torch.Tensor


def _scalar_sum(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return aten.relu.default(aten.add.Scalar(x, other, alpha))


@family(
    "_add_relu.Tensor",
    "_add_relu.Scalar",
    clauses=("The result is relu(x + alpha * other); for integers alpha is truncated to an integer.",),
    forms={"aten._add_relu.Scalar": _scalar_sum},
    tags=frozenset({"pointwise"}),
)
def add_relu(x: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """A sum, and 0 where it is below."""
    if isinstance(alpha, float) and not common_dtype(x, other).is_floating_point:
        alpha = int(alpha)
    return aten.relu.default(aten.add.Tensor(x, other, alpha=alpha))


def _aminmax_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return aten.aminmax.default(x, dim=dim, keepdim=keepdim)


@family(
    "_aminmax",
    "_aminmax.dim",
    clauses=("As aminmax.",),
    forms={"aten._aminmax.dim": _aminmax_along},
    tags=frozenset({"reduction"}),
)
def aminmax_older(x: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element."""
    return aten.aminmax.default(x)


@family("_is_all_true", clauses=(Clause("Without elements it is true.", About.EMPTY),), tags=frozenset({"reduction"}))
def is_all_true(x: Tensor) -> Tensor:
    """Whether all of a tensor of bools are true."""
    return aten.all.default(x)


@family("_is_any_true", clauses=(Clause("Without elements it is false.", About.EMPTY),), tags=frozenset({"reduction"}))
def is_any_true(x: Tensor) -> Tensor:
    """Whether one of a tensor of bools is true."""
    return aten.any.default(x)


@family("_stack", clauses=("As stack.",), tags=frozenset({"shape"}))
def stack_unchecked(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of equal sizes along a new dimension."""
    return aten.stack.default(list(tensors), dim)


@family("_logcumsumexp", clauses=("As logcumsumexp.",), tags=frozenset({"scan"}))
def logcumsumexp_unchecked(x: Tensor, dim: int) -> Tensor:
    """The logarithm of the sums of exponentials so far."""
    return aten.logcumsumexp.default(x, dim)


@family(
    "_index_put_impl",
    clauses=("As index_put; unsafe says that indices are known to be in range.",),
    tags=frozenset({"indexing"}) | UNORDERED,
    places=Places(count=INDEXED.shape),
)
def index_put_impl(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Elements replaced, or added to, at indices."""
    return aten.index_put.default(x, indices, values, accumulate)


@family(
    "_convolution",
    clauses=("As convolution; benchmark, deterministic, cudnn_enabled and allow_tf32 say how, not what.",),
    tags=frozenset({"convolution"}),
)
def convolution_told_how(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Any,
    *how: bool,
) -> Tensor:
    """A convolution with switches of one library."""
    return aten.convolution.default(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@family(
    "_slow_conv2d_backward.output_mask",
    clauses=("As convolution_backward, with dilation 1 and one group.",),
    tags=frozenset({"convolution"}),
)
def convolution_2d_backward(
    grad: Tensor, x: Tensor, weight: Tensor, kernel_size: Any, stride: Any, padding: Any, output_mask: Sequence[bool]
) -> tuple[Any, ...]:
    """The gradients of a convolution over planes."""
    return aten.convolution_backward.default(
        grad, x, weight, [weight.shape[0]], stride, padding, [1, 1], False, [0, 0], 1, output_mask
    )


@family(
    "_compute_linear_combination",
    clauses=("Result i is the sum over t of coefficients[i, t] * x[t].",),
    tags=frozenset({"contraction"}),
)
def linear_combination(x: Tensor, coefficients: Tensor) -> Tensor:
    """Sums of the tensors along the first dimension, by rows of coefficients."""
    count, *shape = x.shape
    flat = aten.reshape.default(x, [count, x.numel() // count])
    if x.dtype == torch.bool:  # matrices of bools have no product
        total = aten.mm.default(coefficients.to(torch.int32), flat.to(torch.int32)).to(torch.bool)
    else:
        total = aten.mm.default(coefficients, flat)
    return aten.view.default(total, [coefficients.shape[0], *shape])


@family(
    "_masked_scale", clauses=("The result is x * mask * scale, rounded once.",), tags=frozenset({"pointwise"}), cpu=None
)
def masked_scale(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of a dropout with its mask as small integers."""
    return (accurate(x) * mask.to(accurate(x).dtype) * scale).to(x.dtype)


@family("_conj_copy", clauses=("As conj.",), tags=frozenset({"pointwise"}))
def conj_copy(x: Tensor) -> Tensor:
    """Conjugates in memory of their own."""
    return aten._conj_physical.default(x) if x.dtype.is_complex else aten.clone.default(x)


@family("_neg_view_copy", clauses=("As neg.",), tags=frozenset({"pointwise"}))
def neg_copy(x: Tensor) -> Tensor:
    """Negatives in memory of their own."""
    return aten.neg.default(x)


@family("view_as_real_copy", clauses=("As view_as_real, in memory of its own.",), tags=frozenset({"shape"}))
def view_as_real_copy(x: Tensor) -> Tensor:
    """The parts of complex numbers along a last dimension of 2."""
    return aten.clone.default(aten.view_as_real.default(x), memory_format=torch.contiguous_format)


@family(
    "view_as_complex_copy",
    clauses=("As view_as_complex, in memory of its own.",),
    tags=frozenset({"shape"}),
    row_major=True,
)
def view_as_complex_copy(x: Tensor) -> Tensor:
    """Complex numbers of a last dimension of 2."""
    return aten.clone.default(aten.view_as_complex.default(x), memory_format=torch.contiguous_format)


@family(
    "_reshape_alias_copy",
    clauses=("As as_strided at the operand's first element, in memory of its own.",),
    tags=frozenset({"shape"}),
    row_major=("_reshape_alias_copy",),
)
def reshape_alias_copy(x: Tensor, size: Any, stride: Any) -> Tensor:
    """The elements in other sizes."""
    return aten.clone.default(aten.as_strided.default(x, size, stride), memory_format=torch.contiguous_format)


@family("quantized_decomposed::convert_element_type.no_fuse", clauses=("As convert.",), tags=frozenset({"pointwise"}))
def convert_unfused(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The elements in another dtype, by a call that quantizers leave alone."""
    return x.to(dtype)


# -- forward gradients ------------------------------------------------------------------------------------------------


def _halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = x.shape[dim] // 2
    return aten.slice.Tensor(x, dim, 0, half), aten.slice.Tensor(x, dim, half, half * 2)


@family("glu_jvp", clauses=("With halves a and b of x, it is da * sigmoid(b) + glu * (1 - sigmoid(b)) * db.",))
def glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    """How glu changes as x changes by dx."""
    b, (da, db) = accurate(_halves(x, dim)[1]), map(accurate, _halves(dx, dim))
    gate = aten.sigmoid.default(b)
    return (da * gate + accurate(glu) * (1 - gate) * db).to(glu.dtype)


@family("glu_backward_jvp", clauses=("It is the derivative of glu_backward along (dgrad_glu, dx).",))
def glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Tensor:
    """How glu_backward changes as the gradient changes by dgrad_glu and x by dx."""
    (a, b), (da, db) = map(accurate, _halves(x, dim)), map(accurate, _halves(dx, dim))
    grad, dgrad, gate = accurate(grad_glu), accurate(dgrad_glu), aten.sigmoid.default(accurate(b))
    slope = gate * (1 - gate)
    first = dgrad * gate + grad * slope * db
    second = slope * (dgrad * a + grad * da + grad * a * (1 - 2 * gate) * db)
    return aten.cat.default([first, second], dim).to(floating_dtype(grad_x))
