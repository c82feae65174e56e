"""Failures that are known and accepted for a while: read from TOML, applied to verdicts, held to what they say."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from keel import documents

from ..results.verdict import Status, Verdict

WAIVED: frozenset[Status] = frozenset({"fail", "crash", "timeout", "resource"})
"""What can be waived. What is flaky or vacuous cannot: nobody knows what of it is accepted."""
_FAILED: frozenset[Status] = WAIVED | {"waived"}
FIELDS = ("case", "clause", "reason", "url", "owner", "expires")
_DO = (
    "A waiver has case (a pattern of one operator), clause (as the verdict has it in brackets, or oracle:NAME where it "
    "has none), reason, url, owner, expires (a date) and, if it is expected to fail, expect."
)
ORACLE = "oracle:"


@dataclass(frozen=True)
class Waiver:
    """``case`` is a pattern of case ids of one operator, ``backend`` one of backends. ``clause`` is the one that the
    failures break, as verdicts name it, or ``oracle:`` and the oracle of failures that name none. With ``expect =
    "fail"`` each of the cases has to fail: it is counted as xfail, and as xpass, which is bad, once it does not. Else
    one that fails is counted as waived.
    """

    case: str
    clause: str
    reason: str
    url: str
    owner: str
    expires: date
    backend: str = "*"
    expect: Literal["", "fail"] = ""

    def matches(self, case: str) -> bool:
        return fnmatchcase(case, self.case)

    def waives(self, v: Verdict) -> bool:
        """True if this failure is the one that it is about."""
        return self.matches(v.case) and self.clause == (v.clause or f"{ORACLE}{v.oracle}")

    def __str__(self) -> str:
        return f"The waiver of {self.clause} in {self.case} ({self.url}, {self.owner})"


MOST_BYTES = 1 << 20
_MOST_WAIVERS, _LONGEST, _LONGEST_LINE = 1 << 10, 1 << 10, 1 << 13


def read(file: Path, backend: str) -> tuple[Waiver, ...]:
    """The waivers in a file that are about the backend: tables ``[[waiver]]``. Raises KeelError[bad-file]."""
    try:
        document = documents.Item(_parsed(documents.text_of(file, MOST_BYTES))).record((), ("waiver",))
        entries = document.get("waiver", documents.Item([]))
        results = [_waiver(entry) for entry in entries.items(_MOST_WAIVERS)]
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It holds no waivers.", do=_DO) from e
    return tuple(w for w in results if fnmatchcase(backend, w.backend))


def _parsed(text: str) -> dict[str, Any]:
    """Raises Malformed for text that is not TOML.  A line is bounded since a key with many dots takes the square of
    them.
    """
    if any(len(line) > _LONGEST_LINE for line in text.split("\n")):
        raise documents.Malformed("", f"It has a line of more than {_LONGEST_LINE} characters.")
    try:
        results: dict[str, Any] = documents.shallow(tomllib.loads(text))
        return results
    except documents.Malformed:
        raise
    except (ValueError, RecursionError) as e:  # of which a TOMLDecodeError is one, and says the line
        raise documents.Malformed("", f"It is no TOML: {e}"[:300]) from e


def _waiver(entry: documents.Item) -> Waiver:
    """Raises Malformed."""
    raw = entry.value if isinstance(entry.value, dict) else {}
    fields = entry.record([f for f in FIELDS if raw.get(f) != "" or f not in raw], (*FIELDS, "backend", "expect"))
    if empty := [f for f in FIELDS if fields[f].value == ""]:
        entry.refuse(f"It lacks {', '.join(empty)}.")
    texts = {f: fields[f].text(_LONGEST) for f in fields if f != "expires"}
    if type(fields["expires"].value) is not date:
        fields["expires"].refuse(f"{documents.shown(fields['expires'].value)} is not a date like 2027-01-31.")
    if texts.get("expect", "") not in ("", "fail"):
        fields["expect"].refuse(f'{texts["expect"]!r} is not "fail".')
    if not texts["url"].startswith(("https://", "http://")):
        fields["url"].refuse(f"{texts['url']!r} is not a web address.")
    operator = texts["case"].partition("/")[0]
    if not _CLAUSE.fullmatch(texts["clause"]):
        why = "is not one clause, as softmax.C2, or one oracle, as oracle:ulp."
        fields["clause"].refuse(f"{texts['clause']!r} {why}")
    if not operator or any(c in operator for c in _WILD):
        fields["case"].refuse(
            f"{texts['case']!r} does not name the operator or the program that it is of: a pattern has "
            "its wildcards after the first slash, as softmax/f16/* has."
        )
    return Waiver(**texts, expires=fields["expires"].value)  # type: ignore[arg-type]


_WILD = "*?["
_CLAUSE = re.compile(r"oracle:[a-z ]{1,40}|[A-Za-z0-9_.]{1,200}\.[A-Za-z][A-Za-z0-9_]{0,40}")


def apply_waivers(verdicts: Sequence[Verdict], waivers: Sequence[Waiver], today: date) -> list[Verdict]:
    """The verdicts with what waivers make of them. One that has expired makes nothing of any."""
    valid = [w for w in waivers if today <= w.expires]

    def one(v: Verdict) -> Verdict:
        if v.status in WAIVED and (waiver := next((w for w in valid if w.waives(v)), None)) is not None:
            status: Status = "xfail" if waiver.expect else "waived"
            return replace(v, status=status, sentence=f"{waiver.reason} ({waiver.url}) {v.status}: {v.sentence}")
        waiver = next((w for w in valid if w.expect and w.matches(v.case)), None)
        if v.status in ("pass", "quality warning") and waiver is not None:
            return replace(v, status="xpass", sentence=f"It does not fail any more: {waiver.reason} ({waiver.url})")
        return v

    return [one(v) for v in verdicts]


SHARE, SHARE_OF_ONE = 0.05, 0.5
"""At most this share of the cases that ran may be waived, and of those of one operator or program."""


def excess(verdicts: Iterable[Verdict], *, full_plan: bool = True) -> list[str]:
    """Says, in sentences, where a run has more waived cases than a run that conforms may have.

    Waivers are for failures that are known and few. A backend that computes an operator wrongly in most of its cases
    does not conform for it. It should refuse the operator or the dtype, which counts as not claimed and has no penalty.
    The limit on the share of all cases does not apply to a run that is not ``full_plan``, that is of some operators
    only.
    """
    ran, waived = Counter[str](), Counter[str]()
    for v in verdicts:
        operator = v.case.partition("/")[0]
        ran[operator] += v.status not in ("not run", "not claimed")
        waived[operator] += v.status in ("waived", "xfail")
    results = [
        f"{n} of {ran[op]} cases of {op} are waived, and at most {SHARE_OF_ONE:.0%} may be, or one."
        for op, n in sorted(waived.items())
        if n > max(1, SHARE_OF_ONE * ran[op])
    ]
    everything, all_waived = sum(ran.values()), sum(waived.values())
    if full_plan and all_waived > max(1, SHARE * everything):
        results.append(f"{all_waived} of {everything} cases are waived, and at most {SHARE:.0%} may be.")
    return results


def used(verdicts: Iterable[Verdict], waivers: Sequence[Waiver], today: date) -> list[dict[str, Any]]:
    """What each waiver waived, as plain data: the waiver, and the ids of its cases."""
    valid = [w for w in waivers if today <= w.expires]
    cases: dict[int, list[str]] = {}
    for v in verdicts:
        if v.status in ("waived", "xfail"):
            cases.setdefault(next(k for k, w in enumerate(valid) if w.waives(v)), []).append(v.case)
    return [{**asdict(valid[k]), "expires": valid[k].expires.isoformat(), "cases": cases[k]} for k in sorted(cases)]


def problems(
    verdicts: Sequence[Verdict],
    waivers: Sequence[Waiver],
    planned: Iterable[str],
    today: date,
    *,
    full_plan: bool = True,
) -> list[str]:
    """Returns what is wrong with waivers, in sentences: a waiver has expired, it matches no case that is ``planned``,
    or no case that it matches fails any more. Only the first is reported for a run that is not ``full_plan``, a part of
    the plan.
    """
    by_case = {v.case: v for v in verdicts}
    cases, result = list(planned), []
    for w in waivers:
        matching = [by_case.get(c) for c in cases if w.matches(c)]
        fails = [v is None or v.status == "not run" or (v.status in _FAILED and w.waives(v)) for v in matching]
        if today > w.expires:
            result.append(f"{w} has expired on {w.expires}.")
        elif full_plan and not matching:
            result.append(f"{w} matches no case.")
        elif full_plan and not w.expect and not any(fails):
            result.append(f"{w} is stale: none of its {len(matching)} cases fails by that clause.")
    return result
