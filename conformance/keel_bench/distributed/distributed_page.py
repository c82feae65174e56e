"""A page of the suite ``distributed``: ``python -m keel_bench.distributed.distributed_page PAGE JSON...``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..compilers import EAGER
from ..speed.speed_page import bar_cells, table
from .distributed_bars import Figures
from .rank_process import COMPILERS
from .step_trace import GRAPH

Row = Mapping[str, Any]
HEAD = """# Several processes: DDP, FSDP2 and tensor parallel

The figures of [the suite](README.md#several-processes) `distributed`, from the files
`benchmarks/results/distributed-*.json`:

    keel bench --suite distributed --json distributed-cpu.json
    keel bench --suite distributed --device cuda --json distributed-gpu.json
    python -m keel_bench.distributed.distributed_page distributed.md distributed-cpu.json distributed-gpu.json

A decoder in the style of Llama is trained for 50 steps under bfloat16 autocast, with AdamW. It has 4 million parameters
on a CPU and 325 million on a GPU. Errors are distances from training in float64. That of parameters is relative to how
far training moved them, and the worst of all parameters. The first step includes compilation, with empty caches but for
what another way has left there. Collectives, waits for them, backward graphs, numbers read by the host and
synchronizations are those of one step of the first process. `hidden` is the part of the communication's time in which
another kernel runs, too."""
COLUMNS = (
    "way",
    "compiler",
    "first step s",
    "ms",
    "eager's / ms",
    "peak MiB",
    "losses' error",
    "parameters' error",
    "collectives",
    "waits",
    "graphs",
    "read",
    "synchronizations",
    "hidden",
)


def page(records: list[Mapping[str, Any]]) -> str:
    """The page in Markdown: a section for each record of the suite."""
    return "\n".join([HEAD, *(line for record in records for line in section(record))]) + "\n"


def section(record: Mapping[str, Any]) -> Iterator[str]:
    machine, rows = record["machine"], record["rows"]
    gpus: list[str] = next((row["gpus"] for row in rows if row.get("gpus")), [])
    where = f"{len(gpus)} of {gpus[0]}" if gpus else f"{machine['cpu']}, {machine['cores']} cores"
    yield from ("", f"## On {'GPUs' if gpus else 'a CPU'}", "")
    yield f"{where}, PyTorch {machine['torch']}, {record['made'].partition('T')[0]}."
    yield ""
    yield from table(COLUMNS, [cells for row in rows for cells in cells_of_way(row)])
    yield ""
    yield from table(("bar", "figure", "target", "holds", "note"), [bar_cells(bar) for bar in record["bars"]])


def cells_of_way(row: Row) -> Iterator[list[str]]:
    """A line for each compiler, or one that says why nothing was measured."""
    if "compilers" not in row:
        yield [row["model"], row.get("left_out") or row["failure"], *[""] * (len(COLUMNS) - 2)]
        return
    figures = Figures(row["compilers"])
    eager = 0.0 if figures.failure(EAGER) else figures.most(EAGER, "ms") or 0.0
    for name in COMPILERS:
        title = [f"{row['model']}, {row['processes']} processes", name]
        yield [
            *title,
            *(["failed", *[""] * (len(COLUMNS) - 3)] if figures.failure(name) else cells(figures, name, eager)),
        ]


def cells(figures: Figures, compiler: str, eager: float) -> list[str]:
    order, ms = figures.order(compiler)[0], figures.most(compiler, "ms") or 0.0
    graphs = order.count(GRAPH)

    def shown(name: str, form: str = ".0f") -> str:
        value = figures.most(compiler, name)
        return "-" if value is None else f"{value:{form}}"

    return [
        shown("first_s", ".1f"),
        f"{ms:.1f}",
        f"{eager / ms:.2f}",
        shown("peak_mib"),
        f"{figures.loss_error(compiler):.1e}",
        f"{max(figures.parameter_errors(compiler)):.3f}",
        str(len(order) - graphs),
        shown("waits"),
        str(graphs),
        shown("reads"),
        shown("synchronizations"),
        shown("hidden", ".2f"),
    ]


def main(target: str, *results: str) -> None:
    Path(target).write_text(page([json.loads(Path(result).read_text()) for result in results]))


if __name__ == "__main__":
    main(*sys.argv[1:])
