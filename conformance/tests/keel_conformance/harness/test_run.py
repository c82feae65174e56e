"""What a backend does to its process, or to what it is given, costs the case at which it does it, and is named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from keel_conformance.cases.case import Case
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.plan import case_of, plan
from keel_conformance.harness.protocol import Settings
from keel_conformance.harness.run import run
from keel_conformance.results.verdict import Verdict, totals

GOOD = 5
"""Cases of float32 beside the one of float64, which each faulty backend gets wrong."""


@cache
def planned() -> tuple[Case, ...]:
    return tuple(c for c in plan(tier="standard", ops=["neg"]) if c.kind == "op")


@cache
def cases() -> tuple[Case, ...]:
    """One of float64 in the middle of others, of numbers that one more changes."""
    domain = domain_of("neg")
    assert domain is not None
    culprit = case_of(
        domain,
        {"dtype": "f64", "form": "f0", "shape": "17", "layout": "contiguous", "partner": "alike", "values": "random"},
        0,
    )
    good = [c for c in planned() if c.dtype == "f32"][:GOOD]
    return (*good[:3], culprit, *good[3:])


def judged(backend: str, folder: Path, some: Sequence[Case] | None = None, limit: float = 90.0) -> list[Verdict]:
    settings = Settings(f"faulty_backends:{backend}", memory=2**30, threads=1, limit=limit, slack=0.5)
    return run(some or cases(), settings.subject, out=folder, settings=settings).verdicts


def test_what_is_right_passes(tmp_path: Path) -> None:
    verdicts = judged("well", tmp_path)
    assert [v.status for v in verdicts] == ["pass"] * (GOOD + 1)
    assert [v.case for v in verdicts] == [c.id for c in cases()]
    assert all(v.seconds > 0 for v in verdicts)


@pytest.mark.parametrize(
    ("backend", "status", "said"),
    [
        ("segfault", "crash", "It died of SIGSEGV while running call 0."),
        ("abort", "crash", "It died of SIGABRT while running call 0."),
        ("leave", "crash", "It ended early while running call 0."),
        ("sleep", "timeout", "It did not end within 3 s while running call 0."),
        ("hog", "resource", "It raised while running: RuntimeError"),
        ("stack", "crash", "It died of SIGSEGV while running call 0."),
        ("error", "fail", "It raised while running: ValueError: no juice is left"),
        ("quits", "fail", "It raised while running: KeelError: KeelError[run-raised]: Part p0, which quits compiled"),
        ("compiles", "fail", "no juice is left"),
        ("mutates", "fail", "Call 0: It wrote to argument 0"),
        ("oversteps", "fail", "Call 0: It wrote before the memory of argument 0"),
        ("aliases", "fail", "Result 0 of call 0 shares memory with argument 0."),
        ("reuses", "fail", "Result 0 of call 1 was changed by a later one."),
        ("caches", "fail", "Call 1: "),
        ("third", "fail", "Result 0 has other bits when the same call is made again."),
    ],
)
def test_one_case_is_the_culprit(backend: str, status: str, said: str, tmp_path: Path) -> None:
    verdicts = judged(backend, tmp_path, limit=3.0 if backend == "sleep" else 90.0)
    assert [v.status for v in verdicts] == ["pass"] * 3 + [status] + ["pass"] * (GOOD - 3)
    assert said in verdicts[3].sentence


def test_what_is_not_claimed_is_counted_as_that(tmp_path: Path) -> None:
    verdicts = judged("refuses", tmp_path)
    assert {v.status for v in verdicts} == {"not claimed"}
    assert verdicts[0].sentence == "refuses: refuses takes nothing."


def test_what_differs_in_a_fresh_process_is_flaky(tmp_path: Path) -> None:
    verdicts = judged("tires", tmp_path, planned()[:20])
    assert all(v.status == "pass" for v in verdicts[:16])
    flaky = [v for v in verdicts[16:] if v.status == "flaky"]
    assert flaky and "Tried again, in a fresh process, pass." in flaky[0].sentence


def test_what_dies_only_together_is_said_of_the_first(tmp_path: Path) -> None:
    verdicts = judged("crowd", tmp_path, cases()[:2])
    assert [v.status for v in verdicts] == ["crash", "pass"]
    assert f"It does so only together with {cases()[1].id}." in verdicts[0].sentence


def test_an_operator_that_keeps_failing_alike_is_given_up(tmp_path: Path) -> None:
    verdicts = judged("zeros", tmp_path, planned()[:80])
    counts = totals(verdicts)
    assert counts["fail"] >= 20 and counts["not run"] >= 16 and len(verdicts) == 80
    last = verdicts[-1]
    assert last.status == "not run" and "cases of the operator before it end alike: fail" in last.sentence
