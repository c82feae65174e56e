"""The scalar ops of the loop IR: their arity and result dtype.

``scalar_semantics`` defines what they compute; ``legalize_scalars`` expands those that a target lacks. The operands of
an op share a dtype, but the first operand of ``where`` is bool. ``cast`` and ``bitcast`` take any dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Domain = Literal["float", "int", "number", "bool", "integral", "any"]
Result = Literal["same", "bool", "given"]
Kind = Literal["floating", "integer", "boolean"]

_KINDS: Mapping[Domain, tuple[Kind, ...]] = {
    "float": ("floating",),
    "int": ("integer",),
    "number": ("floating", "integer"),
    "bool": ("boolean",),
    "integral": ("integer", "boolean"),
    "any": ("floating", "integer", "boolean"),
}


def kind_of(dtype: torch.dtype) -> Kind:
    """The kind of text that operands of ``dtype`` take; complex numbers count as floating."""
    if dtype == torch.bool:
        return "boolean"
    return "floating" if dtype.is_floating_point or dtype.is_complex else "integer"


@dataclass(frozen=True, slots=True)
class Scalar:
    """``domain``: operand dtypes (float: f32 f64; int: signed and unsigned; number: both; integral: int and bool;
    any: these and bool, but for the 16-bit and 8-bit floats, which only ``cast`` and ``bitcast`` take, and
    complex numbers, which only ``where`` takes);
    ``result``: the operands' dtype, bool, or the one that the statement gives;
    ``exact``: whether it rounds nothing, or (a cast) once.
    """

    name: str
    arity: int
    domain: Domain
    result: Result
    doc: str
    exact: bool = True

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of dtype that the operands may have."""
        return _KINDS[self.domain]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKind:
    """The texts of one scalar op that a target's language writes in different ways for floats, integers and bool.

    The kind is that of the last operand's dtype. The target lacks the op for a kind without a text, and Keel expands it
    there, as it does an op that is not in the table.
    """

    floating: str | None = None
    integer: str | None = None
    boolean: str | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that have a text."""
        texts: tuple[tuple[Kind, str | None], ...] = (
            ("floating", self.floating),
            ("integer", self.integer),
            ("boolean", self.boolean),
        )
        return tuple(kind for kind, text in texts if text is not None)

    def of(self, dtype: torch.dtype) -> str:
        """Returns the text for operands of ``dtype``.  Raises KeyError if the table has no text for it."""
        text: str | None = getattr(self, kind_of(dtype))
        if text is None:
            raise KeyError(f"no text for {dtype}")
        return text


ScalarText = str | ByKind | Callable[[Sequence[str], torch.dtype, torch.dtype], str]
"""How a target writes a scalar op: one text for all dtypes, a text for each kind of dtype, or a function of the
operands' texts, the last operand's dtype and the result's dtype."""


def scalar_text(
    text: ScalarText, args: Sequence[str], operand: torch.dtype, result: torch.dtype, dtypes: Mapping[torch.dtype, str]
) -> str:
    """Fills in the entry ``text`` of a target's ``scalars``.

    ``args`` are the texts of the operands, ``operand`` is the dtype of the last one, ``result`` is the dtype of the
    result, and ``dtypes`` has the target's names of dtypes. Raises KeyError if a ByKind has no text for ``operand``.
    """
    if isinstance(text, ByKind):
        text = text.of(operand)
    return text.format(*args, dtype=dtypes[result]) if isinstance(text, str) else text(args, operand, result)


def _table(*rows: Scalar) -> Mapping[str, Scalar]:
    return {row.name: row for row in rows}


def _floats(exact: bool, **docs: str) -> tuple[Scalar, ...]:
    return tuple(Scalar(name, 1, "float", "same", doc, exact) for name, doc in docs.items())


