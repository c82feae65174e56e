"""Parts compiled beside each other, where their backends say that the second stage of that may run on any thread."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from keel.partition.split import PartGraph
from keel.plugin import Staged


@dataclass(frozen=True)
class Outcome:
    """What a backend returned for a part, or raised."""

    run: Any = None
    raised: Exception | None = None


def beside(graphs: Sequence[PartGraph]) -> Mapping[str, Outcome]:
    """By the names of those parts whose backends compile in two stages: what became of them.

    Begins them in order, here; finishes them on as many threads as there are cores (a single one here), and returns
    when all are done.
    """
    begun = {graph.part.name: _outcome(partial(graph.part.owner.compile.begin, graph.gm)) for graph in graphs
             if isinstance(graph.part.owner.compile, Staged)}
    threads = min(_cores(), sum(found.raised is None for found in begun.values()))
    if threads < 2:
        return {name: _finished(found) for name, found in begun.items()}
    with ThreadPoolExecutor(threads, thread_name_prefix="keel-compile") as pool:
        return dict(zip(begun, pool.map(_finished, begun.values()), strict=True))


def _finished(begun: Outcome) -> Outcome:
    return begun if begun.raised is not None else _outcome(begun.run)


def _outcome(work: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(work())
    except Exception as raised:
        return Outcome(raised=raised)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
