"""A run as one page that a person reads: no network, no other file, light and dark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from keel import documents
from keel.loops import DTYPE_NAMES

from ..levels.standing import highest
from ..results.histogram import bars
from ..results.verdict import BAD

PAGE = "report.html"
MOST_BYTES = 5_000_000
SHOWN = (4, 2, 1)
"""Cases of a group of like failures that the page shows in full; fewer if it grows too big."""
SCRIPT_BYTES = 20_000
"""A script that is longer is on the page by its path alone."""
GLYPHS = {
    "pass": "✓",
    "quality warning": "≈",
    "waived": "w",
    "xfail": "w",
    "not claimed": "·",
    "not run": "○",
    "vacuous": "○",
}
CLASSES = {
    "pass": "pass",
    "quality warning": "warn",
    "waived": "warn",
    "xfail": "warn",
    "not claimed": "none",
    "not run": "open",
    "vacuous": "open",
}
ORDER = ("not run", "not claimed", "vacuous", "pass", "quality warning", "xfail", "waived")
"""A cell without bad verdicts shows the status that comes last here."""


def render(report_data: Mapping[str, Any], scripts: Mapping[str, str] | None = None) -> str:
    """The page of a document (see ``files.document``); ``scripts`` has texts by the paths that the document names.

    At most 5 MB: where all would be more, fewer cases of like failures are shown.  Raises ValueError if the shortest
    page is too long.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": _percent, "figure": _figure}
    template = environment.from_string((files(__package__) / "page.html.jinja").read_text(encoding="utf-8"))
    for shown in SHOWN:
        text = template.render(
            doc=report_data,
            failures=_failures(report_data["verdicts"], scripts or {}, shown),
            title=_title(report_data),
            dtypes=_dtypes(report_data["table"]),
            families=_families(report_data["table"]),
            glyphs=GLYPHS,
            classes=CLASSES,
            scale=_scale(report_data),
            warnings=_groups(v for v in report_data["verdicts"] if v["status"] == "quality warning"),
            accepted=[v for v in report_data["verdicts"] if v["status"] in ("waived", "xfail")][:200],
            worst=_worst(report_data["worst"]),
            clauses=_by_reason(report_data["untested"]["clauses"]),
            caseless=_by_reason(report_data["untested"]["caseless"]),
        )
        if len(text.encode("utf-8", "backslashreplace")) <= MOST_BYTES:
            return text
    raise ValueError(f"The page would have {len(text.encode())} bytes.")


def write(folder: Path, report_data: Mapping[str, Any]) -> Path:
    """Writes ``report.html`` beside the scripts that it shows."""
    paths = {v["script"] for v in report_data["verdicts"] if v["script"]}
    scripts = {
        p: (folder / p).read_text(encoding="utf-8")
        for p in sorted(paths)
        if (folder / p).is_file() and (folder / p).stat().st_size <= SCRIPT_BYTES
    }
    page = folder / PAGE
    documents.replace_file(page, render(report_data, scripts).encode("utf-8", "backslashreplace"))
    return page


def _title(report_data: Mapping[str, Any]) -> tuple[str, str, str]:
    """A class, a sign, and the verdict in words."""
    if not report_data["ran"]:
        return "open", "○", "Nothing was run"
    if not report_data["conforms"]:
        return "bad", "✗", "Does not conform"
    reached = highest(one["level"] for one in report_data["levels"] if one["state"] == "conforms")
    return "pass", "✓", f"Conforms to {' and '.join(reached)}" if reached else "Right in all that it claims"


