"""Renders an explanation as one HTML page: without network access or other files, for light and dark mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from keel.explanation import Explanation
from keel.reports import GraphReport, PartReport, duration

DRAWN = 200
"""The most parts of a graph that are drawn. The table has all of them."""
WIDTH, HEIGHT, GAP = 210, 34, 14
"""Sizes of a part and of the gap between parts, in pixels."""
COLORS = 6


def page(models: Mapping[str, Explanation]) -> str:
    """Renders explanations, which are given by the names of their models."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"duration": duration}
    template = environment.from_string((files("keel") / "explain_page.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        models={
            name: (model, [(g, drawing(g, model.backends)) for g in model.graphs]) for name, model in models.items()
        },
        drawn=DRAWN,
    )


@dataclass(frozen=True)
class Box:
    """The drawing of a part. ``share`` is its fraction of the graph's time, 0 if unknown."""

    part: PartReport
    x: int
    y: int
    color: int
    share: float


@dataclass(frozen=True)
class Drawing:
    """Parts from top to bottom in the order in which they run, with a column for each backend, and lines from the parts
    that a part reads.
    """

    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    width: int
    height: int


def drawing(graph: GraphReport, backends: Sequence[str]) -> Drawing:
    """The first ``DRAWN`` parts of a graph."""
    used = [b for b in backends if any(p.owner == b for p in graph.parts)]
    total = graph.seconds or 0.0
    boxes = {}
    for i, part in enumerate(graph.parts[:DRAWN]):
        share = _seconds(part) / total if total > 0 else 0.0
        boxes[part.name] = Box(
            part,
            GAP + used.index(part.owner) * (WIDTH + 3 * GAP),
            30 + i * (HEIGHT + GAP),
            backends.index(part.owner) % COLORS,
            share,
        )
    lines = tuple(_line(boxes[name], box) for box in boxes.values() for name in box.part.reads if name in boxes)
    columns = tuple((name, GAP + i * (WIDTH + 3 * GAP)) for i, name in enumerate(used))
    width, height = len(used) * (WIDTH + 3 * GAP), 40 + len(boxes) * (HEIGHT + GAP)
    return Drawing(tuple(boxes.values()), lines, columns, width, height)


def _seconds(part: PartReport) -> float:
    return (part.work or 0.0) + (part.moves or 0.0) + (part.launch or 0.0)


def _line(start: Box, end: Box) -> str:
    """A curve from the bottom of one box to the top of another. In one column, it passes beside the boxes
    between them.
    """
    x0, y0, x1, y1 = start.x + WIDTH // 2, start.y + HEIGHT, end.x + WIDTH // 2, end.y
    if start.x == end.x and y1 - y0 > GAP:
        side = start.x + WIDTH
        return f"M{side} {start.y + HEIGHT // 2} C{side + 2 * GAP} {y0} {side + 2 * GAP} {y1} {side} {y1 + HEIGHT // 2}"
    return f"M{x0} {y0} C{x0} {(y0 + y1) // 2} {x1} {(y0 + y1) // 2} {x1} {y1}"
