"""The page is one file without a network, says what the document says, and stays small."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from keel_conformance.cases.case import Case
from keel_conformance.reporting import html_report, json_report
from keel_conformance.reporting.json_report import Run, document
from keel_conformance.results.verdict import STATUSES, Verdict

HEAD = {
    "backend": "acme",
    "shard": "2/3",
    "cases": 3,
    "digest": "a" * 64,
    "profile": "core",
    "tier": "smoke",
    "seed": 7,
    "ops": ["neg"],
}
PLACE = {"torch": "2.13.0", "python": "3.11.7", "system": "Linux"}
VOID = {"meta", "input", "link", "br", "hr", "img"}


def cases(n: int) -> tuple[Case, ...]:
    return tuple(
        Case("neg", "elementwise unary", "op", "core", "aten.neg.default", "f32", (("n", str(k)),), ("neg.C1",), k)
        for k in range(n)
    )


def made(verdicts: list[Verdict], some: tuple[Case, ...], **more: Any) -> dict[str, Any]:
    return document(Run(HEAD, some, verdicts, **more), environment=PLACE)


class Balance(HTMLParser):
    """Checks that every element is closed where it has to be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.text.append(data)


def read(text: str) -> str:
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    return " ".join(" ".join(parser.text).split())


def failing() -> tuple[dict[str, Any], dict[str, str]]:
    some = cases(3)
    verdicts = [
        Verdict(
            some[0].id,
            "fail",
            "ulp",
            "At (3,) it is <nan>, not 1 & 2.",
            "neg.C1",
            {"ulps": 3.0, "ratio": 7.25, "index": [3], "histogram": [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]},
        ),
        Verdict(some[1].id, "pass"),
        Verdict(some[2].id, "not claimed", "placement", "acme: has no neg."),
    ]
    scripts = {some[0].id: "repro/neg.py"}
    return made(verdicts, some, scripts=scripts, problems=["A waiver has expired."]), {"repro/neg.py": "x = 1 < 2\n"}


def test_what_is_wrong_is_told() -> None:
    found, scripts = failing()
    text = read(html_report.render(found, scripts))
    for said in (
        "acme: does not conform",
        "At (3,) it is <nan>, not 1 & 2.",
        "x = 1 < 2",
        "repro/neg.py",
        "neg.C1",
        "ratio 7.25",
        "A waiver has expired.",
        "shard 2/3",
        "acme: has no neg.",
        "limited to neg",
        "2 of 3 planned cases",
        *STATUSES,
    ):
        assert said in text, said


def test_it_needs_no_other_file() -> None:
    found, scripts = failing()
    text = html_report.render(found, scripts)
    assert not re.search(r"(src|href)=\"(?!#)|@import|url\(|https?://", text)
    assert "prefers-color-scheme: dark" in text and "<svg" in text


def test_verdicts_of_all_kinds_have_a_title() -> None:
    some = cases(1)
    assert "acme: right in all that it claims" in read(html_report.render(made([Verdict(some[0].id, "pass")], some)))
    assert "acme: nothing was run" in read(html_report.render(made([], some)))


def test_each_status_has_a_cell() -> None:
    some = cases(len(STATUSES))
    for status, case in zip(STATUSES, some, strict=True):
        text = html_report.render(made([Verdict(case.id, status, sentence="Why.")], (case,)))
        assert f"1 {status}" in text and read(text)


def test_a_great_many_failures_stay_small_enough() -> None:
    some = tuple(
        Case(f"op{k % 400}", "many", "op", "core", dtype=("f32", "f16", "i8")[k % 3], choice=(("n", str(k)),))
        for k in range(8000)
    )
    verdicts = [Verdict(c.id, "fail", f"oracle{k // 400 % 2}", f"Sentence {k}. " * 60) for k, c in enumerate(some)]
    text = html_report.render(made(verdicts, some))
    assert len(text.encode()) <= html_report.MOST_BYTES and "op399" in text and "more of this kind" in text


def test_it_is_written_with_the_scripts_that_lie_beside_it(tmp_path: Path) -> None:
    found, scripts = failing()
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro" / "neg.py").write_text(scripts["repro/neg.py"])
    assert "x = 1 &lt; 2" in html_report.write(tmp_path, found).read_text()


def test_reports_of_any_sentence_are_written_and_never_through_a_link(tmp_path: Path) -> None:
    (some,) = cases(1)
    verdicts = [Verdict(some.id, "fail", "ulp", "It said \ud800.", "neg.C1")]
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in (json_report.REPORT, json_report.JUNIT, html_report.PAGE):
        os.symlink(mine, tmp_path / name)
    found = made(verdicts, (some,))
    json_report.write(tmp_path, found, verdicts)
    assert "It said \\ud800." in html_report.write(tmp_path, found).read_text()
    assert mine.read_text() == "mine" and {p.name for p in tmp_path.iterdir()} == {
        "mine",
        json_report.REPORT,
        json_report.JUNIT,
        html_report.PAGE,
    }


def test_a_page_that_cannot_be_small_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_report, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="The page would have"):
        html_report.render(failing()[0])