def _scale(report_data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The bar at the top: bad ones first, what was not run last."""

    def rank(total: Mapping[str, Any]) -> tuple[bool, int]:
        return (not total["bad"], -ORDER.index(total["status"]) if total["status"] in ORDER else -9)

    return [
        {**t, "class": "bad" if t["bad"] else CLASSES[t["status"]]}
        for t in sorted(report_data["totals"], key=rank)
        if t["cases"]
    ]


def _dtypes(table: Iterable[Mapping[str, Any]]) -> list[str]:
    known = list(DTYPE_NAMES.values())
    names = {row["dtype"] for row in table}
    return sorted(names, key=lambda n: (known.index(n) if n in known else len(known), n))


def _families(table: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Families with their rows, those with something bad first; a row has a cell for each dtype that was tried."""
    families: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in table:
        cell = families[row["family"]].setdefault(row["op"], {}).setdefault(row["dtype"], Counter())
        cell.update(row["counts"])
    results = []
    for family, ops in sorted(families.items()):
        rows: list[dict[str, Any]] = [
            {"op": op, "cells": {d: _cell(counts) for d, counts in cells.items()}} for op, cells in ops.items()
        ]
        for row in rows:
            row["bad"] = sum(cell["bad"] for cell in row["cells"].values())
        results.append(
            {
                "family": family,
                "rows": rows,
                "bad": sum(row["bad"] for row in rows),
                "cases": sum(cell["cases"] for row in rows for cell in row["cells"].values()),
            }
        )
    return sorted(results, key=lambda f: (f["bad"] == 0, f["family"]))


def _cell(counts: Mapping[str, int]) -> dict[str, Any]:
    bad = sum(n for s, n in counts.items() if s in BAD)
    best = max((s for s in counts if s not in BAD), key=ORDER.index, default="not run")
    text = ", ".join(f"{n} {s}" for s, n in sorted(counts.items(), key=lambda item: -item[1]))
    cases = sum(counts.values())
    if bad:
        how = "bad" if 2 * bad >= cases else "some"
        return {"class": how, "glyph": f"✗{bad}", "said": text, "bad": bad, "cases": cases}
    return {"class": CLASSES[best], "glyph": GLYPHS[best], "said": text, "bad": 0, "cases": cases}


def _failures(verdicts: Iterable[Mapping[str, Any]], scripts: Mapping[str, str], shown: int) -> list[dict[str, Any]]:
    """Groups the bad verdicts by operator, and similar ones within it. The operator with the most comes first."""
    ops: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for v in verdicts:
        if v["status"] in BAD:
            ops[v["op"]].append(v)
    results = []
    for op, verdicts_of_op in ops.items():
        groups = _groups(verdicts_of_op)
        for group in groups:
            group["more"] = max(0, len(group["verdicts"]) - shown)
            group["verdicts"] = [_shown(v, scripts) for v in group["verdicts"][:shown]]
        results.append(
            {
                "op": op,
                "family": verdicts_of_op[0]["family"],
                "count": len(verdicts_of_op),
                "groups": groups,
                "dtypes": sorted({v["dtype"] for v in verdicts_of_op} - {""}),
                "words": _words(op, verdicts_of_op),
            }
        )
    return sorted(results, key=lambda f: (-f["count"], f["op"]))


def _groups(verdicts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for v in verdicts:
        alike[v["op"], v["status"], v["oracle"], v["clause"]].append(v)
    # One with a script says most.
    return [
        {
            "op": op,
            "status": status,
            "oracle": oracle,
            "clause": clause,
            "count": len(group),
            "verdicts": sorted(group, key=lambda v: not v["script"]),
        }
        for (op, status, oracle, clause), group in sorted(alike.items(), key=lambda item: -len(item[1]))
    ]


def _shown(v: Mapping[str, Any], scripts: Mapping[str, str]) -> dict[str, Any]:
    counts = v["figures"].get("histogram")
    return {
        **v,
        "sentence": v["sentence"][:1500],
        "text": scripts.get(v["script"] or "", ""),
        "bars": bars(counts, 312, 56) if counts else [],
        "total": sum(counts or ()),
        "figures": {k: x for k, x in v["figures"].items() if k != "histogram"},
    }


def _words(op: str, verdicts: Sequence[Mapping[str, Any]]) -> str:
    """What a search looks through."""
    parts = {x for v in verdicts for x in (v["status"], v["oracle"], v["clause"], v["dtype"], v["kind"], v["family"])}
    return " ".join([op, *sorted(filter(None, parts)), *(v["sentence"][:200] for v in verdicts[:3])]).lower()


def _worst(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    def size(row: Mapping[str, Any]) -> float:
        return float(row["ulps"])

    return sorted((r for r in rows if size(r) > 0), key=lambda r: -size(r))


def _by_reason(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    reasons: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        reasons[row["reason"]].append(row)
    return sorted(reasons.items(), key=lambda item: -len(item[1]))


def _percent(share: float) -> str:
    return "0 %" if not share else f"{100 * share:.1f} %" if share >= 0.001 else "< 0.1 %"


def _figure(value: Any) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.4g}"
        case list():
            return "(" + ", ".join(map(_figure, value)) + ")"
    return str(value)
