"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, BOOLS, COMPLEX, FLOATS, INTS, NUMBERS, REALS
from keel.spec.numerics import UNSTATED, Numerics, Pole
from keel.spec.op import Budget, Family
from keel.spec.rules import BOOL, DtypeRule, Out, elementwise, fixed, floating, like, real, shape_of
from keel.spec.samples import unary
from keel.spec.unspecified import exponent

family = Family("elementwise unary")

SAME = like("self")
FLOATING = floating(SAME)
_NAN = Clause("NaN gives NaN.", About.NONFINITE)
_OVERFLOWS, _WAVE = Numerics(overflows=True), Numerics(lipschitz=1.0, interval=(-99.0, 99.0))
_UNIT, _POSITIVE = (Numerics(interval=ends) for ends in ((-1.25, 1.25), (-0.5, 9.0)))
_ODD = Clause("The function is odd, and keeps the sign of zero.", About.ZERO)


def _declare(
    name: str,
    doc: str,
    *clauses: Clause | str,
    dtypes: tuple[torch.dtype, ...],
    dtype: DtypeRule = SAME,
    ulps: float = 0.0,
    numerics: Numerics = UNSTATED,
) -> None:
    """``ulps`` are those of float32 and float64; 16-bit floats are computed in float32 and rounded once."""
    family.primitive(
        name,
        name,
        doc=doc,
        clauses=clauses,
        out=(Out(dtype, shape_of("self"), elementwise("self")),),
        dtypes=dtypes,
        samples=unary,
        tags=frozenset({"pointwise"}),
        operands=("self",),
        numerics=numerics,
        compute=dtype if dtype is FLOATING else SAME,
        budget={d: Budget(ulps=min(ulps, 1.0) if d.itemsize == 2 else ulps) for d in dtypes},
    )


_declare(
    "abs",
    "Absolute value; of a complex number, its distance from 0.",
    _NAN,
    Clause("-0 gives +0.", About.ZERO),
    Clause("The minimum of a signed integer dtype gives itself.", About.INTEGER_EDGE | About.INTEGER),
    Clause("A complex number gives a real one.", About.COMPLEX),
    dtypes=NUMBERS,
    dtype=real(SAME),
    ulps=1,
    numerics=Numerics(exact_zero=True),
)
_declare(
    "neg",
    "Negation.",
    Clause("The sign bit of a float is flipped, that of NaN and of zero too.", About.NONFINITE),
    Clause("Integers wrap around, unsigned ones too.", About.INTEGER_EDGE | About.INTEGER | About.UINT8),
    dtypes=NUMBERS,
)
_declare(
    "sign",
    "-1, 0 or 1 by the sign.",
    Clause("NaN gives 0.", About.NONFINITE),
    Clause("A zero of either sign gives a zero.", About.ZERO),
    Clause("For bool it is the identity.", About.BOOL),
    dtypes=(*REALS, *BOOLS),
    numerics=Numerics(steps=True, monotone=True, free_zero_sign=True),
)
_ROUNDS = Numerics(steps=True, monotone=True)
for _name, _doc, _numerics in (
    ("ceil", "The least integer that is not less.", _ROUNDS),
    ("floor", "The greatest integer that is not greater.", _ROUNDS),
    ("trunc", "The integer towards zero.", _ROUNDS),
    ("round", "The nearest integer, ties to even.", replace(_ROUNDS, interval=(-99.0, 99.0))),
):
    _declare(
        _name,
        _doc,
        _NAN,
        Clause("Infinities and zeros give themselves, signs kept.", About.NONFINITE | About.ZERO),
        Clause("A result of zero has the sign of the argument.", About.ZERO),
        Clause("For integers it is the identity.", About.INTEGER),
        dtypes=REALS,
        numerics=_numerics,
    )
