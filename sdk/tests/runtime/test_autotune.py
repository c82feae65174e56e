"""Plans tried against each other, one in each call, by a clock that only they move."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from threading import Thread
from typing import Any

import pytest
import torch

from keel.errors import KeelError
from keel.runtime import autotune
from keel.runtime.autotune import LONGEST, Autotuner, Candidate, PlanTiming, fastest, reason


@dataclass
class Clock:
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    heard: list[tuple[PlanTiming, ...]] = field(default_factory=list)

    def plan(self, name: str, predicted: float, *seconds: float, raises: Exception | None = None) -> Candidate:
        """Takes these seconds in its first runs and the last of them in all others."""
        left: Iterator[float] = chain(seconds, repeat(seconds[-1]))

        def run(args: list[Any]) -> Sequence[Any]:
            self.log.append(name)
            self.now += next(left)
            given = [*args, name]
            args.clear()
            if raises is not None:
                raise raises
            return given

        return Candidate(PlanTiming((name,), predicted), run, self.heard.append)

    def tried(self, *plans: Candidate) -> tuple[PlanTiming, ...]:
        """What becomes of the plans."""
        run = Autotuner(plans)
        for _ in range(LONGEST * len(plans)):
            if not run.decided:
                run([])
        assert run.decided
        return self.heard[-1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(autotune, "perf_counter", lambda: found.now)
    return found


@pytest.mark.slow
def test_each_call_runs_one_plan_until_the_fastest_is_kept_and_the_others_are_let_go(clock: Clock) -> None:
    plans = [clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)]
    alive = [weakref.ref(plan.run) for plan in plans]
    run = Autotuner(plans, [PlanTiming(("c",), 1.1, why="It could not.")])
    del plans
    for i in range(2 + 2 * autotune.ROUNDS):
        assert not run.decided and not clock.heard
        given = [1, i]
        assert run(given) == [1, i, clock.log[-1]] and len(clock.log) == i + 1
        assert given == []  # inputs can be freed early
    gc.collect()
    assert run.decided and [ref() is None for ref in alive] == [True, False]
    assert run([3]) == [3, "b"] and clock.log[-1] == "b"
    (said,) = clock.heard
    assert [(t.owners, t.kept, t.took, t.why) for t in said] == [
        (("a",), False, 3.0, ""),
        (("b",), True, 2.0, ""),
        (("c",), False, None, "It could not."),
    ]


def test_turns_go_there_and_back_after_one_that_warms_up(clock: Clock) -> None:
    found = clock.tried(clock.plan("a", 1.0, 9.0, 1.0), clock.plan("b", 1.0, 9.0, 1.0))
    assert "".join(clock.log) == "ab" + "abba" * (autotune.ROUNDS // 2) + "ab" * (autotune.ROUNDS % 2)
    assert [t.seconds for t in found] == [(1.0,) * autotune.ROUNDS] * 2


def test_who_is_clearly_slower_drops_out_and_others_go_on_while_it_is_open(clock: Clock) -> None:
    noisy = [0.1, 0.1, 0.12, 0.09, 0.11] * 5
    found = clock.tried(clock.plan("a", 1.0, *noisy), clock.plan("b", 1.0, *reversed(noisy)), clock.plan("c", 1.0, 0.2))
    assert [len(t.seconds) for t in found] == [autotune.MAX_ROUNDS, autotune.MAX_ROUNDS, autotune.ROUNDS]
    assert fastest([*found[:2], replace(found[2], seconds=(0.01,) * autotune.ROUNDS)]) < 2


def test_after_long_enough_no_more_is_asked_for(clock: Clock) -> None:
    noisy = [autotune.SECONDS / 20 * x for x in (1.0, 1.0, 1.2, 0.9, 1.1) * 5]
    found = clock.tried(clock.plan("a", 1.0, *noisy), clock.plan("b", 1.0, *reversed(noisy)))
    assert autotune.ROUNDS < len(found[0].seconds) < autotune.MAX_ROUNDS


def test_the_clock_is_read_when_all_is_done(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(devices: Any) -> None:
        clock.log.append("|")
        clock.now += 1.0  # what was launched takes a second

    monkeypatch.setattr(autotune, "synchronize", settle)
    (one, _) = clock.tried(clock.plan("a", 1.0, 0.0), clock.plan("b", 1.0, 0.0))
    assert "".join(clock.log[:6]) == "|a||b|" and one.took == 1.0


@pytest.mark.parametrize(
    ("a", "b", "kept"),
    [
        ((5.0, 5.0, 5.0), (4.9, 4.9, 4.9), 1),
        ((5.0, 5.0, 5.0), (5.0, 5.0, 5.0), 0),
        ((5.3, 4.8, 5.1, 4.7, 5.3), (5.0, 5.0, 5.0, 5.0, 5.0), 1),
        ((4.9, 9.1, 5.15, 7.0, 5.3), (5.1, 9.3, 5.2, 7.2, 5.0), 0),  # most rounds count, though its median is greater
        ((5.1, 9.1, 5.1, 7.1, 5.1), (5.0, 9.0, 5.0, 7.0, 5.0), 1),  # what is busy slows both
        ((4.0, 4.0, 4.0), (5.0, 5.0, 5.0), 0),
    ],
)
def test_the_fastest_round_by_round_and_of_equals_the_one_predicted_to_be(
    a: tuple[float, ...], b: tuple[float, ...], kept: int
) -> None:
    assert fastest([PlanTiming(("a",), 1.0, a), PlanTiming(("b",), 1.2, b)]) == kept
    assert (
        fastest([PlanTiming(("c",), 0.1, (), "It failed."), PlanTiming(("b",), 1.2, b), PlanTiming(("a",), 1.0, a)])
        == 2 - kept
    )


def test_who_fails_in_its_first_run_is_out_says_why_and_costs_no_call(clock: Clock) -> None:
    broken = clock.plan("b", 1.2, 0.1, raises=ValueError("no room\nfor this"))
    run = Autotuner([clock.plan("a", 1.0, 3.0), broken])
    assert [run([i]) for i in range(3)] == [[i, "a"] for i in range(3)] and "".join(clock.log) == "abaa"
    assert [(t.why, t.seconds == ()) for t in clock.heard[0]] == [("", True), ("ValueError: no room", True)]


def test_what_a_program_does_wrong_passes_and_counts_for_nothing(clock: Clock) -> None:
    def strict(name: str) -> Candidate:
        plan = clock.plan(name, 1.0, 2.0)

        def run(args: list[Any]) -> Sequence[Any]:
            if "bad" in args:
                raise IndexError(f"{name} says: beyond the end")
            return plan.run(args)

        return replace(plan, run=run)

    run = Autotuner([strict("a"), strict("b")])
    while not run.decided:  # the plan by cost says what is wrong in a first run
        with pytest.raises(IndexError, match="a says|b says" if len(clock.log) > 2 else "a says"):
            run(["bad"])
        run([])
    assert "".join(clock.log[:6]) == "ababba" and not any(t.why for t in clock.heard[0])


def test_alone_there_is_nothing_to_time(clock: Clock) -> None:
    run = Autotuner([clock.plan("a", 1.0, 3.0)], [PlanTiming(("b",), 1.1, why="It could not.")])
    assert run([]) == ["a"] and clock.log == ["a"] and clock.heard[0][0].kept


def test_a_call_during_another_runs_the_first_and_counts_for_nothing(clock: Clock) -> None:
    inside: list[Any] = []

    def calls(args: list[Any]) -> Sequence[Any]:
        thread = Thread(target=lambda: inside.append(run([])))
        thread.start()
        thread.join()
        inside.append(run([]))  # even its own
        return clock_b.run(args)

    clock_b = clock.plan("b", 1.2, 2.0)
    run = Autotuner([clock.plan("a", 1.0, 3.0), replace(clock_b, run=calls)])
    assert run([]) == ["a"] and run([]) == ["b"] and "".join(clock.log) == "aaab"
    assert inside == [["a"]] * 2


def test_several_threads_decide_once(clock: Clock) -> None:
    run = Autotuner([clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)])

    def calls() -> None:
        while not run.decided:
            run([])

    threads = [Thread(target=calls) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(clock.heard) == 1


def test_a_recorded_call_decides_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [True]
    monkeypatch.setattr(autotune, "is_capturing", lambda devices: recorded[0])
    run = Autotuner([clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)])
    for _ in range(LONGEST):
        assert run([]) == ["a"] and not run.decided
    recorded[0] = False
    for _ in range(2 + 2 * autotune.ROUNDS):
        run([])
    assert run.decided and run([]) == ["b"] and len(clock.heard) == 1


def test_arguments_are_freed_early_but_in_the_first_run_of_a_rival(clock: Clock) -> None:
    freed: list[bool] = []

    def run(args: list[Any]) -> Sequence[Any]:
        given = weakref.ref(args[0])
        args.clear()
        freed.append(given() is None)
        return []

    trial = Autotuner([Candidate(PlanTiming((name,), 1.0), run, clock.heard.append) for name in "ab"])
    for _ in range(6):
        trial([torch.ones(3)])
    assert freed == [True, False, True, True, True, True]


def test_a_reason_is_one_line() -> None:
    assert reason(ValueError()) == "ValueError."
    error = KeelError("compile-raised", "acme could not compile it.", {"acme": "no room\nat all"})
    assert "acme could not compile it." in reason(error) and reason(error).endswith("acme: no room")
