"""What a run leaves open: clauses that no case of it witnesses, operators that are not claimed or have no case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from keel.opset import MEMBERS, Op

from ..cases.case import Case
from ..cases.domains import domain_of
from ..cases.exclusions import why_excluded
from ..cases.plan import PROFILES
from ..levels.level import FOR, levels
from ..programs.contract import CLAUSES
from ..results.verdict import Verdict


@dataclass(frozen=True)
class Clause:
    """A clause that nothing of the run speaks for, its sentence, and why."""

    clause: str
    sentence: str
    reason: str


@dataclass(frozen=True)
class UntestedOp:
    """An operator or program, how many of its cases are left, of how many, and why."""

    op: str
    cases: int
    of: int
    reason: str


@dataclass(frozen=True)
class Untested:
    """``clauses`` are UNTESTED; ``unclaimed`` is what the backend refuses, whole or in part; ``unrun`` what was planned
    and not run; ``caseless`` are members of the operator set that the plan has no case of.
    """

    clauses: tuple[Clause, ...] = ()
    unclaimed: tuple[UntestedOp, ...] = ()
    unrun: tuple[UntestedOp, ...] = ()
    caseless: tuple[UntestedOp, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {k: list(v) for k, v in asdict(self).items()}


def untested(planned: Sequence[Case], verdicts: Iterable[Verdict], head: Mapping[str, Any]) -> Untested:
    """What a run of ``planned`` that ended in ``verdicts`` says nothing about. ``head`` names the profile and the
    patterns ``ops`` that the run was limited to.
    """
    by_id, judged, left = {c.id: c for c in planned}, set[str](), defaultdict[str, list[Verdict]](list)
    for v in verdicts:
        if v.status in ("not claimed", "not run"):
            left[v.status].append(v)
        else:
            judged |= {*by_id[v.case].clauses, *([v.clause] if v.clause else [])}
    patterns, profile = list(head.get("ops") or ()), str(head.get("profile", "core"))
    members = [op for op in MEMBERS.values() if not patterns or any(fnmatchcase(op.name, p) for p in patterns)]
    cited = {clause for c in planned for clause in c.clauses}
    has_cases, of = {c.op for c in planned}, Counter(c.op for c in planned)
    clauses = [
        Clause(label, clause.text, _why(op, label.rpartition(".")[2], label in cited, profile, has_cases))
        for op in members
        for label, clause in op.cited
        if label not in judged
    ]
    if not patterns:
        clauses += [
            Clause(name, sentence, _open(name in cited)) for name, sentence in CLAUSES.items() if name not in judged
        ]
    return Untested(
        tuple(clauses),
        _by_op(left["not claimed"], by_id, of),
        _by_op(left["not run"], by_id, of),
        tuple(UntestedOp(op.name, 0, 0, _caseless(op, profile)) for op in members if op.name not in has_cases),
    )


def _why(op: Op, short: str, cited: bool, profile: str, has_cases: set[str]) -> str:
    if op.name not in has_cases:
        return _caseless(op, profile)
    domain = domain_of(op.name)
    if domain is not None and short in domain.untested:
        return domain.untested[short]
    return _open(cited)


def _open(cited: bool) -> str:
    return "No case that witnesses it was judged." if cited else "No case of this run names it."


def _caseless(op: Op, profile: str) -> str:
    if (why := why_excluded(op)) is not None:
        return why
    if profile.startswith(FOR):
        return "The model does not call it."
    if op.profile not in (levels()[profile].includes if profile in levels() else PROFILES.get(profile, frozenset())):
        return f"Profile {profile} does not ask for it; {op.profile} does."
    return "No call of it is known, or this part of the run has none."


def _by_op(verdicts: Iterable[Verdict], by_id: Mapping[str, Case], of: Mapping[str, int]) -> tuple[UntestedOp, ...]:
    """By operator, with the reason that most cases have."""
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        reasons[by_id[v.case].op][v.sentence] += 1
    return tuple(
        UntestedOp(op, sum(why.values()), of[op], why.most_common(1)[0][0]) for op, why in sorted(reasons.items())
    )
