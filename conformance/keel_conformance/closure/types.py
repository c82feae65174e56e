"""Do type rules say what PyTorch's fake tensors say: dtype, sizes and strides of every call that a program ends in?"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    found = {s for c in calls for t in (*c.tensors, *(o for o in c.out if isinstance(o, TensorType)))
             for n in (*t.shape, *t.strides) if not isinstance(n, int) for s in n.free_symbols}
    return sorted(found, key=str)


def agree(call: Call, got: Sequence[Any], values: Values) -> bool:
    """Whether the types are those of the call's results, symbolic sizes having each of the ``values``."""
    new = fresh(call)
    return len(got) == len(call.out) and all(same(a, b, values, new) for a, b in zip(call.out, got, strict=True))


def fresh(call: Call) -> frozenset[sympy.Symbol]:
    """The symbols that the call itself brings into the world, as the number of nonzero elements: no rule knows them."""
    given = {s for t in call.tensors for n in (*t.shape, *t.strides) if not isinstance(n, int) for s in n.free_symbols}
    made = {s for t in call.out if isinstance(t, TensorType) for n in t.shape if not isinstance(n, int)
            for s in n.free_symbols}
    return frozenset(s for s in made - given if str(s).startswith("u"))


def same(want: Any, got: Any, values: Values, new: frozenset[sympy.Symbol] = frozenset()) -> bool:
    match want, got:
        case (TensorType(), TensorType()):
            if (want.dtype, want.device, want.rank) != (got.dtype, got.device, got.rank):
                return False
            pairs = [(a, b) for a, b in zip((*want.shape, *strides(want)), (*got.shape, *strides(got)), strict=True)
                     if isinstance(a, int) or not new & a.free_symbols]
            return all(a == b or equal(a, b, values) for a, b in pairs)
        case (SymType(), SymType()):
            return want.kind == got.kind and (want.expr == got.expr or equal(want.expr, got.expr, values))
    return bool(want == got)


def strides(t: TensorType) -> tuple[Any, ...]:
    """Those that matter: not of sizes 0 and 1, nor any of an empty tensor."""
    if any(n == 0 for n in t.shape):
        return (0,) * t.rank
    return tuple(0 if n == 1 else s for n, s in zip(t.shape, t.strides, strict=True))


def equal(a: Any, b: Any, values: Values) -> bool:
    return all(sympy.sympify(a).subs(v) == sympy.sympify(b).subs(v) for v in values)
