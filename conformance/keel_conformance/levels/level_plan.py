"""The cases of a run that has to reach a level: those of its profiles, and a case of each requirement at every tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from keel import named_models

from ..cases.case import Case
from ..cases.covering_array import extend
from ..cases.domain import Domain
from ..cases.domains import domain_of
from ..cases.plan import Draw, case_of, plan
from ..report import join_names
from .level import Level, Profile
from .needs import Needs, needs_of_program


def plan_of(profile: Profile, *, tier: str, seed: int, ops: Sequence[str], draw: Draw) -> tuple[Case, ...]:
    """The plan of a profile. Raises what ``plan`` raises."""
    level = profile.level
    patterns = list(ops)
    if level is not None and level.exact and not patterns:
        patterns = [*level.needs.calls]
        rest = plan(profile=level.programs, tier=tier, seed=seed, draw=lambda *args: ()) if level.programs else ()
    else:
        rest = ()
    cases = (*plan(profile=profile.includes, tier=tier, seed=seed, ops=patterns, draw=draw), *rest)
    if level is None:
        return cases
    if level.exact:
        cases = tuple(c for c in cases if level.requires(c))
    return (*cases, *_lacking(level, cases, ops, seed))


def needs_of_model(what: str) -> tuple[Needs, list[str]]:
    """What the model that a command line names needs, and in sentences what of it cannot be judged. Raises what
    ``keel.named_models.program_of`` and ``keel.compile_exported`` raise.
    """
    needs, left = judgeable(needs_of_program(named_models.program_of(what)))
    facts = [f"{what} needs {len(needs.pairs)} operators and dtypes{', for sizes that change' * needs.dynamic}."]
    if left:
        facts.append(f"No case is about {join_names(left)}, which it calls, too.")
    return needs, facts


def judgeable(needs: Needs) -> tuple[Needs, list[str]]:
    """The needs that cases can be drawn for, in layouts that these can have, and the names of the others."""
    calls: dict[str, dict[str, frozenset[str]]] = {}
    left = sorted(needs.outside)
    for op, dtypes in needs.calls.items():
        domain = domain_of(op)
        for dtype, layouts in dtypes.items():
            if domain is None or dtype not in domain.factors["dtype"]:
                left.append(f"{op} on {dtype}")
                continue
            drawn = frozenset(domain.factors.get("layout", ("contiguous",)))
            calls.setdefault(op, {})[dtype] = layouts & drawn or drawn
    return Needs(calls, needs.dynamic), left


def _lacking(level: Level, cases: Sequence[Case], ops: Sequence[str], seed: int) -> Iterator[Case]:
    """A case of each required operator in each dtype, where a short tier has none in a required layout."""
    have = {(c.op, c.dtype) for c in cases if c.kind == "op" and level.requires(c)}
    for op, dtype in sorted(level.needs.pairs - have):
        domain = domain_of(op) if not ops or any(fnmatchcase(op, p) for p in ops) else None
        if domain is not None and (case := _one(domain, dtype, level.needs.calls[op][dtype], seed)) is not None:
            yield case


def _one(domain: Domain, dtype: str, layouts: frozenset[str], seed: int) -> Case | None:
    """A case of the operator in this dtype and one of these layouts; None if its arguments cannot be so."""
    factors = dict(domain.factors)
    if dtype not in factors["dtype"]:
        return None
    factors["dtype"] = (dtype,)
    if "layout" in factors:
        factors["layout"] = tuple(k for k in factors["layout"] if k in layouts) or factors["layout"]
    rows = extend(factors, domain.rules, (), seed=seed, least=1)
    return case_of(domain, rows[0], seed) if rows else None
