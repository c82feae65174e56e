"""Draws the page of plots from ``benchmarks/results``: each plot shows the bars of one file that fit a pattern."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MOST_LABELS = 45
"""A plot of more bars has no labels: its bars are sorted by their value."""


@dataclass(frozen=True)
class Plot:
    """``pattern`` has one group, the label of a bar; the dashed line is at ``line``."""

    title: str
    file: str
    pattern: str
    axis: str
    line: float
    page: str
    sentence: str


PLOTS = (
    Plot(
        "Compilation on a CPU",
        "cpp",
        r"compile (.+): CPU s / Inductor's",
        "CPU seconds to compile, relative to Inductor's",
        0.5,
        "cpp.md",
        "The first call of nine models. The line is the target: half of Inductor's CPU seconds.",
    ),
    Plot(
        "Compilation of the zoo",
        "zoo-compile",
        r"zoo compile (.+): CPU s / aot_eager's",
        "CPU seconds to compile, relative to aot_eager's",
        2.0,
        "zoo-compile.md",
        "Models of PyTorch's benchmark lists, small. The target is the line plus a second for each 100 kernels.",
    ),
    Plot(
        "Run time on a CPU",
        "cpp",
        r"run (.+) cpp: time / inductor's",
        "time of a step, relative to Inductor's",
        1.0,
        "cpp.md",
        "Warm steps of nine models with the backend cpp. To the left of the line Keel is faster.",
    ),
    Plot(
        "Run time on a GPU",
        "triton-h200",
        r"run (.+) triton: time / inductor's",
        "time of a step, relative to Inductor's",
        1.0,
        "triton-h200.md",
        "Warm steps with the backend triton on an H200. To the left of the line Keel is faster.",
    ),
    Plot(
        "Kernels on a CPU",
        "kernels-cpu",
        r"kernels-cpu (.+) cpp: share of a copy's speed",
        "fraction of a copy's speed",
        0.92,
        "kernels.md",
        "Kernels whose time is that of memory. To the right of the line they reach the target.",
    ),
    Plot(
        "Kernels on a GPU",
        "kernels-gpu",
        r"kernels-gpu (.+) triton: share of a copy's speed",
        "fraction of a copy's speed",
        0.92,
        "kernels.md",
        "The same kernels on an H200.",
    ),
    Plot(
        "Placement compared with the best single backend",
        "placement",
        r"never-worse (.+) cpp\+inductor\+eager: measured time / best single backend's",
        "measured time, relative to the best single backend's",
        1.02,
        "placement.md",
        "Models on cpp, Inductor and eager PyTorch, placed by cost. The target is at most the line.",
    ),
)


def pages() -> dict[str, str]:
    """The page, and for each plot a picture for light and one for dark pages, by path."""
    files, sections = {}, []
    for plot in PLOTS:
        bars = _bars(plot)
        name = re.sub(r"\W+", "-", plot.title.lower())
        for scheme, color in (("light", "#24292f"), ("dark", "#dfe3ea")):
            files[f"benchmarks/{name}-{scheme}.svg"] = _draw(plot, bars, color)
        low, high = bars[0], bars[-1]
        text = f"{len(bars)} values of {plot.axis}: from {low[1]:.2f} ({low[0]}) to {high[1]:.2f} ({high[0]})."
        pictures = "\n".join(
            f'```{{image}} {name}-{scheme}.svg\n:alt: "{text}"\n:class: only-{scheme}\n```'
            for scheme in ("light", "dark")
        )
        sections.append(f"## {plot.title}\n\n{plot.sentence} [All figures]({plot.page}).\n\n{pictures}\n")
    intro = "# Plots\n\nDrawn from `benchmarks/results` when these pages are built. [How it is measured](index.md).\n\n"
    return {"benchmarks/plots.md": intro + "\n".join(sections), **files}


def _bars(plot: Plot) -> list[tuple[str, float]]:
    """Labels and values, the least value first."""
    results = json.loads((RESULTS / f"{plot.file}.json").read_text())["bars"]
    found = ((re.fullmatch(plot.pattern, bar["name"]), bar["value"]) for bar in results)
    return sorted(((match[1], value) for match, value in found if match and value is not None), key=lambda b: b[1])


def _draw(plot: Plot, bars: list[tuple[str, float]], color: str) -> str:
    labeled = len(bars) <= MOST_LABELS
    style = {"text.color": color, "axes.labelcolor": color, "axes.edgecolor": color, "xtick.color": color}
    style |= {"ytick.color": color, "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    style |= {"svg.hashsalt": plot.title}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(7, 0.9 + 0.19 * len(bars) if labeled else 3.2), layout="constrained")
        rows = range(len(bars), 0, -1)
        axes.plot([value for _, value in bars], rows, "o", color="#4c78d8", markersize=5 if labeled else 2.5)
        axes.axvline(plot.line, color=color, linestyle="--", linewidth=1)
        axes.set_yticks([*rows] if labeled else [], [label for label, _ in bars] if labeled else [])
        axes.set_xlabel(plot.axis)
        axes.set_xlim(left=0)
        axes.grid(axis="x", alpha=0.25)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    return text.getvalue()