SCALARS: Mapping[str, Scalar] = _table(
    Scalar("cast", 1, "any", "given", "converts; float to int truncates toward zero, to bool is != 0"),
    Scalar("bitcast", 1, "any", "given", "reinterprets the bits; both dtypes have the same width"),
    Scalar("where", 3, "any", "same", "the second where the first (bool) is true, else the third"),
    Scalar("neg", 1, "number", "same", "-x; integers wrap"),
    Scalar("abs", 1, "number", "same", "|x|; integers wrap"),
    Scalar("sign", 1, "number", "same", "-1, 0 or 1; 0 at NaN and at both zeros"),
    *_floats(
        exact=True,
        floor="largest integer <= x",
        ceil="smallest integer >= x",
        trunc="toward zero",
        round="nearest integer, ties to even",
    ),
    *_floats(
        exact=False,
        sqrt="correctly rounded",
        rsqrt="1 / sqrt(x)",
        exp="e^x",
        exp2="2^x",
        expm1="e^x - 1 without cancellation",
        log="natural; -inf at 0, NaN below",
        log2="base 2",
        log10="base 10",
        log1p="log(1 + x) without cancellation",
        sin="sine",
        cos="cosine",
        tan="tangent",
        asin="arc sine",
        acos="arc cosine",
        atan="arc tangent",
        sinh="hyperbolic sine",
        cosh="hyperbolic cosine",
        tanh="hyperbolic tangent",
        asinh="area sine",
        acosh="area cosine",
        atanh="area tangent",
        erf="error function",
        erfc="1 - erf(x)",
        erfinv="inverse of erf on (-1, 1)",
        lgamma="log |gamma(x)|",
        digamma="derivative of lgamma",
        sigmoid="1 / (1 + e^-x)",
        reciprocal="1 / x",
    ),
    Scalar("isnan", 1, "float", "bool", "whether x is NaN"),
    Scalar("isinf", 1, "float", "bool", "whether x is +inf or -inf"),
    Scalar("add", 2, "number", "same", "x + y; integers wrap", exact=False),
    Scalar("sub", 2, "number", "same", "x - y; integers wrap", exact=False),
    Scalar("mul", 2, "number", "same", "x * y; integers wrap", exact=False),
    Scalar("div", 2, "float", "same", "x / y, correctly rounded", exact=False),
    Scalar("floordiv", 2, "int", "same", "floor(x / y); undefined at y = 0"),
    Scalar("truncdiv", 2, "int", "same", "x / y toward zero; undefined at y = 0"),
    Scalar("mod", 2, "number", "same", "remainder with the sign of y (Python's %)"),
    Scalar("fmod", 2, "number", "same", "remainder with the sign of x (C's fmod)"),
    Scalar("pow", 2, "float", "same", "x to the y, C's special cases", exact=False),
    Scalar("atan2", 2, "float", "same", "angle of (y, x), C's special cases", exact=False),
    Scalar("copysign", 2, "float", "same", "|x| with the sign of y"),
    Scalar("nextafter", 2, "float", "same", "the next number after x toward y"),
    Scalar("minimum", 2, "number", "same", "the smaller; NaN if either is NaN"),
    Scalar("maximum", 2, "number", "same", "the larger; NaN if either is NaN"),
    Scalar("fma", 3, "float", "same", "x * y + z, rounded once", exact=False),
    *(
        Scalar(name, 2, "any", "bool", doc)
        for name, doc in (
            ("eq", "x == y"),
            ("ne", "x != y"),
            ("lt", "x < y"),
            ("le", "x <= y"),
            ("gt", "x > y"),
            ("ge", "x >= y"),
        )
    ),
    Scalar("and", 2, "integral", "same", "bitwise and; logical on bool"),
    Scalar("or", 2, "integral", "same", "bitwise or; logical on bool"),
    Scalar("xor", 2, "integral", "same", "bitwise exclusive or; logical on bool"),
    Scalar("not", 1, "integral", "same", "bitwise complement; logical on bool"),
    Scalar("shl", 2, "int", "same", "x << y; undefined unless 0 <= y < width"),
    Scalar("shr", 2, "int", "same", "x >> y, arithmetic on signed; undefined unless 0 <= y < width"),
)
