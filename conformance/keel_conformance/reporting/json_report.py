"""A run as files that machines read: one JSON document, held to a schema, and JUnit's XML."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keel import documents

from ..cases.case import Case
from ..levels.level import Profile, profile_of
from ..levels.needs import Needs
from ..levels.standing import headline, standings
from ..report import machine
from ..results.verdict import BAD, STATUSES, Verdict, conforms, declarations, totals
from .coverage_gaps import Untested, untested

FORMAT = 2
REPORT, JUNIT = "report.json", "junit.xml"
SKIPPED = frozenset({"not claimed", "not run", "waived", "xfail"})
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Run:
    """The data from which the reports of a run are made.

    ``head`` is the head of the log, ``planned`` the cases in order. ``verdicts`` are the verdicts reached so far, with
    waivers applied. ``problems`` do not belong to a case. ``scripts`` maps a case to the path of its script below the
    folder of the run. ``needs`` are those of a model, if the run was for one.
    """

    head: Mapping[str, Any]
    planned: Sequence[Case]
    verdicts: Sequence[Verdict]
    problems: Sequence[str] = ()
    seconds: float = 0.0
    scripts: Mapping[str, str] = field(default_factory=dict)
    needs: Needs | None = None


def document(
    run: Run,
    *,
    made: datetime | None = None,
    environment: Mapping[str, Any] | None = None,
    left: Untested | None = None,
) -> dict[str, Any]:
    """The run as plain data, of which ``schema()`` says what is in it.

    Every number has what it is of: ``totals`` has all fourteen statuses with the number of cases that were planned;
    those without a verdict count as not run.
    """
    by_id = {c.id: c for c in run.planned}
    known = [v for v in run.verdicts if v.case in by_id]
    lacking = [Verdict(c, "not run", "run", "The run ended before it.") for c in by_id.keys() - {v.case for v in known}]
    verdicts = [*known, *sorted(lacking, key=lambda v: v.case)]
    counts, planned = totals(verdicts), len(by_id)
    ran = planned - counts["not run"] - counts["not claimed"]
    profile = profile_of(str(run.head["profile"]), run.needs) if "profile" in run.head else Profile("", frozenset())
    reached = standings(profile, run.planned, verdicts)
    right = conforms(counts) and not run.problems
    return {
        "format": FORMAT,
        "made": (made or datetime.now(UTC)).isoformat(timespec="seconds"),
        "seconds": round(run.seconds, 3),
        "subject": run.head["backend"],
        "environment": dict(environment if environment is not None else machine()),
        "run": {k: v for k, v in run.head.items() if k != "backend"},
        "conforms": right,
        "headline": headline(str(run.head["backend"]), profile, right, reached),
        "levels": [one.as_json() for one in reached],
        "ran": ran,
        "planned": planned,
        "problems": list(run.problems),
        "declarations": declarations(str(run.head.get("declared", "")), verdicts),
        "totals": [
            {
                "status": s,
                "cases": counts[s],
                "of": planned,
                "share": counts[s] / planned if planned else 0.0,
                "bad": s in BAD,
            }
            for s in STATUSES
        ],
        "table": _table(verdicts, by_id),
        "verdicts": [_verdict_entry(v, by_id[v.case], run.scripts.get(v.case)) for v in verdicts if v.status != "pass"],
        "worst": _worst(verdicts, by_id),
        "untested": (left if left is not None else untested(run.planned, verdicts, run.head)).as_json(),
    }


def _table(verdicts: Iterable[Verdict], by_id: Mapping[str, Case]) -> list[dict[str, Any]]:
    """Counts the cases of each status, for each operator or program and each dtype."""
    cells: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for v in verdicts:
        c = by_id[v.case]
        cells[c.family, c.op, "op" if c.kind == "negative" else c.kind, c.dtype][v.status] += 1
    return [
        {"family": family, "op": op, "kind": kind, "dtype": dtype, "counts": dict(sorted(counts.items()))}
        for (family, op, kind, dtype), counts in sorted(cells.items())
    ]


def _verdict_entry(v: Verdict, case: Case, script: str | None) -> dict[str, Any]:
    return {
        "case": v.case,
        "op": case.op,
        "family": case.family,
        "kind": case.kind,
        "dtype": case.dtype,
        "status": v.status,
        "oracle": v.oracle,
        "sentence": v.sentence,
        "clause": v.clause,
        "witnesses": list(case.clauses),
        "figures": _plain(dict(v.figures)),
        "seconds": v.seconds,
        "script": script,
    }


def _worst(verdicts: Iterable[Verdict], by_id: Mapping[str, Case]) -> list[dict[str, Any]]:
    """Returns the element with the largest error in units in the last place for each operator, passed or not."""
    results: dict[str, Verdict] = {}
    for v in verdicts:
        op = by_id[v.case].op
        if "ulps" in v.figures and (op not in results or v.figures["ulps"] > results[op].figures["ulps"]):
            results[op] = v
    return [
        {
            "op": op,
            "dtype": by_id[v.case].dtype,
            "case": v.case,
            "status": v.status,
            "oracle": v.oracle,
            "ulps": _plain(v.figures["ulps"]),
            "ratio": _plain(v.figures.get("ratio")),
            "index": _plain(v.figures.get("index")),
        }
        for op, v in sorted(results.items())
    ]


def _plain(value: Any) -> Any:
    """Converts ``value`` to what JSON can represent: NaN and infinities become strings."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if value - value == 0 else str(value)
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
    return str(value)


