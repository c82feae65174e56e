"""Functions that stand together in a graph: which, what that asks of them, and what a failure says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
import keel_eager
from keel_conformance import programs
from keel_conformance.programs import PROGRAMS
from keel_conformance.programs.context import Context, Memories
from keel_conformance.programs.many_functions import program as together
from keel_conformance.programs.program import Function, Program

FUNCTIONS = programs.FUNCTIONS
TOGETHER = [p for p in programs.TOGETHER.programs if p.name.startswith("graphs-together")]
OF_ANY_SIZE = [p for p in programs.TOGETHER.programs if p.name.startswith("graphs-of-any-size")]


def among(program: Program) -> list[str]:
    assert isinstance(program.body, partial)
    return [f"graphs-{name}" for name in program.body.args[0]]


@pytest.mark.parametrize(("programs", "more"), [(TOGETHER, set()), (OF_ANY_SIZE, {"contract.shapes.C1"})])
def test_each_function_stands_among_others_once(programs: list[Program], more: set[str]) -> None:
    assert Counter(name for p in programs for name in among(p)) == Counter(FUNCTIONS.keys())
    made = PROGRAMS
    for p in programs:
        assert {made[n].exact for n in among(p)} == {p.exact}
        assert {c for n in among(p) for c in made[n].clauses} | more == set(p.clauses)
        assert p.clauses[0] == "contract.graphs.C1"
    assert all(made[n].smoke == p.smoke for p in TOGETHER for n in among(p)) and not any(p.smoke for p in OF_ANY_SIZE)


def test_sizes_are_not_known_where_a_program_says_so() -> None:
    asked = []

    def compiler(fn: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        asked.append(how["dynamic"])
        return fn

    for p in (TOGETHER[0], OF_ANY_SIZE[0]):
        p.body(Context(compiler, ""))
    assert asked == [None, True] and OF_ANY_SIZE[0].profile == "dynamic"


def test_the_short_tier_takes_functions_together_alone() -> None:
    smoke = {c.op for c in programs.cases("smoke")}
    assert {p.name for p in TOGETHER if p.smoke} < smoke and smoke.isdisjoint(FUNCTIONS)
    assert {p.name for p in TOGETHER + OF_ANY_SIZE} | set(FUNCTIONS) < {c.op for c in programs.cases()}


def test_all_functions_make_one_graph() -> None:
    """Or else all that stand with them would fall into pieces."""
    for one in FUNCTIONS.values():
        torch.compiler.reset()
        torch.compile(one.fn, backend="eager", fullgraph=True)(*one.draw_arguments(Context(torch.compile, ""), 0))


def test_a_failure_names_the_function(monkeypatch: Any) -> None:
    """A backend that is wrong at one operator, which but one of the functions has."""
    functions = {
        "right": Function(lambda x: (x + 1,), lambda ctx: [ctx.ints(3)]),
        "wrong": Function(lambda x: (x + 1, x.sign()), lambda ctx: [ctx.ints(5)]),
    }
    made = replace(TOGETHER[0], name="graphs-together-two", body=partial(together, functions, None))
    monkeypatch.setattr(programs, "PROGRAMS", {made.name: made})
    case = next(iter(programs.cases()))

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sign.default):
            node.target = torch.ops.aten.neg.default
        gm.recompile()
        return gm

    faulty = replace(keel_eager.backend, name="faulty", last_resort=False, compile=compile)
    found = programs.judge(case, programs.run_case(case, programs.Compiler(faulty)))
    assert found.status == "fail" and ".result.wrong[1] values" in found.sentence
    found = programs.judge(case, programs.run_case(case, programs.Compiler(keel.testing.find("eager"))))
    assert found.status == "pass", found.sentence


def test_memories() -> None:
    base = torch.arange(12.0)
    seen = Memories([(".a", base[2:]), (".b", torch.ones(3)), (".c", torch.ones(0))])
    assert seen.shared(base[5:]) == [".a +3"] and seen.shared(torch.ones(3)) == [] == seen.shared(Tensor())
    seen.add(".d", base)
    assert seen.shared(base[5:]) == [".a +3", ".d +5"]
