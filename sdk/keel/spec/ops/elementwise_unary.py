"""Elementwise functions of one tensor."""
from __future__ import annotations

import torch

from keel.spec.dtypes import ALL, BOOLS, COMPLEX, FLOATS, INTS, NUMBERS, REALS
from keel.spec.op import Budget, Family
from keel.spec.rules import BOOL, DtypeRule, Out, elementwise, fixed, floating, like, real, shape_of
from keel.spec.samples import unary

family = Family("elementwise unary")

SAME = like("self")
FLOATING = floating(SAME)
_NAN = "NaN gives NaN."
_ODD = "The function is odd, and keeps the sign of zero."


def _declare(name: str, doc: str, *clauses: str, dtypes: tuple[torch.dtype, ...], dtype: DtypeRule = SAME,
             ulps: float = 0.0) -> None:
    """``ulps`` are those of float32 and float64; 16-bit floats are computed in float32 and rounded once."""
    family.primitive(
        name, name, doc=doc, clauses=clauses, out=(Out(dtype, shape_of("self"), elementwise("self")),), dtypes=dtypes,
        samples=unary, tags=frozenset({"pointwise"}), operands=("self",),
        compute=dtype if dtype is FLOATING else SAME,
        budget={d: Budget(ulps=min(ulps, 1.0) if d.itemsize == 2 else ulps) for d in dtypes})


_declare("abs", "Absolute value; of a complex number, its distance from 0.", _NAN, "-0 gives +0.",
         "Of a signed integer's minimum it gives that minimum.", "Of a complex number it gives a real one.",
         dtypes=NUMBERS, dtype=real(SAME), ulps=1)
_declare("neg", "Negation.", "The sign bit of a float is flipped, that of NaN and of zero too.",
         "Integers wrap around, unsigned ones too.", dtypes=NUMBERS)
_declare("sign", "-1, 0 or 1 by the sign.", "NaN gives 0.", "A zero of either sign gives a zero.",
         "Of bool it is the identity.", dtypes=(*REALS, *BOOLS))
for _name, _doc in (
        ("ceil", "The least integer that is not less."), ("floor", "The greatest integer that is not greater."),
        ("trunc", "The integer towards zero."), ("round", "The nearest integer, ties to even.")):
    _declare(_name, _doc, _NAN, "Infinities and zeros give themselves, signs kept.",
             "A result of zero has the sign of the argument.", "Of integers it is the identity.", dtypes=REALS)
_declare("reciprocal", "1 / x.", _NAN, "A zero gives the infinity of its sign.",
         "An infinity gives the zero of its sign.", dtypes=(*FLOATS, *INTS, *BOOLS, *COMPLEX), dtype=FLOATING, ulps=1)
_declare("sqrt", "The square root.", _NAN, "-0 gives -0.", "A negative number gives NaN.", "+inf gives +inf.",
         dtypes=ALL, dtype=FLOATING, ulps=1)
_declare("rsqrt", "1 / sqrt(x).", _NAN, "+0 gives +inf and -0 gives -inf.", "A negative number gives NaN.",
         "+inf gives 0.", dtypes=ALL, dtype=FLOATING, ulps=2)
