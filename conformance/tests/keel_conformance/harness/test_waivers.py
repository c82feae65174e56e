"""Waivers change what they say, and are wrong as soon as they say what is not so."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from keel import KeelError
from keel_conformance.harness.waivers import Waiver, apply_waivers, excess, problems, read, used
from keel_conformance.results.verdict import Verdict

TODAY = date(2026, 11, 21)
FILE = """
[[waiver]]
case = "neg/*"
clause = "neg.C1"
reason = "the driver flushes subnormals"
url = "https://example.com/1"
owner = "ada"
expires = 2027-01-01

[[waiver]]
case = "add/f16/*"
clause = "oracle:process"
reason = "no f16 adder"
url = "https://example.com/2"
owner = "ada"
expires = 2027-01-01
expect = "fail"
backend = "acme*"
"""
VERDICTS = [
    Verdict("neg/f32/1", "fail", "ulp", "off by 1.", "neg.C1"),
    Verdict("neg/f32/2", "pass"),
    Verdict("add/f16/1", "crash", "process"),
    Verdict("add/f16/2", "pass"),
    Verdict("mul/f32/1", "fail", "ulp"),
    Verdict("neg/f32/3", "flaky"),
]
CASES = [v.case for v in VERDICTS]


def written(folder: Path, text: str) -> Path:
    file = folder / "waivers.toml"
    file.write_text(text)
    return file


CLAUSE = {"neg": "neg.C1", "add": "oracle:process", "mul": "oracle:ulp"}


def waiver(case: str, expires: date = date(2027, 1, 1), expect: str = "", clause: str = "") -> Waiver:
    clause = clause or CLAUSE.get(case.partition("/")[0], "neg.C1")
    return Waiver(case, clause, "a reason", "https://example.com", "ada", expires, expect=expect)  # type: ignore[arg-type]


def test_what_is_waived_is_counted_as_that(tmp_path: Path) -> None:
    found = apply_waivers(VERDICTS, read(written(tmp_path, FILE), "acme-2"), TODAY)
    assert [v.status for v in found] == ["waived", "pass", "xfail", "xpass", "fail", "flaky"]
    assert found[0].sentence == "the driver flushes subnormals (https://example.com/1) fail: off by 1."


def test_a_waiver_is_of_one_clause() -> None:
    other = Verdict("neg/f32/1", "fail", "contract", "It wrote.", "contract.mutation.C1")
    assert [v.status for v in apply_waivers([VERDICTS[0], other], [waiver("neg/*")], TODAY)] == ["waived", "fail"]


def test_a_waiver_is_of_a_backend(tmp_path: Path) -> None:
    assert [w.case for w in read(written(tmp_path, FILE), "cpp")] == ["neg/*"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[waiver]]\ncase = "x"', "waiver[0]: It lacks clause, reason, url, owner, expires."),
        (FILE.replace("2027-01-01", '"soon"'), "'soon' is not a date"),
        (FILE.replace("2027-01-01", "0x" + "f" * 8000), "an integer of more than 64 bits is not a date"),
        (FILE.replace("expires = 2027-01-01", "expires" + ".a" * 3000 + " = 1"), "nested more than 100 times"),
        (".".join(["a"] * 400_000) + " = 1", "a line of more than 8192 characters"),
        (FILE.replace("expect", "expects"), "It has an unknown key 'expects'."),
        (FILE.replace('"fail"', '"pass"'), 'is not "fail"'),
        *((FILE.replace("neg.C1", c), "is not one clause") for c in ("*", "neg.*", "neg.C1, neg.C2", "oracle:*", "C1")),
        (FILE.replace("https", "ftp"), "is not a web address"),
        ("[[waiver", "cannot be read"),
        ("waiver = 3", "waiver: It is 3, not a list."),
        ("x = 1", "unknown key"),
        ('waiver = ["x"]', "waiver[0]: It is 'x', not an object."),
        ("a = " + "[" * 5000, "It is no TOML"),
        (FILE.replace('"ada"', "7"), "owner: It is 7, not a text."),
        (FILE.replace('"ada"', '""'), "It lacks owner."),
        (FILE.replace("2027-01-01", "2027-01-01T00:00:00"), "is not a date"),
        *(
            (FILE.replace('"neg/*"', f'"{case}"'), "does not name the operator")
            for case in ("*", "*/f32/*", "[a-z]*/f32", "n?g/*", "/f32")
        ),
    ],
)
def test_a_waiver_that_lacks_something_is_none(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(KeelError) as raised:
        read(written(tmp_path, text), "acme")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("w", "said"),
    [
        (waiver("neg/*"), None),
        (waiver("div/*"), "matches no case."),
        (waiver("neg/f32/2"), "is stale"),
        (waiver("mul/*", date(2026, 11, 20)), "has expired on 2026-11-20."),
        (waiver("add/f16/1", expect="fail"), None),
        (waiver("neg/*", clause="neg.C2"), "is stale: none of its 3 cases fails by that clause."),
        (waiver("neg/*", TODAY), None),
    ],
)
def test_a_waiver_that_does_not_hold_is_a_problem(w: Waiver, said: str | None) -> None:
    found = problems(apply_waivers(VERDICTS, [w], TODAY), [w], CASES, TODAY)
    assert (found == []) if said is None else said in found[0]


def test_of_a_part_of_a_run_only_expiry_is_said() -> None:
    some = [waiver("div/*"), waiver("neg/f32/2"), waiver("mul/*", date(2026, 11, 20))]
    assert len(problems(VERDICTS, some, CASES, TODAY, full_plan=False)) == 1


def verdicts(op: str, **counts: int) -> list[Verdict]:
    return [Verdict(f"{op}/f32/{s}{k}", s) for s, n in counts.items() for k in range(n)]  # type: ignore[arg-type]


MANY = [Verdict(f"abs/f32/{k}", "pass") for k in range(100)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (verdicts("neg", waived=1), []),
        (verdicts("neg", waived=2, flaky=1, crash=1) + MANY, []),
        (
            verdicts("neg", waived=3, flaky=2) + MANY,
            ["3 of 5 cases of neg are waived, and at most 50% may be, or one."],
        ),
        ([*verdicts("neg", waived=2), Verdict("neg/f32/x", "not claimed"), *MANY], ["2 of 2 cases of neg"]),
        (verdicts("neg", waived=2), ["2 of 2 cases of neg", "2 of 2 cases are waived, and at most 5% may be."]),
        (verdicts("neg", waived=5) + verdicts("add", waived=1) + verdicts("abs", flaky=200), ["5 of 5 cases of neg"]),
        (verdicts("neg", xfail=6, flaky=6) + verdicts("add", flaky=100), ["6 of 112 cases are waived"]),
        (verdicts("neg", xfail=5, flaky=6) + verdicts("add", flaky=100), []),
    ],
)
def test_of_most_of_an_operator_or_of_a_run_there_is_no_waiver(found: list[Verdict], said: list[str]) -> None:
    wrong = excess(found)
    assert len(wrong) == len(said) and all(s in w for s, w in zip(said, wrong, strict=True)), wrong


def test_of_a_part_of_a_run_its_share_says_nothing() -> None:
    assert excess(verdicts("neg", xfail=1, waived=5, flaky=6)) and not excess(
        verdicts("neg", waived=6, flaky=6), full_plan=False
    )


def test_what_a_waiver_waived_is_said() -> None:
    some = [waiver("mul/*", date(2026, 11, 20)), waiver("neg/*"), waiver("add/f16/1")]
    assert [(w["case"], w["expires"], w["cases"]) for w in used(apply_waivers(VERDICTS, some, TODAY), some, TODAY)] == [
        ("neg/*", "2027-01-01", ["neg/f32/1"]),
        ("add/f16/1", "2027-01-01", ["add/f16/1"]),
    ]


def test_what_has_expired_waives_nothing() -> None:
    assert apply_waivers(VERDICTS, [waiver("*", date(2026, 11, 20))], TODAY) == VERDICTS
