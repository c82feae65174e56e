"""Says on stderr how far a long compilation is: one line that changes on a terminal, or a line now and then."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event as Flag
from threading import Thread
from time import perf_counter

from keel.errors import KeelError
from keel.events import Event, Listener, StageStarted, ignore
from keel.runtime.part_progress import PartsCompiled
from keel.torch_adapter import Kind

WAIT = 5.0
"""The seconds after which progress is shown, if ``KEEL_PROGRESS`` is not set."""
REFRESH, PAUSE = 0.5, 30.0
"""The seconds between two updates of a line on a terminal, and between two lines elsewhere."""
_DOING = {
    "legalize": "decomposing calls",
    "place": "choosing backends",
    "compile": "compiling parts",
    "link": "linking",
    "store": "storing it in the cache",
    "rivals": "compiling other placements, to time them",
}


@contextmanager
def shown_progress(kind: Kind) -> Iterator[Listener]:
    """A listener that shows the progress of compiling a graph of ``kind`` while the block runs. ``KEEL_PROGRESS`` is
    the number of seconds after which it begins; with 0 it never does. Raises KeelError[bad-option] if that is not a
    number.
    """
    wait = _wait()
    if not wait:
        yield ignore
        return
    progress, ended = Progress(kind), Flag()
    thread = Thread(target=_show, args=(progress, wait, ended), daemon=True, name="keel-progress")
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join(1.0)  # a write to stderr may block


def _wait() -> float:
    text = os.environ.get("KEEL_PROGRESS") or str(WAIT)
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < float("inf"):
            return seconds
    raise KeelError("bad-option", f"KEEL_PROGRESS={text} is not a number of seconds, or 0.")


class Progress:
    """A listener that keeps what is being done."""

    def __init__(self, kind: Kind):
        self._kind, self._began, self._doing = kind, perf_counter(), "checking the graph"

    def __call__(self, event: Event) -> None:
        match event:
            case StageStarted(stage):
                self._doing = _DOING[stage]
            case PartsCompiled():
                built = f", {event.built} of {event.kernels} kernels built" if event.kernels else ""
                self._doing = f"{event.done} of {event.parts} parts compiled{built}"

    def line(self) -> str:
        """``keel: compiling a forward graph for 12 s: 3 of 7 parts compiled, 40 of 204 kernels built``."""
        article = "an" if self._kind == "inference" else "a"
        return f"keel: compiling {article} {self._kind} graph for {perf_counter() - self._began:.0f} s: {self._doing}"


def _show(progress: Progress, wait: float, ended: Flag) -> None:
    """Writes lines to stderr from ``wait`` seconds on until ``ended``. Stops if stderr is closed."""
    if ended.wait(wait) or sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        changes = sys.stderr.isatty()
        while True:
            line = progress.line()
            sys.stderr.write(f"\r{line}\x1b[K" if changes else f"{line}\n")
            sys.stderr.flush()
            if ended.wait(REFRESH if changes else PAUSE):
                break
        if changes:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
