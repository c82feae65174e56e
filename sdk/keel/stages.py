"""The stages of one compilation: their texts, in dumps and in PyTorch's structured trace, and the seconds they take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from keel import dump
from keel.torch_adapter import Captured, trace_artifact


class Stages:
    """The stages of a captured graph so far. Their texts are written to ``folder``, if it is a folder, and to the
    structured trace, if ``TORCH_TRACE`` is set.
    """

    def __init__(self, captured: Captured, folder: Path | None):
        self.kind, self.folder = captured.kind, folder
        self.seconds = {"capture": captured.seconds} if captured.seconds else {}
        self._since = perf_counter()

    def timed(self, stage: str) -> None:
        """A stage of this name has ended, and the next one begins."""
        now = perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def write(self, name: str, text: Callable[[], str]) -> None:
        """Writes the text of the graph after a stage, under a name of ``dump.STAGES``."""
        dump.write(self.folder, name, text)
        self.trace(name, text)

    def trace(self, name: str, text: Callable[[], str]) -> None:
        """Writes a text to the structured trace only."""
        trace_artifact(f"keel_{self.kind}_{name}", text)
