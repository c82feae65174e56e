"""The tables of the C++ target: the text of each dtype, scalar op and reduction. They declare what the target supports.

An entry is a text over operands {0} {1} ... and the result's type {dtype}, or a function of (operands, operand dtype,
result dtype) for ops whose text depends on the dtype. The functions that the texts call are in prelude.h and math.h.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

import torch

Entry = str | Callable[[Sequence[str], torch.dtype, torch.dtype], str]

DTYPES: Mapping[torch.dtype, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "float",
    torch.float64: "double",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def _by(floating: str, integer: str, boolean: str = "") -> Entry:
    """The text for floats, integers and bool."""

    def text(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
        form = floating if source.is_floating_point else boolean if boolean and source == torch.bool else integer
        return form.format(*args, dtype=DTYPES[result])

    return text


def _functions(*names: str, arity: int = 1) -> Mapping[str, Entry]:
    """Ops that have functions of the same name."""
    operands = ", ".join(f"{{{i}}}" for i in range(arity))
    return {name: f"{name}({operands})" for name in names}


SCALARS: Mapping[str, Entry] = {
    "cast": "cast<{dtype}>({0})",
    "bitcast": "bits<{dtype}>({0})",
    "where": "{0} ? {1} : {2}",
    "add": _by("{0} + {1}", "add({0}, {1})"),
    "sub": _by("{0} - {1}", "sub({0}, {1})"),
    "mul": _by("{0} * {1}", "mul({0}, {1})"),
    "neg": _by("-{0}", "neg({0})"),
    "div": "{0} / {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": _by("", "~{0}", "!{0}"),
    "shl": "shl({0}, {1})",
    "shr": "{0} >> {1}",
    "isnan": "{0} != {0}",
    "isinf": "isinf({0})",
    "reciprocal": "1 / {0}",
    "mod": "modulo({0}, {1})",
    "fmod": "remainder({0}, {1})",
    **_functions("abs", "sign", "floor", "ceil", "trunc", "round", "sqrt", "rsqrt"),
    **_functions("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "erf", "erfc", "erfinv"),
    **_functions("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    **_functions("lgamma", "digamma"),
    **_functions("floordiv", "truncdiv", "pow", "atan2", "copysign", "nextafter", "minimum", "maximum", arity=2),
    **_functions("fma", arity=3),
}

# (identity, combination, which is a function of the prelude). Sums of floats need more: see ``accumulators``.
REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "sum": ("{dtype}(0)", "add({0}, {1})"),
    "prod": ("{dtype}(1)", "mul({0}, {1})"),
    "max": ("lowest<{dtype}>", "maximum({0}, {1})"),
    "min": ("highest<{dtype}>", "minimum({0}, {1})"),
    "any": ("{dtype}(0)", "either({0}, {1})"),
    "all": ("{dtype}(1)", "both({0}, {1})"),
    "xor": ("{dtype}(0)", "exclusive({0}, {1})"),
}

STORED: Mapping[torch.dtype, str] = {**DTYPES, torch.bool: "u8"}
"""The type of an element in memory. A bool is a byte, which may be neither 0 nor 1, and which the vectorizer
can load.
"""

# The cost of an op in simple scalar operations, 1 by default.
COSTS: Mapping[str, int] = {
    **dict.fromkeys(("div", "sqrt", "rsqrt", "reciprocal", "mod", "fmod", "floordiv", "truncdiv"), 4),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "sigmoid", "erf"), 10),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"), 25),
    **dict.fromkeys(("erfc", "pow", "atan2"), 25),
    **dict.fromkeys(("erfinv", "lgamma", "digamma"), 100),
}


def applied(op: str, args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    """The text of a scalar op on operands of dtype ``source``."""
    entry = SCALARS[op]
    return entry.format(*args, dtype=DTYPES[result]) if isinstance(entry, str) else entry(args, source, result)


def loaded(text: str, dtype: torch.dtype) -> str:
    """Converts an element in memory to its value."""
    return f"{text} != 0" if dtype == torch.bool else text


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """The text of a constant of exactly that type, in parentheses if an operator could split it."""
    ctype = DTYPES[dtype]
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        return _integer(int(value), ctype)
    value = float(value)
    if math.isnan(value):
        return f"{ctype}(NOTANUMBER)"
    if math.isinf(value):
        return f"{ctype}(INF)" if value > 0 else f"{ctype}(-INF)"
    if dtype == torch.float64:
        text = repr(value)
    else:
        value = _single(value)
        if math.isinf(value):
            return literal(value, dtype)
        text = f"{value:.9g}"
        text = (text if any(c in text for c in ".e") else text + ".") + "f"
    return f"({text})" if text.startswith("-") else text


def _single(value: float) -> float:
    """``value`` rounded to float32, to nearest."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _integer(value: int, ctype: str) -> str:
    if ctype == "i32" and value > -(2**31):
        return str(value) if value >= 0 else f"({value})"
    if ctype == "u64" and value >= 2**63:
        return f"u64({value}u)"
    return f"{ctype}({value})" if value > -(2**63) else "lowest<i64>"
