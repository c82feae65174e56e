"""A certificate holds for what it was made of, and for nothing that was changed afterwards."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keel import KeelError
from keel_conformance.cases.case import Case
from keel_conformance.certificate import hashes
from keel_conformance.certificate.manifest import CERTIFICATE, WAIVERS, certify, planned_of
from keel_conformance.certificate.verify import verify
from keel_conformance.cli import app
from keel_conformance.harness.journal import FILE, Journal
from keel_conformance.harness.run import Shard, head_of
from keel_conformance.reporting import json_report
from keel_conformance.results.verdict import Verdict

ABOUT: dict[str, Any] = {"profile": "core", "tier": "smoke", "seed": 0, "ops": ["neg"]}
WAIVER = """[[waiver]]
case = "neg/i64/*"
clause = "oracle:exact"
reason = "It rounds twice."
url = "https://example.org/1"
owner = "me"
expires = 2999-01-01
"""


def cases() -> tuple[Case, ...]:
    return planned_of(ABOUT, Path("no run"))


def made(
    folder: Path,
    subject: str = "tampering:honest",
    *,
    change: Callable[[Verdict], Verdict] = lambda v: v,
    head: dict[str, Any] | None = None,
) -> Path:
    """A run in which all pass, as its log says."""
    some = cases()
    journal = Journal.opened(folder, {**head_of(some, subject, Shard(), **ABOUT), **(head or {})})
    journal.begin([c.id for c in some])
    journal.end([change(Verdict(c.id, "pass", "exact", figures={"ratio": 0.0}, seconds=0.1)) for c in some])
    journal.close()
    return folder


@pytest.fixture(scope="module", autouse=True)
def _one_suite() -> Iterator[None]:
    """Files of the suite may be edited while its tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "of_package", cache(hashes.of_package))
        yield


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with reports and a waiver, and its certificate."""
    folder = made(
        tmp_path_factory.mktemp("run"),
        change=lambda v: (
            replace(v, status="fail", sentence="At (0,) it is 1, not 2.") if v.case.startswith("neg/i64") else v
        ),
    )
    waived = [Verdict(c.id, "waived" if c.dtype == "i64" else "pass") for c in cases()]
    head = json.loads((folder / FILE).read_text().splitlines()[0])["run"]
    json_report.write(folder, json_report.document(json_report.Run(head, cases(), waived)), waived)
    (folder / "report.html").write_text("<p>A page.</p>")
    (folder / "accepted.toml").write_text(WAIVER)
    certify(folder, waived=folder / "accepted.toml")
    return folder


@pytest.fixture
def run(certified: Path, tmp_path: Path) -> Path:
    """A copy to tamper with."""
    return Path(shutil.copytree(certified, tmp_path / "run"))


def text(folder: Path, name: str, old: str, new: str) -> None:
    found = (folder / name).read_text()
    assert old in found
    (folder / name).write_text(found.replace(old, new))


def manifest(folder: Path, change: Callable[[dict[str, Any]], Any], *, seal: bool = True) -> None:
    """Changes the manifest and, by default, updates the seal and the hashes of files, as a cheater would."""
    found = json.loads((folder / CERTIFICATE).read_text())
    change(found)
    if seal:
        found["seal"] = hashes.of_data({k: v for k, v in found.items() if k != "seal"})
    (folder / CERTIFICATE).write_text(json.dumps(found))


def log(folder: Path, change: Callable[[list[dict[str, Any]]], Any], *, seal: bool = True) -> None:
    """Changes the log's lines, and has the manifest agree with their hash."""
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    change(lines)
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if seal:
        manifest(folder, lambda m: m["files"].update({FILE: hashes.of_file(folder / FILE)}))


