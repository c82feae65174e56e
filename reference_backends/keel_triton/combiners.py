"""Monoids in Triton: two states combined as text, and as a function that tl.reduce and tl.associative_scan take."""

from __future__ import annotations

import torch

from keel.loops import DTYPE_NAMES, MONOIDS, SCALARS, Monoid
from keel_triton.op_table import DTYPES, REDUCTIONS, apply, literal

Dtypes = tuple[torch.dtype, ...]


def identities(monoid: str, dtypes: Dtypes) -> tuple[str, ...]:
    """The literals of the empty fold."""
    if monoid not in REDUCTIONS:
        return tuple(literal(v, d) for v, d in zip(MONOIDS[monoid].identity(dtypes), dtypes, strict=True))
    lowest, highest = _extremes(dtypes[0])
    text = REDUCTIONS[monoid][0].format(lowest=lowest, highest=highest)
    return (f"tl.full([], {text}, {DTYPES[dtypes[0]]})",)


def _extremes(dtype: torch.dtype) -> tuple[str, str]:
    if dtype == torch.bool:
        return "False", "True"
    if dtype.is_floating_point:
        return 'float("-inf")', 'float("inf")'
    return str(torch.iinfo(dtype).min), str(torch.iinfo(dtype).max)


def combined(monoid: str, dtypes: Dtypes, left: tuple[str, ...], right: tuple[str, ...]) -> str:
    """The text of two states combined: an expression, of a tuple where the state has several values."""
    if monoid in REDUCTIONS:
        return REDUCTIONS[monoid][1].format(*left, *right)
    return f"{name(monoid, dtypes)}({', '.join((*left, *right))})"


def name(monoid: str, dtypes: Dtypes) -> str:
    return "_".join((monoid, *(DTYPE_NAMES[d] for d in dtypes)))


def function(monoid: str, dtypes: Dtypes) -> str:
    """The source of the function that combines two states."""
    n = MONOIDS[monoid].arity
    left, right = tuple(f"a{i}" for i in range(n)), tuple(f"b{i}" for i in range(n))
    head = f"@triton.jit\ndef {name(monoid, dtypes)}({', '.join((*left, *right))}):\n"
    if monoid in REDUCTIONS:
        return f"{head}    return {REDUCTIONS[monoid][1].format(*left, *right)}\n"
    lines, outputs = _program(MONOIDS[monoid], dtypes, (*left, *right))
    return head + "".join(f"    {line}\n" for line in lines) + f"    return {', '.join(outputs)}\n"


def _program(monoid: Monoid, dtypes: Dtypes, names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The monoid's steps as assignments, and the names of the combined state."""
    values = list(zip(names, (*dtypes, *dtypes), strict=True))
    lines = []
    for op, args in monoid.steps:
        source = values[args[1 if op == "where" else 0]][1]
        result = torch.bool if SCALARS[op].result == "bool" else source
        target = f"c{len(values)}"
        lines.append(f"{target} = {apply(op, tuple(values[a][0] for a in args), source, result)}")
        values.append((target, result))
    return lines, [values[o][0] for o in monoid.outputs]
