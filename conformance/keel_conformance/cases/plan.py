"""Which cases a run consists of: of every member those that its domain has at a tier, and those of the other rooms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from fnmatch import fnmatchcase

from keel import KeelError
from keel.opset import MEMBERS

from ..num_threads import threads
from .case import Case
from .case_kinds import PACKAGES, package_of
from .clause_coverage import covered_clauses
from .covering_array import covering, extend
from .domain import Domain, Levels
from .domains import domain_of
from .drop_trivial import drop_trivial
from .inputs import VIOLATES
from .smoke_tier import select_smoke

PARTS = ("random", "complex", "linalg", "fft", "special", "quantized", "attention", "control", "host")
"""Profiles of the specification that a backend may lack as a whole."""
PROFILES: Mapping[str, frozenset[str]] = {
    "core": frozenset({"core"}),
    "inference": frozenset({"core", *PARTS, "inference"}),
    "training": frozenset({"core", *PARTS, "inference", "training"}),
    "dynamic": frozenset({"core", "dynamic"}),
    "strict": frozenset({"core", *PARTS, "inference", "training", "dynamic", "strict"}),
}
"""Which cases, by the profile they name, each profile of a run includes. ``core``: every member of the profile core of
the specification, one call at a time, and programs of any model. ``inference``: all members, and programs without
gradients. ``training``: those, and programs with. ``dynamic``: core, and sizes that change. ``strict``: all of these,
and what only a backend that computes as eager PyTorch does can hold (the sign of a zero of min and max, NaN's bits).
"""
TIERS = ("smoke", "standard", "full")
ARRAYS = {"standard": 1, "full": 4}
"""Covering arrays of a member, each of other choices."""
LEAST = 200
"""Where there are fewer choices of a member than this, more are drawn, if there are more."""


Draw = Callable[[Sequence[str], str, int], Iterable[Case]]
"""From members, a tier and a seed to the cases of these members, in that order."""


def cases_of_members(names: Sequence[str], tier: str, seed: int) -> Iterator[Case]:
    """The cases of these members, one after another."""
    with threads(1):  # what is tried is too small for more
        for name in names:
            if (domain := domain_of(name)) is not None:
                yield from cases_of(domain, tier, seed)


def plan(
    *,
    profile: str | Set[str] = "core",
    tier: str = "standard",
    ops: Sequence[str] = (),
    seed: int = 0,
    draw: Draw = cases_of_members,
) -> tuple[Case, ...]:
    """The cases of a run, in an order that is the same each time.  ``ops`` are the members, programs and kernels it is
    about; all, if empty; what fits any of them, if one is a pattern. ``profile`` is a name, or the profiles of cases
    that are included. Raises KeelError[bad-option] for a profile, tier or name that there is not.
    """
    if (isinstance(profile, str) and profile not in PROFILES) or tier not in TIERS:
        raise KeelError(
            "bad-option",
            f"There is no profile {profile!r} with a tier {tier!r}.",
            do=f"Profiles are {', '.join(PROFILES)}, tiers {', '.join(TIERS)}.",
        )
    rooms = list(other_cases(tier, seed))
    selected = _select(ops, named(rooms))
    members = [name for name in MEMBERS if name in selected]
    cases = (*draw(members, tier, seed), *(case for case in rooms if case.op in selected))
    included = PROFILES[profile] if isinstance(profile, str) else profile
    results = [case for case in cases if case.profile in included]
    return tuple({case.digest: case for case in results}.values())


def named(rooms: Iterable[Case]) -> Set[str]:
    """What a plan's ``ops`` may name: members, and the programs and kernels of these cases; in order."""
    return dict.fromkeys([*MEMBERS, *(case.op for case in rooms)]).keys()


def _select(ops: Sequence[str], known: Set[str]) -> Set[str]:
    """What of the ``known`` names is asked for."""
    if not ops:
        return known
    if any(not {*"*?["}.isdisjoint(op) for op in ops):
        return {name for name in known if any(fnmatchcase(name, op) for op in ops)}
    if unknown := sorted(set(ops) - known):
        raise _unknown(unknown, known)
    return set(ops)


def _unknown(names: Sequence[str], known: Iterable[str]) -> KeelError:
    """Says of an overload's name whose it is, and of others which are like it."""
    owners = {
        part: op.name
        for op in MEMBERS.values()
        for full in op.overloads
        for part in (full, full.partition(".")[2], full.split(".")[1])
    }
    near = [m for n in names for m in ([owners[n]] if n in owners else get_close_matches(n, sorted(known), n=3))]
    return KeelError(
        "bad-option",
        f"No case is about {' or '.join(names)}.",
        do=f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else "* matches anything.",
    )


def other_cases(tier: str, seed: int) -> Iterator[Case]:
    """The programs, graphs and kernels of a plan."""
    for kind in PACKAGES:
        yield from package_of(kind).cases(tier, seed)


def cases_of(domain: Domain, tier: str, seed: int) -> Iterator[Case]:
    """The cases of one member: the cases that its domain ranks first, required ones, a covering array, and negative
    ones. Few of them are trivial.
    """
    of = {"stay": 0, "plenty": 3} if tier == "smoke" else {"least": LEAST}
    for levels in (
        *drop_trivial(domain, choices(domain, tier, seed), seed=seed, **of),
        *(domain.extra if tier != "smoke" else ()),
    ):
        yield case_of(domain, levels, seed)
    for negative in domain.invalid_calls[: 1 if tier == "smoke" else None]:
        yield Case(
            domain.op.name,
            domain.op.family,
            "negative",
            domain.op.profile,
            negative.overload or _first(domain),
            negative.dtype,
            ((VIOLATES, negative.name),),
            (),
            seed,
        )


def case_of(domain: Domain, levels: Levels, seed: int) -> Case:
    op = domain.op
    return Case(
        op.name,
        op.family,
        "op",
        levels.get("profile", op.profile),
        domain.overload(levels) or _first(domain),
        levels["dtype"],
        tuple((f, v) for f, v in levels.items() if f != "dtype"),
        covered_clauses(domain, levels),
        seed,
    )


def choices(domain: Domain, tier: str, seed: int) -> list[Levels]:
    """What is chosen of a domain, the most telling first, nothing twice."""
    if tier == "smoke":
        results = select_smoke(domain, seed)
    else:
        results = [*domain.priority, *domain.required]
        for k in range(ARRAYS[tier]):
            results += covering(
                domain.factors, domain.rules, seed=seed * ARRAYS[tier] + k, earlier=() if k else results
            )
        results += extend(domain.factors, domain.rules, results, seed=seed, least=LEAST)
    return _distinct(results)


def _distinct(chosen: Iterable[Levels]) -> list[Levels]:
    return list({tuple(levels.items()): levels for levels in chosen}.values())


def _first(domain: Domain) -> str:
    return str(domain.op.targets[0])
