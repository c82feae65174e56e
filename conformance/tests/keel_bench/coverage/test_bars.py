"""Bars hold where a backend does all, and fall short where one sample, one dtype or one number is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keel_bench.coverage import bars as promised
from keel_bench.coverage.jobs import Job, Row
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

GOOD = Row(samples=20, traced=20, without_fallback=20, ways={"loops": 20}, judged=20, worst=1.0)
CELL = {"op": "sin", "family": "elementwise", "dtype": "f32", "verdict": "loops", "why": ""}


def of(*rows: Row | Outcome) -> list[Criterion]:
    outcomes = {
        Job("cpp", f"op{i}", "forward"): r if isinstance(r, Outcome) else Outcome(r) for i, r in enumerate(rows)
    }
    return list(promised.of_mode("cpp", "forward", outcomes))


def short(bars: list[Criterion]) -> list[str]:
    return [bar.name.partition(": ")[2] for bar in bars if bar.holds is False]


def test_all_is_well() -> None:
    assert short(of(GOOD, GOOD)) == []


def test_one_sample_of_twenty_may_be_eager_s_if_it_has_no_loops() -> None:
    left = replace(
        GOOD, without_fallback=19, left={"aten.foo.default": "cpp has no aten.foo: aten.foo has no loop form."}
    )
    assert short(of(left)) == []
    assert short(of(replace(left, without_fallback=18))) == ["samples without eager fallback"]
    assert short(of(replace(left, left={"aten.foo.default": "cpp has no f8."}))) == [
        "calls with a loop form left to eager"
    ]


@pytest.mark.parametrize(
    ("more", "which"),
    [
        ({"wrong": ["It raised."]}, "OpInfos that do not compile or run"),
        ({"inaccurate": ["result 0 is off by 9 times eager's."]}, "OpInfos over 2 x eager's error"),
    ],
)
def test_what_falls_short(more: dict[str, Any], which: str) -> None:
    assert short(of(GOOD, replace(GOOD, **more))) == [which]


def test_a_process_may_end_in_pytorch_only() -> None:
    assert short(of(GOOD, Outcome(None, "It died of SIGABRT.", "tracing float32[3]"))) == []
    assert short(of(GOOD, Outcome(None, "It died of SIGSEGV.", "comparing float32[3]"))) == [
        "OpInfos that end the process"
    ]


def test_the_table() -> None:
    found = list(
        promised.of_table(
            "cpp",
            [CELL, {**CELL, "dtype": "c64", "verdict": "extern"}, {**CELL, "dtype": "f8e5m2", "verdict": "none"}],
            [],
        )
    )
    assert found[0].value == "2 of 2" and found[0].holds
    assert not next(promised.of_table("cpp", [CELL, {**CELL, "verdict": "refused"}], [])).holds


def test_what_is_left_is_listed_by_need() -> None:
    rows = [replace(GOOD, left={"a": "x"}), replace(GOOD, left={"a": "x", "b": "y"})]
    outcomes = [(Job("cpp", f"op{i}", "forward"), Outcome(r)) for i, r in enumerate(rows)]
    assert promised.left(outcomes) == [("a", ["op0", "op1"], "x"), ("b", ["op1"], "y")]
