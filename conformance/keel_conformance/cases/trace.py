"""The matrix of clauses and cases: how many cases of each kind witness every clause, or why none does.

``python -m keel_conformance.cases.trace`` prints it; with names of members, theirs.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keel import MEMBERS
from keel_conformance.cases.case import Case
from keel_conformance.cases.clauses import untested
from keel_conformance.cases.exempt import exempt
from keel_conformance.cases.plan import plan


@dataclass(frozen=True)
class Row:
    """``clause`` as ``add.C1``; how many cases witness it; ``reason``, where none does."""

    clause: str
    sentence: str
    cases: int
    reason: str = ""


def matrix(cases: Iterable[Case], ops: Sequence[str] = ()) -> tuple[Row, ...]:
    """A row for each clause of each member, in order."""
    counts = Counter(clause for case in cases for clause in case.clauses)
    return tuple(Row(clause, sentence, counts[clause], "" if counts[clause] else reason_of(name, clause))
                 for name, op in MEMBERS.items() if not ops or name in ops
                 for clause, sentence in ((f"{name}.C{i}", s) for i, s in enumerate(op.clauses, 1)))


def reason_of(name: str, clause: str) -> str:
    """Why no case witnesses a clause; empty if nobody says."""
    return untested().get(clause) or exempt(MEMBERS[name]) or ""


if __name__ == "__main__":
    rows = matrix(plan(profile="strict", ops=sys.argv[1:]), sys.argv[1:])
    for row in rows:
        print(f"{row.clause:40} {row.cases or 'UNTESTED':>8}  {row.sentence}")
        if not row.cases:
            print(f"{'':50} {row.reason or 'NO REASON'}")
    print(f"{len(rows)} clauses, {sum(r.cases > 0 for r in rows)} with cases, "
          f"{sum(not r.cases and r.reason != '' for r in rows)} untested with a reason, "
          f"{sum(not r.cases and not r.reason for r in rows)} without")
