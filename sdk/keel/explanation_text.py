"""An explanation as text, in tables.  It needs rich, which the extra ``cli`` installs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from keel.reports import GraphReport, duration
from keel.what_if import Step

SHOWN = 5
"""The most steps that are printed."""
FIGURES = ("calls", "calls take", "moves", "launch", "predicted", "took")


def document(
    graphs: Sequence[GraphReport], call_counts: Mapping[str, int], fell_back: Mapping[str, int], steps: Sequence[Step]
) -> RenderableType:
    """The explanation of these graphs as a rich document."""
    if not graphs:
        return "Nothing was compiled: the function computes no tensors, or Dynamo skipped it."
    return Group(*(block for graph in graphs for block in _blocks(graph)), _summary(call_counts, fell_back, steps))


def plain(document: RenderableType) -> str:
    """Text without color, 120 columns wide."""
    console = Console(file=StringIO(), width=120, color_system=None, legacy_windows=False)
    console.print(document)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _blocks(graph: GraphReport) -> Iterable[RenderableType]:
    yield f"[bold]{graph.kind}[/]: {_count(graph.calls, 'call')} in {_count(len(graph.parts), 'part')}"
    priced = graph.seconds is not None
    parts = _table("part", "by", "calls", *(("calls take", "moves", "launch") if priced else ()), "operators")
    for p in graph.parts:
        by = p.owner if p.owner == p.claimed_by else f"{p.owner}, because {p.claimed_by} could not compile it"
        seconds = map(duration, (p.work, p.moves, p.launch)) if priced else ()
        parts.add_row(
            p.name,
            by,
            str(p.calls),
            *seconds,
            escape(", ".join(f"{_short(o)} {n}" if n > 1 else _short(o) for o, n in p.operators.items())),
        )
    yield parts
    if graph.seconds is not None:
        bound = f"; no placement takes less than {duration(graph.bound)}" if graph.bound is not None else ""
        yield f"By the data sheets {duration(graph.seconds)}{bound}."
    if graph.tried:
        timings = _table("tried", "predicted", "took", "")
        for t in graph.tried:
            timings.add_row(
                " and ".join(t.owners),
                duration(t.predicted),
                duration(t.took),
                escape(t.why) or ("kept" if t.kept else ""),
            )
        yield timings
    if graph.untried:
        yield escape(f"Nothing was tried. {graph.untried}")
    if graph.refused:
        refused = _table("refused by", "operator", "calls", "why", "at", "taken by")
        for r in graph.refused:
            why = f"{r.reason} It would take {r.nearest}." if r.nearest else r.reason
            refused.add_row(
                r.backend,
                _short(r.operator),
                str(r.calls),
                escape(why),
                escape("\n".join(line.split("   ")[0] for line in r.where)),
                r.owner,
            )
        yield refused
    yield ""


def _summary(calls: Mapping[str, int], fell_back: Mapping[str, int], steps: Sequence[Step]) -> str:
    lines = [", ".join(f"{name} takes {_count(n, 'call')}" for name, n in calls.items()) + "."]
    if fell_back:
        lines.append("Only a last resort takes " + ", ".join(f"{_short(o)} ({n})" for o, n in fell_back.items()) + ".")
    if worth := [s for s in steps if s.saved is not None and s.saved > 0][:SHOWN]:
        lines.append(
            "It would save most if "
            + ", ".join(f"{s.backend} took {_short(s.operator)} ({duration(s.saved)})" for s in worth)
            + "."
        )
    return escape("\n".join(lines))


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in FIGURES else "left", overflow="fold")
    return table


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _short(operator: str) -> str:
    return operator.removeprefix("aten.").removesuffix(".default")
