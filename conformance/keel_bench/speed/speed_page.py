"""``python -m keel_bench.speed.speed_page RESULTS.json PAGE.md``: a page of the figures, and a plot beside it (SVG)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from keel_conformance.report import figure

from .contenders import INDUCTOR_BEST, KEEL_BEST
from .speed_bars import SPEED, ratio

LINE, LEFT, WIDTH = 14, 300, 500
"""Pixels of a line of the plot, of its names and of its ratios."""
LOWEST, HIGHEST = 0.5, 2.0
"""The ratios at the ends of the plot, whose scale is logarithmic; others are drawn at an end."""
Row = Mapping[str, Any]
MARKS = {True: "yes", False: "no", None: "-"}
COLUMNS = ("job", "eager ms", "Inductor ms", "best", "Keel ms", "best", "speed", "quartiles", "memory", "CPU s")


def title(row: Row) -> str:
    return f"{row['model']} {row['mode']} {row['precision']} x{row['batch']}"


def page(record: Mapping[str, Any], plot: str) -> str:
    """The page in Markdown; ``plot`` is the name of the plot's file."""
    machine, rows = record["machine"], record["rows"]
    lines = [
        "# Speed beside Inductor",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, PyTorch {machine['torch']}, {record['made']}.",
        "",
        *table(("bar", "figure", "target", "holds", "note"), [bar_cells(bar) for bar in record["bars"]]),
        "",
        f"![Speed of each job, as a ratio to Inductor's]({plot})",
        "",
        *table(COLUMNS, [row_cells(row) for row in rows if "contenders" in row]),
    ]
    return "\n".join(lines) + "\n"


def bar_cells(bar: Mapping[str, Any]) -> list[str]:
    return [bar["name"], figure(bar["value"]), bar["target"], MARKS[bar["holds"]], bar["note"]]


def row_cells(row: Row) -> list[str]:
    speed = ratio(row)
    names = ("eager", "inductor", INDUCTOR_BEST, "keel", KEEL_BEST)
    others = [f"{ratio(row, name).value:.2f}" for name in ("peak memory", "compilation, CPU s")]
    return [
        title(row),
        *(milliseconds(row["contenders"].get(name)) for name in names),
        "failed" if speed.failed else f"{speed.value:.2f}",
        f"{speed.low:.2f} to {speed.high:.2f}",
        *others,
    ]


def milliseconds(figures: Mapping[str, Any] | None) -> str:
    """The median of the rounds; "failed", or nothing where there is no such mode."""
    if figures is None:
        return ""
    rounds = sorted(figures.get("rounds", ()))
    return "failed" if "failure" in figures else f"{rounds[len(rounds) // 2]:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def svg(rows: Sequence[Row]) -> str:
    """A line for each job, the slowest first: its speed over Inductor's as a dot, the quartiles of rounds as a bar."""
    measured = sorted((row for row in rows if "contenders" in row), key=lambda row: ratio(row).value)
    size = f'width="{LEFT + WIDTH + 20}" height="{LINE * (len(measured) + 2)}"'
    marks = [mark for i, row in enumerate(measured, 1) for mark in line(i * LINE, row)]
    bottom = LINE * (len(measured) + 1)
    scale = [
        f'<path d="M{x(value)} 0V{bottom}" stroke="#{"888" if value == 1 else "ddd"}"/>'
        f'<text x="{x(value)}" y="{bottom + 11}" text-anchor="middle">{value:g}</text>'
        for value in (LOWEST, 0.75, 1.0, 1.5, HIGHEST)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *scale, *marks, "</svg>"]) + "\n"


def line(y: int, row: Row) -> Iterator[str]:
    speed = ratio(row, SPEED)
    color = "#aaa" if speed.failed else "#27a" if speed.value >= 1 else "#c33"
    yield f'<text x="{LEFT - 10}" y="{y + 3}" text-anchor="end">{escape(title(row))}</text>'
    yield f'<path d="M{x(speed.low)} {y}H{x(speed.high)}" stroke="{color}"/>'
    yield f'<circle cx="{x(speed.value)}" cy="{y}" r="3" fill="{color}"/>'


def x(value: float) -> float:
    """Where a ratio is in the plot."""
    within = min(max(value, LOWEST), HIGHEST)
    return round(LEFT + WIDTH * math.log(within / LOWEST) / math.log(HIGHEST / LOWEST), 1)


def main(results: str, target: str) -> None:
    record = json.loads(Path(results).read_text())
    plot = Path(target).with_suffix(".svg")
    plot.write_text(svg(record["rows"]))
    Path(target).write_text(page(record, plot.name))


if __name__ == "__main__":
    main(*sys.argv[1:])
