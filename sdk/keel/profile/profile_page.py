"""Renders a report on a model's speed as one HTML page: without network access or other files, light and dark."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from keel.profile.profile_facts import MemoryUse
from keel.profile.profile_report import Profile
from keel.profile.profile_text import BOUNDS, saving, share_line, step_line
from keel.reports import duration, short, size

WIDTH, HEIGHT = 900, 120
"""Sizes of a chart of memory, in pixels."""


def page(models: Mapping[str, Profile]) -> str:
    """Renders reports, which are given by the names of their models."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "chart": chart,
        "duration": duration,
        "saving": saving,
        "share_line": share_line,
        "short": short,
        "size": size,
        "step_line": step_line,
    }
    source = (files("keel") / "profile" / "profile_page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(models=models, bounds=BOUNDS, width=WIDTH, height=HEIGHT)


def chart(use: MemoryUse) -> str:
    """Memory over time as a path of an area, in pixels."""
    end, top = max(at for at, _ in use.points) or 1.0, max(use.peak, 1)
    path, y = f"M0 {HEIGHT}", HEIGHT
    for at, value in use.points:
        x, after = round(WIDTH * at / end), round(HEIGHT * (1 - max(value, 0) / top))
        path += f" L{x} {y} L{x} {after}"
        y = after
    return f"{path} L{WIDTH} {y} L{WIDTH} {HEIGHT} Z"