def end(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = next(line["end"] for line in lines if "end" in line)
    return found


def first(**change: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: end(lines)[0].update(change)


TAMPERING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no certificate": (lambda f: (f / CERTIFICATE).unlink(), "There is no certificate.json."),
    "no JSON": (lambda f: (f / CERTIFICATE).write_text("{"), "cannot be read"),
    "another format": (lambda f: manifest(f, lambda m: m.update(format=9)), "not a certificate of format 3"),
    "an older format": (lambda f: manifest(f, lambda m: m.update(format=2)), "of format 2, which names no level"),
    "a field more": (lambda f: manifest(f, lambda m: m.update(gold=True)), "lacking or unknown: 'gold'"),
    "a field less": (lambda f: manifest(f, lambda m: m.pop("plugin")), "lacking or unknown: 'plugin'"),
    "changed and not sealed": (lambda f: manifest(f, lambda m: m.update(subject="cpp"), seal=False), "The seal is not"),
    "another backend": (
        lambda f: manifest(f, lambda m: m.update(subject="tampering:dishonest")),
        "The log is of the backend",
    ),
    "a larger tier": (lambda f: manifest(f, lambda m: m["run"].update(tier="standard")), "another tier: smoke"),
    "another seed": (lambda f: manifest(f, lambda m: m["run"].update(seed=1)), "another seed: 0, not 1."),
    "another profile": (lambda f: manifest(f, lambda m: m["run"].update(profile="dynamic")), "another profile"),
    "no limit": (lambda f: manifest(f, lambda m: m["run"].update(ops=[])), "another ops: ['neg'], not []."),
    "fewer cases": (lambda f: manifest(f, lambda m: m["run"].update(cases=1)), "another cases"),
    "a level that is not reached": (
        lambda f: manifest(f, lambda m: m["levels"][0].update(state="conforms")),
        "The levels are not those that the verdicts reach.",
    ),
    "other totals": (lambda f: manifest(f, lambda m: m["totals"].update(waived=0)), "The totals are not those"),
    "the specification": (
        lambda f: manifest(f, lambda m: m["specification"].update(lock="0" * 64)),
        "The specification is another one.",
    ),
    "the suite": (lambda f: manifest(f, lambda m: m.update(suite="0" * 64)), "The suite is another one."),
    "the compiler": (lambda f: manifest(f, lambda m: m.update(compiler="0" * 64)), "Keel is another one."),
    "the plugin": (lambda f: manifest(f, lambda m: m["plugin"].update(files="0" * 64)), "The plugin is another one."),
    "PyTorch": (lambda f: manifest(f, lambda m: m["torch"].update(version="9.9")), "PyTorch is another one."),
    "the environment": (lambda f: manifest(f, lambda m: m["environment"].update(torch="9")), "The environment is one"),
    "the future": (lambda f: manifest(f, lambda m: m.update(made="2999-01-01T00:00:00+00:00")), "made in the future"),
    "the log": (lambda f: log(f, first(seconds=9.0), seal=False), "log.jsonl was changed."),
    "a verdict": (lambda f: log(f, first(status="quality warning")), "The verdicts are not those"),
    "a sentence": (lambda f: log(f, first(sentence="All is well.")), "The verdicts are not those"),
    "a failure hidden": (
        lambda f: log(f, lambda ls: [v.update(status="pass") for v in end(ls)]),
        "The verdicts are not those",
    ),
    "a verdict less": (lambda f: log(f, lambda ls: end(ls).pop()), "1 planned cases have no verdict"),
    "a verdict more": (
        lambda f: log(f, lambda ls: end(ls).append({**end(ls)[0], "case": "neg/x"})),
        "1 verdicts are of no planned case, as neg/x.",
    ),
    "no such status": (lambda f: log(f, first(status="fine")), "the status 'fine'"),
    "a second end": (
        lambda f: log(f, lambda ls: ls.append({"end": [{**end(ls)[0], "status": "fail"}]})),
        "ended as pass and as fail.",
    ),
    "never begun": (
        lambda f: log(f, lambda ls: [line.update(begin=[]) for line in ls if "begin" in line]),
        "ended and never began.",
    ),
    "too large an error": (lambda f: log(f, first(figures={"ratio": 3.5})), "passes with an error of 3.5 times"),
    "two heads": (lambda f: log(f, lambda ls: ls.append(ls[0])), "The log has two heads."),
    "a line of its own": (
        lambda f: log(f, lambda ls: ls.append({"note": "fine"})),
        "line 4: It has an unknown key 'note'",
    ),
    "another run's log": (lambda f: log(f, lambda ls: ls[0]["run"].update(torch="2.0")), "The log is of PyTorch 2.0"),
    "no log": (lambda f: (f / FILE).unlink(), "log.jsonl was removed."),
    "the report": (lambda f: text(f, "report.json", '"waived"', '"xfail"'), "report.json was changed."),
    "the page": (lambda f: text(f, "report.html", "A page", "All is well"), "report.html was changed."),
    "JUnit's file": (lambda f: (f / "junit.xml").unlink(), "junit.xml was removed."),
    "the waivers": (lambda f: text(f, WAIVERS, "neg/i64/*", "neg/*"), "The waivers were changed."),
    "no waivers": (lambda f: (f / WAIVERS).unlink(), "The waivers were changed."),
}


def test_it_holds_for_what_it_was_made_of(run: Path) -> None:
    assert verify(run, share=0.0, least=0) == []
    found = json.loads((run / CERTIFICATE).read_text())
    assert found["totals"]["waived"] == 1 and found["conforms"] and found["run"]["ops"] == ["neg"]


@pytest.mark.parametrize("kind", TAMPERING)
def test_what_was_changed_is_found(kind: str, run: Path) -> None:
    tamper, said = TAMPERING[kind]
    tamper(run)
    assert any(said in sentence for sentence in verify(run, share=0.0, least=0))


def test_a_sample_is_run_again_and_agrees(tmp_path: Path) -> None:
    certify(made(tmp_path))
    assert verify(tmp_path, least=2, backend="tampering:honest", draw=random.Random(0)) == []
    assert "not of tampering:dishonest" in verify(tmp_path, share=0.0, least=0, backend="tampering:dishonest")[0]


def test_verdicts_that_were_made_up_and_sealed_are_found_by_the_sample(tmp_path: Path) -> None:
    certify(made(tmp_path, "tampering:dishonest"))
    assert verify(tmp_path, share=0.0, least=0) == []
    wrong = verify(tmp_path, least=3, backend="tampering:dishonest", draw=random.Random(1))
    assert any("was pass, and is fail when it is run again." in sentence for sentence in wrong)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shard": "1/2"}, "keel conform merge makes one run"),
        ({"torch": "2.0"}, "It ran with 2.0"),
        ({"digest": "0" * 64}, "not those that this version"),
    ],
)
def test_only_a_whole_run_of_this_suite_is_certified(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(KeelError, match="cannot be certified") as caught:
        certify(made(tmp_path, head=change))
    assert said in str(caught.value)


def test_only_one_that_conforms_is_certified(tmp_path: Path) -> None:
    folder = made(tmp_path, change=lambda v: replace(v, status="crash") if "i64" in v.case else v)
    with pytest.raises(KeelError, match="It does not conform: 1 crash"):
        certify(folder)
    assert not (folder / CERTIFICATE).exists()
    with pytest.raises(KeelError, match="There is no run"):
        certify(tmp_path / "nowhere")


def test_no_module_is_imported_because_a_certificate_names_it(tmp_path: Path) -> None:
    certify(made(tmp_path))
    (said,) = verify(tmp_path)
    assert said == (
        "To run cases again, tampering would be imported, because the certificate says so. If you trust it, say "
        "--backend tampering:honest."
    )


def failing(v: Verdict) -> Verdict:
    return replace(v, status="fail", sentence="It is off by a lot.")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        *((case, "does not name the operator") for case in ("*", "n*/f32/*", "*/*", "[n]eg/*")),
        ("neg/*", "cases of neg are waived, and at most 50% may be"),
        ("neg/[!x]*", "at most 50% may be"),
    ],
)
def test_waivers_do_not_make_a_failing_backend_conform(pattern: str, said: str, tmp_path: Path) -> None:
    folder = made(tmp_path, change=failing)
    (folder / WAIVERS).write_text(WAIVER.replace("neg/i64/*", pattern))
    with pytest.raises(KeelError) as raised:
        certify(folder)
    assert said in str(raised.value) and not (folder / CERTIFICATE).exists()