_declare(
    "reciprocal",
    "1 / x.",
    _NAN,
    Clause("A zero gives the infinity of its sign.", About.NONFINITE | About.ZERO),
    Clause("An infinity gives the zero of its sign.", About.NONFINITE),
    dtypes=(*FLOATS, *INTS, *BOOLS, *COMPLEX),
    dtype=FLOATING,
    ulps=1,
    numerics=Numerics(overflows=True, rounded_once=True, pole=Pole()),
)
_declare(
    "sqrt",
    "The square root.",
    _NAN,
    Clause("-0 gives -0.", About.ZERO),
    Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
    Clause("+inf gives +inf.", About.NONFINITE),
    dtypes=ALL,
    dtype=FLOATING,
    ulps=1,
    numerics=Numerics(exact_zero=True, rounded_once=True, interval=(-0.5, 99.0)),
)
_declare(
    "rsqrt",
    "1 / sqrt(x).",
    _NAN,
    Clause("+0 gives +inf and -0 gives -inf.", About.NONFINITE | About.ZERO),
    Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
    Clause("+inf gives 0.", About.NONFINITE),
    dtypes=ALL,
    dtype=FLOATING,
    ulps=2,
    numerics=Numerics(pole=Pole(), interval=(-0.5, 99.0)),
)
for _name, _doc, _clauses, _numerics in (
    (
        "exp",
        "e to the power of x.",
        (
            Clause("-inf gives 0.", About.NONFINITE),
            Clause("+inf gives +inf.", About.NONFINITE),
            Clause("0 gives 1.", About.ZERO),
        ),
        Numerics(overflows=True, interval=(-20.0, 20.0)),
    ),
    (
        "exp2",
        "2 to the power of x.",
        (
            Clause("-inf gives 0.", About.NONFINITE),
            Clause("+inf gives +inf.", About.NONFINITE),
            Clause("An integer gives the exact power.", About.INTEGER),
        ),
        _OVERFLOWS,
    ),
    (
        "expm1",
        "exp(x) - 1 without cancellation near 0.",
        (
            Clause("-inf gives -1.", About.NONFINITE),
            Clause("+inf gives +inf.", About.NONFINITE),
            Clause("-0 gives -0.", About.ZERO),
        ),
        _OVERFLOWS,
    ),
    (
        "log",
        "The natural logarithm.",
        (
            Clause("0 of either sign gives -inf.", About.NONFINITE | About.ZERO),
            Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
            Clause("1 gives 0.", About.ZERO),
        ),
        _POSITIVE,
    ),
    (
        "log2",
        "The logarithm to base 2.",
        (
            Clause("0 of either sign gives -inf.", About.NONFINITE | About.ZERO),
            Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
            Clause("1 gives 0.", About.ZERO),
        ),
        _POSITIVE,
    ),
    (
        "log10",
        "The logarithm to base 10.",
        (
            Clause("0 of either sign gives -inf.", About.NONFINITE | About.ZERO),
            Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
            Clause("1 gives 0.", About.ZERO),
        ),
        _POSITIVE,
    ),
    (
        "log1p",
        "log(1 + x) without cancellation near 0.",
        (
            Clause("-1 gives -inf.", About.NONFINITE | About.ZERO),
            Clause("Less than -1 gives NaN.", About.NONFINITE | About.EDGE),
            Clause("-0 gives -0.", About.ZERO),
        ),
        Numerics(interval=(-1.25, 4.0)),
    ),
    ("sin", "Sine, of radians.", (Clause("An infinity gives NaN.", About.NONFINITE), _ODD), _WAVE),
    (
        "cos",
        "Cosine, of radians.",
        (Clause("An infinity gives NaN.", About.NONFINITE), Clause("0 gives 1.", About.ZERO)),
        _WAVE,
    ),
    (
        "tan",
        "Tangent, of radians.",
        (Clause("An infinity gives NaN.", About.NONFINITE), _ODD),
        Numerics(pole=Pole(at=math.pi / 2, every=math.pi), interval=(-99.0, 99.0)),
    ),
    ("asin", "Arc sine.", (Clause("Outside [-1, 1] it gives NaN.", About.NONFINITE | About.EDGE), _ODD), _UNIT),
    (
        "acos",
        "Arc cosine.",
        (Clause("Outside [-1, 1] it gives NaN.", About.NONFINITE | About.EDGE), Clause("1 gives +0.", About.ZERO)),
        _UNIT,
    ),
    ("atan", "Arc tangent.", (Clause("Infinities give pi/2 of their sign.", About.NONFINITE), _ODD), UNSTATED),
    ("sinh", "Hyperbolic sine.", (Clause("Infinities give themselves.", About.NONFINITE), _ODD), _OVERFLOWS),
    (
        "cosh",
        "Hyperbolic cosine.",
        (Clause("Infinities give +inf.", About.NONFINITE), Clause("0 gives 1.", About.ZERO)),
        _OVERFLOWS,
    ),
    (
        "tanh",
        "Hyperbolic tangent.",
        (Clause("Infinities give 1 of their sign.", About.NONFINITE), _ODD),
        Numerics(interval=(-9.0, 9.0)),
    ),
    ("asinh", "Inverse hyperbolic sine.", (Clause("Infinities give themselves.", About.NONFINITE), _ODD), UNSTATED),
    (
        "acosh",
        "Inverse hyperbolic cosine.",
        (
            Clause("Less than 1 gives NaN.", About.NONFINITE | About.EDGE),
            Clause("1 gives 0.", About.ZERO),
            Clause("+inf gives +inf.", About.NONFINITE),
        ),
        Numerics(interval=(0.5, 9.0)),
    ),
    (
        "atanh",
        "Inverse hyperbolic tangent.",
        (
            Clause("1 of either sign gives the infinity of that sign.", About.NONFINITE | About.ZERO),
            Clause("Outside [-1, 1] it gives NaN.", About.NONFINITE | About.EDGE),
            _ODD,
        ),
        _UNIT,
    ),
    (
        "sigmoid",
        "1 / (1 + exp(-x)), without overflow.",
        (
            Clause("-inf gives 0.", About.NONFINITE),
            Clause("+inf gives 1.", About.NONFINITE),
            Clause("0 gives 1/2.", About.ZERO),
        ),
        Numerics(interval=(-20.0, 20.0)),
    ),
):
    _declare(
        _name,
        _doc,
        _NAN,
        *_clauses,
        Clause("Integers and bools are converted to the default float first.", About.INTEGRAL),
        dtypes=ALL,
        dtype=FLOATING,
        ulps=4,
        numerics=_numerics,
    )
