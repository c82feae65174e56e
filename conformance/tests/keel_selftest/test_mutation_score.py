"""Figures from verdicts that are given."""

from __future__ import annotations

from keel_conformance.cases.case import Case
from keel_conformance.results.verdict import Status, Verdict
from keel_selftest import mutation_score
from keel_selftest.registry import MUTANTS


def case(op: str, n: int, kind: str = "op") -> Case:
    return Case(op, "pointwise", kind, "core", f"aten.{op}.Tensor", "f32", (("n", str(n)),))  # type: ignore[arg-type]


def verdicts(cases: list[Case], *statuses: Status, clause: str = "") -> dict[str, Verdict]:
    return {c.id: Verdict(c.id, s, clause=clause) for c, s in zip(cases, statuses, strict=True)}


ADD = [case("add", n) for n in range(5)]
MUTANT = MUTANTS["add-without-alpha"]


def test_kills_are_failures_of_cases_that_eager_passes() -> None:
    eager = verdicts(ADD, "pass", "fail", "quality warning", "pass", "pass")
    mine = verdicts(ADD, "fail", "fail", "crash", "harness error", "pass")
    fate = mutation_score.mutant_result(MUTANT, "a", 0, ADD, mine, eager)
    assert fate.kills == (ADD[0].id, ADD[2].id) and fate.cases == 5 and fate.first is True


def test_a_failure_that_names_another_operator_is_named_wrongly() -> None:
    other = [case("sub", 0)]
    fate = mutation_score.mutant_result(MUTANT, "a", 0, other, verdicts(other, "fail"), verdicts(other, "pass"))
    assert fate.first is False


def test_a_clause_of_a_chapter_explains() -> None:
    mutant = MUTANTS["stale-results"]
    assert mutant.explains(ADD[0], "contract.calls.C1") and not mutant.explains(ADD[0], "contract.views.C1")


def test_a_mutant_counts_as_killed_if_every_seed_kills_it() -> None:
    fates = [
        mutation_score.MutantResult("a", 0, 5, ("x", "y", "z"), True),
        mutation_score.MutantResult("a", 1, 5, ("x", "y", "z"), True),
        mutation_score.MutantResult("b", 0, 5, ("x",), True),
        mutation_score.MutantResult("b", 1, 5, (), None),
    ]
    killed, robust, named, *_ = mutation_score.mutation_bars(fates, {"a": "op", "b": "op"}, "smoke")
    assert (killed.value, killed.holds) == ("50.0 %", False) and "b" in killed.note
    assert robust.value == "50.0 %" and named.value == "100.0 %" and named.holds


def test_alarms_are_failures_that_eager_does_not_have() -> None:
    eager = verdicts(ADD, "pass", "fail", "pass", "pass", "pass")
    mine = verdicts(ADD, "pass", "fail", "fail", "crash", "pass")
    assert [a.verdict.case for a in mutation_score.false_alarms("v", 0, ADD, mine, eager)] == [ADD[2].id, ADD[3].id]
    assert not mutation_score.benign_bars(mutation_score.false_alarms("v", 0, ADD, mine, eager), 5, 1, 1)[0].holds
    assert len(mutation_score.false_alarms("eager", 0, ADD, eager, None)) == 1


def test_repeats_have_to_be_identical() -> None:
    one, other = verdicts(ADD, *["pass"] * 5), verdicts(ADD, *["pass"] * 4, "fail")
    assert mutation_score.eager_bars([], 5, [one] * 10)[1].holds
    assert not mutation_score.eager_bars([], 5, [one] * 9 + [other])[1].holds
    assert not mutation_score.eager_bars([], 5, [one] * 9)[1].holds


def test_vacuous_cases_are_those_that_a_control_passes_though_they_bear_values() -> None:
    cases = [*ADD, case("sub", 0)]
    eager = verdicts(cases, *["pass"] * 6)
    mine = verdicts(cases, "fail", "pass", "pass", "fail", "fail", "pass")
    found, count, ops = mutation_score.vacuous_passes("zeros", cases, mine, eager, lambda control, c: c is ADD[1])
    assert [b.case for b in found] == [ADD[2].id, cases[5].id] and count == 5 and ops == ["sub"]
    share, right, vacuous = mutation_score.vacuity_bars(found, {"zeros": count}, {"zeros": ops}, 5)
    assert not share.holds and (right.value, right.holds) == ("50.0 %", None)
    assert (vacuous.value, vacuous.holds) == (1, False)
