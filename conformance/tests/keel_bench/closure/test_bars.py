"""Bars hold where all is inside, typed and accurate, and fall short where one thing is not; nothing counts twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keel_bench.closure import bars as promised
from keel_bench.closure import tracing_time
from keel_bench.closure.cli import _flat, planned
from keel_bench.closure.jobs import Job, Row
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

GOOD = Row(samples=2, traced=2, ends_in={"aten.sin.default": 2}, typed=3, judged=2, worst=1.0)


def of(**rows: Row | Outcome) -> list[Criterion]:
    outcomes = {Job("opinfo", n): r if isinstance(r, Outcome) else Outcome(r) for n, r in rows.items()}
    return list(promised.of_setting("forward static", outcomes, "OpInfos"))


def changed(**more: Any) -> Row:
    return replace(GOOD, **more)


def test_all_is_well() -> None:
    found = of(sin=GOOD, cos=GOOD)
    assert found[0].value == "2 of 2 (100.0 %)"
    assert all(bar.holds is not False for bar in found) and sum(bar.holds is True for bar in found) == 3


@pytest.mark.parametrize(
    ("row", "which"),
    [
        (changed(outside={"aten.foo.default": "no"}), "end inside"),
        (changed(wrong=["legalization raised"]), "end inside"),
        (changed(mistyped=["sin: the rule says"]), "type rules"),
        (changed(inaccurate=["result 0 is off by 9 times eager's."]), "x eager's error"),
        (Outcome(None, "It died of SIGSEGV while legalizating.", "legalizating f32[3]"), "end inside"),
    ],
)
def test_one_thing_wrong_falls_short_by_name(row: Row | Outcome, which: str) -> None:
    (short,) = [bar for bar in of(sin=GOOD, bad=row) if bar.holds is False]
    assert which in short.name


@pytest.mark.parametrize(
    "row",
    [
        changed(traced=0, ends_in={}, untraced={"DataDependentOutputException": "float32[3]"}),
        Outcome(None, "It died of SIGABRT while tracing f32[3].", "tracing f32[3]"),
    ],
)
def test_what_pytorch_does_not_trace_is_listed_and_not_counted(row: Row | Outcome) -> None:
    found = of(sin=GOOD, untraceable=row)
    assert found[0].value == "1 of 1 (100.0 %)" and found[0].holds
    assert (found[1].value, found[1].note) == (1, "untraceable")


def test_what_is_left_out_by_decision_has_a_row_of_its_own() -> None:
    some = {"of layout sparse_coo, and opset 1.0 leaves out sparse layouts.": "float32[3]"}
    found = {
        bar.name: bar
        for bar in of(
            sin=GOOD,
            sparse=changed(traced=0, refused=2, ends_in={}, left_out=some),
            to_dense=changed(refused=1, left_out=some),
        )
    }
    assert found["forward static: OpInfos that end inside"].value == "2 of 2 (100.0 %)"
    assert found["forward static: OpInfos that PyTorch does not trace"].value == 0
    own = found["forward static: OpInfos of what the operator set leaves out"]
    assert (own.value, own.note) == (1, "sparse")
    samples = found["forward static: samples of what it leaves out"]
    assert (samples.value, samples.note) == (3, "also in to_dense")


def test_nothing_measured_is_no_success() -> None:
    assert of(untraceable=changed(traced=0, ends_in={}, untraced={"no": "f32[]"}))[0].holds is False


def test_what_remains_outside_is_sorted_by_need() -> None:
    a, b = changed(outside={"aten.x.default": "no"}), changed(outside={"aten.x.default": "no", "aten.y.default": "why"})
    rows = promised.outside([(Job("opinfo", "a"), Outcome(a)), (Job("opinfo", "b"), Outcome(b))])
    assert rows == [("aten.x.default", ["a", "b"], "no"), ("aten.y.default", ["b"], "why")]


def test_every_primitive_is_counted() -> None:
    found = {bar.name: bar for bar in promised.of_members()}
    families = [bar.value for name, bar in found.items() if name.startswith("clauses: ")]
    assert sum(families) == found["clauses"].value > 0  # type: ignore[arg-type,operator]
    assert found["primitives without clauses"].holds and found["primitives without a type rule"].holds
    assert "cond" in found["primitives of higher order, typed by what they are given"].note


def test_time_is_held_to_aotautograds() -> None:
    job = Job("time", "bert")
    assert [b.holds for b in tracing_time.bars({job: Outcome({"alone": 2.0, "adds": 1.9})})] == [True]
    assert [b.holds for b in tracing_time.bars({job: Outcome({"alone": 2.0, "adds": 2.1})})] == [False]
    assert [b.holds for b in tracing_time.bars({job: Outcome(None, "died")})] == [False]


@pytest.mark.filterwarnings("ignore")
def test_training_is_asked_of_what_has_gradients() -> None:
    jobs = planned("opinfo", [("forward", False), ("training", True)], 2, ["argmax", "sin"], True)
    assert {j.title for j in jobs} == {"argmax forward static", "sin forward static", "sin training dynamic"}


def test_a_job_is_a_row_of_the_file() -> None:
    job = Job("opinfo", "sin", samples=2)
    good, lost = _flat(job, Outcome(changed(samples=1))), _flat(job, Outcome(None, "It died.", "tracing f32[3]", 1.0))
    assert (good["name"], good["of"], good["samples"], good["failure"]) == ("sin", 2, 1, "")
    assert (lost["of"], lost["doing"], lost["elapsed"]) == (2, "tracing f32[3]", 1.0) and "samples" not in lost
    assert _flat(Job("time", "bert"), Outcome({"alone": 2.0, "adds": 1.0}))["adds"] == 1.0
