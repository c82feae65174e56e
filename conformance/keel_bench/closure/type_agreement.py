"""Do type rules say what PyTorch's fake tensors say: dtype, sizes and strides of every call that a program ends in?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import sympy

from keel import Call, SymType, TensorType, closure, universe
from keel.opset import OPSET, Op, bind

Values = Sequence[Mapping[sympy.Symbol, int]]


@dataclass
class Verdicts:
    """``typed`` calls were compared; ``wrong`` are sentences; ``untyped`` names of primitives without a rule.

    ``faults`` are names of operators whose types are eager's, for PyTorch's fake kernels are known to say them wrongly.
    """

    typed: int = 0
    wrong: list[str] = field(default_factory=list)
    untyped: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    judged_keys: set[Any] = field(default_factory=set)

    def judge(self, end: closure.Ending) -> None:
        """Compares each kind of call of ``end`` that has not been seen before."""
        values: Values | None = None
        for call in end.calls:
            op = OPSET.get(call.op)
            if op is None or op.kind != "primitive" or call.key in self.judged_keys:
                continue
            self.judged_keys.add(call.key)
            if op.out is None:
                self.untyped.add(op.name)
                continue
            self.typed += 1
            if closure.fault(call) is not None:
                self.faults.add(call.name)
            try:
                got = op.types(bind(call))
            except Exception as e:
                self.wrong.append(f"{op.name}: the rule raised {type(e).__name__}: {e} for {call}")
                continue
            if got != call.out and values is None:
                values = universe.assignments(end.captured.fake_mode, symbols(end.calls))
            if got != call.out and not agree(call, got, values or [{}]) and not known(op, call, values or [{}]):
                self.wrong.append(f"{op.name}: the rule says {', '.join(map(str, got))} for {call}")


def symbols(calls: Sequence[Call]) -> list[sympy.Symbol]:
    """All symbols in the types of arguments and results."""
    return sorted({s for c in calls for s in _symbols(c.args, tuple(c.kwargs.values()), c.out)}, key=str)


def _symbols(*values: Any) -> set[sympy.Symbol]:
    results: set[sympy.Symbol] = set()
    for value in values:
        match value:
            case list() | tuple():
                results |= _symbols(*value)
            case TensorType():
                results |= _symbols(value.shape, value.strides)
            case SymType():
                results |= _symbols(value.expr)
            case sympy.Basic():
                results |= value.free_symbols
    return results


def agree(call: Call, got: Sequence[Any], values: Values) -> bool:
    """Whether the types are those of the call's results, symbolic sizes having each of the ``values``.

    A rule writes ``?0``, ``?1`` ... for sizes that it cannot know, as the number of nonzero elements; they stand for
    symbols that the call brings into the world.
    """
    new = _symbols(call.out) - _symbols(call.args, tuple(call.kwargs.values()))
    return len(got) == len(call.out) and all(same(a, b, values, new) for a, b in zip(call.out, got, strict=True))


def known(op: Op, call: Call, values: Values) -> bool:
    """Whether the rule agrees if it is asked with each of the ``values`` for symbolic sizes. Which sizes are equal may
    follow from nothing but guards, of which a rule knows nothing; a view of merged dimensions depends on it.
    """
    for at in values:
        numbers = Call(call.op, _numbers(call.args, at), _numbers(dict(call.kwargs), at), _numbers(call.out, at))
        if not agree(numbers, op.types(bind(numbers)), [{}]):
            return False
    return True


def _numbers(value: Any, at: Mapping[sympy.Symbol, int]) -> Any:
    """Types and numbers with sizes for symbols."""
    match value:
        case list() | tuple():
            return type(value)(_numbers(v, at) for v in value)
        case dict():
            return {k: _numbers(v, at) for k, v in value.items()}
        case TensorType():
            shape, strides = ([int(sympy.sympify(n).subs(at)) for n in dims] for dims in (value.shape, value.strides))
            return TensorType(value.dtype, tuple(shape), tuple(strides), value.device)
        case SymType(kind="int"):
            return int(value.expr.subs(at))
        case SymType():
            return value.expr.subs(at)
    return value


def same(want: Any, got: Any, values: Values, new: Set[sympy.Symbol] = frozenset()) -> bool:
    match want, got:
        case (TensorType(), TensorType()):
            if (want.dtype, want.device, want.rank) != (got.dtype, got.device, got.rank):
                return False
            both = _pairs((*want.shape, *want.strides), (*got.shape, *got.strides), new)
            return all(_layout(a) == _layout(b) for a, b in (_at(both, v) for v in values))
        case (SymType(), SymType()):
            both = _pairs((want.expr,), (got.expr,), new)
            return want.kind == got.kind and all(a == b for a, b in (_at(both, v) for v in values))
    return bool(want == got)


Both = tuple[list[Any], list[Any]]


def _pairs(want: Sequence[Any], got: Sequence[Any], new: Set[sympy.Symbol]) -> Both:
    """Numbers to compare. Where the graph has but a ``new`` symbol, what the rule says stands for it: an unknown, or
    more than the graph knows, in terms of other sizes that only the run will tell.
    """
    unknowns = {b: a for a, b in zip(want, got, strict=True) if str(b).startswith("?") and a in new}
    news = {a: b for a, b in zip(want, got, strict=True) if a in new and b not in unknowns and _late(b)}
    return ([sympy.sympify(a).subs(news) for a in want], [sympy.sympify(b).subs(unknowns) for b in got])


def _late(value: Any) -> bool:
    return any(str(s).startswith("u") for s in getattr(value, "free_symbols", ()))


def _at(both: Both, values: Mapping[sympy.Symbol, int]) -> Both:
    return tuple([n.subs(values) for n in side] for side in both)  # type: ignore[return-value]


def _layout(numbers: list[Any]) -> list[Any]:
    """Sizes, and the strides that matter: not of sizes 0 and 1, nor any of an empty tensor."""
    rank = len(numbers) // 2
    sizes, strides = numbers[:rank], numbers[rank:]
    if 0 in sizes:
        return sizes
    return [*sizes, *(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))]