_SERIES = Numerics(series=True)
_GAMMA = Numerics(series=True, pole=Pole(every=1.0, most=0.0), interval=(-9.0, 40.0))
for _name, _doc, _clauses, _numerics in (
    ("erf", "The error function.", (Clause("Infinities give 1 of their sign.", About.NONFINITE), _ODD), _SERIES),
    (
        "erfc",
        "1 - erf(x) without cancellation.",
        (Clause("+inf gives 0.", About.NONFINITE), Clause("-inf gives 2.", About.NONFINITE)),
        _SERIES,
    ),
    (
        "erfinv",
        "The inverse of erf.",
        (
            Clause("1 of either sign gives the infinity of that sign.", About.NONFINITE | About.ZERO),
            Clause("Outside [-1, 1] it gives NaN.", About.NONFINITE | About.EDGE),
        ),
        replace(_SERIES, interval=_UNIT.interval),
    ),
    (
        "lgamma",
        "The logarithm of the absolute value of the gamma function.",
        (
            Clause("0 and negative integers give +inf.", About.NONFINITE),
            Clause("Infinities give +inf.", About.NONFINITE),
        ),
        _GAMMA,
    ),
    (
        "digamma",
        "The derivative of lgamma.",
        (
            Clause("0 gives the infinity of the other sign.", About.NONFINITE | About.ZERO),
            Clause("Negative integers and -inf give NaN.", About.NONFINITE | About.EDGE),
        ),
        _GAMMA,
    ),
):
    _declare(
        _name,
        _doc,
        _NAN,
        *_clauses,
        Clause("Integers and bools are converted to the default float first.", About.INTEGRAL),
        dtypes=(*REALS, *BOOLS),
        dtype=FLOATING,
        ulps=16,
        numerics=_numerics,
    )
_declare(
    "bitwise_not",
    "Every bit flipped; of bool, the other truth value.",
    Clause("For a signed integer it is -x - 1.", About.INTEGER),
    dtypes=(*INTS, *BOOLS),
    numerics=Numerics(steps=True),
)
_declare(
    "isnan",
    "Whether an element is NaN.",
    Clause("A complex number is NaN if one of its parts is.", About.NONFINITE | About.COMPLEX),
    Clause("An integer or bool never is.", About.INTEGRAL),
    dtypes=ALL,
    dtype=BOOL,
    numerics=Numerics(steps=True),
)
_declare(
    "isinf",
    "Whether an element is an infinity of either sign.",
    Clause("A complex number is infinite if one of its parts is.", About.NONFINITE | About.COMPLEX),
    Clause("An integer or bool never is.", About.INTEGRAL),
    dtypes=ALL,
    dtype=BOOL,
    numerics=Numerics(steps=True),
)
family.primitive(
    "frexp",
    "frexp.Tensor",
    doc="Mantissa in [1/2, 1) and exponent: x = mantissa * 2 ** exponent.",
    clauses=(
        Clause("A zero gives itself and exponent 0.", About.ZERO),
        Clause("NaN and infinities give themselves as mantissa; the exponent is then not specified.", About.NONFINITE),
        Clause("Subnormals are normalized: the mantissa has full precision.", About.NONFINITE),
    ),
    out=(
        Out(SAME, shape_of("self"), elementwise("self")),
        Out(fixed(torch.int32), shape_of("self"), elementwise("self")),
    ),
    dtypes=FLOATS,
    samples=unary,
    budget={d: Budget(ulps=0) for d in FLOATS},
    tags=frozenset({"pointwise"}),
    numerics=Numerics(steps=True),
    unspecified=exponent,
)
