"""Keys, signatures of certificates, and registries of them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from typer.testing import CliRunner

from keel import KeelError
from keel_conformance.certificate import certificate_list, hashes, signing
from keel_conformance.certificate.manifest import CERTIFICATE
from keel_conformance.cli import app
from keel_conformance.results.verdict import STATUSES

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def manifest() -> dict[str, Any]:
    counts = dict.fromkeys(STATUSES, 0) | {"pass": 8, "waived": 1, "not claimed": 3}
    held: dict[str, Any] = {
        "format": 3,
        "made": "2026-11-29T10:00:00+00:00",
        "subject": "acme",
        "run": {
            "profile": "core",
            "tier": "smoke",
            "seed": 0,
            "ops": [],
            "shard": "1/1",
            "cases": 12,
            "digest": "0" * 64,
        },
        "conforms": True,
        "levels": [{"level": "inference-1", "state": "conforms", "required": 4, "held": 4}],
        "totals": counts,
        "specification": {"lock": "1"},
        "suite": "2",
        "compiler": "3",
        "plugin": {"package": "acme", "distribution": "keel-acme", "version": "1.2", "files": "4"},
        "torch": {"version": "2.13.0"},
        "environment": {"cpu": "one", "cores": 2, "system": "Linux", "python": "3.11.7", "torch": "2.13.0"},
        "waivers": None,
        "waived": [{"case": "neg/*"}],
        "verdicts": "5" * 64,
        "files": {},
    }
    return {**held, "seal": hashes.of_data(held)}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    signing.make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / CERTIFICATE).write_text(json.dumps(manifest()))
    return tmp_path / "run"


def test_a_key_is_its_owners_and_is_never_replaced(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    assert signing.public_key(str(key.with_name("key.pub"))) == signing.public_text(signing.read_key(key))
    before = key.read_bytes()
    for name in ("key", "key.pub"):
        with pytest.raises(KeelError, match="never replaced"):
            signing.make_key(key.with_name(name))
        key.with_name("key.pub.pub").unlink(missing_ok=True)
    assert key.read_bytes() == before


def test_a_key_that_others_can_read_is_refused(key: Path) -> None:
    os.chmod(key, 0o640)
    with pytest.raises(KeelError, match="Others than its owner"):
        signing.read_key(key)


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "\0" * 99])
def test_what_is_not_a_key_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text)
    os.chmod(tmp_path / "key", 0o600)
    with pytest.raises(KeelError, match="holds no private key"):
        signing.read_key(tmp_path / "key")
    with pytest.raises(KeelError, match="holds no public key"):
        signing.public_key(str(tmp_path / "key"))


def test_a_signature_covers_the_seal_the_time_and_the_key(folder: Path, key: Path) -> None:
    public = signing.sign(folder, manifest()["seal"], key, now=NOW)
    assert signing.wrong_signature(folder, manifest()) == signing.wrong_signature(folder, manifest(), public) == []
    text = (folder / signing.SIGNATURE).read_text()
    assert "PRIVATE" not in text and key.read_text().splitlines()[1] not in text
    held = json.loads(text)
    for change in ({"signed": "2027-01-01T00:00:00+00:00"}, {"signature": "A" * 86 + "=="}, {"key": "A" * 43 + "="}):
        (folder / signing.SIGNATURE).write_text(json.dumps({**held, **change}))
        assert "The signature is not that of its key." in signing.wrong_signature(folder, manifest()), change


def test_a_signature_of_another_certificate_or_key_is_none(folder: Path, key: Path, tmp_path: Path) -> None:
    other = signing.make_key(tmp_path / "other")
    (unsigned,) = signing.wrong_signature(folder, manifest(), other)
    assert "It is not signed" in unsigned and signing.wrong_signature(folder, manifest()) == []
    signing.sign(folder, manifest()["seal"], key, now=NOW)
    (said,) = signing.wrong_signature(folder, manifest(), other)
    assert said.startswith("It is signed by the key ")
    (said,) = signing.wrong_signature(folder, {**manifest(), "seal": "9" * 64})
    assert said == "The signature is of another certificate."
    signing.sign(folder, manifest()["seal"], key, now=datetime(2020, 1, 1, tzinfo=UTC))
    assert signing.wrong_signature(folder, manifest()) == ["It was signed before it was made."]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "algorithm": "rsa"}', "[" * 100_000])
def test_a_file_that_is_no_signature_is_said(text: str, folder: Path) -> None:
    (folder / signing.SIGNATURE).write_text(text)
    (said,) = signing.wrong_signature(folder, manifest())
    assert "cannot be read" in said


def test_a_line_has_rates_with_what_they_are_of(key: Path) -> None:
    line = certificate_list.line_of(manifest(), key, now=NOW)
    assert line["rates"] == {"planned": 12, "judged": 9, "pass": 8, "waived": 1, "not claimed": 3}
    assert (line["backend"], line["version"], line["levels"], line["waivers"]) == ("acme", "1.2", ["inference-1"], 1)
    jsonschema.Draft202012Validator.check_schema(certificate_list.schema())
    jsonschema.Draft202012Validator(certificate_list.schema()).validate(line)


def test_a_registry_is_checked_line_by_line(key: Path, tmp_path: Path) -> None:
    file, line = tmp_path / "registry.jsonl", certificate_list.line_of(manifest(), key, now=NOW)
    certificate_list.append(file, line)
    assert certificate_list.check(file) == []
    with pytest.raises(KeelError, match="already"):
        certificate_list.append(file, line)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"levels": ["inference-3"]}, "the line was changed"),
        ({"rates": {"planned": 12, "judged": 12, "pass": 12, "cheered": 1}}, "rates"),
        ({"backend": ""}, "backend"),
        ({"more": 1}, "more"),
    ]
    file.write_text("".join(json.dumps({**line, **change}) + "\n" for change, _ in cases))
    for number, (said, (_, word)) in enumerate(zip(certificate_list.check(file), cases, strict=True), 1):
        assert said.startswith(f"Line {number}: ") and word in said
    file.write_text(json.dumps(line) + "\n" + json.dumps(line) + "\n")
    assert certificate_list.check(file) == ["Line 2: It has the certificate of line 1."]
    with pytest.raises(KeelError, match="not a registry"):
        file.write_text("{")
        certificate_list.check(file)


def conform(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def test_the_commands_sign_and_list(folder: Path, tmp_path: Path) -> None:
    said = conform("key", str(tmp_path / "mine"))
    assert said.exit_code == 0 and "Its public key is" in said.output.replace("\n", " ")
    said = conform("sign", str(folder), "--key", str(tmp_path / "mine"))
    assert said.exit_code == 0 and (folder / signing.SIGNATURE).exists(), said.output
    lines = str(tmp_path / "registry.jsonl")
    said = conform("register", str(folder), "--registry", lines, "--key", str(tmp_path / "mine"))
    assert said.exit_code == 0 and "8 of 9 judged cases pass, of 12." in said.output.replace("\n", " "), said.output
    assert conform("registry", lines).exit_code == 0
    Path(lines).write_text(Path(lines).read_text().replace('"acme"', '"acne"'))
    said = conform("registry", lines)
    assert said.exit_code == 1 and "the line was changed" in said.output.replace("\n", " ")
