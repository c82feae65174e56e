"""The stages of one compilation: their texts, in dumps and in PyTorch's structured trace, and the seconds they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from keel import dump
from keel.events import Listener, StageStarted
from keel.torch_adapter import Captured, trace_artifact


class Stages:
    """The stages of a captured graph so far. Their texts are written to ``folder``, if it is a folder, and to the
    structured trace, if ``TORCH_TRACE`` is set. ``listen`` is called when a stage begins. ``seconds`` are those of
    earlier stages.
    """

    def __init__(
        self, captured: Captured, folder: Path | None, listen: Listener, seconds: Mapping[str, float] | None = None
    ):
        self.kind, self.folder, self.listen = captured.kind, folder, listen
        self.seconds = ({"capture": captured.seconds} if captured.seconds else {}) | dict(seconds or {})
        self._stage, self._since = "", perf_counter()

    def begin(self, stage: str) -> None:
        """Ends the stage before, and begins this one."""
        self.end()
        self._stage = stage
        self.listen(StageStarted(stage))

    def end(self) -> None:
        """Ends the last stage."""
        now = perf_counter()
        if self._stage:
            self.seconds[self._stage] = now - self._since
        self._since = now

    def write(self, name: str, text: Callable[[], str]) -> None:
        """Writes the text of the graph after a stage, under a name of ``dump.STAGES``."""
        dump.write(self.folder, name, text)
        self.trace(name, text)

    def trace(self, name: str, text: Callable[[], str]) -> None:
        """Writes a text to the structured trace only."""
        trace_artifact(f"keel_{self.kind}_{name}", text)
