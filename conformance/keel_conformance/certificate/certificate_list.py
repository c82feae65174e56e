"""A public list of certificates: a line of JSON for each, signed by the vendor, with what a site can show.

``registry_schema.json`` says what is in a line. Each line can be checked without the run: its signature is the
vendor's, of the line itself. Whether the figures are true shows in the certificate with the same seal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from keel import KeelError, documents

from . import signing

FORMAT = 1
MOST_BYTES, MOST_LINES = 1 << 26, 1 << 16
PLACE = ("cpu", "cores", "system", "python", "torch", "compiler")
"""What a line says of the environment, of what the certificate has."""


def line_of(manifest: Mapping[str, Any], key_file: Path, *, now: datetime | None = None) -> dict[str, Any]:
    """The line of a certificate, signed. Rates have the number of all cases, and of those that were judged."""
    key = signing.read_key(key_file)
    counts, about = manifest["totals"], manifest["run"]
    judged = about["cases"] - counts["not claimed"] - counts["not run"]
    line: dict[str, Any] = {
        "format": FORMAT,
        "backend": manifest["subject"],
        "package": manifest["plugin"]["distribution"],
        "version": manifest["plugin"]["version"],
        "levels": [one["level"] for one in manifest["levels"] if one["state"] == "conforms"],
        "standings": manifest["levels"],
        "run": {k: about[k] for k in ("profile", "tier", "seed", "ops", "digest")},
        "rates": {"planned": about["cases"], "judged": judged, **{k: n for k, n in counts.items() if n}},
        "waivers": len(manifest["waived"]),
        "environment": {k: place for k in PLACE if (place := manifest["environment"].get(k)) is not None},
        "made": manifest["made"],
        "listed": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
        "seal": manifest["seal"],
        "key": signing.public_text(key),
    }
    return {**line, "signature": signing.sign_data(line, key)}


def append(file: Path, line: Mapping[str, Any]) -> None:
    """Adds a line to the file, which is made if need be. Raises KeelError if the file is not a registry, or has it."""
    held = b""
    if file.exists():
        if wrong := check(file):
            raise KeelError("bad-file", f"{file} is not a registry.", {"line": " ".join(wrong[:3])})
        held = documents.bytes_of(file, MOST_BYTES)
        if any(one["seal"] == line["seal"] for _, one in _lines(held)):
            raise KeelError("bad-option", f"{file} has a line of this certificate already.")
    documents.replace_file(file, held + f"{json.dumps(line, sort_keys=True)}\n".encode())


def check(file: Path) -> list[str]:
    """What is wrong with a registry, in sentences that begin with the line. Raises KeelError[bad-option] if there is no
    file, and KeelError[bad-file] for what is not lines of JSON.
    """
    try:
        lines = [*_lines(documents.bytes_of(file, MOST_BYTES))]
    except documents.Malformed as e:
        raise documents.bad_file(file, e, what="It is not a registry of certificates.") from e
    seals: dict[str, int] = {}
    wrong = []
    for number, line in lines:
        problems = [*_wrong(line)]
        if not problems and line["seal"] in seals:
            problems.append(f"It has the certificate of line {seals[line['seal']]}.")
        if not problems:
            seals[line["seal"]] = number
        wrong += [documents.printable(f"Line {number}: {sentence}") for sentence in problems]
    return wrong


def _lines(held: bytes) -> Iterator[tuple[int, Any]]:
    lines = held.split(b"\n")
    if len(lines) > MOST_LINES:
        raise documents.Malformed("", f"It has more than {MOST_LINES} lines.")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, documents.parsed(line, f"line {number}")


def _wrong(line: Any) -> Iterator[str]:
    import jsonschema

    errors = [*jsonschema.Draft202012Validator(schema()).iter_errors(line)]
    if errors:
        first = min(errors, key=lambda e: list(map(str, e.absolute_path)))
        where = ".".join(map(str, first.absolute_path))
        yield f"{where or 'it'}: {first.message[:200]}"
        return
    if not signing.is_signed({k: v for k, v in line.items() if k != "signature"}, line["key"], line["signature"]):
        yield "The signature is not that of its key, or the line was changed."
    if (
        sum(line["rates"].get(k, 0) for k in line["rates"] if k not in ("planned", "judged"))
        != line["rates"]["planned"]
    ):
        yield "The counts do not add up to the planned cases."
    for field in ("made", "listed"):
        try:
            time = signing.time_of(documents.Item(line[field], field))
        except documents.Malformed as e:
            yield f"{field}: {e.why}"
            continue
        if time > datetime.now(UTC) + timedelta(minutes=5):
            yield f"{field}: It is in the future."


@cache
def schema() -> Mapping[str, Any]:
    """The JSON schema (draft 2020-12) of a line."""
    results: Mapping[str, Any] = json.loads((files(__package__) / "registry_schema.json").read_text())
    return results