def test_a_certificate_shows_what_was_waived(run: Path) -> None:
    (waived,) = json.loads((run / CERTIFICATE).read_text())["waived"]
    assert waived["case"] == "neg/i64/*" and waived["expires"] == "2999-01-01" and len(waived["cases"]) == 1
    manifest(run, lambda m: m.update(waived=[]))
    assert any("What was waived is not what the certificate shows" in s for s in verify(run, share=0.0, least=0))


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [[]], {"a": {"b": []}}, 1e300, True])
@pytest.mark.parametrize(
    "field",
    [
        "run",
        "totals",
        "files",
        "torch",
        "environment",
        "waived",
        "plugin",
        "levels",
        "subject",
        "made",
        "waivers",
        "verdicts",
        "specification",
    ],
)
def test_fields_of_other_kinds_are_said(field: str, value: Any, run: Path) -> None:
    manifest(run, lambda m: m.update({field: value}))
    assert verify(run, share=0.0, least=0)


@pytest.mark.parametrize(
    "report",
    [
        "",
        "[]",
        "{}",
        '{"totals": 3, "subject": "x", "run": {}}',
        "[" * 100_000,
        '{"totals": [{}], "subject": "x", "run": {}}',
    ],
)
def test_a_report_that_is_none_is_said(report: str, run: Path) -> None:
    (run / "report.json").write_text(report)
    manifest(run, lambda m: m["files"].update({"report.json": hashes.of_file(run / "report.json")}))
    assert any("It is not the report of a run" in s for s in verify(run, share=0.0, least=0))


