"""The progress of long compilations on stderr."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

import keel
from keel import Backend, KeelError, Staged
from keel.compiler import DynamoBackend
from keel.events import StageStarted
from keel.progress import Progress
from keel.runtime.part_progress import PartsCompiled
from keel.settings import read_settings

from .line import takes, whole


class Stderr(io.StringIO):
    """A stderr that says when it is written to."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        finally:
            self.written.set()


def compiled(monkeypatch: pytest.MonkeyPatch, after: str, stderr: Stderr, wait: Callable[[], object]) -> str:
    """What is written to stderr while a graph is compiled whose backend waits."""
    torch.compiler.reset()
    monkeypatch.setenv("KEEL_PROGRESS", after)
    monkeypatch.setattr("sys.stderr", stderr)

    def compile(gm: fx.GraphModule) -> Any:
        wait()
        return gm.forward

    backend = Backend(name="slow", device="cpu", supports=lambda call: None, compile=compile)
    keel.compile(lambda x: x + 1, backends=[backend])(torch.ones(2))
    return stderr.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_compilation_says_what_it_does(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    stderr = Stderr(terminal)
    text = compiled(monkeypatch, "0.01", stderr, lambda: stderr.written.wait(60))
    line = r"keel: compiling an inference graph for \d+ s: [a-z0-9 ]+"
    assert re.fullmatch(rf"(\r{line}\x1b\[K)+\r\x1b\[K" if terminal else rf"{line}\n", text)
    assert not [thread for thread in threading.enumerate() if thread.name == "keel-progress"]


def test_a_short_compilation_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled(monkeypatch, "600", Stderr(True), lambda: None) == ""


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    text = compiled(monkeypatch, "0", Stderr(True), lambda: names.extend(t.name for t in threading.enumerate()))
    assert text == "" and names and "keel-progress" not in names


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_a_wrong_number_of_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(KeelError, match=f"KEEL_PROGRESS={text} is not a number of seconds, or 0"):
        compiled(monkeypatch, text, Stderr(True), lambda: None)


def test_a_line_names_the_stage_or_the_parts_and_kernels() -> None:
    progress = Progress("backward")
    said = []
    for event in (StageStarted("place"), PartsCompiled(7, 3), PartsCompiled(7, 3, 204, 40), StageStarted("link")):
        progress(event)
        said.append(progress.line().removeprefix("keel: compiling a backward graph for 0 s: "))
    assert said == [
        "choosing backends",
        "3 of 7 parts compiled",
        "3 of 7 parts compiled, 40 of 204 kernels built",
        "linking",
    ]


def test_parts_and_their_kernels_are_counted() -> None:
    torch.compiler.reset()

    def begin(gm: fx.GraphModule) -> Any:
        def finish() -> Any:
            return gm.forward

        finish.kernels = 2  # type: ignore[attr-defined]
        return finish

    backends = [takes("mm", name="staged", compile=Staged(begin)), whole("rest", last_resort=True)]
    heard: list[Any] = []
    log = DynamoBackend(read_settings(None, {"backends": backends}), heard.append)
    torch.compile(lambda x: (x @ x + 1) @ x, backend=log)(torch.ones(2, 2))
    counts = [(e.parts, e.done, e.kernels, e.built) for e in heard if isinstance(e, PartsCompiled)]
    assert counts == [(3, 0, 2, 0), (3, 0, 4, 0), (3, 1, 4, 2), (3, 2, 4, 4), (3, 3, 4, 4)]
    assert [e.stage for e in heard if isinstance(e, StageStarted)] == ["legalize", "place", "compile", "link"]