for _name, _doc, _clauses in (
        ("exp", "e to the power of x.", ("-inf gives 0.", "+inf gives +inf.", "0 gives 1.")),
        ("exp2", "2 to the power of x.", ("-inf gives 0.", "+inf gives +inf.", "An integer gives the exact power.")),
        ("expm1", "exp(x) - 1 without cancellation near 0.", ("-inf gives -1.", "+inf gives +inf.", "-0 gives -0.")),
        ("log", "The natural logarithm.", ("0 of either sign gives -inf.", "A negative number gives NaN.",
                                           "1 gives 0.")),
        ("log2", "The logarithm to base 2.", ("0 of either sign gives -inf.", "A negative number gives NaN.",
                                              "1 gives 0.")),
        ("log10", "The logarithm to base 10.", ("0 of either sign gives -inf.", "A negative number gives NaN.",
                                                "1 gives 0.")),
        ("log1p", "log(1 + x) without cancellation near 0.", ("-1 gives -inf.", "Less than -1 gives NaN.",
                                                              "-0 gives -0.")),
        ("sin", "Sine, of radians.", ("An infinity gives NaN.", _ODD)),
        ("cos", "Cosine, of radians.", ("An infinity gives NaN.", "0 gives 1.")),
        ("tan", "Tangent, of radians.", ("An infinity gives NaN.", _ODD)),
        ("asin", "Arc sine.", ("Outside [-1, 1] it gives NaN.", _ODD)),
        ("acos", "Arc cosine.", ("Outside [-1, 1] it gives NaN.", "1 gives +0.")),
        ("atan", "Arc tangent.", ("Infinities give pi/2 of their sign.", _ODD)),
        ("sinh", "Hyperbolic sine.", ("Infinities give themselves.", _ODD)),
        ("cosh", "Hyperbolic cosine.", ("Infinities give +inf.", "0 gives 1.")),
        ("tanh", "Hyperbolic tangent.", ("Infinities give 1 of their sign.", _ODD)),
        ("asinh", "Inverse hyperbolic sine.", ("Infinities give themselves.", _ODD)),
        ("acosh", "Inverse hyperbolic cosine.", ("Less than 1 gives NaN.", "1 gives 0.", "+inf gives +inf.")),
        ("atanh", "Inverse hyperbolic tangent.", ("1 of either sign gives the infinity of that sign.",
                                                  "Outside [-1, 1] it gives NaN.", _ODD)),
        ("sigmoid", "1 / (1 + exp(-x)), without overflow.", ("-inf gives 0.", "+inf gives 1.", "0 gives 1/2.")),
):
    _declare(_name, _doc, _NAN, *_clauses, "Integers and bools are converted to the default float first.",
             dtypes=ALL, dtype=FLOATING, ulps=4)
for _name, _doc, _clauses in (
        ("erf", "The error function.", ("Infinities give 1 of their sign.", _ODD)),
        ("erfc", "1 - erf(x) without cancellation.", ("+inf gives 0.", "-inf gives 2.")),
        ("erfinv", "The inverse of erf.", ("1 of either sign gives the infinity of that sign.",
                                           "Outside [-1, 1] it gives NaN.")),
        ("lgamma", "The logarithm of the absolute value of the gamma function.",
         ("0 and negative integers give +inf.", "Infinities give +inf.")),
        ("digamma", "The derivative of lgamma.", ("0 gives the infinity of the other sign.",
                                                  "Negative integers and -inf give NaN.")),
):
    _declare(_name, _doc, _NAN, *_clauses, "Integers and bools are converted to the default float first.",
             dtypes=(*REALS, *BOOLS), dtype=FLOATING, ulps=16)
_declare("bitwise_not", "Every bit flipped; of bool, the other truth value.", "Of a signed integer it is -x - 1.",
         dtypes=(*INTS, *BOOLS))
_declare("isnan", "Whether an element is NaN.", "A complex number is NaN if one of its parts is.",
         "An integer or bool never is.", dtypes=ALL, dtype=BOOL)
_declare("isinf", "Whether an element is an infinity of either sign.",
         "A complex number is infinite if one of its parts is.",
         "An integer or bool never is.", dtypes=ALL, dtype=BOOL)
family.primitive(
    "frexp", "frexp.Tensor", doc="Mantissa in [1/2, 1) and exponent: x = mantissa * 2 ** exponent.", clauses=(
        "A zero gives itself and exponent 0.", "NaN and infinities give themselves as mantissa; the exponent is then "
        "not specified.", "Subnormals are normalised: the mantissa has full precision."),
    out=(Out(SAME, shape_of("self"), elementwise("self")),
         Out(fixed(torch.int32), shape_of("self"), elementwise("self"))),
    dtypes=FLOATS, samples=unary, budget={d: Budget(ulps=0) for d in FLOATS}, tags=frozenset({"pointwise"}))
