"""Renders an explanation as one HTML page: without network access or other files, for light and dark mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from keel.explanation import Explanation
from keel.module_tree import module_tree
from keel.part_groups import PartGroup, grouped
from keel.reports import GraphReport, assumption, duration, listed, short, size

DRAWN = 200
"""The most boxes of a graph that are drawn. The table has all parts."""
WIDTH, HEIGHT, GAP = 250, 34, 22
"""Sizes of a box and of the gap between boxes, in pixels."""
COLORS = 6
LABELS = 60
"""The most lines whose bytes are written next to them; in a drawing with more, they show under the pointer."""


def page(models: Mapping[str, Explanation]) -> str:
    """Renders explanations, which are given by the names of their models."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "assumption": assumption,
        "duration": duration,
        "listed": listed,
        "size": size,
        "short": short,
    }
    template = environment.from_string((files("keel") / "explain_page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        models={
            name: (
                model,
                {backend: i % COLORS for i, backend in enumerate(model.backends)},
                [(g, drawing(g, model.backends), module_tree(g.parts)) for g in model.graphs],
            )
            for name, model in models.items()
        },
        drawn=DRAWN,
        labels=LABELS,
    )


@dataclass(frozen=True)
class Box:
    """The drawing of parts that are alike. ``share`` is their fraction of the graph's time, 0 if unknown."""

    group: PartGroup
    x: int
    y: int
    color: int
    share: float


@dataclass(frozen=True)
class Line:
    """The path of a line from one box to another, the point for a label, and the bytes of the tensors."""

    path: str
    x: int
    y: int
    start: str
    end: str
    bytes: int


@dataclass(frozen=True)
class Drawing:
    """Boxes from top to bottom in the order in which their first parts run, with a column for each backend, and lines
    to the parts that read others. ``groups`` are all groups, also those that are not drawn.
    """

    groups: tuple[PartGroup, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    columns: tuple[tuple[str, int], ...]
    width: int
    height: int


def drawing(graph: GraphReport, backends: Sequence[str]) -> Drawing:
    """The first ``DRAWN`` groups of parts of a graph."""
    used = [b for b in backends if any(p.owner == b for p in graph.parts)]
    total = graph.seconds or 0.0
    groups = grouped(graph.parts)
    boxes: dict[str, Box] = {}  # by the name of each part
    drawn = []
    for i, group in enumerate(groups[:DRAWN]):
        owner = group.first.owner
        share = sum(group.seconds or ()) / total if total > 0 else 0.0
        x, y = GAP + used.index(owner) * (WIDTH + 3 * GAP), 30 + i * (HEIGHT + GAP)
        drawn.append(Box(group, x, y, backends.index(owner) % COLORS, share))
        boxes |= dict.fromkeys((part.name for part in group.parts), drawn[-1])
    columns = tuple((name, GAP + i * (WIDTH + 3 * GAP)) for i, name in enumerate(used))
    width, height = len(used) * (WIDTH + 3 * GAP) + 2 * GAP, 40 + len(drawn) * (HEIGHT + GAP)
    return Drawing(groups, tuple(drawn), _lines(graph, boxes), columns, width, height)


def _lines(graph: GraphReport, boxes: Mapping[str, Box]) -> tuple[Line, ...]:
    """A line for each pair of boxes of which one reads the other."""
    read: dict[tuple[str, str], int] = {}
    for part in graph.parts:
        for name in part.reads:
            if part.name in boxes and name in boxes and boxes[name] is not boxes[part.name]:
                ends = boxes[name].group.first.name, boxes[part.name].group.first.name
                read[ends] = read.get(ends, 0) + part.bytes_read[name]
    return tuple(_line(boxes[start], boxes[end], count) for (start, end), count in read.items())


def _line(start: Box, end: Box, count: int) -> Line:
    """A curve from the bottom of one box to the top of another. In one column, and upward, it passes to the right of
    the boxes between them.
    """
    x0, y0, x1, y1 = start.x + WIDTH // 2, start.y + HEIGHT, end.x + WIDTH // 2, end.y
    names = start.group.name, end.group.name
    if start.x == end.x and not 0 <= y1 - y0 <= GAP:
        side, top, bottom = start.x + WIDTH, start.y + HEIGHT // 2, y1 + HEIGHT // 2
        path = f"M{side} {top} C{side + 2 * GAP} {top} {side + 2 * GAP} {bottom} {side} {bottom}"
        return Line(path, side + GAP, (top + bottom) // 2, *names, count)
    middle = (y0 + y1) // 2
    return Line(f"M{x0} {y0} C{x0} {middle} {x1} {middle} {x1} {y1}", (x0 + x1) // 2, middle, *names, count)
