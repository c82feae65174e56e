"""The promises about breadth, held against what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keel_conformance.report import Criterion, by_need, join_names, percent
from keel_conformance.workers.pool import Outcome

from ..closure.bars import is_pytorchs
from ..closure.tolerated import ALLOWED
from ..error_metrics import TIMES
from .jobs import Job, Outcomes, Row

LEAST = 95.0
NO_LOOPS = "has no loop form"
"""What a loop target says of a call without loops, when it has no library for it either."""

Cell = Mapping[str, Any]


def of_table(backend: str, cells: Sequence[Cell], lost: Iterable[str]) -> Iterator[Criterion]:
    """What the declarations ask, by dtype; ``lost`` are operators whose samples end the process in eager PyTorch."""
    verdicts = Counter(c["verdict"] for c in cells)
    refused = sorted({f"{c['op']} {c['dtype']}" for c in cells if c["verdict"] == "refused"})
    cell_count = len(cells) - verdicts["none"]
    yield Criterion(
        f"{backend}: operators and dtypes done",
        f"{cell_count - len(refused)} of {cell_count}",
        "all",
        not refused,
        join_names(refused),
    )
    for verdict, what in (
        ("loops", "by loops"),
        ("mixed", "by loops or a library, as the call is"),
        ("extern", "by a library"),
        ("taken", "whole"),
    ):
        if verdicts[verdict]:
            yield Criterion(f"{backend}: {what}", verdicts[verdict], "", None, percent(verdicts[verdict], cell_count))
    silent = sorted({f"{c['op']} {c['dtype']}" for c in cells if c["verdict"] == "none"})
    yield Criterion(f"{backend}: without a sample that eager runs here", len(silent), "", None, join_names(silent))
    if gone := sorted(lost):
        yield Criterion(f"{backend}: operators whose samples end the process", len(gone), "", None, join_names(gone))


def of_mode(backend: str, mode: str, outcomes: Outcomes) -> Iterator[Criterion]:
    """One mode's figures, over samples that PyTorch runs and traces."""
    rows = {job.name: o.row for job, o in outcomes.items() if isinstance(o.row, Row)}
    lost = {job.name: o for job, o in outcomes.items() if o.row is None}
    broken = sorted(n for n, o in lost.items() if not is_pytorchs(o))
    traced, without_fallback = sum(r.traced for r in rows.values()), sum(r.without_fallback for r in rows.values())
    share, title = 100 * without_fallback / traced if traced else 0.0, f"{backend}, {mode}"
    short = sorted(
        (n for n, r in rows.items() if r.without_fallback < r.traced),
        key=lambda n: rows[n].without_fallback - rows[n].traced,
    )
    yield Criterion(
        f"{title}: samples without eager fallback",
        f"{without_fallback} of {traced} ({share:.2f} %)",
        f">= {LEAST:g} %",
        bool(traced) and share >= LEAST,
        join_names(short),
    )
    loops = sorted({name for r in rows.values() for name, why in r.left.items() if NO_LOOPS not in why})
    yield Criterion(f"{title}: calls with a loop form left to eager", len(loops), "0", not loops, join_names(loops))
    yield Criterion(f"{title}: OpInfos that end the process", len(broken), "0", not broken, join_names(broken))
    wrong = sorted(n for n, r in rows.items() if r.wrong)
    yield Criterion(f"{title}: OpInfos that do not compile or run", len(wrong), "0", not wrong, join_names(wrong))
    strange = sorted(n for n, r in rows.items() if r.stranger)
    yield Criterion(
        f"{title}: OpInfos with tensors without strides, not taken", len(strange), "", None, join_names(strange)
    )
    yield from _of_numbers(title, rows)
    ways = sum((Counter(r.ways) for r in rows.values()), Counter[str]())
    for way, count in sorted(ways.items()):
        yield Criterion(f"{title}: calls, {'left to eager' if way == 'refused' else way}", count, "", None)
    host = sum((Counter(r.host) for r in rows.values()), Counter[str]())
    yield Criterion(f"{title}: calls of the runtime, not counted", host.total(), "", None, join_names(sorted(host)))
    untraced = sorted(n for n, r in rows.items() if not r.traced) + sorted(n for n in lost if n not in broken)
    yield Criterion(f"{title}: OpInfos that PyTorch does not trace", len(untraced), "", None, join_names(untraced))


def _of_numbers(title: str, rows: Mapping[str, Row]) -> Iterator[Criterion]:
    judged = sum(r.judged for r in rows.values())
    if not judged:
        return
    over = sorted(n for n, r in rows.items() if r.inaccurate and n not in ALLOWED)
    yield Criterion(
        f"{title}: OpInfos over {TIMES:g} x eager's error",
        len(over),
        "0 but named exceptions",
        not over,
        f"of {judged} kinds of samples" + (f"; {join_names(over)}" if over else ""),
    )
    unjudged = sorted(n for n, r in rows.items() if r.unjudged)
    yield Criterion(f"{title}: OpInfos with samples not compared", len(unjudged), "", None, join_names(unjudged))


def left(outcomes: Iterable[tuple[Job, Outcome]]) -> list[tuple[str, list[str], str]]:
    """Each call that is left to eager: its name, the programs that need it, and why. The most needed come first."""
    return by_need((job.name, o.row.left) for job, o in outcomes if isinstance(o.row, Row))
