"""Type rules are held to the types in the graph: equal at every value of the symbols, or the rule is wrong."""

from __future__ import annotations

import sympy
import torch

from keel import Call, SymType, TensorType, closure, universe
from keel.opset import OPSET
from keel_bench.closure.type_agreement import Verdicts, agree, known, same

S, T = (sympy.Symbol(n, integer=True, positive=True) for n in ("s0", "s1"))
VALUES = [{S: 6, T: 4}, {S: 9, T: 5}]


def dense(*shape: object, dtype: torch.dtype = torch.float32) -> TensorType:
    return TensorType.dense(dtype, shape)  # type: ignore[arg-type]


def test_equal_at_every_value_is_equal() -> None:
    assert same(dense(S * (S + 1)), dense(S**2 + S), VALUES)
    assert same(dense(sympy.Max(1, S)), dense(S), VALUES)
    assert same(SymType(S + S), SymType(2 * S), VALUES)


def test_what_differs_somewhere_differs() -> None:
    assert not same(dense(S), dense(T), VALUES)
    assert not same(dense(S), dense(6), VALUES)
    assert not same(dense(3), dense(3, 1), VALUES)
    assert not same(dense(3), dense(3, dtype=torch.float64), VALUES)
    assert not same(dense(3, 4), TensorType(torch.float32, (3, 4), (1, 3), torch.device("cpu")), VALUES)
    assert not same(dense(3), None, VALUES)


def test_strides_that_do_not_matter_may_differ() -> None:
    cpu = torch.device("cpu")
    assert same(TensorType(torch.float32, (1, 3), (7, 1), cpu), dense(1, 3), VALUES)
    assert same(TensorType(torch.float32, (0, 3), (1, 5), cpu), dense(0, 3), VALUES)
    assert same(TensorType(torch.float32, (0, 3), (1, 5), cpu), dense(S - S, 3), VALUES)


def test_a_size_that_the_call_brings_is_no_rules_to_know() -> None:
    new, unknown = sympy.Symbol("u0", integer=True), sympy.Symbol("?0", integer=True)
    call = Call(torch.ops.aten.nonzero.default, (dense(4, S),), {}, (dense(new, 2, dtype=torch.int64),))
    assert agree(call, (dense(unknown, 2, dtype=torch.int64),), VALUES)
    assert not agree(call, (dense(unknown, 3, dtype=torch.int64),), VALUES)
    assert not agree(call, (dense(S, 2, dtype=torch.int64),), VALUES)
    late = sympy.Symbol("u1", integer=True)
    sliced = Call(torch.ops.aten.slice.Tensor, (dense(4), 0, 0, SymType(late)), {}, (dense(new),))
    assert agree(sliced, (dense(sympy.Min(4, late)),), [{late: 3, new: 5}])
    known = Call(torch.ops.aten.sin.default, (dense(S),), {}, (dense(S),))
    assert not agree(known, (dense(unknown),), VALUES)
    number = Call(torch.ops.aten.item.default, (dense(),), {}, (SymType(new),))
    assert agree(number, (SymType(unknown),), VALUES) and not agree(number, (SymType(S),), VALUES)


def test_what_only_guards_tell_is_told_by_numbers() -> None:
    """Whether two dimensions can be merged may depend on two sizes that guards make equal."""
    view, op = torch.ops.aten.view.default, OPSET[torch.ops.aten.view.default]
    given = TensorType(torch.float32, (S, 2, T), (1, S, 2 * T), torch.device("cpu"))
    merged = TensorType(torch.float32, (2 * S, T), (1, 2 * T), torch.device("cpu"))
    call = Call(view, (given, [SymType(2 * S), SymType(T)]), {}, (merged,))
    assert not known(op, call, [{S: 6, T: 4}])  # here they cannot: rows follow each other S apart
    parts = TensorType(torch.float32, (2, S, 3), (T, 1, 2 * T), torch.device("cpu"))
    merged = TensorType(torch.float32, (2 * S, 3), (1, 2 * T), torch.device("cpu"))
    whole = Call(view, (parts, [SymType(2 * S), 3]), {}, (merged,))
    assert known(op, whole, [{S: 6, T: 6}, {S: 9, T: 9}]) and not known(op, whole, [{S: 6, T: 6}, {S: 6, T: 7}])


def test_every_call_is_judged_once() -> None:
    ends: list[closure.Ending] = []

    def watch(captured: object) -> closure.Ending:
        ends.append(closure.ending(captured))  # type: ignore[arg-type]
        return ends[-1]

    with torch.no_grad():
        universe.trace(lambda x: (x.sin().sin() * 2.0,), [torch.ones(3, 4)], closure.watching(watch), dynamic=True)
    verdicts = Verdicts()
    verdicts.judge(ends[0])
    assert (verdicts.typed, verdicts.wrong, verdicts.untyped) == (2, [], set())
    verdicts.judge(ends[0])
    assert verdicts.typed == 2


def test_what_pytorch_is_known_to_say_wrongly_is_named() -> None:
    ends: list[closure.Ending] = []

    def watch(captured: object) -> closure.Ending:
        ends.append(closure.ending(captured))  # type: ignore[arg-type]
        return ends[-1]

    x = torch.rand(6, 4).t()
    run = universe.trace(lambda x: (torch.poisson(x), x.sin()), [x], closure.watching(watch))
    assert [o.stride() for o in run(x)] == [(6, 1), (1, 4)]
    verdicts = Verdicts()
    verdicts.judge(ends[0])
    assert verdicts.faults == {"aten.poisson.default"} and not verdicts.wrong
    sentence = closure.fault(next(c for c in ends[0].calls if c.name == "aten.poisson.default"))
    assert sentence is not None and "row-major" in sentence
