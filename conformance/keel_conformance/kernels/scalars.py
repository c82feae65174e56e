"""A kernel for each scalar operation and dtype, on special values; casts between all dtypes."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from keel import DTYPE_NAMES, MEMBERS, SCALARS, parse

from .forms import dtype_of
from .made import Fill, Made

FLOATS, INTS = ("f32", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
DOMAINS: Mapping[str, tuple[str, ...]] = {
    "float": FLOATS, "int": INTS, "number": (*FLOATS, *INTS), "bool": ("b8",), "integral": (*INTS, "b8"),
    "any": (*FLOATS, *INTS, "b8"),
}
CASTS = tuple(name for d, name in DTYPE_NAMES.items() if not d.is_complex and not name.startswith("f8")
              and name != "c32")
EXACT = frozenset(("where", "neg", "abs", "sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "copysign",
                   "nextafter", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not",
                   "shl", "shr", "floordiv", "truncdiv", "fmod", "mod", "bitcast", "cast"))
"""What rounds nothing, or one thing only that is correctly rounded."""
ROUNDED_ONCE = frozenset(("add", "sub", "mul", "div", "sqrt", "fma"))
"""IEEE 754 fixes these; a target may still contract or divide less exactly, as the members' budgets allow."""


def names() -> Iterator[tuple[str, str]]:
    """Each operation with each dtype of its operands; casts as (cast-to-f32, i8)."""
    for row in SCALARS.values():
        if row.name in ("cast", "bitcast"):
            for given in CASTS:
                for want in CASTS:
                    if given != want and (row.name == "cast" or (
                            dtype_of(given).itemsize == dtype_of(want).itemsize and "b8" not in (given, want))):
                        yield f"{row.name}-to-{want}", given
        else:
            yield from ((row.name, dtype) for dtype in DOMAINS[row.domain])


def made(name: str, dtype: str) -> Made:
    op, _, want = name.partition("-to-")
    row = SCALARS[op]
    result = want or ("b8" if row.result == "bool" else dtype)
    letters = "abc"[:row.arity]
    held = {x: "b8" if op == "where" and x == "a" else dtype for x in letters}
    loads = "\n".join(f"    %{k} = load {x}[i]" for k, x in enumerate(letters))
    given = " ".join(f"%{k}" for k in range(row.arity))
    text = (f"kernel scalar({', '.join(f'{x}: {d}[N]' for x, d in held.items())}) -> (o: {result}[N]) where N:\n"
            f"  parallel i < N:\n{loads}\n    %{row.arity} = {op} {given}{' : ' + want if want else ''}\n"
            f"    store o[i] %{row.arity}\n")
    fills = {x: fill(op, k, dtype, want) for k, x in enumerate(letters)}
    return Made(parse(text), tuple({"N": n} for n in (257, 64, 1000)), fills, ulps(op, dtype_of(dtype)))


def fill(op: str, operand: int, dtype: str, want: str) -> Fill:
    """Values at which the operation is defined."""
    floating = dtype_of(dtype).is_floating_point
    if op == "cast" and floating and not dtype_of(want).is_floating_point and want != "b8":
        return Fill("within", 0 if want.startswith("u") else -120, 120)
    if op in ("floordiv", "truncdiv", "mod", "fmod"):
        if operand:
            return Fill(low=1, high=9)
        return Fill(low=-50, high=50) if floating else Fill("special")
    if op in ("shl", "shr"):
        return Fill(low=0, high=7) if operand else Fill("special")
    if op in ("lgamma", "digamma"):
        return Fill("within", 0.05, 30)
    if op in ("sin", "cos", "tan"):
        return Fill("within", -100, 100)
    if op == "pow":
        return Fill("within", -8, 8) if operand else Fill("within", 0, 20)
    if op in ("asin", "acos", "atanh", "erfinv"):
        return Fill("within", -1, 1)
    if op == "acosh":
        return Fill("within", 1, 1000)
    if op == "fma":
        return Fill("within", -8, 8)
    return Fill("special")


def ulps(op: str, dtype: torch.dtype) -> float | None:
    """The budget of the operator of that name; None where the result is exact."""
    if op in EXACT or not dtype.is_floating_point:
        return None
    member = MEMBERS.get(op)
    return float(member.budget[dtype].ulps or 0) if member else 1.0
