"""Plans tried against each other, by a clock that only they move."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from threading import Thread
from typing import Any

import pytest
import torch

from keel.errors import KeelError
from keel.runtime import tried
from keel.runtime.tried import Candidate, Tried, compared, deciding, fastest, reason


@dataclass
class Clock:
    now: float = 0.0
    log: list[str] = field(default_factory=list)
    heard: list[tuple[Tried, ...]] = field(default_factory=list)

    def plan(self, name: str, predicted: float, *seconds: float, raises: Exception | None = None) -> Candidate:
        """Takes these seconds in its first runs and the last of them in all others."""
        left: Iterator[float] = chain(seconds, repeat(seconds[-1]))

        def run(args: list[Any]) -> Sequence[Any]:
            self.log.append(name)
            self.now += next(left)
            if raises is not None and self.log.count(name) > 1:
                raise raises
            given = [*args, name]
            args.clear()
            return given
        return Candidate(Tried((name,), predicted), run, self.heard.append)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(tried, "perf_counter", lambda: found.now)
    return found


def test_the_fastest_is_kept_and_the_others_are_let_go(clock: Clock) -> None:
    plans = [clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)]
    alive = [weakref.ref(plan.run) for plan in plans]
    run = deciding(plans, [Tried(("c",), 1.1, why="It could not.")])
    del plans
    given = [1, 2]
    assert run(given) == [1, 2, "b"] and given == []         # inputs can be freed early
    assert clock.log[-1] == "b"
    assert run([3]) == [3, "b"] and clock.log[-2:] == ["b", "b"]
    gc.collect()
    assert [ref() is None for ref in alive] == [True, False]
    (said,) = clock.heard
    assert [(t.owners, t.kept, t.took, t.why) for t in said] == [
        (("a",), False, 3.0, ""), (("b",), True, 2.0, ""), (("c",), False, None, "It could not.")]


def test_runs_alternate_after_one_that_warms_up(clock: Clock) -> None:
    found = compared([clock.plan("a", 1.0, 9.0, 1.0), clock.plan("b", 1.0, 9.0, 1.0)], (), lambda: None)
    assert "".join(clock.log) == "ab" + "abba" * (tried.ROUNDS // 2) + "ab" * (tried.ROUNDS % 2)
    assert [t.seconds for t in found] == [(1.0,) * tried.ROUNDS] * 2


def test_who_is_clearly_slower_drops_out_and_others_go_on_while_it_is_open(clock: Clock) -> None:
    noisy = [0.1, 0.1, 0.12, 0.09, 0.11] * 5
    plans = [clock.plan("a", 1.0, *noisy), clock.plan("b", 1.0, *reversed(noisy)), clock.plan("c", 1.0, 0.2)]
    found = compared(plans, (), lambda: None)
    assert [len(t.seconds) for t in found] == [tried.MOST, tried.MOST, tried.ROUNDS]
    assert fastest([*found[:2], replace(found[2], seconds=(0.01,) * tried.ROUNDS)]) < 2


def test_after_long_enough_no_more_is_asked_for(clock: Clock) -> None:
    noisy = [tried.SECONDS / 20 * x for x in (1.0, 1.0, 1.2, 0.9, 1.1) * 5]
    found = compared([clock.plan("a", 1.0, *noisy), clock.plan("b", 1.0, *reversed(noisy))], (), lambda: None)
    assert tried.ROUNDS < len(found[0].seconds) < tried.MOST


def test_the_clock_is_read_when_all_is_done(clock: Clock) -> None:
    def settle() -> None:
        clock.log.append("|")
        clock.now += 1.0                                      # what was launched takes a second
    (one, _) = compared([clock.plan("a", 1.0, 0.0), clock.plan("b", 1.0, 0.0)], (), settle)
    assert "".join(clock.log[:6]) == "|a||b|" and one.took == 1.0


@pytest.mark.parametrize(("a", "b", "kept"), [
    ((5.0, 5.0, 5.0), (4.9, 4.9, 4.9), 1),
    ((5.0, 5.0, 5.0), (5.0, 5.0, 5.0), 0),
    ((5.3, 4.8, 5.1, 4.7, 5.3), (5.0, 5.0, 5.0, 5.0, 5.0), 0),    # they differ by less than they vary
    ((5.1, 9.1, 5.1, 7.1, 5.1), (5.0, 9.0, 5.0, 7.0, 5.0), 1),    # what is busy slows both
    ((4.0, 4.0, 4.0), (5.0, 5.0, 5.0), 0),
])
def test_of_those_as_fast_as_the_fastest_the_one_predicted_to_be(
        a: tuple[float, ...], b: tuple[float, ...], kept: int) -> None:
    assert fastest([Tried(("a",), 1.0, a), Tried(("b",), 1.2, b)]) == kept
    assert fastest([Tried(("c",), 0.1, (), "It failed."), Tried(("b",), 1.2, b), Tried(("a",), 1.0, a)]) == 2 - kept


def test_who_fails_is_out_and_says_why(clock: Clock) -> None:
    broken = clock.plan("b", 1.2, 0.1, raises=ValueError("no room\nfor this"))
    run = deciding([clock.plan("a", 1.0, 3.0), broken])
    assert run([]) == ["a"] and clock.log.count("b") == 2
    assert [(t.why, t.seconds == ()) for t in clock.heard[0]] == [("", False), ("ValueError: no room", True)]


def test_what_the_first_raises_passes_and_the_next_call_decides(clock: Clock) -> None:
    wrong = [True]

    def run(args: list[Any]) -> Sequence[Any]:
        if wrong[0]:
            raise IndexError("beyond the end")
        return ["a"]
    decided = deciding([Candidate(Tried(("a",), 1.0), run, clock.heard.append), clock.plan("b", 1.2, 2.0)])
    with pytest.raises(IndexError, match="beyond the end"):
        decided([1])
    assert not clock.heard
    wrong.clear()
    wrong.append(False)
    assert decided([1]) == ["a"] and len(clock.heard) == 1


def test_alone_there_is_nothing_to_time(clock: Clock) -> None:
    run = deciding([clock.plan("a", 1.0, 3.0)], [Tried(("b",), 1.1, why="It could not.")])
    assert run([]) == ["a"] and clock.log == ["a", "a"] and clock.heard[0][0].kept


def test_of_several_threads_one_decides(clock: Clock) -> None:
    run = deciding([clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)])
    results: list[Any] = []
    threads = [Thread(target=lambda: results.append(run([]))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [["b"]] * 4 and len(clock.heard) == 1


def test_a_recorded_call_decides_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = [True]
    monkeypatch.setattr(tried, "recording", lambda devices: recorded[0])
    run = deciding([clock.plan("a", 1.0, 3.0), clock.plan("b", 1.2, 2.0)])
    assert run([]) == ["a"] and clock.log == ["a"] and not clock.heard
    recorded[0] = False
    assert run([]) == ["b"] and len(clock.heard) == 1


def test_results_of_one_run_are_alive_at_a_time(clock: Clock) -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def maker(name: str) -> Callable[[list[Any]], Sequence[Any]]:
        def run(args: list[Any]) -> Sequence[Any]:
            assert all(ref() is None for ref in made)
            result = torch.ones(3)
            made.append(weakref.ref(result))
            return [result]
        return run
    plans = [Candidate(Tried((name,), 1.0), maker(name), clock.heard.append) for name in "ab"]
    assert len(deciding(plans)([])) == 1 and len(made) > 2


def test_accelerators_are_waited_for_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 1)
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    for here in (None, torch.device("cuda")):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda here=here: here)
        tried.wait([cpu, gpu, torch.device("meta")])
    assert waited == [gpu]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert tried.recording([cpu, gpu]) and not tried.recording([cpu])


def test_a_reason_is_one_line() -> None:
    assert reason(ValueError()) == "ValueError."
    error = KeelError("compile-raised", "acme could not compile it.", {"acme": "no room\nat all"})
    assert "acme could not compile it." in reason(error) and reason(error).endswith("acme: no room")
