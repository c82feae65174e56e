"""Every function of PyTorch's symbolic language, declared once.

The functions are PyTorch's own (``torch.utils._sympy.functions``) and those of sympy that PyTorch emits. PyTorch's are
identified by the names of their classes, since that module is private. Each row says what a function computes on
Python's numbers, exactly as Python and PyTorch compute it; its text in Python and in C; its range; and, where a kernel
can compute it on integers, its form in sympy's sums, products, floors, remainders and extremes.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, Literal

import sympy
from sympy.logic.boolalg import Boolean, BooleanAtom

from keel.symbols import ranges
from keel.symbols.ranges import Bounds

Kind = Literal["int", "float", "bool"]
Value = int | float | Fraction | bool
Kinds = Sequence[Kind]
Texts = Sequence[str]
CForm = Callable[[Texts, Kinds], str]


@dataclass(frozen=True)
class Function:
    """One function.  ``names`` are those of its classes.

    ``value`` computes it on ints, floats, bools and Fractions (in which integer arithmetic is exact); it raises what
    Python raises: ZeroDivisionError, OverflowError, ValueError.  ``kind`` tells its type by its arguments' types.
    ``python`` and ``c`` make its text from its arguments' texts, which hold together.  ``c`` is None for what C has no
    function for; C computes on int64 and double, and what it gives where Python raises, or has an integer beyond
    int64, is not defined.  ``kernel`` gives its form in a kernel.
    """

    names: tuple[str, ...]
    kind: Callable[[Kinds], Kind]
    value: Callable[..., Any]
    python: Callable[[Texts], str]
    c: CForm | None
    bounds: Bounds = ranges.anything
    kernel: Callable[..., sympy.Expr] | None = None


# -- kinds -------------------------------------------------------------------------------------------


def _widest(kinds: Kinds) -> Kind:
    return "float" if "float" in kinds else "int"


def _joint(kinds: Kinds) -> Kind:
    """Returns the kind of a choice among values: bool only if all are bool."""
    return "float" if "float" in kinds else "int" if "int" in kinds else "bool"


def _of(kind: Kind) -> Callable[[Kinds], Kind]:
    return lambda kinds: kind


def _chosen(kinds: Kinds) -> Kind:
    return _joint(kinds[1:])


def _cased(kinds: Kinds) -> Kind:
    return _joint(kinds[::2])


# -- texts -------------------------------------------------------------------------------------------


def _format(template: str) -> Callable[[Texts], str]:
    return lambda texts: template.format(*texts)


def _joined(sign: str) -> Callable[[Texts], str]:
    return lambda texts: f"({f' {sign} '.join(texts)})"


def _called(name: str) -> Callable[[Texts], str]:
    return lambda texts: f"{name}({', '.join(texts)})"


def _c_format(template: str) -> CForm:
    return lambda texts, kinds: template.format(*texts)


def _c_joined(sign: str) -> CForm:
    return lambda texts, kinds: f"({f' {sign} '.join(texts)})"


def _c_pairwise(on_ints: str, on_floats: str) -> CForm:
    """Two at a time, by one function on int64 and another on double."""

    def form(texts: Texts, kinds: Kinds) -> str:
        name = on_floats if "float" in kinds else on_ints
        return reduce(lambda a, b: f"{name}({a}, {b})", texts)

    return form


def _c_compared(sign: str) -> CForm:
    """Python compares an integer and a float exactly; a long double holds both."""

    def form(texts: Texts, kinds: Kinds) -> str:
        mixed = "float" in kinds and set(kinds) != {"float"}
        return f"({f' {sign} '.join(f'(long double){t}' if mixed else t for t in texts)})"

    return form


def _c_by_kind(on_ints: str, on_floats: str) -> CForm:
    return lambda texts, kinds: (on_floats if "float" in kinds else on_ints).format(*texts)


# -- values ------------------------------------------------------------------------------------------


def as_integer(value: Value) -> Value:
    """A Fraction that is an integer as an int; anything else unchanged."""
    return int(value) if isinstance(value, Fraction) and value.denominator == 1 else value


def power(base: Value, exponent: Value) -> Value:
    """Exact on integers, a negative exponent included; raises ValueError for what would be complex."""
    if exponent == Fraction(1, 2):
        return math.sqrt(base)
    if isinstance(exponent, int) and not isinstance(base, float):
        return as_integer(Fraction(base) ** exponent)
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("math domain error")
    return result


def float_power(base: Value, exponent: Value) -> float:
    result: float | complex = float(base) ** float(exponent)
    if isinstance(result, complex):
        raise ValueError("math domain error")
    return result


def greatest(*args: Value) -> Value:
    """Python's max; a float if one of them is."""
    return float(max(args)) if any(isinstance(a, float) for a in args) else max(args)