# -- the schema --------------------------------------------------------------------------------------------------------


@cache
def schema() -> Mapping[str, Any]:
    """The JSON schema (draft 2020-12) of a document."""
    results: Mapping[str, Any] = json.loads((files(__package__) / "schema.json").read_text())
    return results


def check(report_data: Mapping[str, Any]) -> None:
    """Raises jsonschema.ValidationError for a document that is not as the schema says.  Where jsonschema is not
    installed (it comes with ``torch-keel[conform]``) nothing is checked.
    """
    if find_spec("jsonschema") is not None:
        import jsonschema

        jsonschema.Draft202012Validator(schema()).validate(report_data)


def write(folder: Path, report_data: Mapping[str, Any], verdicts: Sequence[Verdict]) -> tuple[Path, Path]:
    """Writes ``report.json`` and ``junit.xml`` into the folder, and says where they are."""
    check(report_data)
    report, xml = folder / REPORT, folder / JUNIT
    documents.replace_file(report, f"{json.dumps(report_data, indent=1, allow_nan=False)}\n".encode())
    documents.replace_file(xml, junit(report_data, verdicts))
    return report, xml


# -- JUnit -------------------------------------------------------------------------------------------------------------


def junit(report_data: Mapping[str, Any], verdicts: Sequence[Verdict]) -> bytes:
    """A test suite for each operator or program, a test case for each case.

    A bad verdict is a ``failure``, its type the status; one that the harness is to blame for an ``error``; what was not
    judged, or waived, is ``skipped``.
    """
    details = {v["case"]: v for v in report_data["verdicts"]}
    named: dict[str, Verdict] = {v.case: v for v in verdicts}
    named |= {
        case: Verdict(case, v["status"], v["oracle"], v["sentence"], v["clause"])
        for case, v in details.items()
        if case not in named
    }
    suites: dict[str, list[Verdict]] = defaultdict(list)
    for v in named.values():
        suites[details[v.case]["op"] if v.case in details else v.case.partition("/")[0]].append(v)
    run = report_data["run"]
    title = " ".join(map(str, ("keel conform", report_data["subject"], run.get("profile", ""), run.get("tier", ""))))
    top = ET.Element("testsuites", _sums(list(named.values())) | {"name": title.strip()})
    for op, cases in sorted(suites.items()):
        suite = ET.SubElement(top, "testsuite", _sums(cases) | {"name": op, "timestamp": report_data["made"]})
        for v in cases:
            _testcase(suite, op, v, details.get(v.case, {}).get("script"))
    ET.indent(top)
    document: bytes = ET.tostring(top, encoding="utf-8", xml_declaration=True)
    return document


def _testcase(suite: ET.Element, op: str, v: Verdict, script: str | None) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": op, "name": _legal(v.case), "time": f"{v.seconds:.6f}"})
    text = _legal(" ".join(filter(None, [v.sentence, v.clause and f"[{v.clause}]"])))
    match v.status:
        case "pass":
            return
        case "harness error":
            ET.SubElement(case, "error", {"type": v.status, "message": text})
        case status if status in BAD:
            failure = ET.SubElement(case, "failure", {"type": status, "message": text})
            failure.text = f"Script: {script}" if script else None
        case status if status in SKIPPED:
            ET.SubElement(case, "skipped", {"message": f"{status}: {text}"})
        case status:
            ET.SubElement(case, "system-out").text = f"{status}: {text}"


def _sums(verdicts: Sequence[Verdict]) -> dict[str, str]:
    bad = sum(v.status in BAD for v in verdicts)
    errors = sum(v.status == "harness error" for v in verdicts)
    return {
        "tests": str(len(verdicts)),
        "failures": str(bad - errors),
        "errors": str(errors),
        "skipped": str(sum(v.status in SKIPPED for v in verdicts)),
        "time": f"{sum(v.seconds for v in verdicts):.3f}",
    }


def _legal(text: str) -> str:
    """Replaces the characters of ``text`` that XML does not allow."""
    return _NO_XML.sub("\ufffd", text)
