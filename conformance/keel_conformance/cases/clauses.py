"""Which clauses a case is a witness of: from what a sentence speaks of to what arguments must have for it to matter.

A clause is witnessed by a case whose arguments have every feature that its sentence asks for; the oracles hold the
result to eager PyTorch's, which keeps the clause. A sentence that asks for nothing special is witnessed by every case.
What no case witnesses stands in ``untested.json`` with the reason.
"""
from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from keel import MEMBERS, Op
from keel_conformance.cases.domain import Domain, Levels
from keel_conformance.cases.features import features

SPEAKS_OF: tuple[tuple[str, str], ...] = (
    (r"NaN|infinit|\binf\b|finite|[Oo]verflow|[Ss]ubnormal|IEEE", "special"),
    (r"-0\b|\+0\b|[Ss]ign of zero|zeros? of (either|both|different)|[Ss]igned zero|[Aa] zero\b|signs? kept|0 of either"
     r"|two zeros|^(0|1|-1) (gives|of|to)|sign of the argument|A result of zero|1 at 0|0 at 0", "special"),
    (r"[Nn]egative number|negative base|[Nn]egative integers and|Less than|Outside \[|base of 1|exponent of 0",
     "special"),
    (r"divided by 0|divisor of 0|over -1|integer's minimum|does not fit|wraps? around", "special"),
    (r"[Ee]qual (elements|extremes|operands|values|keys)|[Tt]ies|how often each value|of elements with that value"
     r"|Where indices are equal|smallest of them", "duplicate"),
    (r"16-bit", "half"),
    (r"[Cc]omplex|imaginary|conjugat|phases", "complex"),
    (r"[Ii]ntegers and bools|integer or bool", "whole"),
    (r"\b(of|Of|Integers|integers)\b.*\bintegers?\b|^Integers|^An integer|signed integer|two's complement", "integer"),
    (r"\b[Bb]ools?\b|False is less|conjunction", "bool"),
    (r"[Oo]f uint8|unsigned", "u8"),
    (r"[Nn]o elements|[Oo]f nothing|nothing to sum|gives an empty|without components|no rows|not have any"
     r"|[Ee]mpty (segment|bag|group|batch)|may be empty", "empty"),
    (r"[Aa] scalar|[Oo]f a scalar|no dimensions?\b(?! is named)|without dimensions", "0d"),
    (r"[Bb]roadcast", "broadcast"),
    (r"promoted|common (one|dtype)|different dtypes", "mixed"),
)
"""Words of a sentence, and the feature that a witness of it has."""
UNTESTED = Path(__file__).with_name("untested.json")


@cache
def needs(name: str) -> Mapping[str, frozenset[str]]:
    """The features that a witness of each clause of a member has, by the clause's number (``C1``)."""
    op = MEMBERS[name]
    return {f"C{i}": _needs(op, sentence) for i, sentence in enumerate(op.clauses, 1)}


def _needs(op: Op, sentence: str) -> frozenset[str]:
    found = {feature for words, feature in SPEAKS_OF if re.search(words, sentence)}
    if found & {"integer", "bool", "u8", "whole"}:
        found -= {"special"} if not re.search(r"NaN|infinit|minimum|wrap|over -1|does not fit", sentence) else set()
    if "whole" in found:
        found -= {"integer", "bool"}
    if found & {"integer"} and "bool" in found:
        found = (found - {"integer", "bool"}) | {"whole"}
    found |= {f"given {p}" for p in _parameters(op) if _names(sentence, p)}
    return frozenset(found)


def _names(sentence: str, parameter: str) -> bool:
    """Whether a sentence is about a parameter that is given, and does not just use it in a formula."""
    return re.search(rf"\b[Ww]ith {parameter}\b|\b[Ii]f {parameter}\b|^An? {parameter} |^{parameter} (is|gives|has|says"
                     rf"|counts)\b|[Tt]he (mode|value) \"?{parameter}", sentence) is not None


@cache
def _named(name: str) -> tuple[str, ...]:
    found = dict.fromkeys(a.name for t in MEMBERS[name].targets if hasattr(t, "_schema") for a in t._schema.arguments)
    return tuple(found)


def _parameters(op: Op) -> tuple[str, ...]:
    return _named(op.name)


def cited(domain: Domain, levels: Levels) -> tuple[str, ...]:
    """The clauses that a choice witnesses, as ``add.C1``: those whose features its arguments have, and those that the
    domain names.
    """
    op = domain.op
    has = features(domain, levels)
    numbers: Iterable[str] = (n for n, asked in needs(op.name).items() if asked <= has)
    return tuple(f"{op.name}.{n}" for n in dict.fromkeys((*numbers, *domain.cites(levels))))


@cache
def untested() -> Mapping[str, str]:
    """The clauses that no case witnesses, as ``add.C1``, with the reason."""
    found: Mapping[str, str] = json.loads(UNTESTED.read_text())
    return found
