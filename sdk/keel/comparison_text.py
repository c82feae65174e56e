"""A comparison as text, in a table that fits 80 columns. It needs rich, which the extra ``cli`` installs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from keel.compared_values import ComparedValue, WrongOperator
from keel.errors import count
from keel.part_groups import common_pattern
from keel.reports import short

ROWS = 40
"""The most rows of modules that are printed."""
PATH = 30
"""The most characters of a module's path that are printed."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class ModuleRow:
    """The values of modules that differ only in numbers: the worst of them stands for all."""

    kind: str
    module: str
    values: tuple[ComparedValue, ...]

    @property
    def worst(self) -> ComparedValue:
        return max(self.values, key=lambda v: (v.judgment.is_over, v.judgment.ratio))


def module_rows(values: Sequence[ComparedValue]) -> tuple[ModuleRow, ...]:
    """The values by kind of graph and module, layers together, in the order in which they are computed."""
    alike: dict[tuple[str, str], list[ComparedValue]] = {}
    for value in values:
        alike.setdefault((value.kind, _NUMBER.sub("*", value.module)), []).append(value)
    return tuple(
        ModuleRow(kind, common_pattern([v.module for v in same]), tuple(same)) for (kind, _), same in alike.items()
    )


def document(
    values: Sequence[ComparedValue], wrong: Sequence[WrongOperator], notes: Sequence[str], against: str
) -> RenderableType:
    """The comparison as a rich document."""
    if not values:
        return Group("Nothing was compared.", *map(escape, notes))
    rows = module_rows(values)
    return Group(*_verdict(values, wrong), _table(rows, against), *_notes(rows, notes, against))


def _verdict(values: Sequence[ComparedValue], wrong: Sequence[WrongOperator]) -> Iterable[RenderableType]:
    if not wrong:
        results = sum(not v.is_inside for v in values)
        yield (
            f"[bold]No result is wrong.[/] {count(results, 'result')} of parts and "
            f"{count(len(values) - results, 'value')} inside are within their error budgets."
        )
    for each in wrong:
        module = escape(each.module or "the model")
        yield f"[bold]{escape(short(each.operator))} is wrong[/] in {module}: {_where(each)}"
        yield escape(f"  {each.sentence}")
        if each.line:
            yield escape(f"  at {each.line}")
        if each.is_fused:
            yield "  It is right if each call before it is asked for its result, so look at how it is fused."


def _where(each: WrongOperator) -> str:
    return escape(f"%{each.name} of part {each.part} on {each.backend}, {each.kind}.")


def _table(rows: Sequence[ModuleRow], against: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("module", overflow="fold", max_width=PATH)
    table.add_column("pass")
    table.add_column("worst", overflow="fold", max_width=16)
    for name in ("error", against, "budget used"):
        table.add_column(name, justify="right")
    shown = rows if len(rows) <= ROWS else sorted(rows, key=lambda r: -r.worst.judgment.ratio)[:ROWS]
    for row in (r for r in rows if r in shown):
        worst = row.worst
        style = "bold red" if worst.judgment.is_over else None
        table.add_row(
            escape(row.module or "(model)"),
            row.kind.replace("inference", "forward"),
            escape(short(worst.operator)),
            figure(worst.error),
            figure(worst.reference),
            used(worst),
            style=style,
        )
    return table


def figure(error: float) -> str:
    """``1.2e-07``; ``0`` if there is no error, and nothing if it is not known."""
    return "" if math.isnan(error) else f"{error:.1e}" if error else "0"


def used(value: ComparedValue) -> str:
    """How much of its budget the worst element of a value uses: ``12 %``, or ``340 times``."""
    judgment = value.judgment
    if judgment.not_judged:
        return "not judged"
    if math.isinf(judgment.ratio):
        return "wrong"
    return f"{judgment.ratio:.3g} times" if judgment.ratio > 1 else f"{100 * judgment.ratio:.0f} %"


def _notes(rows: Sequence[ModuleRow], notes: Sequence[str], against: str) -> Iterable[RenderableType]:
    if len(rows) > ROWS:
        yield f"The {ROWS} rows that use most of their budgets are shown, of {len(rows)}."
    yield (
        "error: how far the whole value is from float64, relative to its size; "
        f"{escape(against)}: the same of {escape(against)}."
    )
    yield from map(escape, notes)
