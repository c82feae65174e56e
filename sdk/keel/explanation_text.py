"""An explanation as text, in tables.  It needs rich, which the extra ``cli`` installs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from keel.errors import count
from keel.part_groups import grouped
from keel.refusal_reports import RefusalReport
from keel.reports import GraphReport, assumption, duration, listed, short
from keel.what_if import Step

SHOWN = 5
"""The most steps that are printed."""
REFUSED = 12
"""The most operators that a backend refuses of which the reasons are printed."""
PATH = 30
"""The most characters of a path that is printed whole."""
WIDTH = 80
"""The columns of plain text."""
NOTHING = 1e-9
"""Seconds that are not worth mentioning."""
FIGURES = ("calls", "calls take", "moves", "launch", "predicted", "took", "take now", "would save", "then has")


def document(
    graphs: Sequence[GraphReport], call_counts: Mapping[str, int], fell_back: Mapping[str, int], steps: Sequence[Step]
) -> RenderableType:
    """The explanation of these graphs as a rich document."""
    if not graphs:
        return "Nothing was compiled: the function computes no tensors, or Dynamo skipped it."
    blocks = (block for graph in graphs for block in _blocks(graph))
    return Group(*blocks, _summary(call_counts, fell_back), *_next_operators(steps))


def plain(document: RenderableType) -> str:
    """Text without color, 80 columns wide."""
    console = Console(file=StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    console.print(document)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def _blocks(graph: GraphReport) -> Iterable[RenderableType]:
    yield f"[bold]{graph.kind}[/]: {count(graph.calls, 'call')} in {count(len(graph.parts), 'part')}"
    yield _parts(graph)
    if graph.seconds is not None:
        bound = f"; no placement takes less than {duration(graph.bound)}" if graph.bound is not None else ""
        yield f"By the data sheets {duration(graph.seconds)}{bound}."
    for backend in graph.assumed:
        yield escape(assumption(backend))
    for backend, counts in graph.passed_over.items():
        yield escape(f"{backend} also takes {listed(counts)}, but that would not save time here.")
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
    by_backend: dict[tuple[str, str], list[RefusalReport]] = {}
    for refusal in graph.refused:
        by_backend.setdefault((refusal.backend, refusal.owner), []).append(refusal)
    for (backend, owner), refused in by_backend.items():
        yield from _refusals(backend, owner, refused)
    yield ""


def _parts(graph: GraphReport) -> Table:
    """The parts; those that are alike are one row, with the sums of their figures."""
    priced = graph.seconds is not None
    table = _table("part", "by", "calls", *(("calls take", "moves", "launch") if priced else ()), "operators")
    for group in grouped(graph.parts):
        part = group.first
        failed = f"{part.claimed_by} could not compile it; " if part.owner != part.claimed_by else ""
        module = f"{group.module}: " if group.module else ""
        operators = ", ".join(f"{short(o)} {n}" if n > 1 else short(o) for o, n in part.operators.items())
        seconds = map(duration, group.seconds) if group.seconds is not None else [""] * 3 * priced
        fused = f"; as one kernel each: {listed(part.fusions)}" if part.fusions else ""
        table.add_row(group.name, part.owner, str(group.calls), *seconds, escape(f"{failed}{module}{operators}{fused}"))
    return table


def _refusals(backend: str, owner: str, refused: Sequence[RefusalReport]) -> Iterable[RenderableType]:
    """The reasons of a backend for refusing what another one takes."""
    yield escape(f"{backend} refuses, and {owner} takes:")
    table = _table("operator", "calls", "why")
    table.columns[0].max_width = 24
    for r in refused[:REFUSED]:
        why = f"{r.reason} It would take {r.nearest}." if r.nearest else r.reason
        table.add_row(short(r.operator), str(r.calls), escape("\n".join([why, *_places(r.where)])))
    yield table
    if rest := refused[REFUSED:]:
        yield escape("and " + ", ".join(f"{short(r.operator)} ({r.calls})" for r in rest) + ".")


def _places(lines: Sequence[str]) -> list[str]:
    """``at models/bert.py:12, 14`` for each file, by the end of its path if that is long."""
    numbers: dict[str, list[str]] = {}
    for line in lines:
        file, _, number = line.split("   ")[0].rpartition(":")
        short = file if len(file) <= PATH else "/".join(file.split("/")[-2:])
        numbers.setdefault(short, []).append(number)
    return [f"at {file}:{', '.join(of)}" for file, of in numbers.items()]


def _summary(calls: Mapping[str, int], fell_back: Mapping[str, int]) -> str:
    lines = [", ".join(f"{name} takes {count(n, 'call')}" for name, n in calls.items()) + "."]
    if fell_back:
        lines.append(f"Only a last resort takes {listed(fell_back)}.")
    return escape("\n".join(lines))


def _next_operators(steps: Sequence[Step]) -> Iterable[RenderableType]:
    """A table of what to implement next: the calls that the operator adds, the seconds that they take now, the seconds
    that would be saved, and all calls that the backend would then have.
    """
    worth = [s for s in steps if s.saved is not None and max(s.saved, s.seconds or 0.0) > NOTHING]
    if not worth:
        return
    yield "What to add next, each by itself:"
    table = _table("to", "operator", "calls", "take now", "would save", "then has")
    for s in worth[:SHOWN]:
        saved = duration(s.saved) if (s.saved or 0.0) > NOTHING else "nothing"
        table.add_row(s.backend, escape(short(s.operator)), str(s.calls), duration(s.seconds), saved, f"{s.then} calls")
    yield table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in FIGURES else "left", overflow="fold")
    return table
