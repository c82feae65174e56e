"""The dumps of both sides are written, and calls after that may hang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keel.minify import reduction_report
from keel.minify.blame import Blame
from keel.minify.failing_model import Reduction
from keel.minify.failure import RUNNING, Failure, Subject
from keel.minify.graph_program import Call, Program, Value
from keel.minify.reduction_report import dump
from keel.minify.trial_process import QUIET, Outcome, TrialProcess

PROGRAM = Program(("x",), (Call("y", "aten.sin.default", (Value("x"),)),), ("y",), ((torch.ones(2),),))


def test_calls_end_soon_after_the_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = list[tuple[str, float]]()

    class Noting(TrialProcess):
        def run(self, function: Any, *args: Any, seconds: float, limits: Any = None) -> Outcome:
            noted.append((args[0].swap, limits[RUNNING]))
            return Outcome()

    monkeypatch.setattr(reduction_report, "TrialProcess", Noting)
    fault = Blame("plugin", "", ())
    dump(Reduction(Failure("hang"), PROGRAM, Subject(("eager",)), fault, "", True, True, 1, 1, 1.0), tmp_path)
    assert [swap for swap, _ in noted] == ["", "eager parts"] and all(limit < QUIET for _, limit in noted)
    assert (tmp_path / "failing").is_dir() and (tmp_path / "reference").is_dir()
