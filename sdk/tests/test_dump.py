"""KEEL_DUMP."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import keel
from keel import KeelError, KeelWarning, Staged, dump
from keel.plugin import CompileContext

from .line import takes, whole


def test_every_stage_of_every_graph_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    x = torch.randn(3, 3, requires_grad=True)
    backends = [takes("mm", name="acme"), whole("rest", last_resort=True)]
    keel.compile(lambda x: (x @ x).tanh(), backends=backends)(x).sum().backward()
    folders = sorted(p.name for p in tmp_path.iterdir())
    assert folders == ["00-forward", "01-backward"]
    for folder in folders:
        files = {p.name: p.read_text() for p in (tmp_path / folder).iterdir()}
        assert sorted(files) == ["01-captured.fx", "02-legalized.fx", "03-placed.json"]
        assert "torch.ops.aten.mm.default" in files["01-captured.fx"] and "f32[3, 3]" in files["02-legalized.fx"]
        assert {p["owner"] for p in json.loads(files["03-placed.json"])["parts"]} == {"acme", "rest"}


def test_every_part_of_a_graph_is_given_its_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    seen: list[CompileContext] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Any:
        seen.append(ctx)
        return gm.forward

    def begin(gm: fx.GraphModule, *, ctx: CompileContext) -> Any:
        return lambda: compile(gm, ctx)

    backends = [takes("mm", name="acme", compile=compile), takes("tanh", name="staged", compile=Staged(begin))]
    run = keel.compile(lambda x: (x @ x).tanh() @ x, backends=backends, fuel=1)
    assert not seen
    run(torch.randn(3, 3))
    staged, first, second = seen
    assert {ctx.dump for ctx in (staged, first, second)} == {tmp_path / "00-inference"}
    assert [first.fuel.take(), second.fuel.take()] == [True, False]


def test_stages_are_numbered_in_order(tmp_path: Path) -> None:
    for stage in dump.STAGES:
        assert dump.count(tmp_path, stage) == 0
        dump.write(tmp_path, stage, lambda: "", "x")
        assert dump.count(tmp_path, stage) == 1
    assert [int(p.name[:2]) for p in sorted(tmp_path.iterdir())] == list(range(1, 1 + len(dump.STAGES)))


def test_nothing_is_written_and_nothing_made_into_text_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEL_DUMP", raising=False)
    assert dump.folder("inference") is None
    dump.write(None, "x", lambda: pytest.fail("made into text"))


def test_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    names = [dump.folder("inference").name for _ in range(3)]  # type: ignore[union-attr]
    assert names == ["00-inference", "01-inference", "02-inference"]


def test_a_dump_that_cannot_be_begun_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("KEEL_DUMP", str(root))
        with pytest.raises(KeelError, match=r"KEEL_DUMP=.* is not a writable folder") as raised:
            keel.compile(lambda x: x + 1, backends=[whole("rest", last_resort=True)])(torch.ones(3))
        assert raised.value.code == "bad-option"


def test_a_disk_that_is_full_costs_the_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.warns(KeelWarning, match="00-inference lacks files: No space left"):
        result = keel.compile(lambda x: x + 1, backends=[whole("rest", last_resort=True)])(torch.ones(3))
    assert torch.equal(result, torch.full((3,), 2.0))