def test_an_expired_waiver_is_no_waiver(certified: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(certified, tmp_path / "run"))
    (folder / WAIVERS).write_text(WAIVER.replace("2999", "2020"))
    with pytest.raises(KeelError, match="has expired"):
        certify(folder, now=datetime(2027, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("name", ["report.html", "junit.xml", FILE, CERTIFICATE, WAIVERS])
@pytest.mark.parametrize(
    "put", [os.mkfifo, lambda p: os.symlink("/dev/zero", p), os.mkdir], ids=["pipe", "device", "folder"]
)
def test_what_is_no_file_is_said(put: Callable[[Path], Any], name: str, run: Path) -> None:
    (run / name).unlink()
    put(run / name)
    assert any("It is not a regular file." in said and name in said for said in verify(run, share=0.0, least=0))
    if name != CERTIFICATE:
        with pytest.raises(KeelError, match="It is not a regular file"):
            certify(run)


def test_files_that_links_lead_to_are_not_written_to(tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine", made(tmp_path / "run")
    mine.write_text("mine")
    (tmp_path / "accepted.toml").write_text("")
    for name in (CERTIFICATE, WAIVERS):
        os.symlink(mine, folder / name)
    certify(folder, waived=tmp_path / "accepted.toml")
    assert mine.read_text() == "mine" and verify(folder, share=0.0, least=0) == []
    assert {p.name for p in folder.iterdir()} == {FILE, CERTIFICATE, WAIVERS}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(KeelError, match="It holds no waivers"):
        certify(folder, waived=tmp_path / "pipe")


def test_what_is_said_of_a_certificate_does_not_steer_a_terminal(run: Path) -> None:
    manifest(run, lambda m: m.update(subject="\x1b]0;title\x07[/x]", seal="\x1b[31m"), seal=False)
    said = CliRunner().invoke(app, ["verify", str(run), "--share", "0", "--least", "0"])
    assert said.exit_code == 1 and "\x1b" not in said.output and "The certificate does not hold." in said.output
    manifest(run, lambda m: m.update({"\x1b[31m": 1}))
    said = CliRunner().invoke(app, ["verify", str(run)])
    assert said.exit_code == 1 and "\x1b" not in said.output and "lacking or unknown: '\\x1b[31m'" in said.output


def test_hashes_see_names_and_contents(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_text("1")
    before = hashes.of_files(tmp_path, [one])
    one.rename(other)
    assert hashes.of_files(tmp_path, [other]) != before
    assert hashes.plugin("eager")["package"] == "keel_eager" and hashes.plugin("inductor")["version"]
    assert hashes.plugin("tampering:dishonest")["package"] == "tampering"
    with pytest.raises(KeelError, match="no package"):
        hashes.of_package("no_such_package_at_all")
