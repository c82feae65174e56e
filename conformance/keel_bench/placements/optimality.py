"""Random problems beside the best placements there are: how often the solver finds one, and how far off it is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keel import placement
from keel_conformance.report import Criterion
from keel_conformance.workers.pool import Outcome

from ..jobs import Job, Selection, failed, within
from .brute_force import Oracle, fewest_parts
from .random_problems import drawn

COUNTS = {2: 1000, 3: 500, 4: 500}
"""Problems by number of backends: 2,000."""
CHUNK = 250
FEWEST, MOST = 3, 14
"""Units of a problem."""
MEAN = 1.05
"""How much dearer than the optimum placements on three and four backends may be in the mean."""


def jobs(chosen: Selection) -> list[Job]:
    results = []
    for backends, count in COUNTS.items():
        few = chosen.few(count)
        results += [
            Job(
                "optimality",
                f"{backends} backends",
                "keel",
                "",
                "",
                chosen.scale,
                f"{first}-{min(first + CHUNK, few) - 1}",
            )
            for first in range(0, few, CHUNK)
        ]
    return results


@dataclass
class Tally:
    """What came of some problems: the cost and the optimum of each; how many broke what must always hold."""

    costs: list[float]
    optima: list[float]
    miscounted: int = 0
    above_bound: int = 0
    beyond: int = 0

    def judge(self, problem: placement.Problem, *, launches: bool, uniform: bool) -> placement.SolvedPlacement:
        """Costs count without what patterns save, so that none is negative."""
        oracle = Oracle(problem, launches)
        solution = placement.solve_placement(problem)
        cost = oracle.cost(solution.backend.tolist())
        least = oracle.better(cost)
        shift = sum(worth for *_, worth in oracle.savings)
        self.costs.append(cost + shift)
        self.optima.append(least + shift)
        self.above_bound += solution.bound * 1e6 > least + 1e-3
        paid = _launched(solution, oracle) if launches else 0
        alone = Oracle(problem, False).cost(solution.backend.tolist())
        self.miscounted += abs(solution.seconds * 1e6 - (alone + paid)) > 1e-3
        self.beyond += uniform and not launches and cost > 2 * (problem.backends - 1) * least
        return solution

    def as_json(self, name: str) -> dict[str, Any]:
        return {f"{name} {key}": value for key, value in vars(self).items()}


def measure(job: Job) -> dict[str, Any]:
    backends = int(job.model.split()[0])
    first, last = map(int, job.along.split("-"))
    start = time.process_time()
    alone, joint, more_parts = Tally([], []), Tally([], []), 0
    for seed in range(first, last + 1):
        uniform = backends > 2 and seed % 3 == 2
        problem = drawn(seed, FEWEST + seed % (MOST - FEWEST + 1), backends, uniform=uniform)
        free = replace(problem, launch=np.zeros(backends))
        solution = alone.judge(free, launches=False, uniform=uniform)
        more_parts += len(set(solution.group)) > fewest_parts(solution.backend.tolist(), problem.needs)
        joint.judge(problem, launches=True, uniform=uniform)
    return {
        "problems": last + 1 - first,
        "more_parts": more_parts,
        "cpu_seconds": time.process_time() - start,
        **alone.as_json("alone"),
        **joint.as_json("joint"),
    }


def bars(results: Mapping[Job, Outcome]) -> Iterable[Criterion]:
    for job, outcome in results.items():
        if outcome.row is None:
            yield failed(job, outcome, "measured")
    rows = {
        backends: [o.row for j, o in results.items() if o.row is not None and j.model == f"{backends} backends"]
        for backends in COUNTS
    }
    for backends, chunk in rows.items():
        if chunk:
            yield from _bars(backends, chunk)
    if everything := [row for chunk in rows.values() for row in chunk]:
        count = total(everything, "problems")
        wrong = total(everything, "alone miscounted") + total(everything, "joint miscounted")
        yield within("optimality: costs that the solver says wrong", wrong, 0, f"of {2 * count}")


def _bars(backends: int, rows: Sequence[dict[str, Any]]) -> Iterable[Criterion]:
    what, count = f"optimality, {backends} backends", total(rows, "problems")
    off, best = _ratios(rows, "alone")
    if backends == 2:
        yield within(f"{what}: placements dearer than the cheapest", count - best, 0, f"of {count}")
        yield within(f"{what}: placements in more parts than needed", total(rows, "more_parts"), 0, f"of {count}")
    else:
        yield within(
            f"{what}: mean cost / optimum",
            float(np.mean(off)),
            MEAN,
            f"optimal {best} of {count}, worst {max(off):.3g}",
        )
        yield within(
            f"{what}: dearer than 2(p - 1) times the optimum",
            total(rows, "alone beyond"),
            0,
            "of those to whom that bound applies, a third",
        )
        yield Criterion(
            f"{what}: placements in more parts than needed", total(rows, "more_parts"), "shown", None, f"of {count}"
        )
    over, hit = _ratios(rows, "joint")
    yield within(
        f"{what}, with launches: mean cost / optimum",
        float(np.mean(over)),
        MEAN,
        f"optimal {hit} of {count}, worst {max(over):.3g}",
    )
    yield within(
        f"{what}: bounds above the optimum",
        total(rows, "alone above_bound") + total(rows, "joint above_bound"),
        0,
        f"of {2 * count}",
    )


def _ratios(rows: Sequence[dict[str, Any]], name: str) -> tuple[list[float], int]:
    """Cost over optimum of each problem, and how many are optimal.  What should cost nothing and does not is inf."""
    pairs = [pair for row in rows for pair in zip(row[f"{name} costs"], row[f"{name} optima"], strict=True)]
    ratios = [result / least if least else (1.0 if not result else float("inf")) for result, least in pairs]
    return ratios, sum(result == least for result, least in pairs)


def total(rows: Iterable[dict[str, Any]], key: str) -> int:
    return sum(int(row[key]) for row in rows)


def _launched(solution: placement.SolvedPlacement, oracle: Oracle) -> float:
    """What the parts of the solution cost."""
    owners: dict[int, int] = dict(zip(solution.group, solution.backend.tolist(), strict=True))
    return sum(oracle.launch[b] for b in owners.values())
