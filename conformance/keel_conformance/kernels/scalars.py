"""A kernel for each scalar operation and dtype, on special values; casts between all dtypes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from keel.loops import DTYPE_NAMES, SCALARS, parse
from keel.opset import MEMBERS

from .kernel_case import BufferFill, KernelCase
from .templates import dtype_of

FLOATS, INTS = ("f32", "f64"), ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
DOMAINS: Mapping[str, tuple[str, ...]] = {
    "float": FLOATS,
    "int": INTS,
    "number": (*FLOATS, *INTS),
    "bool": ("b8",),
    "integral": (*INTS, "b8"),
    "any": (*FLOATS, *INTS, "b8"),
}
CASTS = tuple(
    name for d, name in DTYPE_NAMES.items() if not d.is_complex and not name.startswith("f8") and name != "c32"
)


def names() -> Iterator[tuple[str, str]]:
    """Each operation with each dtype of its operands; casts as (cast-to-f32, i8)."""
    for row in SCALARS.values():
        if row.name in ("cast", "bitcast"):
            for source in CASTS:
                for want in CASTS:
                    if source != want and (
                        row.name == "cast"
                        or (dtype_of(source).itemsize == dtype_of(want).itemsize and "b8" not in (source, want))
                    ):
                        yield f"{row.name}-to-{want}", source
        else:
            yield from ((row.name, dtype) for dtype in DOMAINS[row.domain])


NESTS: Mapping[str, tuple[str, str, str, str]] = {
    # The sizes, the loops, the index of the first operand and result, and that of the others.
    "alone": ("N", "parallel i < N:", "i", "i"),
    "turned": ("N*M", "parallel i < N, j < M:", "M*i + j", "N*j + i"),
    "shared": ("N*M", "parallel i < N, j < M:", "M*i + j", "M*i + j"),
}
"""Where an operation stands: what is wrong of one of them alone is seen by several cases."""
SIZES = {
    "alone": ({"N": 257}, {"N": 64}, {"N": 1000}),
    "turned": ({"N": 33, "M": 17},) * 3,
    "shared": ({"N": 5, "M": 130}, {"N": 40, "M": 7}, {"N": 1, "M": 300}),
}


def made(name: str, dtype: str, nest: str = "alone") -> KernelCase:
    """The kernel of an operation; of the nest ``turned`` for its sizes, of the others for any."""
    op, _, want = name.partition("-to-")
    row = SCALARS[op]
    result = want or ("b8" if row.result == "bool" else dtype)
    letters, sizes = "abc"[: row.arity], SIZES[nest]
    held = {x: "b8" if op == "where" and x == "a" else dtype for x in letters}
    size, loops, at, other = NESTS[nest]
    loads = "\n".join(f"    %{k} = load {x}[{other if k else at}]" for k, x in enumerate(letters))
    operands, cast = " ".join(f"%{k}" for k in range(row.arity)), f" : {want}" if want else ""
    compute = f"    %{row.arity} = {op} {operands}{cast}\n"
    if nest == "shared" and row.arity > 1 and op != "where":  # of one operand with another at the beginning of its row
        compute += f"    %8 = load {letters[-1]}[M*i]\n    %9 = {op} {operands[:-1]}8{cast}\n    store p[{at}] %9\n"
    more = f", p: {result}[{size}]" if "%9" in compute else ""
    buffers = ", ".join(f"{x}: {d}[{size}]" for x, d in held.items())
    text = f"kernel scalar({buffers}) -> (o: {result}[{size}]{more})"
    where = f" where {', '.join(sizes[0])}:\n  {loops}\n"
    text += f"{where}{loads}\n{compute}    store o[{at}] %{row.arity}\n"
    if nest == "turned":
        text = text.replace(where, where.replace(" where N, M", ""))
        for letter, n in sizes[0].items():
            text = re.sub(rf"\b{letter}\b", str(n), text)
    fills = {x: fill(op, k, dtype, want) for k, x in enumerate(letters)}
    return KernelCase(parse(text), sizes, fills, ulps(op, dtype_of(dtype)), salt=list(NESTS).index(nest))


def fill(op: str, operand: int, dtype: str, want: str) -> BufferFill:
    """Values at which the operation is defined."""
    floating = dtype_of(dtype).is_floating_point
    if op == "cast" and floating and not dtype_of(want).is_floating_point and want != "b8":
        return BufferFill("within", 0 if want.startswith("u") else -120, 120)
    if op == "cast" and floating and dtype_of(want).itemsize < dtype_of(dtype).itemsize:
        return BufferFill("midway")
    if op in ("floordiv", "truncdiv", "mod", "fmod"):
        if operand:
            return BufferFill("divisors", -9, 9)
        return BufferFill("ints", -50, 50) if floating else BufferFill("above-the-least")
    if op in ("shl", "shr"):
        return BufferFill("ints", 0, 8 * dtype_of(dtype).itemsize) if operand else BufferFill("special")
    if op in ("lgamma", "digamma"):
        return BufferFill("within", 0.05, 30)
    if op in ("sin", "cos", "tan"):
        return BufferFill("within", -100, 100)
    if op == "pow":
        return BufferFill("within", -8, 8) if operand else BufferFill("within", 0, 20)
    if op in ("asin", "acos", "atanh", "erfinv"):
        return BufferFill("within", -1, 1)
    if op == "acosh":
        return BufferFill("within", 1, 1000)
    if op == "fma":
        return BufferFill("within", -8, 8)
    return BufferFill("special")


def ulps(op: str, dtype: torch.dtype) -> float | None:
    """The budget of the operator of that name; None where the result is exact."""
    if SCALARS[op].exact or not dtype.is_floating_point:
        return None
    member = MEMBERS.get(op)
    return float(member.budget[dtype].ulps or 0) if member else 1.0
