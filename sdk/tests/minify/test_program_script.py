"""Scripts exit with 1 if a backend fails, and with 0 if it does not."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from keel.minify import LINES
from keel.minify.failing_model import exit_status
from keel.minify.failure import Failure, Subject
from keel.minify.graph_program import Call, Program, Value
from keel.minify.program_script import backend_text, script

PROGRAM = Program(
    ("x",),
    (
        Call("y", "aten.native_layer_norm.default", (Value("x"), [2], None, None, 1e-5)),
        Call("z", "getitem", (Value("y"), 0)),
    ),
    ("z",),
    ((torch.tensor([[1.0, 3.0]]),),),
)


@pytest.mark.parametrize(("backend", "status"), [("planted:wrong", 1), ("planted:right", 0)])
def test_the_status_tells(backend: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    torch.compiler.reset()
    text = script(PROGRAM, Subject((backend,)), Failure("wrong", "Result 0 is wrong."))
    (tmp_path / "failing.py").write_text(text)
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(tmp_path / "failing.py"), run_name="__main__")
    assert int(caught.value.code or 0) == status


@pytest.mark.slow  # starts Python four times
@pytest.mark.parametrize(("backend", "status"), [("planted:leaves", 1), ("planted:right", 0)])
def test_a_process_that_ends_early_has_crashed_whatever_its_status(
    backend: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert exit_status(script(PROGRAM, Subject((backend,)), Failure("crash", "It ends."))) == status


@pytest.mark.parametrize("kind", ["crash", "hang", "memory", "raises", "type", "writes", "stale", "nan", "slow"])
def test_each_kind_has_a_script(kind: str) -> None:
    text = script(PROGRAM, Subject(("cpp",), (("mode", "default"),)), Failure(kind, "It fails."))
    compile(text, "failing.py", "exec")
    assert text.count("\n") <= LINES and ("subprocess" in text) is (kind in ("crash", "hang", "memory"))


def test_backends_are_named_or_imported() -> None:
    text = backend_text(Subject(("cpp", "acme.plugin:backend.slow")))
    assert text.imports == ("from acme.plugin import backend as backend1",)
    assert text.listed == '["cpp", backend1.slow, "eager"]'
