"""The facts of records that are made by hand, with lines and seconds."""

from __future__ import annotations

import json

import pytest

from keel.profile.profile_facts import POINTS, Fallback, ProfileFacts, facts_of, thinned
from keel.profile.profile_report import report

from .records import LINE, STEP, record


@pytest.fixture(scope="module")
def found() -> ProfileFacts:
    return facts_of(record())


def test_a_step_is_a_median(found: ProfileFacts) -> None:
    assert found.medians == {"eager": 20e-3, "keel": 16e-3, "inductor": 12e-3} and found.steps == 3


def test_a_break_is_reported_once(found: ProfileFacts) -> None:
    assert [b.line for b in found.breaks] == ["net.py:5   print()"]


def test_recompilations_are_by_line_with_their_reasons(found: ProfileFacts) -> None:
    first, second = found.recompilations
    assert (first.function, first.times, first.seconds) == ("forward", 2, 2.5)
    assert first.reasons == ("self.n == 0", "self.n == 1") and first.line == "net.py:4   self.n += 1"
    assert second.function == "forward after line 5"
    assert (found.first, found.compiled_in) == (2.0, (0, 1, 2))


def test_fallbacks_are_those_of_graphs_that_run_with_measured_times(found: ProfileFacts) -> None:
    refusal = "acme", "acme has no sort.", "a top-k", (LINE,)
    want = Fallback("aten.sort.default", "eager", *refusal, 2, pytest.approx(3e-3))
    assert found.fallbacks == (want,)


def test_moves_and_tensors_between_backends(found: ProfileFacts) -> None:
    assert [(c.source, c.target, c.bytes) for c in found.crossings] == [("acme", "eager", 4096.0)]
    assert [k.name for k in found.moves] == ["aten::copy_"]


def test_the_peak_of_memory_is_named(found: ProfileFacts) -> None:
    [use] = found.memory
    assert (use.device, use.peak, use.at) == ("cpu", 4096, "keel.acme layer.0: k_1 gelu")


def test_backends_without_a_sheet_and_a_slow_profiler_are_noted(found: ProfileFacts) -> None:
    assert any("eager has no data sheet" in note for note in found.notes)
    assert any("25 % longer" in note for note in found.notes)
    assert not any("acme has no data sheet" in note for note in found.notes)


def test_a_report_is_plain_data(found: ProfileFacts) -> None:
    data = json.loads(json.dumps(report(record()).as_json()))
    assert data["times"]["host"] == pytest.approx(found.times.host)
    assert len(data["suggestions"]) == 5 and data["suggestions"][0]["seconds"] > 0


def test_many_points_are_thinned_to_the_highest() -> None:
    points = [(n * 1e-6, n % 100) for n in range(10_000)]
    thin = thinned(points, 1e-2)
    assert len(thin) <= POINTS and max(value for _, value in thin) == 99
    assert thinned(STEP.memory["cpu"], 20e-3) == STEP.memory["cpu"]


def test_nothing_compiled_is_said() -> None:
    assert any("Nothing of a step runs in compiled graphs" in note for note in facts_of(record(graphs=())).notes)
