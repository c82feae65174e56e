"""The document of a run is as its schema says, counts everything with what it is of, and is JUnit's XML too."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keel_conformance.cases.case import Case
from keel_conformance.reporting import json_report
from keel_conformance.reporting.json_report import Run, check, document, junit, schema, write
from keel_conformance.results.histogram import EDGES, LABELS, bars, spread
from keel_conformance.results.verdict import BAD, STATUSES, Verdict

INF, NAN = float("inf"), float("nan")
HEAD = {
    "backend": "faulty_backends:zeros",
    "shard": "1/1",
    "cases": 16,
    "digest": "0" * 64,
    "torch": "2.13.0",
    "torch-keel": "0",
    "python": "3.11",
    "profile": "core",
    "tier": "smoke",
    "seed": 0,
    "ops": ["neg", "softmax"],
}
MADE = datetime(2027, 1, 2, tzinfo=UTC)
PLACE = {"torch": "2.13.0", "python": "3.11.7", "system": "Linux"}


def case(k: int, op: str = "neg") -> Case:
    return Case(
        op,
        "elementwise unary",
        "op",
        "core",
        f"aten.{op}.default",
        ("f32", "f16")[k % 2],
        (("n", str(k)),),
        (f"{op}.C1",),
        k,
    )


CASES = (*map(case, range(14)), case(0, "softmax"), case(1, "softmax"))
VERDICTS = (
    *(
        Verdict(
            c.id,
            s,
            "ulp",
            "" if s == "pass" else f"It is a {s}: <&>\x00.",
            "neg.C1" if s in BAD else "",
            {"ulps": float(k), "ratio": INF if k == 3 else 0.5, "index": [k], "masked": 0.0},
            0.25,
        )
        for k, (c, s) in enumerate(zip(CASES[:14], STATUSES, strict=True))
    ),
    Verdict(CASES[14].id, "fail", "exact", "At (1,) it is 2, not 1.", figures={"ulps": NAN}),
)


def run(**more: Any) -> Run:
    return Run(HEAD, CASES, VERDICTS, seconds=3.0, **more)


def made(**more: Any) -> dict[str, Any]:
    return document(run(**more), made=MADE, environment=PLACE)


def test_a_document_is_as_its_schema_says() -> None:
    found = made(problems=["A waiver has expired."], scripts={CASES[1].id: "repro/one.py"})
    jsonschema.Draft202012Validator.check_schema(schema())
    check(json.loads(json.dumps(found, allow_nan=False)))


def test_every_status_is_counted_with_its_denominator() -> None:
    found = made()
    assert [t["status"] for t in found["totals"]] == list(STATUSES)
    assert sum(t["cases"] for t in found["totals"]) == found["planned"] == 16
    counts = {t["status"]: t["cases"] for t in found["totals"]}
    assert counts["fail"] == 2 and counts["not run"] == 2  # one of these has no verdict at all
    assert found["ran"] == 13 and all(t["of"] == 16 for t in found["totals"])
    assert not found["conforms"]
    assert sum(n for row in found["table"] for n in row["counts"].values()) == 16
    assert {row["dtype"] for row in found["table"]} == {"f32", "f16"}


def test_what_is_no_pass_is_told_whole() -> None:
    found = made(scripts={CASES[1].id: "repro/one.py"})
    assert {v["case"] for v in found["verdicts"]} == {c.id for c in CASES} - {CASES[0].id}
    fail = next(v for v in found["verdicts"] if v["case"] == CASES[1].id)
    assert fail["script"] == "repro/one.py" and fail["clause"] == "neg.C1" and fail["witnesses"] == ["neg.C1"]
    assert next(v for v in found["verdicts"] if v["case"] == CASES[3].id)["figures"]["ratio"] == "inf"


def test_the_worst_error_of_an_operator_has_its_element() -> None:
    worst = {w["op"]: w for w in made()["worst"]}
    assert worst["neg"]["ulps"] == 13.0 and worst["neg"]["index"] == [13] and worst["neg"]["case"] == CASES[13].id
    assert worst["softmax"]["ulps"] == "nan"


def test_what_was_not_tested_is_listed() -> None:
    left = made()["untested"]
    named = {c["clause"]: c["reason"] for c in left["clauses"]}
    assert "neg.C1" not in named and named["softmax.C2"]
    assert [(x["op"], x["cases"], x["of"]) for x in left["unclaimed"]] == [("neg", 1, 14)]
    assert {x["op"]: x["cases"] for x in left["unrun"]} == {"neg": 1, "softmax": 1}
    assert not left["caseless"]


def test_all_passing_conforms_and_a_problem_that_is_no_cases_does_not() -> None:
    fine = [Verdict(c.id, "pass") for c in CASES]
    assert document(Run(HEAD, CASES, fine), environment=PLACE)["conforms"]
    assert not document(Run(HEAD, CASES, fine, ["A waiver has expired."]), environment=PLACE)["conforms"]
    assert not document(Run(HEAD, CASES, []), environment=PLACE)["conforms"]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"totals": []},
        {"conforms": "yes"},
        {"more": 1},
        {"subject": ""},
        {"made": "today"},
        {"run": {}},
        {"verdicts": [{"case": "x"}]},
        {"planned": -1},
    ],
)
def test_what_is_not_as_the_schema_says_is_not_written(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        write(tmp_path, {**made(), **change}, VERDICTS)
    assert not list(tmp_path.iterdir())


def test_junit_has_a_suite_for_each_operator(tmp_path: Path) -> None:
    found = made(scripts={CASES[1].id: "repro/one.py"})
    report, xml = write(tmp_path, found, VERDICTS)
    assert json.loads(report.read_text()) == found
    top = ET.parse(xml).getroot()
    assert top.attrib["tests"] == "16" and top.attrib["errors"] == "1"
    assert int(top.attrib["failures"]) == sum(v.status in BAD for v in VERDICTS) - 1
    assert [s.attrib["name"] for s in top] == ["neg", "softmax"]
    cases = {c.attrib["name"]: c for c in top.iter("testcase")}
    assert len(cases) == 16 and not list(cases[CASES[0].id])
    failure = cases[CASES[1].id].find("failure")
    assert failure is not None and failure.attrib["type"] == "fail" and failure.text == "Script: repro/one.py"
    assert failure.attrib["message"] == "It is a fail: <&>\ufffd. [neg.C1]"
    assert cases[CASES[3].id].find("skipped") is not None


def test_sentences_with_any_characters_make_xml() -> None:
    odd = [replace(VERDICTS[1], sentence="".join(map(chr, [*range(40), 0xD800, 0xFFFF, 0x1F600])))]
    ET.fromstring(junit(document(Run(HEAD, CASES, odd), environment=PLACE), odd))


@given(st.lists(st.floats(0, 1e12), max_size=40), st.integers(0, 5))
def test_a_histogram_counts_every_element_once(ulps: list[float], wrong: int) -> None:
    x = torch.tensor([*ulps, *[0.0] * wrong], dtype=torch.float64)
    other = torch.tensor([False] * len(ulps) + [True] * wrong, dtype=torch.bool)
    counts = spread(x, other)
    assert len(counts) == len(LABELS) and sum(counts) == len(x) and counts[-1] == wrong
    for k, edge in enumerate(EDGES):
        assert sum(counts[: k + 1]) == sum(u <= edge for u in ulps)
    assert all(0 <= float(b["height"]) <= 50 for b in bars(counts, 300, 50))


def test_the_schema_names_the_statuses() -> None:
    assert json_report.schema()["properties"]["totals"]["items"]["properties"]["status"]["enum"] == list(STATUSES)
