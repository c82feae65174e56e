"""Do type rules say what PyTorch's fake tensors say: dtype, sizes and strides of every call that a program ends in?"""
from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import sympy

from keel import OPSET, Call, SymType, TensorType, bind, closure, universe

Values = Sequence[Mapping[sympy.Symbol, int]]


@dataclass
class Verdicts:
    """``typed`` calls were compared; ``wrong`` are sentences; ``untyped`` names of primitives without a rule."""

    typed: int = 0
    wrong: list[str] = field(default_factory=list)
    untyped: set[str] = field(default_factory=set)
    seen: set[Any] = field(default_factory=set)

    def judge(self, end: closure.Ending) -> None:
        """Compares each kind of call of ``end`` that has not been seen before."""
        values: Values | None = None
        for call in end.calls:
            op = OPSET.get(call.op)
            if op is None or op.kind != "primitive" or call.key in self.seen:
                continue
            self.seen.add(call.key)
            if op.out is None:
                self.untyped.add(op.name)
                continue
            self.typed += 1
            try:
                got = op.types(bind(call))
            except Exception as e:
                self.wrong.append(f"{op.name}: the rule raised {type(e).__name__}: {e} for {call}")
                continue
            if got != call.out and values is None:
                values = universe.assignments(end.captured.fake_mode, symbols(end.calls))
            if got != call.out and not agree(call, got, values or [{}]):
                self.wrong.append(f"{op.name}: the rule says {', '.join(map(str, got))} for {call}")


def symbols(calls: Sequence[Call]) -> list[sympy.Symbol]:
    """All symbols in the types of arguments and results."""
    return sorted({s for c in calls for s in _symbols(c.args, tuple(c.kwargs.values()), c.out)}, key=str)


def _symbols(*values: Any) -> set[sympy.Symbol]:
    found: set[sympy.Symbol] = set()
    for value in values:
        match value:
            case list() | tuple():
                found |= _symbols(*value)
            case TensorType():
                found |= _symbols(value.shape, value.strides)
            case SymType():
                found |= _symbols(value.expr)
            case sympy.Basic():
                found |= value.free_symbols
    return found


def agree(call: Call, got: Sequence[Any], values: Values) -> bool:
    """Whether the types are those of the call's results, symbolic sizes having each of the ``values``.

    A rule writes ``?0``, ``?1`` ... for sizes that it cannot know, as the number of nonzero elements; they stand for
    symbols that the call brings into the world.
    """
    new = _symbols(call.out) - _symbols(call.args, tuple(call.kwargs.values()))
    return len(got) == len(call.out) and all(same(a, b, values, new) for a, b in zip(call.out, got, strict=True))


def same(want: Any, got: Any, values: Values, new: Set[sympy.Symbol] = frozenset()) -> bool:
    match want, got:
        case (TensorType(), TensorType()):
            if (want.dtype, want.device, want.rank) != (got.dtype, got.device, got.rank):
                return False
            return equal((*want.shape, *strides(want)), (*got.shape, *strides(got)), values, new)
        case (SymType(), SymType()):
            return want.kind == got.kind and equal((want.expr,), (got.expr,), values, new)
    return bool(want == got)


def strides(t: TensorType) -> tuple[Any, ...]:
    """Those that matter: not of sizes 0 and 1, nor any of an empty tensor."""
    if any(n == 0 for n in t.shape):
        return (0,) * t.rank
    return tuple(0 if n == 1 else s for n, s in zip(t.shape, t.strides, strict=True))


def equal(want: Sequence[Any], got: Sequence[Any], values: Values, new: Set[sympy.Symbol]) -> bool:
    stands_for = {b: a for a, b in zip(want, got, strict=True) if str(b).startswith("?") and a in new}
    for a, b in zip(want, got, strict=True):
        if a == b:
            continue
        b = sympy.sympify(b).subs(stands_for)
        if not all(sympy.sympify(a).subs(v) == b.subs(v) for v in values):
            return False
    return True
