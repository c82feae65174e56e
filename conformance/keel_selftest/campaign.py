"""A run of the suite on mutants, null backends and benign variants, from plans to bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.plan import PROFILES, other_cases, plan
from keel_conformance.harness.parallel_plan import parallel_drawer
from keel_conformance.report import Criterion
from keel_conformance.workers.command_run import Interruption, progress_on

from . import mutation_score, robustness
from .discriminating import has_decided_values, is_expected_pass, is_right_by_chance
from .mutant import Mutant, fits, packet_of
from .registry import BENIGN, CONTROLS, MUTANTS
from .tasks import Task, Verdicts, run_tasks

EAGER, LOOPS = "eager", "interp"
REPEATS = 10
SHARES = {"smoke": 12, "standard": 10, "full": 1}
"""Variants that do every operator otherwise, and the repeats of eager PyTorch, take one case in this many."""
EACH = {"smoke": 6, "standard": 12, "full": 24}
"""Cases of each operator that controls are tried on, which the share is of; where they pass these they are tried on all
of the operator's.
"""
WAVE = 8
"""Cases that a mutant is tried on first; as long as too few of them kill it, on twice as many again."""
COSTED = 40
"""What the harness takes is measured on one case in this many of the standard tier."""
PARTS = ("plan", "mutants", "controls", "benign", "repeats", "overhead", "isolation", "resume", "onboarding")


@dataclass
class Campaign:
    """One run of it, on cases of the members, programs and kernels ``ops``, or of all if ``ops`` is empty. ``rows`` are
    what the bars are made of.
    """

    console: Console
    tier: str
    profile: str
    jobs: int
    folder: Path
    resume: bool
    interruption: Interruption
    ops: tuple[str, ...] = ()
    rows: dict[str, list[Any]] = field(default_factory=dict)
    eager: dict[int, Verdicts] = field(default_factory=dict)
    plans: dict[tuple[str, int], tuple[Case, ...]] = field(default_factory=dict)

    def bars(self, parts: Sequence[str], seeds: Sequence[int], names: Sequence[str]) -> list[Criterion]:
        results: list[Criterion] = []
        steps: dict[str, Callable[[], list[Criterion]]] = {
            "plan": self.counts,
            "mutants": lambda: self.mutants(seeds, names),
            "controls": self.controls,
            "benign": lambda: self.benign(seeds),
            "repeats": self.repeats,
            "overhead": lambda: robustness.overhead_bars(
                spread(self.standard(), COSTED), self.folder / "overhead", self.jobs
            ),
            "isolation": lambda: robustness.isolation_bars(self.folder / "isolation"),
            "resume": lambda: robustness.resume_bars(self.folder / "resume", len(self.standard())),
            "onboarding": lambda: robustness.onboarding_bars(self.folder / "onboarding", self.jobs),
        }
        for part in parts:
            if self.interruption.by is None:
                results += steps[part]()
        if self.interruption.by is not None:
            results.append(
                Criterion("parts that ended", "not all", "all", False, f"stopped by {self.interruption.by.name}")
            )
        return results

    def until_interrupted(self, seeds: Iterable[int]) -> Iterator[int]:
        """To draw up the plan of the next one takes a minute."""
        return takewhile(lambda seed: self.interruption.by is None, seeds)

    def standard(self) -> tuple[Case, ...]:
        """The plan of a whole run."""
        return self.plan(0, "standard")

    def plan(self, seed: int, tier: str = "") -> tuple[Case, ...]:
        """That of the sitting's own tier where no other is named."""
        of = tier or self.tier, seed
        if of not in self.plans:
            self.plans[of] = plan(
                profile=self.profile, tier=of[0], seed=seed, ops=self.ops, draw=parallel_drawer(self.jobs)
            )
        return self.plans[of]

    def counts(self) -> list[Criterion]:
        """How many cases operators have; tier smoke has no such bar."""
        if self.tier == "smoke":
            return []
        few = {name: domain.why_few for name in MEMBERS if (domain := domain_of(name)) is not None and domain.why_few}
        return mutation_score.count_bars(self.plan(0), few)

    def plan_for(self, seed: int, mutants: Sequence[Mutant]) -> tuple[Case, ...]:
        """The part of the plan that mutants may reach: at the higher tiers it takes minutes to draw all up."""
        if (self.tier, seed) in self.plans or len(mutants) == len(MUTANTS):
            return self.plan(seed)
        members = [
            op.name
            for op in MEMBERS.values()
            if any(fits(packet_of(str(t)), m.calls) for m in mutants for t in op.targets)
        ]
        names = [
            c.op
            for c in other_cases(self.tier, seed)
            if c.profile in PROFILES[self.profile] and any(fits(c.op, m.programs) for m in mutants)
        ]
        ops = [n for n in (*members, *dict.fromkeys(names)) if not self.ops or n in self.ops]
        return (
            plan(profile=self.profile, tier=self.tier, seed=seed, ops=ops, draw=parallel_drawer(self.jobs))
            if ops
            else ()
        )

    def mutants(self, seeds: Iterable[int], names: Sequence[str]) -> list[Criterion]:
        fates: list[mutation_score.MutantResult] = []
        for seed in self.until_interrupted(seeds):
            cases = self.plan_for(seed, [MUTANTS[n] for n in names])
            reached = {n: tuple(c for c in cases if MUTANTS[n].reaches(c)) for n in names}
            verdicts = self.hunt(seed, cases, reached)
            results = [
                mutation_score.mutant_result(MUTANTS[n], n, seed, some, verdicts[n], self.eager.get(seed, {}))
                for n, some in reached.items()
                if self.is_decided(seed, some, verdicts[n])
            ]
            self.report_fates(results)
            fates += results
        self.rows["mutants"] = [f.row() for f in fates]
        return mutation_score.mutation_bars(fates, {n: MUTANTS[n].level for n in names}, self.tier) if fates else []

    def hunt(self, seed: int, order: Sequence[Case], reached: Mapping[str, Sequence[Case]]) -> dict[str, Verdicts]:
        """The verdicts on each mutant, tried on more and more of what reaches it until enough cases kill it that eager
        PyTorch passes, which is run on these alone.
        """
        results: dict[str, Verdicts] = {n: {} for n in reached}
        left = {n: waves(some) for n, some in reached.items()}
        for k in range(max(map(len, left.values()), default=0)):
            tasks = {
                n: Task(f"mutants-{seed}/{n}/{k}", MUTANTS[n].subject, left[n][k], True)
                for n in reached
                if k < len(left[n]) and not self.is_decided(seed, reached[n], results[n])
            }
            if not tasks:
                break
            new = self.run_tasks(f"mutants, seed {seed}, wave {k + 1}", list(tasks.values()))
            if self.interruption.by is not None:  # half a wave is not judged: --resume goes on with it
                break
            for n, task in tasks.items():
                results[n] = {**results[n], **new.get(task.name, {})}
            self.baseline(
                seed,
                order,
                (c for n, task in tasks.items() for c in task.cases if mutation_score.failed(results[n], c)),
            )
        return results

    def is_decided(self, seed: int, cases: Sequence[Case], verdicts: Verdicts) -> bool:
        """Whether enough of the cases kill, or all have been tried."""
        kills = mutation_score.kills(cases, verdicts, self.eager.get(seed, {}))
        return len(kills) >= mutation_score.ROBUST or len(verdicts) == len(cases)

    def report_fates(self, fates: Sequence[mutation_score.MutantResult]) -> None:
        for f in fates:
            if not f.kills or not f.first:
                what = "survives" if f.cases else "is reached by no case"
                text = (
                    f"{f.mutant}: {what}, {f.cases} cases."
                    if not f.kills
                    else f"{f.mutant}: named wrongly. {f.sentence}"
                )
                self.console.print(f"{text} ({MUTANTS[f.mutant].about})", markup=False, highlight=False)

    def controls(self) -> list[Criterion]:
        # in the order of their digests, which draws them: the first in the plan are not like the others
        cases = sorted((c for c in self.plan(0) if c.kind == "op"), key=lambda c: c.digest)
        some = first_of_each(cases, EACH[self.tier], has_decided_values)
        eager = self.baseline(0, cases, some)
        first = tuple(c for c in some if mutation_score.eager_passes(eager, c))
        verdicts = self.run_tasks(
            "controls", [Task(f"controls/{n}", c.subject, first, True) for n, c in CONTROLS.items()]
        )
        by_control = {n: verdicts.get(f"controls/{n}", {}) for n in CONTROLS}
        plain = {n: mutation_score.vacuous_passes(n, first, by_control[n], eager, is_expected_pass) for n in CONTROLS}
        passed = {n: frozenset(ops) for n, (_, _, ops) in plain.items()}
        eager = self.baseline(0, cases, (c for c in cases if any(c.op in ops for ops in passed.values())))
        known = frozenset(first)
        left = [c for c in cases if c not in known and mutation_score.eager_passes(eager, c)]
        again = [
            Task(f"controls-more/{n}", c.subject, tuple(c for c in left if c.op in passed[n]), True)
            for n, c in CONTROLS.items()
        ]
        rest = self.run_tasks("controls, where they passed", [t for t in again if t.cases])
        vacuous_passes, bearing, right = list[mutation_score.VacuousPass](), dict[str, int](), 0
        operators = dict[str, list[str]]()
        for task in again:
            name = task.name.rpartition("/")[2]
            passes, bearing[name], _ = mutation_score.vacuous_passes(
                name, first, by_control[name], eager, is_right_by_chance
            )
            right += len(plain[name][0]) - len(passes)
            _, _, operators[name] = mutation_score.vacuous_passes(
                name, [*first, *task.cases], {**by_control[name], **rest.get(task.name, {})}, eager, is_expected_pass
            )
            vacuous_passes += passes
        self.rows["vacuous"] = [vars(b) for b in vacuous_passes]
        return mutation_score.vacuity_bars(vacuous_passes, bearing, operators, right)

    def benign(self, seeds: Iterable[int]) -> list[Criterion]:
        result, eager_found = list[mutation_score.FalseAlarm](), list[mutation_score.FalseAlarm]()
        count = eager_count = last = 0
        for seed in self.until_interrupted(seeds):
            reached = {n: self.sample(m, seed) for n, m in BENIGN.items()}
            eager = self.baseline(seed, self.plan(seed), (c for some in reached.values() for c in some))
            all_ = self.run_tasks(
                f"benign variants, seed {seed}",
                [Task(f"benign-{seed}/{n}", BENIGN[n].subject, some) for n, some in reached.items()],
            )
            for n, some in reached.items():
                verdicts = all_.get(f"benign-{seed}/{n}", {})
                result += mutation_score.false_alarms(n, seed, some, verdicts, eager)
                count += sum(mutation_score.eager_passes(eager, c) for c in some if c.id in verdicts)
            eager_found += mutation_score.false_alarms(EAGER, seed, self.plan(seed), eager, None)
            eager_count, last = eager_count + len(eager), last + 1
        self.rows["false alarms"] = [a.row() for a in result]
        self.rows["eager"] = [a.row() for a in eager_found]
        for a in result:
            self.console.print(
                f"{a.backend}: {a.verdict.case}: {a.verdict.status}: {a.verdict.sentence}"[:400],
                markup=False,
                highlight=False,
            )
        return [
            *mutation_score.benign_bars(result, count, len(BENIGN), last),
            *mutation_score.eager_bars(eager_found, eager_count, [])[:1],
        ]

    def repeats(self) -> list[Criterion]:
        cases = spread(self.plan(0), SHARES[self.tier])
        result = self.run_tasks(
            "repeats of eager PyTorch", [Task(f"repeats/{k}", EAGER, cases) for k in range(REPEATS)]
        )
        self.rows["repeats"] = mutation_score.drift([result[k] for k in result])
        return mutation_score.eager_bars([], len(cases), [result[k] for k in result])[1:]

    def sample(self, variant: Mutant, seed: int) -> tuple[Case, ...]:
        """The cases that a variant can be seen by: if that is all of a whole plan, a share of them."""
        cases = tuple(c for c in self.plan(seed) if variant.reaches(c))
        return spread(cases, SHARES[self.tier]) if variant.calls == ("*",) and not self.ops else cases

    def baseline(self, seed: int, order: Iterable[Case], cases: Iterable[Case]) -> Verdicts:
        """What eager PyTorch does on the cases, in that order, and the interpreter on kernels, which eager has no way
        to run: mutants are judged by those that pass.
        """
        needed = set(cases)
        known = self.eager.get(seed, {})
        missing = tuple(c for c in order if c in needed and c.id not in known)
        tasks = [
            Task(f"{who}-{seed}/{len(known)}", who, some)
            for who, some in (
                (EAGER, tuple(c for c in missing if c.kind != "kernel")),
                (LOOPS, tuple(c for c in missing if c.kind == "kernel")),
            )
            if some
        ]
        if tasks:
            verdicts = self.run_tasks(f"eager PyTorch, seed {seed}", tasks)
            self.eager[seed] = {**known, **{case: v for some in verdicts.values() for case, v in some.items()}}
        return self.eager.get(seed, {})

    def run_tasks(self, title: str, tasks: Sequence[Task]) -> dict[str, Verdicts]:
        with progress_on(self.console) as progress:
            bar = progress.add_task(title, total=sum(len(t.cases) for t in tasks))
            return run_tasks(
                tasks,
                out=self.folder,
                jobs=self.jobs,
                resume=self.resume,
                report_count=lambda count: progress.advance(bar, count),
                stopped=lambda: self.interruption.by is not None,
            )


