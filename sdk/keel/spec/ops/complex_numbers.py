"""Complex numbers as pairs: parts, conjugates, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import COMPLEX, FLOATS, REALS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.ops.operands import like
from keel.spec.preconditions import only
from keel.spec.rules import (
    REAL,
    Args,
    DtypeRule,
    LayoutRule,
    Out,
    Shape,
    ShapeRule,
    elementwise,
    real,
    shape_of,
)
from keel.spec.rules import like as dtype_of
from keel.spec.samples import binary, drawn, layouts, unary
from keel.types import Dim, as_dim

aten = torch.ops.aten
family = Family("complex", "complex")

Tensor = torch.Tensor
COMPLEX_OF = {half: complex_dtype for complex_dtype, half in REAL.items()}
_EXACT: dict[str, Any] = {"budget": {d: Budget(ulps=0) for d in COMPLEX}}


def _pairs(args: Args, shape: Shape) -> Sequence[Dim]:
    return (*(as_dim(2 * s) for s in args["self"].strides), 1)


family.primitive(
    "view_as_real",
    "view_as_real",
    doc="The same memory as pairs of real and imaginary part, in a new last dimension.",
    clauses=(
        "The real part comes first.",
        Clause("A tensor that is a conjugate only by its conjugate bit is an error.", About.COMPLEX),
    ),
    out=(
        Out(
            real(dtype_of("self")),
            ShapeRule("(*shape(self), 2)", lambda args: (*args["self"].shape, 2)),
            LayoutRule("(*2 * strides(self), 1)", _pairs),
        ),
    ),
    requires=(only("self", dtypes=COMPLEX, which="complex"),),
    dtypes=COMPLEX,
    samples=unary,
    tags=frozenset({"view"}),
    **_EXACT,
)


def _halved(args: Args, shape: Shape) -> Sequence[Dim]:
    return tuple(as_dim(s // 2) for s in args["self"].strides[:-1])


def _paired(args: Args) -> bool:
    x = args["self"]
    return (
        bool(x.rank)
        and x.shape[-1] == 2
        and x.strides[-1] == 1
        and all(s % 2 == 0 for s in x.strides[:-1] if isinstance(s, int))
    )


def _in_pairs(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((2,), (0, 2), (3, 2), (4, 1, 2)):
        yield Sample((drawn(dtype, *shape),))
    yield from (Sample((torch.view_as_real(x),)) for x in layouts(COMPLEX_OF[dtype]))


family.primitive(
    "view_as_complex",
    "view_as_complex",
    doc="The same memory as complex numbers, whose parts are the last dimension.",
    clauses=("The real part comes first.",),
    out=(
        Out(
            DtypeRule("complex(dtype(self))", lambda args: COMPLEX_OF[args["self"].dtype]),
            ShapeRule("shape(self)[:-1]", lambda args: args["self"].shape[:-1]),
            LayoutRule("strides(self)[:-1] / 2", _halved),
        ),
    ),
    requires=(
        Requires(
            "pairs-adjacent", "The last dimension has two elements side by side, and other strides are even.", _paired
        ),
        only("self", dtypes=FLOATS, which="floats"),
    ),
    dtypes=(torch.float32, torch.float64),
    samples=_in_pairs,
    tags=frozenset({"view"}),
    budget={d: Budget(ulps=0) for d in (torch.float32, torch.float64)},
    row_major=True,
)
family.primitive(
    "conj",
    "_conj_physical",
    "conj_physical",
    doc="The complex conjugate.",
    clauses=(
        Clause(
            "The sign bit of the imaginary part is flipped, that of NaN and of zero too.",
            About.NONFINITE | About.COMPLEX,
        ),
        "For a real number it is the identity.",
    ),
    out=(Out(dtype_of("self"), shape_of("self"), elementwise("self")),),
    dtypes=COMPLEX,
    samples=unary,
    tags=frozenset({"pointwise"}),
    numerics=Numerics(results=Results.MOVED),
    **_EXACT,
)


# -- made of these ------------------------------------------------------------------------------------


@family(
    "_conj",
    clauses=("It has the value of conj; whether it shares memory with the operand is not specified.",),
    samples=unary,
    dtypes=COMPLEX,
    tags=frozenset({"pointwise"}),
)
def conj_view(x: Tensor) -> Tensor:
    """The complex conjugate, which eager marks by a bit."""
    return aten.conj_physical.default(x)


@family(
    "_neg_view",
    clauses=("It has the value of neg; whether it shares memory with the operand is not specified.",),
    samples=unary,
    dtypes=(*FLOATS, *COMPLEX),
    tags=frozenset({"pointwise"}),
)
def neg_view(x: Tensor) -> Tensor:
    """The negation, which eager marks by a bit."""
    return aten.neg.default(x)


def _joined(re: Tensor, im: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(re.shape, im.shape)
    parts = [aten.unsqueeze.default(aten.expand.default(t, shape), -1) for t in (re, im)]
    return aten.view_as_complex.default(aten.cat.default(parts, -1))


@family(
    "complex",
    clauses=(
        Clause("Parts are taken as they are, NaN and the signs of zeros too.", About.NONFINITE),
        "The parts have one dtype.",
    ),
    name="complex_of",
    samples=binary,
    dtypes=(torch.float32, torch.float64),
    tags=frozenset({"pointwise"}),
)
def complex_of(re: Tensor, im: Tensor) -> Tensor:
    """Complex numbers of given parts."""
    return _joined(re, im)


@family(
    "polar",
    clauses=(
        Clause(
            "It is abs * cos(angle) + abs * sin(angle) i; an infinite abs with a part of 0 gives NaN.", About.NONFINITE
        ),
        "The parts have one dtype.",
    ),
    samples=binary,
    dtypes=(torch.float32, torch.float64),
    tags=frozenset({"pointwise"}),
)
def polar(length: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of given distance from 0 and angle in radians."""
    return _joined(length * aten.cos.default(angle), length * aten.sin.default(angle))


@family(
    "angle",
    clauses=(
        Clause("NaN gives NaN.", About.NONFINITE),
        Clause("A negative real number gives pi, -0 and others 0.", About.ZERO),
        "The result is real, and between -pi and pi.",
        Clause("Integers and bools are converted to the default float first.", About.INTEGRAL),
    ),
    samples=unary,
    dtypes=(*REALS, torch.bool, *COMPLEX),
    tags=frozenset({"pointwise"}),
)
def angle(x: Tensor) -> Tensor:
    """The angle of a complex number, in radians."""
    if x.is_complex():
        parts = aten.view_as_real.default(
            aten.conj_physical.default(aten.conj_physical.default(x)) if x.is_conj() else x
        )
        return aten.atan2.default(aten.select.int(parts, -1, 1), aten.select.int(parts, -1, 0))
    if not x.is_floating_point():
        x = x.to(torch.get_default_dtype())
    positive = aten.where.self(aten.lt.Scalar(x, 0), like(torch.pi, x), like(0.0, x))
    return aten.where.self(aten.isnan.default(x), x, positive)


family.composite(
    "sgn",
    "sgn",
    doc="The sign of a real number; of a complex one, its direction: x / |x|.",
    clauses=(
        Clause("0 gives 0.", About.ZERO),
        Clause("A complex NaN gives NaN.", About.NONFINITE | About.COMPLEX),
    ),
    samples=unary,
    dtypes=(*REALS, torch.bool, *COMPLEX),
    tags=frozenset({"pointwise"}),
)
