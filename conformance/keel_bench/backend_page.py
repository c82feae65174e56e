"""The figures of a reference backend's page: lines of code, coverage, and speed compared with other compilers.

``python -m keel_bench.backend_page --backend opencl`` prints them; ``--json`` writes them to a file, too.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from keel import coverage
from keel.testing import find
from keel_conformance.models import build

from .compilers import EAGER, compiled
from .training_step import Step, prepare, run

MODELS = ("bert", "resnet18", "llama")
COMPILERS = (EAGER, "inductor", "cpp")
app = typer.Typer(add_completion=False)


@app.command()
def page(
    backend: Annotated[str, typer.Option(help="The backend that the page is about.")],
    model: Annotated[list[str] | None, typer.Option(help="Only this model; repeatable.")] = None,
    scale: Annotated[str, typer.Option(help="line: published widths. tiny: to try things out.")] = "line",
    mode: Annotated[str, typer.Option(help="inference or training.")] = "inference",
    rounds: Annotated[int, typer.Option(min=1, help="Timings of each compiler, in turns.")] = 10,
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Prints the figures of a page."""
    figures: dict[str, Any] = {"backend": backend, "torch": torch.__version__, "threads": torch.get_num_threads()}
    figures["lines"] = lines(backend)
    print(f"{backend}: {figures['lines']} lines of code, without blank lines and comments")
    figures["coverage"] = covered(backend)
    for dtype, (part, total) in figures["coverage"].items():
        print(f"{dtype}: {part} of {total} primitives")
    figures["speed"] = {}
    for name in model or MODELS:
        figures["speed"][name] = seconds = timed(name, (*COMPILERS, backend), scale, Step(mode), rounds)
        shown = (f"{c} {1e3 * t:.1f} ms ({t / seconds[EAGER]:.2f} of eager)" for c, t in seconds.items())
        print(f"{name}, {mode}: {', '.join(shown)}", flush=True)
    if out is not None:
        out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def lines(backend: str) -> int:
    """The lines of the package that has the entry point ``backend``, without blank ones and comments."""
    (entry,) = entry_points(group="keel.backends", name=backend)
    module = import_module(entry.module.partition(".")[0])
    files = [p for p in Path(str(module.__file__)).parent.rglob("*") if p.suffix in (".py", ".c", ".h", ".cl")]
    text = [line.strip() for p in files for line in p.read_text(encoding="utf-8").splitlines()]
    return sum((bool(line) and not line.startswith(("#", "//"))) or line.startswith("#pragma") for line in text)


def covered(backend: str) -> dict[str, tuple[int, int]]:
    """By dtype, the number of primitives that a backend takes, and that have samples."""
    covers, samples = Counter[str](), Counter[str]()
    for cell in coverage.cells(find(backend)):
        if cell.verdict != "none":
            samples[coverage.dtype_name(cell.dtype)] += 1
            covers[coverage.dtype_name(cell.dtype)] += cell.verdict != "refused"
    return {dtype: (covers[dtype], count) for dtype, count in samples.items()}


def timed(name: str, compilers: Sequence[str], scale: str, step: Step, rounds: int) -> dict[str, float]:
    """Median seconds of a step of a model for each compiler. They take turns, so that other load slows all alike."""
    torch.compiler.reset()
    cases = {c: build(name, scale=scale) for c in compilers}
    forwards = {c: compiled(cases[c].model, c) for c in compilers}
    times: dict[str, list[float]] = {c: [] for c in compilers}
    for k in range(2 + rounds):
        for c in compilers:
            prepare(step, cases[c])
            start = time.perf_counter()
            run(step, cases[c], forwards[c])
            if k > 1:  # the first steps compile
                times[c].append(time.perf_counter() - start)
    return {c: statistics.median(each) for c, each in times.items()}


if __name__ == "__main__":
    app()
