"""What Keel logs of compiled graphs. ``TORCH_LOGS=keel`` shows a line for each, ``TORCH_LOGS=+keel`` refusals too."""

from __future__ import annotations

import logging
from collections import Counter

from keel.artifact.graph_log import COMPILED, LOADED, log_graph, stages_text
from keel.errors import count
from keel.events import AutotuneSkipped, AutotuneStarted, Event, GraphCompiled, GraphLoaded, PlanSelected
from keel.refusal_reports import refusal_reports

_log = logging.getLogger("keel.compiler")


def log_event(event: Event) -> None:
    """The listener that logs events: to the logger ``keel.compiler``."""
    if not _log.isEnabledFor(logging.INFO):
        return
    match event:
        case GraphCompiled():
            log_graph(event.kind, COMPILED, compiled_line(event), event.seconds)
            if _log.isEnabledFor(logging.DEBUG):
                _log_refusals(event)
        case GraphLoaded(kind, parts, seconds):
            line = f"{count(len(parts), 'part')}, from the cache; {stages_text(seconds)}"
            log_graph(kind, LOADED, line, seconds)
        case AutotuneStarted(graph):
            _log.info("%s graph: its first calls time other placements.", graph.kind)
        case AutotuneSkipped(graph, reason):
            _log.info("%s graph: no other placement is timed. %s", graph.kind, reason)
        case PlanSelected(graph, timings):
            took = ", ".join(f"{' and '.join(t.owners)} {t.took * 1e3:.3g} ms" for t in timings if t.took is not None)
            owners = dict.fromkeys(part.owner.name for part in graph.plan.parts)
            _log.info("%s graph: it runs on %s; placements took: %s", graph.kind, " and ".join(owners), took)


def compiled_line(graph: GraphCompiled) -> str:
    """``93 calls, 1 part (cpp: 93 calls in 1 part); capture 0.21 s, legalize 0.10 s, ...``."""
    calls, parts = Counter[str](), Counter[str]()
    for part in graph.plan.parts:
        calls[part.owner.name] += len(part.nodes)
        parts[part.owner.name] += 1
    owners = ", ".join(f"{name}: {count(calls[name], 'call')} in {count(parts[name], 'part')}" for name in calls)
    total = f"{count(calls.total(), 'call')}, {count(parts.total(), 'part')}"
    return f"{total}{f' ({owners})' if owners else ''}; {stages_text(graph.seconds)}"


def _log_refusals(graph: GraphCompiled) -> None:
    for refusal in refusal_reports(graph.gm, graph.plan):
        near = f" It would take {refusal.nearest}." if refusal.nearest else ""
        at = f" First at {refusal.where[0]}" if refusal.where else ""
        _log.debug(
            "%s refuses %s (%s, which %s takes): %s%s%s",
            refusal.backend,
            refusal.operator,
            count(refusal.calls, "call"),
            refusal.owner,
            refusal.reason,
            near,
            at,
        )
