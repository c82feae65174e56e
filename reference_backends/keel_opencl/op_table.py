"""The tables of the OpenCL target: the text of each dtype and scalar op. They declare what the target supports.

OpenCL C defines the precision of its functions. The table has those that are as precise as the operator set wants, and
Keel expands the others into these: `atan`, `tanh` and `tan` may be off by 5 ulps, and `pow` of float32 by 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from keel.loops import ByKind, ScalarText
from keel_opencl.opencl_devices import KNOWN, Abilities

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "ushort",  # their bits, of which only casts know the value
    torch.bfloat16: "ushort",
    torch.int8: "char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long",
    torch.uint8: "uchar",
    torch.uint16: "ushort",
    torch.uint32: "uint",
    torch.uint64: "ulong",
    torch.bool: "bool",
}
STORED: Mapping[torch.dtype, str] = {**DTYPES, torch.bool: "uchar"}
"""The type of an element in memory."""
WIDEN = {torch.float16: "widen_half", torch.bfloat16: "widen_bfloat"}
NARROW = {torch.float16: "to_half", torch.bfloat16: "to_bfloat"}
ATOMICS = (torch.float32, torch.int32, torch.uint32)
LONG_ATOMICS = (torch.float64, torch.int64, torch.uint64)


def _cast(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    (x,) = args
    if source == result:
        return x
    if source in WIDEN:
        return _cast((f"{WIDEN[source]}({x})",), torch.float32, result)
    if result in NARROW:
        return f"{NARROW[result]}({_cast(args, source, torch.float32)})"
    if result == torch.bool:
        return f"({x} != 0)"
    if source.is_floating_point and not result.is_floating_point:  # a negative number wraps, as in PyTorch
        x = f"(int){x}" if result.itemsize < 4 else x if result.is_signed else f"(long){x}"
    return f"(({DTYPES[result]}){x})"


def _bitcast(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    x = _cast(args, source, torch.uint8) if source == torch.bool else args[0]
    return f"({x} != 0)" if result == torch.bool else f"as_{DTYPES[result]}({x})"


def _wrapping(symbol: str) -> ScalarText:
    """Arithmetic in which integers wrap: on unsigned ones, of at least 32 bits so that they are not promoted to int."""

    def text(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
        if source.is_floating_point:
            return f"({symbol.join(args)})" if len(args) > 1 else f"({symbol}{args[0]})"
        wide = [f"({'ulong' if source.itemsize == 8 else 'uint'}){x}" for x in args]
        return f"(({DTYPES[result]})({symbol.join(wide) if len(wide) > 1 else symbol + wide[0]}))"

    return text


def _truncdiv(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
    """0 where the divisor is 0, and wrapped where it is -1: devices may stop at both."""
    x, y = args
    by_minus_one = f"{y} == -1 ? {_wrapping('-')((x,), source, result)} : " if source.is_signed else ""  # type: ignore[operator]
    return f"(({DTYPES[result]})({y} == 0 ? 0 : {by_minus_one}{x} / {y}))"


EXACT = ("floor", "ceil", "trunc", "sqrt")
CLOSE = (
    "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin",
    "cos", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "erf", "erfc",
)  # fmt: skip
"""Functions that are within the error budgets of the operator set on every device."""

SCALARS: Mapping[str, ScalarText] = {
    "cast": _cast,
    "bitcast": _bitcast,
    "where": "({0} ? {1} : {2})",
    "add": _wrapping(" + "),
    "sub": _wrapping(" - "),
    "mul": _wrapping(" * "),
    "neg": _wrapping("-"),
    "div": "({0} / {1})",
    "truncdiv": _truncdiv,
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "not": ByKind(integer="(({dtype})~{0})", boolean="(!{0})"),
    "shl": "(({dtype})((ulong){0} << {1}))",
    "shr": "({0} >> {1})",
    **{
        name: f"({{0}} {symbol} {{1}})"
        for name, symbol in zip(["lt", "le", "gt", "ge", "eq", "ne"], ["<", "<=", ">", ">=", "==", "!="], strict=True)
    },
    "maximum": "({0} > {1} || {0} != {0} ? {0} : {1})",  # NaN wins
    "minimum": "({0} < {1} || {0} != {0} ? {0} : {1})",
    "abs": ByKind(floating="fabs({0})"),
    "round": "rint({0})",
    "fmod": ByKind(floating="fmod({0}, {1})"),
    "fma": "fma({0}, {1}, {2})",
    "copysign": "copysign({0}, {1})",
    "nextafter": "nextafter({0}, {1})",
    **{name: f"{name}({{0}})" for name in (*EXACT, *CLOSE)},
}


def _in_double(name: str) -> Callable[[Sequence[str], torch.dtype, torch.dtype], str]:
    """A function whose errors in float32 are too large; its result in double is rounded."""

    def text(args: Sequence[str], source: torch.dtype, result: torch.dtype) -> str:
        return f"(({DTYPES[result]}){name}({', '.join(f'(double){x}' for x in args)}))"

    return text


@dataclass(frozen=True)
class Tables:
    """The tables for a device."""

    dtypes: Mapping[torch.dtype, str]
    scalars: Mapping[str, ScalarText]
    atomics: frozenset[torch.dtype]


def tables(known: Abilities) -> Tables:
    """What a device supports: double, and what is computed in it, only if it has it."""
    doubles = {name: _in_double(name) for name in ("pow", "lgamma")} if known.doubles else {}
    dtypes = {d: text for d, text in DTYPES.items() if known.doubles or d != torch.float64}
    atomics = {*ATOMICS, *(LONG_ATOMICS if known.long_atomics else ())}
    return Tables(dtypes, {**SCALARS, **doubles}, frozenset(atomics & dtypes.keys()))


TABLES = tables(KNOWN)


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant, exactly."""
    if not dtype.is_floating_point:
        return f"(({DTYPES[dtype]}){int(value) & (2**64 - 1):#x}UL)" if dtype != torch.bool else str(value).lower()
    if not math.isfinite(value):
        return f"(({DTYPES[dtype]}){'NAN' if math.isnan(value) else 'INFINITY' if value > 0 else '-INFINITY'})"
    return f"({float(value).hex()}{'' if dtype == torch.float64 else 'f'})"
