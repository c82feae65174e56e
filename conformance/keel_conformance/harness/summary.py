"""The end of a run on the terminal: all fourteen counts with what they are of, and what is wrong, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..report import join_names, percent
from ..results.verdict import BAD, STATUSES, Status, Verdict, totals

STYLES: dict[Status, str] = {
    "pass": "green",
    "quality warning": "yellow",
    "waived": "yellow",
    "xfail": "yellow",
    "not claimed": "dim",
    "not run": "dim",
}
WORST: tuple[Status, ...] = ("crash", "timeout", "resource", "fail", "flaky", "xpass", "vacuous", "harness error")
SHOWN = 30
"""Groups of failures that are shown."""


def show(
    console: Console,
    verdicts: Sequence[Verdict],
    planned: int,
    facts: Sequence[str] = (),
    problems: Sequence[str] = (),
    headline: str = "",
) -> None:
    """Prints the failures in groups, the reasons for cases that are not claimed or not run, the counts, and
    ``problems``, which do not belong to a case, and the ``headline``, which is the verdict on the run.
    """
    _failures(console, [v for v in verdicts if v.status in BAD])
    for status in ("not claimed", "not run"):
        _why(console, status, [v for v in verdicts if v.status == status])
    counts = totals(verdicts)
    counts["not run"] += planned - len(verdicts)
    table = Table("verdict", "cases", "share", title=f"{planned} cases", title_justify="left")
    for status in STATUSES:
        style = STYLES.get(status, "bold red") if counts[status] else "dim"
        table.add_row(
            Text(status, style), Text(str(counts[status]), style), Text(percent(counts[status], planned), style)
        )
    console.print(table)
    for text in facts:
        console.print(text, highlight=False, markup=False)
    for text in problems:
        console.print(Text(text, "bold red"))
    if headline:
        console.print(Text(headline, "bold"))


def _failures(console: Console, bad: Sequence[Verdict]) -> None:
    """A line for those of one operator that end alike, with the first of them."""
    groups: dict[tuple[Any, ...], list[Verdict]] = {}
    for v in bad:
        groups.setdefault((v.status, v.case.partition("/")[0], v.oracle, v.clause), []).append(v)
    if not groups:
        return
    table = Table("verdict", "cases", "the first", "what is wrong", title="What is wrong", title_justify="left")
    ordered = sorted(groups.values(), key=lambda g: (WORST.index(g[0].status), -len(g), g[0].case))
    for group in ordered[:SHOWN]:
        first = group[0]
        sentence = " ".join(filter(None, [first.sentence[:600], f"[{first.clause}]" if first.clause else ""]))
        table.add_row(Text(first.status, "bold red"), str(len(group)), Text(first.case), Text(sentence))
    console.print(table)
    if len(ordered) > SHOWN:
        console.print(f"{len(ordered) - SHOWN} more groups of failures are in the files.", highlight=False)


def _why(console: Console, status: Status, verdicts: Sequence[Verdict]) -> None:
    """Reasons, with how many cases each is about; those of most cases first."""
    reasons: dict[str, list[str]] = {}
    for v in verdicts:
        reasons.setdefault(v.sentence.partition(". ")[0].rstrip(".") + ".", []).append(v.case.partition("/")[0])
    for why, cases in sorted(reasons.items(), key=lambda item: -len(item[1]))[:10]:
        text = f"{status}, {len(cases)} of {join_names(dict.fromkeys(cases))}: {why[:300]}"
        console.print(text, highlight=False, markup=False, style="dim")
