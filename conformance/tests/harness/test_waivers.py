"""Waivers change what they say, and are wrong as soon as they say what is not so."""
from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from keel import KeelError
from keel_conformance.harness.waivers import Waiver, applied, problems, read
from keel_conformance.results.verdict import Verdict

TODAY = date(2026, 11, 21)
FILE = '''
[[waiver]]
case = "neg/*"
reason = "the driver flushes subnormals"
url = "https://example.com/1"
owner = "ada"
expires = 2027-01-01

[[waiver]]
case = "add/f16/*"
reason = "no f16 adder"
url = "https://example.com/2"
owner = "ada"
expires = 2027-01-01
expect = "fail"
backend = "acme*"
'''
VERDICTS = [Verdict("neg/f32/1", "fail", sentence="off by 1."), Verdict("neg/f32/2", "pass"),
            Verdict("add/f16/1", "crash"), Verdict("add/f16/2", "pass"), Verdict("mul/f32/1", "fail"),
            Verdict("neg/f32/3", "flaky")]
CASES = [v.case for v in VERDICTS]


def written(folder: Path, text: str) -> Path:
    file = folder / "waivers.toml"
    file.write_text(text)
    return file


def waiver(case: str, expires: date = date(2027, 1, 1), expect: str = "") -> Waiver:
    return Waiver(case, "a reason", "https://example.com", "ada", expires, expect=expect)  # type: ignore[arg-type]


def test_what_is_waived_is_counted_as_that(tmp_path: Path) -> None:
    found = applied(VERDICTS, read(written(tmp_path, FILE), "acme-2"), TODAY)
    assert [v.status for v in found] == ["waived", "pass", "xfail", "xpass", "fail", "flaky"]
    assert found[0].sentence == "the driver flushes subnormals (https://example.com/1) fail: off by 1."


def test_a_waiver_is_of_a_backend(tmp_path: Path) -> None:
    assert [w.case for w in read(written(tmp_path, FILE), "cpp")] == ["neg/*"]


@pytest.mark.parametrize(("text", "said"), [
    ('[[waiver]]\ncase = "x"', "lacking: reason, url, owner, expires"),
    (FILE.replace("2027-01-01", '"soon"'), "'soon' is no date"),
    (FILE.replace("expect", "expects"), "unknown: expects"),
    (FILE.replace('"fail"', '"pass"'), "is not \"fail\""), (FILE.replace("https", "ftp"), "is no address"),
    ("[[waiver", "cannot be read")])
def test_a_waiver_that_lacks_something_is_none(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KeelError) as raised:
        read(written(tmp_path, text), "acme")
    assert said in str(raised.value)


@pytest.mark.parametrize(("w", "said"), [
    (waiver("neg/*"), None), (waiver("div/*"), "matches no case."), (waiver("neg/f32/2"), "is stale"),
    (waiver("mul/*", date(2026, 11, 20)), "has expired on 2026-11-20."), (waiver("add/f16/1", expect="fail"), None),
    (waiver("neg/*", TODAY), None)])
def test_a_waiver_that_does_not_hold_is_a_problem(w: Waiver, said: str | None) -> None:
    found = problems(applied(VERDICTS, [w], TODAY), [w], CASES, TODAY)
    assert (found == []) if said is None else said in found[0]


def test_of_a_part_of_a_run_only_expiry_is_said() -> None:
    some = [waiver("div/*"), waiver("neg/f32/2"), waiver("mul/*", date(2026, 11, 20))]
    assert len(problems(VERDICTS, some, CASES, TODAY, whole=False)) == 1


def test_what_has_expired_waives_nothing() -> None:
    assert applied(VERDICTS, [waiver("*", date(2026, 11, 20))], TODAY) == VERDICTS
