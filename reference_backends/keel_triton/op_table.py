"""The tables of the Triton target: the text of each dtype, scalar op and reduction. They declare what the target
supports.

An entry is a text over operand names {0} {1} ..., or a function of (operand names, operand dtype, result dtype).
Operands are always names, so a text may repeat them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

Entry = str | Callable[[Sequence[str], torch.dtype, torch.dtype], str]

DTYPES: Mapping[torch.dtype, str] = {
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.uint8: "tl.uint8",
    torch.uint16: "tl.uint16",
    torch.uint32: "tl.uint32",
    torch.uint64: "tl.uint64",
    torch.bool: "tl.int1",
}

# Triton's names of the element types of pointers in a kernel's signature.
POINTEES: Mapping[torch.dtype, str] = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "i1",
}

# Dtypes with a hardware atomic add. Narrower integers and bool have none.
ATOMIC_ADD = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64)
)

HALVES = (torch.float16, torch.bfloat16)
NARROW = (torch.int8, torch.int16, torch.uint8, torch.uint16)
NAN_WINS = "propagate_nan=tl.PropagateNan.ALL"


def _cast(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    (x,) = args
    if source == result:
        return x
    if result == torch.bool:
        return f"{x} != 0"
    if source in HALVES and result != torch.float32:  # 16-bit floats are only converted to float32 and back
        return _cast((f"{x}.to(tl.float32)",), torch.float32, result)
    if result in HALVES and source != torch.float32:
        return f"{x}.to(tl.float32).to({DTYPES[result]})"
    if (
        source.is_floating_point and result in NARROW
    ):  # a negative float must wrap; a direct conversion to unsigned would clamp
        return f"{x}.to(tl.int32).to({DTYPES[result]})"
    if source.is_floating_point and result == torch.uint32:
        return f"{x}.to(tl.int64).to(tl.uint32)"
    return f"{x}.to({DTYPES[result]})"


def _bitcast(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    if torch.bool in (source, result):  # a bool is one bit in registers and one byte in memory
        return _cast(args, source, result)
    return f"{args[0]}.to({DTYPES[result]}, bitcast=True)"


def _not(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    if source.is_signed or source == torch.bool:
        return f"~{args[0]}"
    return f"{args[0]} ^ {literal(torch.iinfo(source).max, source)}"  # Triton 3.6 interprets ~ of these as ^ -1


def _by(single: str, double: str, integer: str = "", unsigned: str = "") -> Entry:
    """The text for float32, float64, signed integers and unsigned ones. The last two are equal if only one is given."""

    def text(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
        if source.is_floating_point:
            form = double if source == torch.float64 else single
        else:
            form = integer if source.is_signed or not unsigned else unsigned
        return form.format(*args, dtype=DTYPES[result])

    return text


def _float(text: str, integer: str, unsigned: str = "") -> Entry:
    return _by(text, text, integer, unsigned)


def _library(*names: str, arity: int = 1) -> Mapping[str, Entry]:
    """Ops that libdevice has under the same name, in float32 and float64."""
    operands = ", ".join(f"{{{i}}}" for i in range(arity))
    return {name: f"libdevice.{name}({operands})" for name in names}


_FLOOR_MOD = "tl.where(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)), {0} % {1} + {1}, {0} % {1})"
_FLOOR_DIV = "{0} // {1} - (({0} % {1} != 0) & (({0} < 0) != ({1} < 0))).to({dtype})"
_FMOD = "libdevice.fmod({0}, {1})"

# tl.exp multiplies by log2(e) with one rounding, an error of up to |x| ulp; libdevice's exp is accurate to two. Triton
# 3.6 computes -x as 0 - x, which loses the sign of zero. tl.sqrt and / are approximate in float32, and exact in
# float64.
SCALARS: Mapping[str, Entry] = {
    "cast": _cast,
    "bitcast": _bitcast,
    "where": "tl.where({0}, {1}, {2})",
    "neg": _float("{0} * -1.0", "0 - {0}"),
    "abs": "tl.abs({0})",
    "sign": "({0} > 0).to({dtype}) - ({0} < 0).to({dtype})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": "libdevice.trunc({0})",
    "round": "libdevice.nearbyint({0})",
    "sqrt": _by("tl.sqrt_rn({0})", "tl.sqrt({0})"),
    "reciprocal": _by("tl.div_rn(1.0, {0})", "1.0 / {0}"),
    "sigmoid": _by("tl.div_rn(1.0, 1.0 + libdevice.exp({0} * -1.0))", "1.0 / (1.0 + libdevice.exp({0} * -1.0))"),
    **_library(
        "exp",
        "exp2",
        "expm1",
        "rsqrt",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "erfc",
        "erfinv",
        "lgamma",
    ),
    **_library("pow", "atan2", "copysign", "nextafter", arity=2),
    "isnan": "{0} != {0}",
    "isinf": 'tl.abs({0}) == float("inf")',
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": _by("tl.div_rn({0}, {1})", "{0} / {1}"),
    "truncdiv": "{0} // {1}",
    "floordiv": _by("", "", _FLOOR_DIV, "{0} // {1}"),
    "fmod": _float(_FMOD, "{0} % {1}"),
    "mod": _float(
        f"tl.where(({_FMOD} != 0) & (({_FMOD} < 0) != ({{1}} < 0)), {_FMOD} + {{1}}, {_FMOD})", _FLOOR_MOD, "{0} % {1}"
    ),
    "minimum": f"tl.minimum({{0}}, {{1}}, {NAN_WINS})",
    "maximum": f"tl.maximum({{0}}, {{1}}, {NAN_WINS})",
    "fma": "tl.fma({0}, {1}, {2})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": _not,
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
}

# {lowest} and {highest} are replaced by the extreme values of the dtype.
REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "sum": ("0", "{0} + {1}"),
    "prod": ("1", "{0} * {1}"),
    "max": ("{lowest}", f"tl.maximum({{0}}, {{1}}, {NAN_WINS})"),
    "min": ("{highest}", f"tl.minimum({{0}}, {{1}}, {NAN_WINS})"),
    "any": ("False", "{0} | {1}"),
    "all": ("True", "{0} & {1}"),
    "xor": ("0", "{0} ^ {1}"),
}


def apply(op: str, args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    """The text of a scalar op on operands of dtype ``source`` (for ``where``, that of its second)."""
    entry = SCALARS[op]
    return entry.format(*args, dtype=DTYPES[result]) if isinstance(entry, str) else entry(args, source, result)


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A scalar of exactly that dtype.  A plain 0.5 would take its dtype from context, and -0.0 would lose its sign."""
    name = DTYPES[dtype]
    if dtype == torch.bool:
        return f"tl.full([], {bool(value)}, {name})"
    if not dtype.is_floating_point:
        return f"tl.full([], {int(value)}, {name})"
    number = float(value)
    if number == 0 and str(number).startswith("-"):
        bits = "tl.int64" if dtype == torch.float64 else "tl.int32"
        return f"tl.full([], {torch.iinfo(_INTEGERS[bits]).min}, {bits}).to({name}, bitcast=True)"
    if number != number or number in (float("inf"), float("-inf")):
        return f'tl.full([], float("{number}"), {name})'
    return f"tl.full([], {number!r}, {name})"


_INTEGERS = {"tl.int64": torch.int64, "tl.int32": torch.int32}
