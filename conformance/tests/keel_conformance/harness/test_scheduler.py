"""Which cases one process does at once, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

from keel_conformance.cases.case import Case
from keel_conformance.harness.scheduler import SHARED, TOGETHER, batches, queues, run_queue
from keel_conformance.results.verdict import Verdict


def calls(op: str, count: int, kind: str = "op") -> list[Case]:
    return [Case(op, "f32", kind, "core", seed=k) for k in range(count)]  # type: ignore[arg-type]


def ops(cases: tuple[Case, ...]) -> dict[str, int]:
    return {op: sum(c.op == op for c in cases) for op in dict.fromkeys(c.op for c in cases)}


def test_operators_of_few_calls_share_a_graph() -> None:
    cases = [
        *calls("neg", 12),
        *calls("neg", 1, "negative"),
        *calls("abs", 12),
        *calls("abs", 2, "negative"),
        *calls("sin", 8),
        *calls("cos", 5),
    ]
    first, second = queues(cases)
    assert ops(first) == {"neg": 13, "abs": 14, "sin": 8} and ops(second) == {"cos": 5}
    assert [(len(b), {c.kind for c in b}) for b in batches(first)] == [(SHARED, {"op"}), (3, {"negative"})]


def test_operators_of_many_calls_have_their_own() -> None:
    first, second, third = queues([*calls("neg", 4), *calls("abs", 40), *calls("sin", 17), *calls("cos", 2)])
    assert [ops(x) for x in (first, second, third)] == [{"neg": 4, "cos": 2}, {"abs": 40}, {"sin": 17}]
    assert [len(b) for b in batches(second)] == [TOGETHER, TOGETHER, 40 - 2 * TOGETHER]


def test_programs_are_alone() -> None:
    assert [len(lane) for lane in queues(calls("views", 3, "program"))] == [1, 1, 1]
    assert [len(lane) for lane in queues(calls("loops", TOGETHER + 1, "kernel"))] == [TOGETHER, 1]


class Failing:
    """Stands for a Scheduler whose cases all fail alike."""

    def resolve(self, cases: tuple[Case, ...]) -> Iterator[None]:
        yield from ()
        return [Verdict(c.id, "fail", "exact") for c in cases]  # type: ignore[return-value]


def settled(cases: list[Case]) -> list[str]:
    found: list[Verdict] = []
    for one in queues(cases):
        list(run_queue(Failing(), one, lambda b: None, lambda b: None, lambda b, v: found.extend(v)))  # type: ignore[arg-type]
    return [v.status for v in found]


def test_failures_of_one_operator_do_not_spare_another() -> None:
    both = [*calls("neg", 16), *calls("abs", 16), *calls("neg", 1, "negative"), *calls("abs", 1, "negative")]
    assert settled(both) == ["fail"] * 34
    assert settled(calls("neg", 50)) == ["fail"] * 32 + ["not run"] * 18
