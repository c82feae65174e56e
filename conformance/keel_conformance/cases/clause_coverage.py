"""Which clauses a case witnesses: those that are about nothing which its arguments lack.

The oracles hold the result to eager PyTorch's, which keeps the clause. A clause that is about nothing in particular is
witnessed by every case. What no case witnesses stands in ``uncovered_clauses.json`` with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from keel.opset import MEMBERS, About, Clause, Op

from .domain import Domain, Levels
from .input_features import features

WITNESS: Mapping[About, str] = {
    About.NONFINITE: "special",
    About.ZERO: "special",
    About.EDGE: "special",
    About.INTEGER_EDGE: "special",
    About.TIES: "duplicate",
    About.HALFWAY: "halfway",
    About.HALF: "half",
    About.COMPLEX: "complex",
    About.INTEGRAL: "whole",
    About.INTEGER: "integer",
    About.BOOL: "bool",
    About.UINT8: "u8",
    About.EMPTY: "empty",
    About.SCALAR: "0d",
    About.BROADCAST: "broadcast",
    About.PROMOTION: "mixed",
}
"""What a clause is about, and the feature that a witness of it has."""
UNTESTED = Path(__file__).with_name("uncovered_clauses.json")


@cache
def required_features(name: str) -> Mapping[str, frozenset[str]]:
    """The features that a witness of each clause of a member has, by the clause's number (``C1``)."""
    op = MEMBERS[name]
    return {f"C{i}": _needs(op, clause) for i, clause in enumerate(op.clauses, 1)}


def _needs(op: Op, clause: Clause) -> frozenset[str]:
    parameter_features = {f"given {p}" for p in clause.parameters if p in _parameters(op)}
    return frozenset(parameter_features | {WITNESS[about] for about in clause.about if about in WITNESS})


def _parameters(op: Op) -> frozenset[str]:
    """The parameters of all overloads. Clauses are shared by members of which some lack a parameter."""
    return frozenset(a.name for t in op.targets if hasattr(t, "_schema") for a in t._schema.arguments)


def covered_clauses(domain: Domain, levels: Levels) -> tuple[str, ...]:
    """The clauses that a choice witnesses, as ``add.C1``: those whose features its arguments have, and those that the
    domain names.
    """
    op = domain.op
    has = features(domain, levels)
    numbers: Iterable[str] = (n for n, required in required_features(op.name).items() if required <= has)
    return tuple(f"{op.name}.{n}" for n in dict.fromkeys((*numbers, *domain.covers(levels))))


@cache
def untested() -> Mapping[str, str]:
    """The clauses that no case witnesses, as ``add.C1``, with the reason."""
    results: Mapping[str, str] = json.loads(UNTESTED.read_text())
    return results
