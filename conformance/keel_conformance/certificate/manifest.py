"""The certificate of a run: what was run, what came of it, and hashes of all that it depends on, under one seal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from keel import KeelError, documents

from ..cases.case import Case
from ..harness import waivers
from ..harness.journal import FILE, read, stating
from ..harness.parallel_plan import plan_in_parallel
from ..harness.run import digest
from ..levels.level import profile_of
from ..levels.needs import FILE as NEEDS
from ..levels.needs import needs_in
from ..levels.standing import standings, unmet
from ..report import machine
from ..results.verdict import Verdict, conforms, totals
from . import hashes

CERTIFICATE, WAIVERS = "certificate.json", "waivers.toml"
FORMAT = 3
OPTIONAL = ("report.json", "junit.xml", "report.html", NEEDS)
"""Files of a run that a certificate covers where they are there."""
ABOUT = ("profile", "tier", "seed", "ops", "shard", "cases", "digest")


def planned_of(head: Mapping[str, Any], folder: Path) -> tuple[Case, ...]:
    """Returns the cases of the run in ``folder`` with this head. Raises KeelError[bad-option] if it has no cases."""
    return _planned(str(head["profile"]), str(head["tier"]), int(head["seed"]), tuple(head["ops"]), folder)


@cache
def _planned(profile: str, tier: str, seed: int, ops: tuple[str, ...], folder: Path) -> tuple[Case, ...]:
    return plan_in_parallel(profile=profile, tier=tier, seed=seed, ops=ops, needs=needs_in(folder))


def levels_of(
    folder: Path, head: Mapping[str, Any], cases: Sequence[Case], verdicts: Sequence[Verdict]
) -> list[dict[str, Any]]:
    """How the run in ``folder`` stands to its level, or to all levels: counts, and what is missing in short."""
    profile = profile_of(str(head["profile"]), needs_in(folder))
    return [
        {"level": one.level, "state": one.state, "required": one.required, "held": one.held}
        for one in standings(profile, cases, verdicts)
    ]


def accepted(folder: Path, subject: str, verdicts: Sequence[Verdict], day: date) -> list[Verdict]:
    """The verdicts with the waivers that lie in the folder applied, as of that day."""
    return waivers.apply_waivers(verdicts, held(folder, subject), day)


def held(folder: Path, subject: str) -> tuple[waivers.Waiver, ...]:
    """The waivers that lie in the folder.  Raises KeelError[bad-file]."""
    file = folder / WAIVERS
    return waivers.read(file, subject) if file.exists() else ()


def certify(folder: Path, *, waived: Path | None = None, now: datetime | None = None) -> dict[str, Any]:
    """Writes ``certificate.json`` into the folder of a run.

    Raises KeelError[bad-option] where there is no whole run, where it was one of other cases, another suite or another
    PyTorch than those at hand, or where the backend does not conform.
    """
    now = now or datetime.now(UTC)
    if not (folder / FILE).exists():
        raise KeelError("bad-option", f"There is no run in {folder}.", do=f"Its --out folder holds {FILE}.")
    head, verdicts, _ = read(folder / FILE)
    head = stating(folder / FILE, head, "backend", "torch", *ABOUT)
    cases = planned_of(head, folder)
    if waived is not None and waived.resolve() != (folder / WAIVERS).resolve():
        documents.replace_file(folder / WAIVERS, _waivers(waived))
    judged = accepted(folder, str(head["backend"]), [verdicts[c.id] for c in cases if c.id in verdicts], now.date())
    counts = totals(judged)
    if reasons := _hindrances(folder, head, cases, judged, now.date()):
        raise KeelError(
            "bad-option",
            f"The run in {folder} cannot be certified.",
            reasons,
            do="keel conform says what is wrong. Only a complete run without bad verdicts can be certified.",
        )
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "made": now.isoformat(timespec="seconds"),
        "subject": head["backend"],
        "run": {k: head[k] for k in ABOUT},
        "conforms": conforms(counts),
        "levels": levels_of(folder, head, cases, judged),
        "totals": dict(counts),
        "specification": hashes.specification(),
        "suite": hashes.of_package("keel_conformance"),
        "compiler": hashes.of_package("keel"),
        "plugin": hashes.plugin(str(head["backend"])),
        "torch": hashes.pytorch(),
        "environment": machine(),
        "waivers": hashes.of_file(folder / WAIVERS) if (folder / WAIVERS).exists() else None,
        "waived": waivers.used(judged, held(folder, str(head["backend"])), now.date()),
        "verdicts": of_verdicts(judged),
        "files": of_run(folder),
    }
    manifest["seal"] = hashes.of_data(manifest)
    documents.replace_file(folder / CERTIFICATE, f"{json.dumps(manifest, indent=1)}\n".encode())
    return manifest


def _waivers(file: Path) -> bytes:
    try:
        return documents.bytes_of(file, waivers.MOST_BYTES)
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It holds no waivers.") from e


def _hindrances(
    folder: Path, head: Mapping[str, Any], cases: Sequence[Case], verdicts: Sequence[Verdict], day: date
) -> dict[str, str]:
    """Why the run cannot be certified."""
    counts, reasons = totals(verdicts), dict[str, str]()
    if head["digest"] != digest(cases):
        reasons["cases"] = "They are not those that this version of the suite plans."
    if head["shard"] != "1/1":
        reasons["shard"] = f"It is shard {head['shard']}: keel conform merge makes one run of all."
    if lacking := len(cases) - len(verdicts):
        reasons["not run"] = f"{lacking} of {len(cases)} cases have no verdict."
    if head["torch"] != hashes.pytorch()["version"]:
        reasons["torch"] = f"It ran with {head['torch']}, here is {hashes.pytorch()['version']}."
    if not conforms(counts):
        bad = ", ".join(f"{n} {s}" for s, n in counts.items() if n and s not in ("pass", "not claimed"))
        reasons["verdicts"] = f"It does not conform: {bad or 'nothing was run'}."
    profile = profile_of(str(head["profile"]), needs_in(folder))
    if missing := unmet(profile, standings(profile, cases, verdicts), str(head["backend"]), complete=not head["ops"]):
        reasons["level"] = " ".join(missing)
    if wrong := wrong_waivers(folder, head, cases, verdicts, day):
        reasons["waivers"] = " ".join(wrong)
    return reasons


def wrong_waivers(
    folder: Path, head: Mapping[str, Any], cases: Sequence[Case], verdicts: Sequence[Verdict], day: date
) -> list[str]:
    """What is wrong with the waivers of a run, as of that day, and where they waive more than one that conforms may
    have, in sentences.
    """
    full_plan, accepted = not head["ops"], held(folder, str(head["backend"]))
    return [
        *waivers.problems(verdicts, accepted, [c.id for c in cases], day, full_plan=full_plan),
        *waivers.excess(verdicts, full_plan=full_plan),
    ]


def of_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Returns the hash of the case, status, oracle, sentence and clause of each verdict, in the order of the plan."""
    return hashes.of_data([[v.case, v.status, v.oracle, v.sentence, v.clause] for v in verdicts])


def of_run(folder: Path) -> dict[str, str]:
    """Returns the hashes of the log and of the reports, by file name."""
    return {name: hashes.of_file(folder / name) for name in (FILE, *OPTIONAL) if (folder / name).exists()}
