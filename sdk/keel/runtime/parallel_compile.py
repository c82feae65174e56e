"""Compiles parts in parallel if their backends declare that the second stage may run on any thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from keel.cache.toolchain import stopped_with_this
from keel.interrupts import is_interrupt
from keel.placement.part_graphs import PartGraph
from keel.plugin import CompileContext, Staged, with_context
from keel.runtime.part_progress import PartCounter
from keel.torch_adapter import real_tensors


@dataclass(frozen=True)
class CompileResult:
    """What a backend returned for a part, or raised."""

    run: Any = None
    raised: BaseException | None = None


def compile_parallel(
    graphs: Sequence[PartGraph], contexts: Mapping[str, CompileContext], counter: PartCounter
) -> Mapping[str, CompileResult]:
    """Compiles the parts whose backends compile in two stages, with their ``contexts``, and returns the results; both
    by part name. The first stages run in order on this thread. The second stages run on one thread per core (a single
    part on this thread). Returns when all are done. ``counter`` counts both stages.
    """
    first_stage: dict[str, CompileResult] = {}
    for graph in graphs:
        if isinstance(graph.part.owner.compile, Staged):
            begin = with_context(graph.part.owner.compile.begin, contexts[graph.part.name])
            with real_tensors():
                first_stage[graph.part.name] = _outcome(partial(begin, graph.gm))
            counter.scheduled(first_stage[graph.part.name].run)
    threads = min(_cores(), sum(result.raised is None for result in first_stage.values()))
    if threads < 2:
        return {name: _counted(_finished(result), result, counter) for name, result in first_stage.items()}
    return dict(zip(first_stage, _on_threads(list(first_stage.values()), threads, counter), strict=True))


def _on_threads(first_stage: Sequence[CompileResult], threads: int, counter: PartCounter) -> list[CompileResult]:
    """Runs the second stages on plain threads, not a pool: Ctrl-C and the end of the program must not wait for a thread
    that hangs, as a pool would.
    """
    todo, done = SimpleQueue[int](), SimpleQueue[tuple[int, CompileResult]]()
    for number in range(len(first_stage)):
        todo.put(number)

    def work() -> None:
        with suppress(Empty):
            while True:
                number = todo.get_nowait()
                try:
                    done.put((number, _finished(first_stage[number])))
                except BaseException as raised:  # the caller raises it
                    done.put((number, CompileResult(raised=raised)))

    results: dict[int, CompileResult] = {}
    with stopped_with_this():  # an interrupt also stops compiler processes
        for _ in range(threads):
            Thread(target=copy_context().run, args=(work,), daemon=True, name="keel-compile").start()
        while len(results) < len(first_stage):
            with suppress(Empty):  # with a timeout, so that signals are handled on every platform
                number, outcome = done.get(timeout=1.0)
                results[number] = _counted(outcome, first_stage[number], counter)
    return [results[number] for number in range(len(first_stage))]


def _counted(result: CompileResult, first_stage: CompileResult, counter: PartCounter) -> CompileResult:
    counter.compiled(first_stage.run)
    return result


def _finished(first_stage: CompileResult) -> CompileResult:
    return first_stage if first_stage.raised is not None else _outcome(first_stage.run)


def _outcome(work: Callable[[], Any]) -> CompileResult:
    try:
        return CompileResult(work())
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        return CompileResult(raised=raised)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
