"""The cases of a run, those of many members drawn by several processes at once: one takes a minute and more for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from keel import KeelError

from ..cases.case import Case
from ..cases.plan import Draw, cases_of_members
from ..levels.level import profile_of
from ..levels.level_plan import plan_of
from ..levels.needs import Needs
from ..workers.pool import run_all
from ..workers.spawn import forked
from .executor import PRELOAD

FEW = 40
"""This many members are drawn before processes have started."""
TURNS = 8
"""Shares that each process has of the work, since some members take much longer than others."""
LIMIT = 3600.0
"""Seconds that one share may take: far more than any does."""


@dataclass(frozen=True)
class Share:
    """What one process draws."""

    names: tuple[str, ...]
    tier: str
    seed: int


def plan_in_parallel(
    *, profile: str, tier: str, seed: int, ops: Sequence[str], jobs: int = 1, needs: Needs | None = None
) -> tuple[Case, ...]:
    """The plan of a profile, of what fits one of the patterns ``ops``, drawn by ``jobs`` processes. ``needs`` are those
    of the model, if the profile is a model's. Raises KeelError[bad-option] where no case is left.
    """
    chosen = profile_of(profile, needs)
    result = plan_of(chosen, tier=tier, seed=seed, ops=ops, draw=parallel_drawer(jobs))
    if not result:
        raise KeelError(
            "bad-option",
            f"No case of profile {profile} is about {' or '.join(ops)}.",
            do="* matches anything; another profile may have it.",
        )
    return result


def parallel_drawer(jobs: int) -> Draw:
    """Draws as ``of_members`` does, in ``jobs`` processes."""

    def drawn(names: Sequence[str], tier: str, seed: int) -> Iterator[Case]:
        if jobs == 1 or len(names) < FEW:
            yield from cases_of_members(names, tier, seed)
            return
        count = min(jobs * TURNS, len(names))
        cases_by_member: dict[str, list[Case]] = {}
        for share, outcome in run_all(
            [Share(tuple(names[k::count]), tier, seed) for k in range(count)],
            forked(_work, PRELOAD),
            at_once=jobs,
            time_limit=LIMIT,
        ):
            # what failed there fails here, and says where
            for case in cases_of_members(share.names, tier, seed) if outcome.row is None else outcome.row:
                cases_by_member.setdefault(case.op, []).append(case)
        for name in names:
            yield from cases_by_member.get(name, ())

    return drawn


def _work(share: Share, tell: Callable[[str], None]) -> list[Case]:
    return list(cases_of_members(share.names, share.tier, share.seed))
