"""What Dynamo reports about its own work: where graphs break, and which functions are compiled again, and why."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_PLACE = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+)(, in .*)?(\n\s*(?P<code>\S.*))?')
_MOST = 4096
"""The most compilations within one context whose facts are seen."""


@dataclass(frozen=True)
class GraphBreak:
    """Where Dynamo ended a graph, or gave up on a function, which then runs in eager PyTorch (``is_skipped``). ``hint``
    is Dynamo's first advice. ``line`` is the user's, as ``path:number   code``.
    """

    reason: str
    hint: str
    line: str
    is_skipped: bool = False


@dataclass(frozen=True)
class Compilation:
    """A compilation of a function, with PyTorch's ``number`` for it: ``0/1`` is the second of the first function. If it
    was compiled before, ``reason`` says which guard failed. ``line`` is the user's line that the guard is about, or the
    first line of the function.
    """

    number: str
    function: str
    line: str
    reason: str
    seconds: float


@dataclass
class DynamoFacts:
    """Collects facts within each context ``collecting()``. ``count`` grows whenever something is compiled there."""

    count: int = 0
    breaks: list[GraphBreak] = field(default_factory=list)
    compilations: list[Compilation] = field(default_factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """A context in which the facts are added of what Dynamo compiles."""
        from torch._dynamo import utils  # here, for importing it takes longer than importing all of Keel

        reasons, before = utils.graph_break_reasons, utils.get_compilation_metrics()
        first, known = len(reasons), {*map(id, before)}
        utils.set_compilation_metrics_limit(_MOST)
        try:
            yield
        finally:
            metrics = [m for m in utils.get_compilation_metrics() if id(m) not in known]
            utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)
            self.count += len(metrics)
            self.breaks += map(_graph_break, reasons[first:])
            self.breaks += [_skipped(m) for m in metrics if m.fail_reason]
            self.compilations += [_compilation(m) for m in metrics if m.co_name or m.recompile_reason]


def _graph_break(reason: Any) -> GraphBreak:
    frame = reason.user_stack[-1] if reason.user_stack else None
    line = "" if frame is None else _line(frame.filename, frame.lineno, frame.line)
    return GraphBreak(*_sentence_and_hint(reason.reason), line)


def _skipped(metrics: Any) -> GraphBreak:
    """The break of a function for which Dynamo has no code."""
    line = _place_in(metrics.recompile_reason or "")
    if metrics.fail_user_frame_filename:
        line = _line(metrics.fail_user_frame_filename, metrics.fail_user_frame_lineno, None)
    return GraphBreak(*_sentence_and_hint(metrics.fail_reason), line or _first_line(metrics), is_skipped=True)


def _compilation(metrics: Any) -> Compilation:
    reason = metrics.recompile_reason or ""
    guard = reason.partition("\n")[0].partition(": ")[2] or reason.partition("\n")[0]
    return Compilation(
        str(metrics.compile_id),
        metrics.co_name or "",
        _place_in(reason) or _first_line(metrics),
        guard.partition("  #")[0].strip(),
        metrics.entire_frame_compile_time_s or 0.0,
    )


def _sentence_and_hint(reason: str) -> tuple[str, str]:
    """Dynamo's explanation of a break in a sentence, and its first hint."""
    parts = {
        key: m[1].strip() for key in ("Explanation", "Hint") if (m := re.search(rf"^\s*{key}: (.+)$", reason, re.M))
    }
    return parts.get("Explanation", reason.partition("\n")[0]), parts.get("Hint", "")


def _place_in(reason: str) -> str:
    """The user's line in a reason for compiling again; empty if it has none."""
    places = [*_PLACE.finditer(reason)]
    return _line(places[-1]["file"], int(places[-1]["line"]), places[-1]["code"]) if places else ""


def _first_line(metrics: Any) -> str:
    return _line(metrics.co_filename, metrics.co_firstlineno, None) if metrics.co_filename else ""


def _line(file: str, number: int | None, code: str | None) -> str:
    """``path:line   code``. A path below the current directory is relative to it."""
    text = code or (linecache.getline(file, number) if number else "")
    file = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f"{file}:{number}   {text.strip()}".rstrip()
