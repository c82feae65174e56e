"""A model that fails becomes one call, the right stage, and a script that exits with 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keel.errors import KeelError
from keel.minify import LINES
from keel.minify.capture_model import Model, Recorded
from keel.minify.delta_debugging import Deadline
from keel.minify.failing_model import _failing, _of_model, minify
from keel.minify.failure import NONE, Failure, Subject
from keel.minify.graph_program import Call, Program, Value
from keel.minify.reduce import Search
from keel.minify.reduction_report import write
from keel.minify.trial_process import Outcome, TrialProcess

PARTS, WHOLE = Recorded((), ("parts",)), Recorded((), ("whole",))
WRONG = Recorded((), ("parts",), "Result 0 of the captured graphs is off by 2 of its size.")


class Capturing(TrialProcess):
    """Captures graphs with decompositions as ``parts`` says, and graphs of whole calls as WHOLE."""

    def __init__(self, parts: Outcome) -> None:
        super().__init__()
        self.parts = parts

    def run(self, function: Any, model: Any, subject: Any, is_whole: Any = None, **limits: Any) -> Outcome:
        return Outcome(WHOLE) if is_whole else self.parts


@pytest.mark.parametrize(
    ("parts", "training", "batches"),
    [
        (Outcome(PARTS), True, [PARTS, WHOLE]),
        (Outcome(WRONG), True, [WHOLE, WRONG]),
        (Outcome(PARTS), False, [PARTS]),
    ],
)
def test_graphs_of_training_are_tried_with_whole_calls_too(
    parts: Outcome, training: bool, batches: list[Recorded]
) -> None:
    assert list(_of_model(Model("a:b", training), Subject(("cpp",)), Capturing(parts))) == batches


def test_a_decomposition_that_ends_the_capture_leaves_graphs_of_whole_calls() -> None:
    captured = _of_model(Model("a:b", True), Subject(("cpp",)), Capturing(Outcome(end="raised", sentence="No.")))
    assert next(captured) == WHOLE
    with pytest.raises(KeelError, match="cannot be captured"):
        next(captured)


def program(op: str) -> Program:
    return Program(("x",), (Call("y", op, (Value("x"),)),), ("y",), ((torch.ones(2),),))


FORWARD, BACKWARD = program("aten.sin.default"), program("aten.cos.default")


class Noting(Search):
    """A search that notes the programs that it tries. Those with ``op`` fail when they are called ``count`` times."""

    def __init__(self, op: str, count: int) -> None:
        super().__init__(TrialProcess(), Subject(("cpp",)), Deadline(30.0))
        self.op, self.count, self.noted = op, count, list[tuple[str, int]]()

    def failure(
        self, program: Program, subject: Subject | None = None, swap: str = "", fuel: int | None = None
    ) -> Failure:
        op, count = program.calls[0].op, len(program.inputs)
        self.noted.append((op, count))
        return Failure("wrong") if (op, count) == (self.op, self.count) else NONE


def test_each_graph_is_called_once_before_any_is_called_again() -> None:
    search = Noting("aten.cos.default", 1)
    failing, failure = _failing([Recorded((FORWARD, BACKWARD), ())], search, "")
    assert failing is BACKWARD and failure.kind == "wrong" and len(search.noted) == 2


def test_a_graph_that_fails_in_a_later_call_is_found() -> None:
    search = Noting("aten.sin.default", 3)
    failing, _ = _failing([Recorded((FORWARD,), ()), Recorded((BACKWARD,), ())], search, "")
    assert failing.calls == FORWARD.calls and [count for _, count in search.noted] == [1, 1, 3]


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.slow  # starts Python four times
def test_a_wrong_layer_norm_is_named(where: None, tmp_path: Path) -> None:
    said = list[str]()
    reduction = minify("planted:model", Subject(("planted:wrong",)), seconds=60.0, say=said.append)
    assert reduction.failure.kind == "wrong" and reduction.fault.stage == "plugin" and said
    assert [call.op for call in reduction.program.calls] == ["aten.native_layer_norm.default", "getitem"]
    assert reduction.shown and reduction.right_without and reduction.text.count("\n") <= LINES
    write(reduction, tmp_path)
    assert "planted:wrong" in (tmp_path / "report.md").read_text() and (tmp_path / "failing.py").exists()
    assert list((tmp_path / "dumps" / "failing").rglob("*captured.fx"))


@pytest.mark.slow  # starts Python
def test_a_right_model_is_refused(where: None) -> None:
    with pytest.raises(KeelError, match="Nothing fails"):
        minify("planted:model", Subject(("planted:right",)), seconds=30.0, say=lambda text: None)
