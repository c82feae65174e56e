"""What Keel logs: a line for each graph, refusals at DEBUG, and the stages in PyTorch's structured trace."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel import Backend

from .line import takes, whole

BACKENDS: list[Backend] = [
    takes("mm", name="mm"),
    takes("add", "mm", name="pointwise"),
    whole("rest", last_resort=True),
]
SECONDS = r"\d+\.\d\d s"
STAGES = rf"legalize {SECONDS}, place {SECONDS}, compile {SECONDS}, link {SECONDS}"


def f(x: Tensor) -> Tensor:
    return (x @ x + 1).tanh()


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.facts: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if (facts := getattr(record, "keel", None)) is not None:
            self.facts.append(facts)


def logged(level: int, *inputs: Tensor) -> list[str]:
    """The lines that the logger ``keel.compiler`` gets at this level while ``f`` is compiled and differentiated."""
    return records(level, BACKENDS, *inputs).lines


def records(level: int, backends: list[Backend], *inputs: Tensor) -> Records:
    """The records of that."""
    torch.compiler.reset()
    result, log = Records(), logging.getLogger("keel.compiler")
    log.addHandler(result)
    log.setLevel(level)
    try:
        out = keel.compile(f, backends=backends)(*inputs)
        if out.requires_grad:
            out.sum().backward()
    finally:
        log.removeHandler(result)
        log.setLevel(logging.NOTSET)
    return result


def test_a_graph_is_a_line_with_its_parts_by_backend_and_the_seconds_of_its_stages() -> None:
    (line,) = logged(logging.INFO, torch.ones(2, 2))
    parts = "mm: 1 call in 1 part, pointwise: 1 call in 1 part, rest: 1 call in 1 part"
    said = rf"inference graph: 3 calls, 3 parts \({parts}\); capture {SECONDS}, {STAGES}"
    assert re.fullmatch(said, line)


def test_a_backward_graph_has_no_time_of_capture() -> None:
    forward, backward = logged(logging.INFO, torch.ones(2, 2, requires_grad=True))
    assert forward.startswith("forward graph: ") and "; capture " in forward
    assert re.fullmatch(rf"backward graph: .*\); {STAGES}", backward)


def test_a_record_has_its_facts_for_programs() -> None:
    (facts,) = records(logging.INFO, BACKENDS, torch.ones(2, 2)).facts
    assert (facts["graph"], facts["result"], facts["why"]) == ("inference", "compiled", "")
    assert [*facts["seconds"]] == ["capture", "legalize", "place", "compile", "link"]


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keel's and PyTorch's caches in folders of their own, which have nothing in them."""
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "keel"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


MARKED = [replace(each, fingerprint=lambda: "1") for each in BACKENDS]


@pytest.mark.usefixtures("caches")
def test_graphs_of_the_cache_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keel.compiler.saves_of", lambda settings: None)  # PyTorch saves nothing
    first, second = (records(logging.INFO, MARKED, torch.ones(2, 2)) for _ in range(2))
    assert [*first.facts[0]["seconds"]] == ["capture", "key", "legalize", "place", "compile", "link", "store"]
    (line,), (facts,) = second.lines, second.facts
    stages = rf"capture {SECONDS}, key {SECONDS}, load {SECONDS}"
    assert re.fullmatch(rf"inference graph: 3 parts, from the cache; {stages}", line)
    assert facts["result"] == "loaded" and [*facts["seconds"]] == ["capture", "key", "load"]


@pytest.mark.usefixtures("caches")
def test_graphs_that_pytorch_saved_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "torch")
    _, second = (records(logging.INFO, MARKED, torch.ones(2, 2)) for _ in range(2))
    (line,), (facts,) = second.lines, second.facts
    assert re.fullmatch(rf"inference graph: saved by PyTorch; load {SECONDS}", line)
    assert facts["result"] == "loaded" and [*facts["seconds"]] == ["load"]


def test_a_graph_that_is_not_kept_is_logged_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_GRAPH_CACHE", "1")
    line, _ = (said := records(logging.INFO, BACKENDS, torch.ones(2, 2))).lines
    assert line == "inference graph: not kept in the cache. mm has no fingerprint."
    assert said.facts[0]["result"] == "not kept in the cache" and said.facts[0]["why"] == "mm has no fingerprint."


def test_refusals_are_logged_at_debug_if_no_preferred_backend_takes_the_call() -> None:
    _, *refusals = logged(logging.DEBUG, torch.ones(2, 2))
    assert sorted(line.partition(" (")[0] for line in refusals) == [
        "mm refuses aten.add.Tensor",
        "mm refuses aten.tanh.default",
        "pointwise refuses aten.tanh.default",
    ]
    assert re.search(r"\(1 call, which \w+ takes\): .* First at .*test_logs.py:\d+ ", refusals[-1])


def test_nothing_is_logged_unless_it_is_asked_for() -> None:
    assert logged(logging.WARNING, torch.ones(2, 2)) == []
    assert not logging.getLogger("keel").handlers and not logging.getLogger("keel.compiler").handlers


PROGRAM = """
import keel, torch
x = torch.ones(2, 2, requires_grad=True)
eager = keel.Backend(name="all", device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward)
keel.compile(lambda x: (x @ x).tanh(), backends=[eager])(x).sum().backward()
"""


@pytest.mark.slow
def test_torch_logs_and_the_structured_trace_show_graphs(tmp_path: Path) -> None:
    env = {**os.environ, "TORCH_LOGS": "keel", "TORCH_TRACE": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env, check=True)
    assert re.findall(r"\[0/0\] (\w+ graph): ", run.stderr) == ["forward graph", "backward graph"]
    (log,) = tmp_path.glob("*.log")
    entries = re.findall(r'\] (\{"artifact": \{"name": "keel_.*\})\n((?:\t.*\n)*)', log.read_text())
    texts = {json.loads(entry)["artifact"]["name"]: text for entry, text in entries}
    stages = ("captured", "legalized", "placed", "parts")
    assert [*texts] == [f"keel_{kind}_{stage}" for kind in ("forward", "backward") for stage in stages]
    assert "torch.ops.aten.mm.default" in texts["keel_forward_captured"]
    (part,) = json.loads(texts["keel_forward_parts"].replace("\t", ""))
    assert (part["name"], part["owner"], part["range"]) == ("p0", "all", "keel.all: part p0")
