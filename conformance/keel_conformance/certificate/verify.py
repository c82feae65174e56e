"""Verifies a certificate: recomputes every hash and every count, and runs a sample of the cases again.

If someone changes files and then seals them again, only the sample can show it: it does so when it contains a case
whose verdict was changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from keel import KeelError, documents

from ..cases.case import Case
from ..cases.plan import TIERS
from ..harness.journal import FILE, MOST_BYTES, entries
from ..harness.protocol import Settings
from ..harness.run import digest, run
from ..harness.waivers import used
from ..levels.standing import State
from ..report import join_names, machine
from ..results.verdict import BAD, STATUSES, Verdict, conforms, totals
from . import hashes
from .manifest import (
    ABOUT,
    CERTIFICATE,
    FORMAT,
    WAIVERS,
    accepted,
    held,
    levels_of,
    of_run,
    of_verdicts,
    planned_of,
    wrong_waivers,
)
from .signing import read_signature, wrong_signature

SHARE, LEAST = 0.01, 20
"""The fraction of the cases in the run that is run again, and the smallest number of them."""
FIELDS = frozenset(
    {
        "format",
        "made",
        "subject",
        "run",
        "conforms",
        "levels",
        "totals",
        "specification",
        "suite",
        "compiler",
        "plugin",
        "torch",
        "environment",
        "waivers",
        "waived",
        "verdicts",
        "files",
        "seal",
    }
)
HERE: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "specification": ("The specification is another one.", lambda m: hashes.specification()),
    "suite": ("The suite is another one.", lambda m: hashes.of_package("keel_conformance")),
    "compiler": ("Keel is another one.", lambda m: hashes.of_package("keel")),
    "plugin": ("The plugin is another one.", lambda m: hashes.plugin(m["subject"])),
    "torch": ("PyTorch is another one.", lambda m: hashes.pytorch()),
}
"""What has to be the same where a certificate is verified: a sentence if it is not, and how it is found."""


def verify(
    folder: Path,
    *,
    share: float = SHARE,
    least: int = LEAST,
    jobs: int = 1,
    backend: str = "",
    key: str = "",
    draw: random.Random | None = None,
) -> list[str]:
    """Returns what is wrong with the certificate in the folder, in sentences; an empty list means that it holds.

    A fraction ``share`` of the cases is run again, but at least ``least`` of them; 0 and 0 run nothing. ``backend``, if
    given, must be the backend that the certificate names. A backend of the form ``module:attribute`` is imported only
    if ``backend`` names it. ``key``, if given, is the public key of the one who must have signed it.
    """
    if not (folder / CERTIFICATE).exists():
        return [f"There is no {CERTIFICATE}."]
    try:
        manifest = read(folder / CERTIFICATE)
    except KeelError as e:
        sentence = " ".join(f"{place}: {why}" for place, why in (e.reasons or {}).items())
        return [f"{CERTIFICATE} cannot be read: {sentence or e.what}"]
    if wrong := [*_form(manifest)]:
        return wrong
    try:
        _check(documents.Item(manifest))
        wrong = [*_files(folder, manifest), *_here(manifest)]
        cases, verdicts, wrong_claims = _claims(folder, manifest)
    except documents.Malformed as e:
        return [*wrong, f"The run cannot be read: {e.place}: {e.why}"]
    except (KeelError, OSError) as e:
        return [*wrong, f"The run cannot be read: {e}"]
    wrong += [*wrong_claims, *wrong_signature(folder, manifest, key)]
    subject = str(manifest["subject"])
    if backend and backend != subject:
        wrong.append(f"The certificate is of the backend {subject}, not of {backend}.")
    if not wrong and (share or least) and ":" in subject and not backend:
        wrong.append(
            f"To run cases again, {subject.partition(':')[0]} would be imported, because the certificate says "
            f"so. If you trust it, say --backend {subject}."
        )
    if not wrong:  # once a change is found, running cases adds nothing
        wrong += _again(subject, cases, verdicts, share, least, jobs, draw or random.SystemRandom())
    return wrong


def read(path: Path) -> Any:
    """Returns the content of a certificate, unchecked.  Raises KeelError[bad-file] if the file is not JSON."""
    try:
        return documents.parsed(documents.text_of(path))
    except documents.Malformed as e:
        raise documents.bad_file(path, e, what="It is not a certificate.") from e


def facts(folder: Path) -> list[str]:
    """Says who signed a certificate that holds, and in what this machine differs from the one that it was made on."""
    manifest, held = read(folder / CERTIFICATE), read_signature(folder)
    there, here = manifest["environment"], machine()
    differ = [k for k in ("cpu", "cores", "system", "python") if there.get(k) != here[k]]
    other = [f"{k} {there.get(k)}, here {here[k]}" for k in differ]
    signed = "It is not signed." if held is None else f"It is signed by the key {held['key']}, on {held['signed']}."
    return [signed, *([f"It was made on another machine: {'; '.join(other)}."] if other else [])]


def form(path: Path) -> list[str]:
    """Returns what is wrong with the certificate alone, without its run.

    Raises KeelError[bad-file] if the file is not a certificate.
    """
    manifest = read(path)
    if wrong := [*_form(manifest)]:
        return wrong
    try:
        _check(documents.Item(manifest))
    except documents.Malformed as e:
        raise documents.bad_file(path, e, what="It is not a certificate.") from e
    return []


def _check(manifest: documents.Item) -> None:
    """Raises Malformed for a manifest whose fields are not of their kinds."""
    fields = manifest.record(sorted(FIELDS))
    for name in ("made", "subject", "suite", "compiler", "verdicts", "seal"):
        fields[name].text(1 << 10)
    fields["conforms"].flag()
    for name in ("specification", "plugin", "torch", "files"):
        for item in fields[name].table(64).values():
            item.text(1 << 10)
    if "version" not in fields["torch"].value:
        fields["torch"].refuse("It lacks version.")
    for count in fields["totals"].record(STATUSES).values():
        count.integer(0, 1 << 40)
    about = fields["run"].record(ABOUT)
    about["profile"].prose(1 << 10)
    for one in fields["levels"].items(64):
        standing = one.record(("level", "state", "required", "held"))
        standing["level"].prose(1 << 10)
        standing["state"].one_of(get_args(State), "the state of a level")
        for count in (standing["required"], standing["held"]):
            count.integer(0, 1 << 40)
    about["tier"].one_of([*TIERS], f"one of {', '.join(TIERS)}")
    about["seed"].integer(-(1 << 63), 1 << 63)
    about["cases"].integer(0, 1 << 40)
    for name in ("shard", "digest"):
        about[name].text(1 << 10)
    for pattern in about["ops"].items(1 << 10):
        pattern.text(200)
    if fields["waivers"].value is not None:
        fields["waivers"].text(1 << 10)
    fields["waived"].items(1 << 10)
    fields["environment"].table(64)


def _form(manifest: Any) -> Iterator[str]:
    """The manifest by itself: its fields and its seal."""
    if isinstance(manifest, dict) and manifest.get("format") in range(1, FORMAT):
        yield f"It is a certificate of format {manifest['format']}, which names no level: certify its run again."
        return
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        yield f"It is not a certificate of format {FORMAT}."
        return
    if odd := FIELDS ^ manifest.keys():
        yield f"Fields are lacking or unknown: {join_names(map(documents.shown, sorted(odd)))}."
        return
    try:
        seal = hashes.of_data({k: v for k, v in manifest.items() if k != "seal"})
    except ValueError as e:
        yield f"It has a value that JSON cannot represent: {e}"
        return
    if seal != manifest["seal"]:
        yield "The seal is not that of the manifest: it was changed after it was made."
    if not (isinstance(manifest["run"], dict) and {*ABOUT} == manifest["run"].keys()):
        yield "What the run is about is incomplete."
    if not (isinstance(manifest["totals"], dict) and {*STATUSES} == manifest["totals"].keys()):
        yield "The totals do not have the fourteen statuses."
    try:
        if datetime.fromisoformat(manifest["made"]) > datetime.now(UTC) + timedelta(minutes=5):
            yield "It was made in the future."
    except (TypeError, ValueError):
        yield "It does not say when it was made."


def _files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    have, claimed = of_run(folder), manifest["files"]
    for name in sorted({*have, *claimed}):
        if have.get(name) != claimed.get(name):
            how = "added" if name not in claimed else "changed" if name in have else "removed"
            yield f"{name} was {how}."
    file = folder / WAIVERS
    if (hashes.of_file(file) if file.exists() else None) != manifest["waivers"]:
        yield "The waivers were changed."


def _here(manifest: Mapping[str, Any]) -> Iterator[str]:
    for field, (sentence, find) in HERE.items():
        if find(manifest) != manifest[field]:
            yield sentence
    place = manifest["environment"]
    if not isinstance(place, dict) or place.get("torch") != manifest["torch"]["version"]:
        yield "The environment is one of another PyTorch than the certificate's."


def _claims(folder: Path, manifest: Mapping[str, Any]) -> tuple[Sequence[Case], Sequence[Verdict], list[str]]:
    """The cases, their verdicts as the log has them, and what the manifest says otherwise."""
    head, logged, wrong = _log(folder / FILE)
    about = {k: head.get(k) for k in ABOUT}
    other = [
        f"The log is of another {k}: {v}, not {manifest['run'][k]}."
        for k, v in about.items()
        if v != manifest["run"][k]
    ]
    if other:  # nothing is planned for a run that is another one
        return (), (), [*wrong, *other]
    if head.get("backend") != manifest["subject"]:
        wrong.append(f"The log is of the backend {head.get('backend')}, not of {manifest['subject']}.")
    if head.get("torch") != manifest["torch"]["version"]:
        wrong.append(f"The log is of PyTorch {head.get('torch')}, not of {manifest['torch']['version']}.")
    cases = planned_of(manifest["run"], folder)
    if digest(cases) != manifest["run"]["digest"] or len(cases) != manifest["run"]["cases"]:
        wrong.append("The cases are not those that this suite plans.")
    lacking = [c.id for c in cases if c.id not in logged]
    unknown = logged.keys() - {c.id for c in cases}
    wrong += [f"{len(lacking)} planned cases have no verdict, as {lacking[0]}."] if lacking else []
    wrong += [f"{len(unknown)} verdicts are of no planned case, as {min(unknown)}."] if unknown else []
    plain = [logged[c.id] for c in cases if c.id in logged]
    day = datetime.fromisoformat(manifest["made"]).date()
    verdicts = accepted(folder, str(manifest["subject"]), plain, day)
    wrong += wrong_waivers(folder, head, cases, verdicts, day)
    if used(verdicts, held(folder, str(manifest["subject"])), day) != manifest["waived"]:
        wrong.append("What was waived is not what the certificate shows.")
    wrong += [
        f"{v.case} passes with an error of {v.figures['ratio']:.3g} times what is allowed."
        for v in verdicts
        if v.status == "pass" and isinstance(v.figures.get("ratio"), float) and v.figures["ratio"] > 1
    ][:3]
    if of_verdicts(verdicts) != manifest["verdicts"]:
        wrong.append("The verdicts are not those that were certified.")
    if levels_of(folder, manifest["run"], cases, verdicts) != manifest["levels"]:
        wrong.append("The levels are not those that the verdicts reach.")
    counts = totals(verdicts)
    if dict(counts) != manifest["totals"]:
        wrong.append("The totals are not those of the verdicts.")
    if manifest["conforms"] is not True or not conforms(counts):
        wrong.append("The run does not conform.")
    return cases, plain, [*wrong, *_report(folder, manifest)]


def _log(path: Path) -> tuple[Mapping[str, Any], dict[str, Verdict], list[str]]:
    """The head and the verdicts of a log, which is only read. A case may end again only as it did before."""
    head: Mapping[str, Any] = {}
    verdicts: dict[str, Verdict] = {}
    started: set[str] = set()
    wrong: list[str] = []
    for kind, entry in entries(documents.bytes_of(path, MOST_BYTES)):
        match kind:
            case "run":
                wrong += ["The log has two heads."] if head else []
                head = entry
            case "begin":
                started |= {*entry}
            case "end":
                for v in entry:
                    if v.status not in STATUSES:
                        wrong.append(f"{v.case} has the status {v.status!r}, which there is not.")
                    elif v.status != "not run" and v.case not in started:
                        wrong.append(f"{v.case} ended and never began.")
                    elif v.case in verdicts and verdicts[v.case].status != v.status:
                        wrong.append(f"{v.case} ended as {verdicts[v.case].status} and as {v.status}.")
                    verdicts[v.case] = v
    return head, verdicts, wrong[:5]


def _report(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """What the report says otherwise, where there is one."""
    file = folder / "report.json"
    if not file.exists():
        return
    totals_, subject, digest_ = read_report(file)
    if totals_ != manifest["totals"]:
        yield "The report has other totals."
    if subject != manifest["subject"] or digest_ != manifest["run"]["digest"]:
        yield "The report is of another run."


def read_report(file: Path) -> tuple[dict[str, int], str, str]:
    """The totals of a report, its subject and the digest of its cases.  Raises KeelError[bad-file]."""
    try:
        report = documents.Item(documents.parsed(documents.text_of(file, MOST_BYTES))).table(64)
        for name in ("totals", "subject", "run"):
            if name not in report:
                raise documents.Malformed("", f"It lacks {name}.")
        counts = {}
        for row in report["totals"].items(len(STATUSES)):
            cells = row.table(16)
            if not {"status", "cases"} <= cells.keys():
                row.refuse("It lacks status or cases.")
            counts[cells["status"].text(64)] = cells["cases"].integer(0, 1 << 40)
        about = report["run"].table(64)
        return counts, report["subject"].text(1 << 10), about["digest"].text(1 << 10) if "digest" in about else ""
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It is not the report of a run.") from e


def _again(
    subject: str,
    cases: Sequence[Case],
    verdicts: Sequence[Verdict],
    share: float,
    least: int,
    jobs: int,
    draw: random.Random,
) -> Iterator[str]:
    """Runs some cases again, which nobody can know beforehand, and compares."""
    before = {v.case: v for v in verdicts if v.status != "not run"}
    pool = [c for c in cases if c.id in before]
    some = draw.sample(pool, min(len(pool), max(least, round(share * len(pool)))))
    if not some:
        return
    order = {c.id: k for k, c in enumerate(cases)}
    some.sort(key=lambda c: order[c.id])
    with TemporaryDirectory(prefix="keel-verify-") as out:
        ran = run(some, subject, out=Path(out), jobs=jobs, settings=Settings(subject))
    for v in ran.verdicts:
        if v.status != before[v.case].status and not (v.status == "not run" and before[v.case].status in BAD):
            yield f"{v.case} was {before[v.case].status}, and is {v.status} when it is run again. {v.sentence}".strip()
