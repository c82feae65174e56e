"""What came of a case, in one of fourteen words, and where that is not a pass, in a sentence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Status = Literal[
    "pass",
    "fail",
    "quality warning",
    "not claimed",
    "waived",
    "xfail",
    "xpass",
    "crash",
    "timeout",
    "resource",
    "flaky",
    "vacuous",
    "harness error",
    "not run",
]
STATUSES: tuple[Status, ...] = get_args(Status)
REFUSED, PARTS = "refused", "parts"
"""Figures of a verdict: why the backend left pieces of a call to others, and how many pieces of a program it took."""
BAD: frozenset[Status] = frozenset({"fail", "xpass", "crash", "timeout", "resource", "flaky", "harness error"})
"""A run with one of these does not conform. A vacuous case is not evidence for or against the backend."""


@dataclass(frozen=True)
class Verdict:
    """``oracle`` is the one that decided; ``sentence`` says what is wrong, on what, by how much and what was allowed.

    ``clause`` is the broken clause, if it is a single one. ``figures`` are what the oracle measured. ``ulps`` is the
    worst error in units in the last place, ``ratio`` is that error divided by the bound, and ``masked`` is the share of
    elements left out. ``index`` is the place of the worst element, in the result ``result`` of the call ``call``, both
    0 if not given. ``fault`` is the kind of a breach of the contract, and ``fact`` what the backend declares, if
    the verdict depends on that. ``seconds`` is the time of the backend, without the time to judge it.
    """

    case: str
    status: Status
    oracle: str = ""
    sentence: str = ""
    clause: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def call(self) -> int:
        """The call that is wrong."""
        return int(self.figures.get("call", 0))

    @property
    def result(self) -> int:
        """The result of it that is wrong."""
        return int(self.figures.get("result", 0))


def totals(verdicts: Iterable[Verdict]) -> dict[Status, int]:
    """How many have each status, all fourteen."""
    counts = Counter(v.status for v in verdicts)
    return {s: counts[s] for s in STATUSES}


def declarations(declared: str, verdicts: Iterable[Verdict]) -> list[str]:
    """What a backend declares of its arithmetic, and how many cases are right by that alone, in sentences. ``declared``
    is the text of its facts; nothing if it declares none.
    """
    cases = defaultdict[tuple[str, str], list[str]](list)
    for v in verdicts:
        if "fact" in v.figures:
            cases[v.status, v.figures["fact"]].append(v.case.partition("/")[0])
    counted = [
        f"{len(each)} {'case has' if len(each) == 1 else 'cases have'} the verdict {status} only because it {fact}: "
        f"{', '.join(sorted(set(each))[:5])}{', ...' if len(set(each)) > 5 else ''}."
        for (status, fact), each in sorted(cases.items())
    ]
    return [f"It declares that it {declared}.", *counted] if declared else counted


def conforms(counts: Mapping[Status, int]) -> bool:
    """Whether something was run, and nothing of it is bad."""
    ran = sum(counts.values()) - counts["not run"] - counts["not claimed"]
    return ran > 0 and not any(counts[s] for s in BAD)
