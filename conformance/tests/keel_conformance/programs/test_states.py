"""Eager PyTorch keeps every clause in any order of actions, and wrong runtimes break the right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import keel
from keel.minify import Deadline
from keel_conformance import programs
from keel_conformance.programs import Observation, plain
from keel_conformance.programs.actions import ACTIONS, Facts
from keel_conformance.programs.compare_facts import first_failure, run_program
from keel_conformance.programs.context import Context
from keel_conformance.programs.covering_sequence import facts_after
from keel_conformance.programs.program import Program
from keel_conformance.programs.states import NAMES, PIECES, perform, piece, sequence
from keel_conformance.programs.world import World
from keel_conformance.repro.reduce_sequence import Trial, attempt, of_sequence, text_of
from keel_conformance.repro.replay import Work, work
from keel_conformance.results.verdict import Verdict
from keel_selftest.registry import MUTANTS

CASES = {c.op: c for c in programs.cases()}
EAGER = "eager"


class Actions(RuleBasedStateMachine):
    """Any order of actions in eager PyTorch: what must hold holds, and a second world tells the same."""

    def __init__(self) -> None:
        super().__init__()
        self.worlds = [World(Context(plain, "contract.calls.C1")) for _ in range(2)]
        self.facts, self.count = Facts(), 0

    @rule(name=st.sampled_from(sorted(name for name, one in ACTIONS.items() if not one.needs)))
    def act(self, name: str) -> None:
        self.do(name)

    @precondition(lambda self: bool(self.facts))
    @rule(drawn=st.data())
    def act_on_what_there_is(self, drawn: st.DataObject) -> None:
        ready = sorted(name for name, one in ACTIONS.items() if one.needs and one.needs <= self.facts)
        if ready:
            self.do(drawn.draw(st.sampled_from(ready)))

    def do(self, name: str) -> None:
        self.count += 1
        for world in self.worlds:
            world.title, world.clause = f"action {self.count}, {name}", ACTIONS[name].clause
            ACTIONS[name].do(world)
            world.look()
        self.facts = facts_after(self.facts, ACTIONS[name])
        first, second = (Observation(world.ctx.finish()) for world in self.worlds)
        assert first_failure(first, second) is None


TestActions = pytest.mark.slow(Actions.TestCase)
TestActions.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_all_actions_and_pieces_have_a_program() -> None:
    assert {*NAMES} == {name for name in CASES if name.startswith("states-")}
    assert {c.op for c in programs.cases("smoke")} & {*NAMES} == {n for n in NAMES if "-pairs" in n}
    core = {n for n, a in ACTIONS.items() if a.profile == "core" and not a.costly}
    assert {*sequence("core", 2, 0)} == core
    assert {*sequence("training", 2, 0)} == {n for n, a in ACTIONS.items() if not a.costly}


def test_clauses_and_facts_of_actions_are_known() -> None:
    given = {fact for one in ACTIONS.values() for fact in one.gives}
    for one in ACTIONS.values():
        assert one.clause in programs.CLAUSES and one.about.endswith(".") and one.needs <= given and one.ends <= given


def test_pieces_have_all_of_the_sequence() -> None:
    names, count = sequence("training", 3, 0), PIECES["training", 3]
    pieces = [piece("training", 3, k, 0) for k in range(count)]
    triples = {t for p in pieces for t in zip(p, p[1:], p[2:], strict=False)}
    assert triples >= {*zip(names, names[1:], names[2:], strict=False)}


def test_eager_keeps_the_clauses_in_all_pairs() -> None:
    for profile in ("core", "training"):
        body = partial(perform, names=sequence(profile, 2, 0)[:300])
        first, second = (
            Observation(run_program(Program("states", "states", ("contract.calls.C1",), body), plain, 0, 3).finish())
            for _ in range(2)
        )
        assert first_failure(first, second) is None


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "cpp"])
def test_right_backends_pass(backend: str) -> None:
    assert attempt(Trial(backend, tuple(ACTIONS), 3)) is None


@pytest.mark.slow
def test_every_call_reaches_the_backend() -> None:
    """Dynamo runs what it has compiled too often in eager PyTorch, which would test nothing."""
    made, called = list[str](), [0]
    backend = keel.testing.find("eager")

    def count(ctx: Context, names: Sequence[str]) -> None:
        def compile(fn: Any, **how: Any) -> Any:
            go = programs.Compiler(counting)(fn, **how)

            def call(*args: Any) -> Any:
                before = called[0]
                result = go(*args)
                made.append(fn.__name__) if called[0] == before else None
                return result

            return call

        perform(Context(compile, "contract.calls.C1"), names)

    def counted(gm: Any) -> Any:
        def call(*inputs: Any) -> Any:
            called[0] += 1
            return gm.forward(*inputs)

        return call

    counting = replace(backend, name="counting", last_resort=False, compile=counted)
    run_program(
        Program("states", "states", ("contract.calls.C1",), lambda ctx: count(ctx, tuple(ACTIONS))), plain, 0, 3
    )
    assert not made and called[0] > 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "names", "clause"),
    [
        ("weights-refreshed-by-version", ("calls", "writes-a-weight-by-its-data", "calls"), "contract.models.C3"),
        ("last-arguments-held", ("drops-an-argument",), "contract.lifetimes.C1"),
        ("last-results-held", ("drops-an-argument",), "contract.lifetimes.C2"),
        ("true-is-all-ones", ("calls-on-rows",), "contract.dtypes.C4"),
        ("draws-leave-the-generator", ("draws",), "contract.random.C9"),
        ("threads-draw-the-same-numbers", ("draws-in-a-thread",), "contract.random.C9"),
        ("generator-moves-on-by-one", ("draws", "draws-in-eager"), "contract.random.C2"),
        ("arguments-of-a-failed-call-stay", ("raises-while-it-runs",), "contract.lifetimes.C1"),
    ],
)
def test_wrong_runtimes_break_a_clause(mutant: str, names: tuple[str, ...], clause: str) -> None:
    found = attempt(Trial(MUTANTS[mutant].subject, names, 0))
    assert found and found.clause == clause and found.done == names


class Bench:
    """Does the work in this process."""

    def value(self, function: Any, argument: Any) -> Any:
        return work(Work(function, argument), lambda text: None)

    def status(self, path: str) -> int:
        return int("show(" in Path(path).read_text())


@pytest.mark.slow
def test_a_failing_sequence_becomes_the_shortest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("draws", "calls", "calls-on-rows", "writes-a-weight-by-its-data", "draws-in-eager", "calls", "draws")
    case = CASES["states-pairs-1"]
    monkeypatch.setitem(NAMES, case.op, lambda seed: names)
    (tmp_path / "repro").mkdir()
    verdict = Verdict(case.id, "fail", "exact", "It differs.", "contract.calls.C1")
    subject = MUTANTS["weights-refreshed-by-version"].subject
    written = of_sequence(tmp_path, subject, case, verdict, Bench(), Deadline(60.0))  # type: ignore[arg-type]
    text = (tmp_path / written.path).read_text()
    shortest = ("calls", "writes-a-weight-by-its-data", "calls")
    assert written.smaller and text == text_of(subject, shortest, case.seed, verdict)
    assert "# writes-a-weight-by-its-data: Writes to a weight through its data" in text
