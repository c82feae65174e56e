"""From verdicts on mutants, controls and benign variants to figures on the suite itself. Nothing here runs anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from keel_conformance.cases.case import Case
from keel_conformance.report import Criterion, join_names, percent
from keel_conformance.results.verdict import BAD, Verdict

from .mutant import Mutant
from .tasks import Verdicts

KILLS = BAD - {"harness error", "vacuous", "xpass"}
"""Statuses that say that the backend is wrong, and not the case."""
ROBUST = 3
"""Independent cases that should kill a mutant at tier standard."""
SHARE = 0.95
"""The share of mutants that ``ROBUST`` cases should kill, and the share of kills that should name what is wrong."""
TARGETS = {"smoke": 0.8, "standard": 1.0, "full": 1.0}


@dataclass(frozen=True)
class MutantResult:
    """What became of a mutant with one seed. ``kills`` are the cases, in the plan's order, that eager PyTorch passes
    and it does not, of the ``cases`` that were run until there were enough. ``first`` says of the first kill whether it
    names the right member or clause.
    """

    mutant: str
    seed: int
    cases: int
    kills: tuple[str, ...]
    first: bool | None
    sentence: str = ""

    def row(self) -> dict[str, Any]:
        return {
            "mutant": self.mutant,
            "seed": self.seed,
            "tried": self.cases,
            "kills": len(self.kills),
            "right": self.first,
            "cases": list(self.kills[:5]),
            "sentence": self.sentence,
        }


def eager_passes(eager: Verdicts, case: Case) -> bool:
    """Whether eager PyTorch passes the case: otherwise the case says nothing about other backends."""
    verdict = eager.get(case.id)
    return verdict is not None and verdict.status in ("pass", "quality warning")


def mutant_result(
    mutant: Mutant, name: str, seed: int, cases: Sequence[Case], verdicts: Verdicts, eager: Verdicts
) -> MutantResult:
    result = kills(cases, verdicts, eager)
    if not result:
        return MutantResult(name, seed, len(verdicts), (), None)
    first = verdicts[result[0].id]
    sentence = f"{result[0].id}: {first.status}, {first.oracle}, {first.clause}: {first.sentence}"
    return MutantResult(
        name, seed, len(verdicts), tuple(c.id for c in result), mutant.explains(result[0], first.clause), sentence
    )


def kills(cases: Iterable[Case], verdicts: Verdicts, eager: Verdicts) -> list[Case]:
    """Those of the cases that eager PyTorch passes and the backend of the verdicts does not."""
    return [c for c in cases if failed(verdicts, c) and eager_passes(eager, c)]


def failed(verdicts: Verdicts, case: Case) -> bool:
    """Whether the verdict on the case, if there is one, says that the backend is wrong."""
    return case.id in verdicts and verdicts[case.id].status in KILLS


def mutation_bars(fates: Sequence[MutantResult], levels: Mapping[str, str], tier: str) -> list[Criterion]:
    """``levels`` has that of each mutant."""
    by: dict[str, list[MutantResult]] = {}
    for f in fates:
        by.setdefault(f.mutant, []).append(f)
    seeds = len({f.seed for f in fates})
    killed = [m for m, all_ in by.items() if all(f.kills for f in all_)]
    robust = [m for m, all_ in by.items() if all(len(f.kills) >= ROBUST for f in all_)]
    decided = [f for f in fates if f.first is not None]
    right = [f for f in decided if f.first]
    target = TARGETS[tier]
    wrong = dict.fromkeys(f.mutant for f in decided if not f.first)
    bars = [
        Criterion(
            "mutants killed",
            percent(len(killed), len(by)),
            f"at least {target:.0%} at {tier}",
            len(killed) >= target * len(by),
            f"survive: {join_names(m for m in by if m not in killed)}"
            if len(killed) < len(by)
            else f"{len(by)} mutants, {seeds} seeds",
        ),
        Criterion(
            "mutants killed by 3 cases or more",
            percent(len(robust), len(by)),
            f"at least {SHARE:.0%} at standard, in 5 of 5 seeds",
            None if tier == "smoke" else len(robust) >= SHARE * len(by),
            f"{seeds} of 5 seeds were run" if seeds < 5 else "",
        ),
        Criterion(
            "kills that name the right operator or clause",
            percent(len(right), len(decided)),
            f"at least {SHARE:.0%}",
            bool(decided) and len(right) >= SHARE * len(decided),
            f"not: {join_names(wrong)}" if wrong else "",
        ),
    ]
    for level in ("op", "system", "loop"):
        of_level = [m for m in by if levels[m] == level]
        count = sum(m in killed for m in of_level)
        if of_level:
            bars.append(
                Criterion(
                    f"killed at {level} level", percent(count, len(of_level)), "", None, f"{count} of {len(of_level)}"
                )
            )
    return bars


def count_bars(cases: Sequence[Case], few: Mapping[str, str]) -> list[Criterion]:
    """How many cases operators have; ``few`` says of some why these are fewer than 60."""
    counts = Counter(c.op for c in cases if c.kind in ("op", "negative"))
    least = min((n for op, n in counts.items() if op not in few), default=0)
    middle = median(counts.values()) if counts else 0
    low = [f"{op} {n}" for op, n in sorted(counts.items(), key=lambda pair: pair[1]) if n < LEAST and op not in few]
    named_few = [f"{op} {counts[op]}" for op in few if op in counts]
    return [
        Criterion(
            "cases of an operator, median",
            f"{middle:g}",
            "at least 200",
            middle >= MEDIAN,
            f"{len(counts)} operators, {sum(counts.values())} cases",
        ),
        Criterion(
            "cases of an operator, least",
            least,
            "at least 60",
            least >= LEAST,
            join_names(low) if low else f"fewer for a reason: {join_names(named_few)}" if named_few else "",
        ),
    ]


MEDIAN, LEAST = 200, 60


@dataclass(frozen=True)
class FalseAlarm:
    """A failure of a backend that is right."""

    backend: str
    seed: int
    verdict: Verdict

    def row(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "seed": self.seed,
            "case": self.verdict.case,
            "status": self.verdict.status,
            "sentence": self.verdict.sentence,
        }


def false_alarms(
    backend: str, seed: int, cases: Sequence[Case], verdicts: Verdicts, eager: Verdicts | None
) -> list[FalseAlarm]:
    """Of cases that eager PyTorch passes, where ``eager`` says which; of all, where it is None."""
    return [
        FalseAlarm(backend, seed, verdicts[c.id])
        for c in cases
        if c.id in verdicts and verdicts[c.id].status in BAD and (eager is None or eager_passes(eager, c))
    ]


def benign_bars(alarms: Sequence[FalseAlarm], case_count: int, variants: int, seeds: int) -> list[Criterion]:
    by = Counter(a.backend for a in alarms)
    note = ", ".join(f"{n} {b}" for b, n in by.most_common(8)) if by else f"{case_count} cases, {seeds} of 3 seeds"
    return [Criterion(f"false alarms on {variants} benign variants", len(alarms), "0 over 3 seeds", not alarms, note)]


def eager_bars(alarms: Sequence[FalseAlarm], case_count: int, repeats: Sequence[Verdicts]) -> list[Criterion]:
    """``repeats`` are the verdicts of runs of the same cases."""
    kinds = Counter(a.verdict.status for a in alarms)
    different = sorted(
        {case for one in repeats for case, v in one.items() if comparable(v) != comparable(repeats[0].get(case))}
    )
    return [
        Criterion(
            "cases that eager PyTorch fails",
            len(alarms),
            "0",
            not alarms,
            ", ".join(f"{n} {s}" for s, n in kinds.items()) or f"{case_count} cases",
        ),
        Criterion(
            "identical repeats of eager PyTorch",
            f"{sum(one == 0 for one in drift(repeats))} of {len(repeats)}",
            "10 of 10",
            len(repeats) >= 10 and not different,
            f"differ: {join_names(different)}" if different else f"{min(map(len, repeats), default=0)} cases each",
        ),
    ]


def drift(repeats: Sequence[Verdicts]) -> list[int]:
    """How many verdicts of each run are not those of the first."""
    return [sum(comparable(v) != comparable(repeats[0].get(case)) for case, v in one.items()) for one in repeats]


def comparable(v: Verdict | None) -> tuple[Any, ...]:
    """All of a verdict but what it took, and whether it failed by measured or by statistical figures."""
    return () if v is None else (v.status, v.oracle, v.sentence, v.clause, tuple(map(str, v.figures.items())))


@dataclass(frozen=True)
class VacuousPass:
    """A case that a control passes, and ought not to."""

    control: str
    op: str
    case: str


def vacuity_bars(
    blanks: Sequence[VacuousPass], bearing: Mapping[str, int], ops: Mapping[str, Sequence[str]], right: int
) -> list[Criterion]:
    """``bearing`` is how many cases each control was tried on whose values could tell, ``ops`` the operators of which
    it passes all that have any, ``right`` how many cases controls passed where they are right.
    """
    passed, total = len(blanks), sum(bearing.values())
    worst = max(bearing, key=lambda c: sum(b.control == c for b in blanks) / max(bearing[c], 1), default="")
    by = ", ".join(f"{c} {percent(sum(b.control == c for b in blanks), n)}" for c, n in bearing.items())
    vacuous = sorted({f"{op} ({control})" for control, some in ops.items() for op in some})
    share = max((sum(b.control == c for b in blanks) / n for c, n in bearing.items() if n), default=0.0)
    return [
        Criterion(
            "value-bearing cases that a control passes",
            percent(passed, total),
            "at most 0.5 % of each's",
            bool(total) and share <= 0.005,
            f"{by}; worst: {worst}",
        ),
        Criterion(
            "cases where a control is right",
            percent(right, total + right),
            "",
            None,
            "such as a sum of zeros for a backend that gives zeros",
        ),
        Criterion(
            "vacuous operators", len({v.partition(" ")[0] for v in vacuous}), "0", not vacuous, join_names(vacuous)
        ),
    ]


Meant = Callable[[str, Case], bool]
"""Whether a case bears no value that a control could miss."""


def vacuous_passes(
    control: str, cases: Sequence[Case], verdicts: Verdicts, eager: Verdicts, meant: Meant
) -> tuple[list[VacuousPass], int, list[str]]:
    """The cases that the control passes, how many bear values, and the operators of which it passes them all."""
    result, attempts, count = list[VacuousPass](), Counter[str](), 0
    for c in cases:
        if c.id not in verdicts or not eager_passes(eager, c) or verdicts[c.id].status == "not claimed":
            continue
        passes = verdicts[c.id].status not in KILLS
        if passes and meant(control, c):
            continue
        count += 1
        attempts[c.op] += 1
        if passes:
            result.append(VacuousPass(control, c.op, c.id))
    through = Counter(b.op for b in result)
    return result, count, [op for op, n in through.items() if n == attempts[op]]
