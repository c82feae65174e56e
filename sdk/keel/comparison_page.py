"""Renders a comparison as one HTML page: without network access or other files, for light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from keel.compared_values import ComparedValue
from keel.comparison import Comparison
from keel.comparison_text import figure, module_rows, used
from keel.reports import short

CELLS = 2000
"""The most values that a strip shows."""
SHADES = 6
"""The number of colors of a strip."""


def page(models: Mapping[str, Comparison]) -> str:
    """Renders comparisons, which are given by the names of their models."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": short, "figure": figure, "used": used}
    template = environment.from_string((files("keel") / "comparison_page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        models={
            name: (each, module_rows(each.values), strips(each.values), histograms(each.values))
            for name, each in models.items()
        }
    )


@dataclass(frozen=True)
class Cell:
    """A value in a strip, and its shade: 0 for one that uses little of its budget, the last for one over it."""

    value: ComparedValue
    shade: int


def strips(values: Sequence[ComparedValue]) -> dict[str, tuple[Cell, ...]]:
    """The values of each kind of graph in the order in which they are computed, with their shades."""
    kinds: dict[str, list[Cell]] = {}
    for value in values[:CELLS]:
        kinds.setdefault(value.kind, []).append(Cell(value, shade(value)))
    return {kind: tuple(cells) for kind, cells in kinds.items()}


def shade(value: ComparedValue) -> int:
    """The shade of a value: by halves of its budget, the last if it is over it."""
    judgment = value.judgment
    if judgment.is_over:
        return SHADES - 1
    if not judgment.ratio:
        return 0
    return max(0, min(SHADES - 2, SHADES - 1 + math.ceil(math.log2(min(judgment.ratio, 1.0))) - 1))


@dataclass(frozen=True)
class Bar:
    """The share of elements with errors up to ``limit`` units in the last place, of the backends and of eager."""

    limit: str
    share: float
    eager: float


def histograms(values: Sequence[ComparedValue]) -> tuple[Bar, ...]:
    """The elements of all results by their errors in units in the last place."""
    pairs = [(v.judgment.ulps, v.judgment.eager_ulps) for v in values if v.judgment.ulps]
    if not pairs:
        return ()
    ours, eagers = ([sum(column) for column in zip(*some, strict=True)] for some in zip(*pairs, strict=True))
    total = sum(ours) or 1
    last = max(k for k, (a, b) in enumerate(zip(ours, eagers, strict=True)) if a or b)
    names = ["0", *(f"{2**k}" for k in range(len(ours)))]
    return tuple(Bar(names[k], ours[k] / total, eagers[k] / total) for k in range(last + 1))
