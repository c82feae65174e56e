"""KEEL_DUMP."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import keel
from keel import dump

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
        assert sorted(files) == ["01-captured.fx", "03-negotiated.fx", "05-place.json"]
        assert "torch.ops.aten.mm.default" in files["01-captured.fx"] and "f32[3, 3]" in files["03-negotiated.fx"]
        assert {p["owner"] for p in json.loads(files["05-place.json"])["parts"]} == {"acme", "rest"}


def test_nothing_is_written_and_nothing_made_into_text_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEL_DUMP", raising=False)
    assert dump.folder("inference") is None
    dump.write(None, "x", lambda: pytest.fail("made into text"))


def test_folders_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_DUMP", str(tmp_path))
    names = [dump.folder("inference").name for _ in range(3)]  # type: ignore[union-attr]
    assert names == ["00-inference", "01-inference", "02-inference"]