def spread(cases: Sequence[Case], share: int) -> tuple[Case, ...]:
    """One case of ``share``, by their digests: the same ones each time."""
    return tuple(c for c in cases if int(c.digest[:8], 16) % share == 0)


def waves(cases: Sequence[Case]) -> list[tuple[Case, ...]]:
    """The cases as they are tried: one of each operator and program before a second one of any, in an order that their
    digests draw; each wave twice as many as the one before.
    """
    turns, turn = Counter[str](), dict[Case, int]()
    for c in sorted(cases, key=lambda c: c.digest):
        turn[c] = turns[c.op]
        turns[c.op] += 1
    drawn, result = sorted(turn, key=lambda c: (turn[c], c.digest)), list[tuple[Case, ...]]()
    while drawn:
        size = WAVE << len(result)
        result.append(tuple(drawn[:size]))
        drawn = drawn[size:]
    return result


def first_of_each(cases: Iterable[Case], most: int, fit: Callable[[Case], bool]) -> tuple[Case, ...]:
    """Returns at most ``most`` cases of each operator that are fit."""
    results: dict[str, list[Case]] = {}
    for c in cases:
        if len(chosen := results.setdefault(c.op, [])) < most and fit(c):
            chosen.append(c)
    return tuple(c for some in results.values() for c in some)
