"""Operators of lists, as optimizers call them: what the operator of one tensor gives at each place of the lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family

aten = torch.ops.aten
family = Family("lists")
Tensor = torch.Tensor


def each(op: Callable[..., Tensor], first: Sequence[Tensor], *others: Any, **keywords: Any) -> list[Tensor]:
    """``op`` of what stands at each place; an argument that is not a list is used at every place."""
    return [
        op(x, *(o[i] if isinstance(o, list | tuple) else o for o in others), **keywords) for i, x in enumerate(first)
    ]


def _same(names: str, op: str) -> dict[str, Callable[..., Any]]:
    """Overloads by their ends, all of which call one overload of the operator of one tensor."""
    packet, _, overload = op.partition(".")
    result = getattr(getattr(aten, packet), overload or "default")
    return {name: partial(each, result) for name in names.split()}


def _valued(
    op: Callable[..., Tensor], first: Sequence[Tensor], one: Sequence[Tensor], two: Sequence[Tensor], value: Any = 1
) -> list[Tensor]:
    """A number that is the factor at every place, or a list of numbers."""
    values = value if isinstance(value, list | tuple) else [value] * len(first)
    return [op(x, a, b, value=v) for x, a, b, v in zip(first, one, two, values, strict=True)]


def _fused(
    op: Callable[..., Tensor], first: Sequence[Tensor], one: Sequence[Tensor], two: Sequence[Tensor], scalars: Tensor
) -> list[Tensor]:
    """A factor from each element of a tensor, which is multiplied to the first of the pair, as eager does."""
    factors = (
        aten._to_copy.default(aten.select.int(scalars, 0, i), dtype=x.dtype, device=x.device)
        for i, x in enumerate(first)
    )
    return [op(x, aten.mul.Tensor(a, f), b) for x, a, b, f in zip(first, one, two, factors, strict=True)]


def _power(base: Any, exponents: Sequence[Tensor]) -> list[Tensor]:
    return [aten.pow.Scalar(base, e) for e in exponents]


def _norm(first: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [aten.linalg_vector_norm.default(x, ord, None, False, dtype=dtype) for x in first]


def _power_sum(first: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [aten.sum.default(aten.pow.Tensor_Scalar(aten.abs.default(x), ord), dtype=dtype) for x in first]


def _copy(first: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> list[Tensor]:
    return [aten.copy.default(x, s) for x, s in zip(first, src, strict=True)]


def _zero(first: Sequence[Tensor]) -> list[Tensor]:
    return [aten.zeros_like.default(x) for x in first]


PLACES = "Each result is that of the operator for single tensors on the elements at its place in the lists."
TO_ALL = "An argument that is not a list is used at every place."
PROMOTED = Clause("Dtypes are promoted separately at each place.", About.PROMOTION)


def _declare(
    name: str,
    doc: str,
    forms: Mapping[str, Callable[..., Any]],
    *clauses: Clause | str,
    row_major: tuple[str, ...] = (),
) -> None:
    forms_by_name = {f"aten._foreach_{name}.{end}": form for end, form in forms.items()}
    several = (TO_ALL, PROMOTED) if len(forms) > 1 else ()
    family.composite(
        f"foreach_{name}",
        *(f"_foreach_{name}.{end}" for end in forms),
        doc=doc,
        clauses=(PLACES, *several, *clauses),
        forms=forms_by_name,
        tags=frozenset({"pointwise"}),
        row_major=row_major,
    )


for _name in (
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
):
    _declare(_name, f"{_name} of each tensor of a list.", _same("default", _name))
for _name, _what in (("add", "Sums"), ("sub", "Differences"), ("mul", "Products"), ("div", "Quotients")):
    _tensor = _same("List Tensor" if _name != "sub" else "List", f"{_name}.Tensor")
    _declare(
        _name,
        f"{_what} of the tensors of lists, or of a list and numbers.",
        {**_tensor, **_same("Scalar ScalarList", f"{_name}.Scalar")},
    )
for _name, _one in (
    ("clamp_max", "clamp_max"),
    ("clamp_min", "clamp_min"),
    ("maximum", "clamp_min"),
    ("minimum", "clamp_max"),
):
    _declare(
        _name,
        f"{_name} of the tensors of lists, or of a list and numbers.",
        {**_same("List", f"{_one}.Tensor"), **_same("Scalar ScalarList", _one)},
        Clause("NaN in either operand gives NaN.", About.NONFINITE),
    )
_declare(
    "pow",
    "Powers of the tensors of lists, or of a list and numbers.",
    {
        **_same("List", "pow.Tensor_Tensor"),
        **_same("Scalar ScalarList", "pow.Tensor_Scalar"),
        "ScalarAndTensor": _power,
    },
    "ScalarAndTensor has the list as exponents.",
)
_declare(
    "lerp",
    "Points between the tensors of two lists.",
    {**_same("List", "lerp.Tensor"), **_same("Scalar ScalarList", "lerp.Scalar")},
)
_declare(
    "addcmul",
    "x + value * a * b of the tensors of three lists.",
    {
        **dict.fromkeys(("Scalar", "ScalarList"), partial(_valued, aten.addcmul.default)),
        "Tensor": partial(_fused, aten.addcmul.default),
    },
    "In Tensor the values are the elements of a tensor, converted to the dtype of x.",
    row_major=("_foreach_addcmul.Tensor",),
)
_declare(
    "addcdiv",
    "x + value * a / b of the tensors of three lists.",
    {
        **dict.fromkeys(("Scalar", "ScalarList"), partial(_valued, aten.addcdiv.default)),
        "Tensor": partial(_fused, aten.addcdiv.default),
    },
    "In Tensor the values are the elements of a tensor, converted to the dtype of x.",
    row_major=("_foreach_addcdiv.Tensor",),
)
_declare("clone", "A copy of each tensor of a list.", _same("default", "clone"))
_declare(
    "copy", "The elements of the second list in the dtypes, and with the strides, of the first.", {"default": _copy}
)
_declare("zero", "Zeros of the size and dtype of each tensor of a list.", {"default": _zero})
_declare(
    "max",
    "The largest element of each tensor of a list.",
    _same("default", "max"),
    Clause("NaN if there is one.", About.NONFINITE),
)
_declare("mm", "Matrix products of the tensors of two lists.", _same("default", "mm"))
_declare(
    "norm",
    "The norm of each tensor of a list.",
    {"Scalar": _norm},
    Clause("dtype is what it is computed in.", parameters=("dtype",)),
)
_declare(
    "powsum",
    "The sum of the powers of the absolute values of each tensor of a list.",
    {"Scalar": _power_sum},
    Clause("dtype is that of the sum.", parameters=("dtype",)),
)