def least(*args: Value) -> Value:
    """Python's min; a float if one of them is."""
    return float(min(args)) if any(isinstance(a, float) for a in args) else min(args)


def by_cases(*args: Value) -> Value:
    """Takes value, condition, value ... and returns the first value whose condition holds, or NaN if none does."""
    return next((value for value, holds in zip(args[::2], args[1::2], strict=True) if holds), math.nan)


def dense(*args: int) -> int:
    """Whether sizes and as many strides, in any order of dimensions, leave no gap and cover nothing twice: 1 or 0."""
    sizes, strides = args[: len(args) // 2], args[len(args) // 2 :]
    if len(sizes) == 1:
        return int(strides[0] == 1 or sizes[0] < 2)
    step = 1
    for size, stride in sorted(zip(sizes, strides, strict=True), key=operator.itemgetter(1)):
        if size != 1:
            if stride != step:
                return 0
            step *= size
    return 1


def sign(x: Value) -> int:
    return (x > 0) - (x < 0)


def bits_of_float(x: float) -> int:
    """The int64 that has the bits of a float64."""
    bits: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return bits


def float_of_bits(n: int) -> float:
    """The other way round."""
    value: float = struct.unpack("<d", struct.pack("<q", n))[0]
    return value


def _python_cases(texts: Texts) -> str:
    text = "math.nan"
    for value, holds in reversed([*zip(texts[::2], texts[1::2], strict=True)]):
        text = value if holds == "True" else f"({value} if {holds} else {text})"
    return text


def _c_cases(texts: Texts, kinds: Kinds) -> str:
    text = "NAN" if "float" in kinds[::2] else "0"
    for value, holds in reversed([*zip(texts[::2], texts[1::2], strict=True)]):
        text = value if holds == "1" else f"({holds} ? {value} : {text})"
    return text


# -- the table ---------------------------------------------------------------------------------------


def _unary(name: str, bounds: Bounds, *names: str) -> Function:
    """A function of the math module, in PyTorch's form and in sympy's."""
    made = getattr(math, name)
    return Function(
        (f"OpaqueUnaryFn_{name}", *(names or (name,))),
        _of("float"),
        lambda x: made(x),
        _called(f"math.{name}"),
        _c_format(f"{name}((double){{0}})"),
        bounds,
    )


def _relation(name: str, short: str, compare: Callable[[Any, Any], bool], sign: str) -> Function:
    return Function((name, short), _of("bool"), compare, _joined(sign), _c_compared(sign), ranges.always(0, 1))


def _bitwise(name: str, combine: Callable[[Any, Any], Any], sign: str, bounds: Bounds) -> Function:
    return Function((name,), _joint, lambda *args: reduce(combine, args), _joined(sign), _c_joined(sign), bounds)


def _logic(names: tuple[str, ...], value: Callable[..., bool], python: Callable[[Texts], str], c: CForm) -> Function:
    return Function(names, _of("bool"), value, python, c, ranges.always(0, 1))


def _floor_of(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    return sympy.floor(a / b)


_ROWS = (
    Function(
        ("Add",), _widest, lambda *args: sum(args[1:], args[0]), _joined("+"), _c_joined("+"), ranges.added, sympy.Add
    ),
    Function(
        ("Mul",),
        _widest,
        lambda *args: math.prod(args[1:], start=args[0]),
        _joined("*"),
        _c_joined("*"),
        ranges.multiplied,
        sympy.Mul,
    ),
    Function(("Pow",), _widest, power, _called("power"), _c_pairwise("size_pow", "pow"), ranges.power),
    Function(
        ("PowByNatural",),
        _of("int"),
        operator.pow,
        _format("({0} ** {1})"),
        _c_pairwise("size_pow", "pow"),
        ranges.power,
    ),
    Function(
        ("FloatPow",), _of("float"), float_power, _called("float_power"), _c_format("pow({0}, {1})"), ranges.power
    ),
    Function(
        ("FloorDiv", "CleanDiv"),
        _widest,
        operator.floordiv,
        _format("({0} // {1})"),
        _c_pairwise("size_div", "float_div"),
        ranges.floor_divided,
        _floor_of,
    ),
    Function(
        ("CeilDiv",),
        _widest,
        lambda a, b: -(-a // b),
        _format("(-(-{0} // {1}))"),
        _c_format("(-size_div(-{0}, {1}))"),
        ranges.ceil_divided,
        lambda a, b: -sympy.floor(-a / b),
    ),
    Function(
        ("ModularIndexing",),
        _of("int"),
        lambda a, b, n: a // b % n,
        _format("({0} // {1} % {2})"),
        _c_format("size_mod(size_div({0}, {1}), {2})"),
        ranges.shifted_remainder,
        lambda a, b, n: sympy.Mod(sympy.floor(a / b), n),
    ),
    Function(
        ("PythonMod", "Mod"),
        _widest,
        operator.mod,
        _format("({0} % {1})"),
        _c_pairwise("size_mod", "float_mod"),
        ranges.remainder,
        sympy.Mod,
    ),
    Function(
        ("IntTrueDiv", "FloatTrueDiv"),
        _of("float"),
        operator.truediv,
        _format("({0} / {1})"),
        _c_pairwise("int_true_div", "float_true_div"),
        ranges.divided,
    ),
    Function(
        ("LShift",),
        _of("int"),
        operator.lshift,
        _format("({0} << {1})"),
        _c_format("({0} * size_pow(2, {1}))"),
        ranges.left_shifted,
    ),
    Function(
        ("RShift",),
        _of("int"),
        operator.rshift,
        _format("({0} >> {1})"),
        _c_format("size_shift({0}, {1})"),
        ranges.right_shifted,
    ),
    _bitwise("BitwiseFn_bitwise_and", operator.and_, "&", ranges.bitwise_and),
    _bitwise("BitwiseFn_bitwise_or", operator.or_, "|", ranges.bitwise_or),
    _bitwise("BitwiseFn_bitwise_xor", operator.xor, "^", ranges.bitwise_or),
    Function(
        ("Max",), _joint, greatest, _called("greatest"), _c_pairwise("most", "float_most"), ranges.greatest, sympy.Max
    ),
    Function(("Min",), _joint, least, _called("least"), _c_pairwise("least", "float_least"), ranges.least, sympy.Min),
    Function(
        ("Abs",),
        _widest,
        abs,
        _called("abs"),
        _c_by_kind("llabs({0})", "fabs({0})"),
        ranges.absolute,
        lambda a: sympy.Max(a, -a),
    ),
    Function(("sign",), _of("int"), sign, _called("sign"), _c_format("(({0} > 0) - ({0} < 0))"), ranges.always(-1, 1)),
    Function(
        ("floor", "FloorToInt"),
        _of("int"),
        math.floor,
        _called("math.floor"),
        _c_by_kind("{0}", "(i64)floor({0})"),
        ranges.increasing(math.floor),
        sympy.floor,
    ),
    Function(
        ("ceiling", "CeilToInt"),
        _of("int"),
        math.ceil,
        _called("math.ceil"),
        _c_by_kind("{0}", "(i64)ceil({0})"),
        ranges.increasing(math.ceil),
        lambda a: -sympy.floor(-a),
    ),
    Function(
        ("TruncToInt",),
        _of("int"),
        math.trunc,
        _called("math.trunc"),
        _c_by_kind("{0}", "(i64)trunc({0})"),
        ranges.increasing(math.trunc),
        lambda a: a,
    ),
    Function(
        ("TruncToFloat",),
        _of("float"),
        lambda x: float(math.trunc(x)),
        _format("float(math.trunc({0}))"),
        _c_format("trunc({0})"),
        ranges.increasing(math.trunc),
    ),
    Function(
        ("frac",),
        _widest,
        lambda x: x - math.floor(x),
        _format("({0} - math.floor({0}))"),
        _c_format("({0} - floor({0}))"),
        ranges.always(0, 1),
    ),
    Function(
        ("RoundToInt",),
        _of("int"),
        round,
        _called("round"),
        _c_by_kind("{0}", "(i64)rint({0})"),
        ranges.increasing(round),
        lambda a: a,
    ),
    Function(
        ("RoundDecimal",),
        _of("float"),
        lambda x, digits: round(float(x), digits),
        _format("round(float({0}), {1})"),
        None,
    ),
    Function(("ToFloat",), _of("float"), float, _called("float"), _c_format("(double){0}"), ranges.increasing(float)),
    Function(
        ("Identity",), lambda kinds: kinds[0], lambda x: x, _format("{0}"), _c_format("{0}"), ranges.same, lambda a: a
    ),
    Function(
        ("Where", "ITE"),
        _chosen,
        lambda c, a, b: a if c else b,
        _format("({1} if {0} else {2})"),
        _c_format("({0} ? {1} : {2})"),
        ranges.chosen,
    ),
    Function(("Piecewise",), _cased, by_cases, _python_cases, _c_cases, ranges.cases),
    Function(("IsNonOverlappingAndDenseIndicator",), _of("int"), dense, _called("dense"), None, ranges.always(0, 1)),
    _relation("Equality", "Eq", operator.eq, "=="),
    _relation("Unequality", "Ne", operator.ne, "!="),
    _relation("StrictLessThan", "Lt", operator.lt, "<"),
    _relation("LessThan", "Le", operator.le, "<="),
    _relation("StrictGreaterThan", "Gt", operator.gt, ">"),
    _relation("GreaterThan", "Ge", operator.ge, ">="),
    _logic(("And",), lambda *args: all(args), _joined("and"), _c_joined("&&")),
    _logic(("Or",), lambda *args: any(args), _joined("or"), _c_joined("||")),
    _logic(("Not",), operator.not_, _format("(not {0})"), _c_format("(!{0})")),
    _logic(("Xor",), lambda *args: sum(map(bool, args)) % 2 == 1, _joined("^"), _c_joined("^")),
    _logic(("Implies",), lambda a, b: not a or b, _format("(not {0} or {1})"), _c_format("(!{0} || {1})")),
    _logic(
        ("Equivalent",),
        lambda *args: len(set(map(bool, args))) == 1,
        lambda texts: f"({' == '.join(texts)})" if len(texts) < 3 else f"(len({{{', '.join(texts)}}}) == 1)",
        lambda texts, kinds: f"({' && '.join(f'{a} == {b}' for a, b in pairwise(texts))})",
    ),
    _unary("sqrt", ranges.always(0), "sqrt"),
    _unary("cos", ranges.always(-1, 1)),
    _unary("cosh", ranges.always(1)),
    _unary("sin", ranges.always(-1, 1)),
    _unary("sinh", ranges.sign_kept),
    _unary("tan", ranges.anything),
    _unary("tanh", ranges.always(-1, 1)),
    _unary("asin", ranges.sign_kept),
    _unary("acos", ranges.always(0)),
    _unary("atan", ranges.sign_kept),
    _unary("exp", ranges.always(0)),
    _unary("log", ranges.logarithm),
    _unary("asinh", ranges.sign_kept),
    _unary("log2", ranges.logarithm),
    _unary("acosh", ranges.always(0)),
    _unary("atanh", ranges.sign_kept),
    Function(
        ("BitsOfFloat",),
        _of("int"),
        bits_of_float,
        _called("bits_of_float"),
        _c_format("bits_of_float({0})"),
        ranges.always(-(2**63), 2**63 - 1),
    ),
    Function(("FloatOfBits",), _of("float"), float_of_bits, _called("float_of_bits"), _c_format("float_of_bits({0})")),
    Function(("atan2",), _of("float"), math.atan2, _called("math.atan2"), _c_format("atan2({0}, {1})")),
)

FUNCTIONS: Mapping[str, Function] = {name: row for row in _ROWS for name in row.names}
"""Each function by the names of its classes."""


def function_of(expr: Any) -> Function | None:
    """The declaration of the function that an expression applies; None for a symbol, a number or an unknown one."""
    return FUNCTIONS.get(type(expr).__name__)


def arguments_of(expr: Any) -> tuple[Any, ...]:
    """What a function is applied to; of ``Piecewise`` value, condition, value, condition ..."""
    if isinstance(expr, sympy.Piecewise):
        return tuple(part for pair in expr.args for part in pair.args)
    return tuple(expr.args)


def kind_of(expr: Any) -> Kind:
    """The type of an expression's value. Exact fractions, of which integers are made, count as int."""
    if isinstance(expr, bool | BooleanAtom):
        return "bool"
    if isinstance(expr, int | sympy.Rational):
        return "int"
    if isinstance(expr, float | sympy.Float):
        return "float"
    return _kind(expr)


@lru_cache(maxsize=1 << 14)
def _kind(expr: Any) -> Kind:
    row = function_of(expr)
    if row is None:
        return (
            "bool"
            if isinstance(expr, Boolean) and not isinstance(expr, sympy.Symbol)
            else ("int" if expr.is_integer else "float")
        )
    return row.kind([kind_of(a) for a in arguments_of(expr)])
