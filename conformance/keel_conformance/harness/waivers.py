"""Failures that are known and accepted for a while: read from TOML, applied to verdicts, held to what they say."""
from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from keel import KeelError

from ..results.verdict import Status, Verdict

WAIVED: frozenset[Status] = frozenset({"fail", "crash", "timeout", "resource"})
"""What can be waived. What is flaky or vacuous cannot: nobody knows what of it is accepted."""
FIELDS = ("case", "reason", "url", "owner", "expires")
_DO = "A waiver has case (a pattern), reason, url, owner, expires (a date) and, if it is expected to fail, expect."


@dataclass(frozen=True)
class Waiver:
    """``case`` is a pattern of case ids, ``backend`` one of backends. With ``expect = "fail"`` each of the cases has to
    fail: it is counted as xfail, and as xpass, which is bad, once it does not. Else one that fails is counted as
    waived.
    """

    case: str
    reason: str
    url: str
    owner: str
    expires: date
    backend: str = "*"
    expect: Literal["", "fail"] = ""

    def matches(self, case: str) -> bool:
        return fnmatchcase(case, self.case)

    def __str__(self) -> str:
        return f"The waiver of {self.case} ({self.url}, {self.owner})"


def read(file: Path, backend: str) -> tuple[Waiver, ...]:
    """The waivers in a file that are about the backend: tables ``[[waiver]]``. Raises KeelError[bad-option]."""
    try:
        entries = tomllib.loads(file.read_text()).get("waiver", [])
    except (OSError, tomllib.TOMLDecodeError) as raised:
        raise KeelError("bad-option", f"The waivers in {file} cannot be read.", {"it says": str(raised)}) from raised
    found = [_waiver(file, k, entry) for k, entry in enumerate(entries, 1)]
    return tuple(w for w in found if fnmatchcase(backend, w.backend))


def _waiver(file: Path, number: int, entry: dict[str, Any]) -> Waiver:
    lacking = [f for f in FIELDS if not entry.get(f)]
    unknown = sorted(set(entry) - {*FIELDS, "backend", "expect"})
    reasons = {**({"lacking": ", ".join(lacking)} if lacking else {}),
               **({"unknown": ", ".join(unknown)} if unknown else {})}
    if not lacking and type(entry["expires"]) is not date:
        reasons["expires"] = f"{entry['expires']!r} is no date, as 2027-01-31 is."
    if entry.get("expect", "") not in ("", "fail"):
        reasons["expect"] = f"{entry['expect']!r} is not \"fail\"."
    if not entry.get("url", "https://").startswith(("https://", "http://")):
        reasons["url"] = f"{entry['url']!r} is no address."
    if reasons:
        raise KeelError("bad-option", f"Waiver {number} in {file} is incomplete.", reasons, do=_DO)
    return Waiver(**entry)


def applied(verdicts: Sequence[Verdict], waivers: Sequence[Waiver], today: date) -> list[Verdict]:
    """The verdicts with what waivers make of them. One that has expired makes nothing of any."""
    valid = [w for w in waivers if today <= w.expires]

    def one(v: Verdict) -> Verdict:
        waiver = next((w for w in valid if w.matches(v.case)), None)
        if waiver is None:
            return v
        if v.status in WAIVED:
            status: Status = "xfail" if waiver.expect else "waived"
            return replace(v, status=status, sentence=f"{waiver.reason} ({waiver.url}) {v.status}: {v.sentence}")
        if v.status in ("pass", "quality warning") and waiver.expect:
            return replace(v, status="xpass", sentence=f"It does not fail any more: {waiver.reason} ({waiver.url})")
        return v
    return [one(v) for v in verdicts]


def problems(verdicts: Sequence[Verdict], waivers: Sequence[Waiver], planned: Iterable[str], today: date, *,
             whole: bool = True) -> list[str]:
    """What is wrong with waivers, in sentences: it has expired, it matches no case that is ``planned``, nothing that it
    waives fails any more. Of a run that is not ``whole``, a part of the plan, only the first can be said.
    """
    by_case = {v.case: v.status for v in verdicts}
    cases, found = list(planned), []
    for w in waivers:
        mine = [by_case.get(c, "not run") for c in cases if w.matches(c)]
        if today > w.expires:
            found.append(f"{w} has expired on {w.expires}.")
        elif whole and not mine:
            found.append(f"{w} matches no case.")
        elif whole and not w.expect and not {*mine} & {*WAIVED, "waived", "not run"}:
            found.append(f"{w} is stale: none of its {len(mine)} cases fails.")
    return found
