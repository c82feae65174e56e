"""The matrix of clauses and cases: how many cases of each kind witness every clause, or why none does.

``python -m keel_conformance.cases.clause_matrix`` prints the matrix, or the rows of the members that are named. ``...
clause_matrix write`` rewrites ``uncovered_clauses.json``, which has a reason for each clause that no case at tier
standard witnesses.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keel.opset import MEMBERS

from .case import Case
from .clause_coverage import UNTESTED, required_features, untested
from .domains import domain_of
from .exclusions import why_excluded
from .plan import plan


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
    return tuple(
        Row(label, clause.text, counts[label], "" if counts[label] else reason_of(name, label))
        for name, op in MEMBERS.items()
        if not ops or name in ops
        for label, clause in op.cited
    )


def reason_of(name: str, clause: str) -> str:
    """Why no case witnesses a clause; empty if nobody says."""
    return untested().get(clause) or why_excluded(MEMBERS[name]) or ""


REASONS: tuple[tuple[str, str], ...] = (
    ("special", "Its arguments keep to the range of the calls that are known of it; what is spoken of lies outside."),
    ("half", "No known call of it is valid in a 16-bit float on a CPU."),
    ("complex", "No known call of it is valid in a complex dtype."),
    ("integer", "No known call of it is valid in an integer dtype."),
    ("whole", "No known call of it is valid in an integer dtype or bool."),
    ("bool", "No known call of it is valid in bool."),
    ("u8", "No known call of it is valid in uint8."),
    ("empty", "No known call of it has a tensor without elements."),
    ("0d", "No known call of it has a tensor without dimensions."),
    ("broadcast", "All tensors of the known calls of it have the same sizes."),
    ("mixed", "All arguments of the known calls of it have one dtype."),
    ("duplicate", "No known call of it may have equal values."),
)
"""Why none has a feature, by the feature."""


def reason_for(name: str, number: str) -> str:
    """A reason for a clause that no case witnesses, from the features that one would have."""
    if domain_of(name) is None:
        return "No call of it is known that eager PyTorch runs on a CPU."
    required = required_features(name)[number]
    results = [reason for feature, reason in REASONS if feature in required]
    results += [
        f"No known call of it gives {f.removeprefix('given ')}." for f in sorted(required) if f.startswith("given ")
    ]
    if len(results) < 2:
        return results[0] if results else "No case of it is drawn."
    return f"No known call of it has all of this at once: {', '.join(sorted(required))}."


def write(rows: Iterable[Row]) -> None:
    """The file of reasons, of the rows without cases; what it says of them already stays."""
    lacking = [r.clause for r in rows if not r.cases and why_excluded(MEMBERS[r.clause.split(".")[0]]) is None]
    reasons = {c: untested().get(c) or reason_for(*c.split(".")) for c in lacking}
    UNTESTED.write_text(json.dumps(reasons, indent=1) + "\n")


if __name__ == "__main__":
    members = [a for a in sys.argv[1:] if a != "write"]
    rows = matrix(plan(profile="strict", ops=members), members)
    if "write" in sys.argv:
        write(rows)
    for row in rows:
        print(f"{row.clause:40} {row.cases or 'UNTESTED':>8}  {row.sentence}")
        if not row.cases:
            print(f"{'':50} {row.reason or 'NO REASON'}")
    print(
        f"{len(rows)} clauses, {sum(r.cases > 0 for r in rows)} with cases, "
        f"{sum(not r.cases and r.reason != '' for r in rows)} untested with a reason, "
        f"{sum(not r.cases and not r.reason for r in rows)} without"
    )
