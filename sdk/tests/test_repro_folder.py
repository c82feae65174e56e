"""KEEL_REPRO leaves a folder for a graph that fails, and none for one that does not."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import keel
from keel.errors import KeelError, KeelWarning
from keel.minify.graph_program import evaluate, program_of
from keel.repro_folder import load_repro

sys.path.insert(0, str(Path(__file__).parent / "minify"))
import planted


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x.exp(), (4,))


def test_a_call_that_raises_leaves_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_REPRO", str(tmp_path))
    x = torch.randn(3, 4)
    with pytest.warns(KeelWarning, match="keel minify"), pytest.raises(RuntimeError, match="17 rows"):
        keel.compile(norm, backends=[planted.raises], strict=True)(x)
    (folder,) = tmp_path.iterdir()
    repro = load_repro(folder)
    assert repro.backends == ("planted-raises",) and "17 rows" in repro.happened
    values = [repro.captured.constants[n.name] for n in repro.captured.gm.graph.find_nodes(op="placeholder")]
    program = program_of(repro.captured.gm, values, repro.kind)
    assert torch.equal(program.inputs[0][0], x) and torch.allclose(evaluate(program, x)[0], norm(x))


@pytest.mark.slow
def test_wrong_numbers_leave_a_folder_for_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_REPRO", str(tmp_path))
    monkeypatch.setenv("KEEL_CHECK", "numbers:all")
    torch.compiler.reset()
    x = torch.randn(3, 4)
    with pytest.warns(KeelWarning, match="wrong numbers|keel minify"):
        run = keel.compile(norm, backends=[planted.wrong])
        for _ in range(3):
            run(x)
    (folder,) = tmp_path.iterdir()
    repro = load_repro(folder)
    assert folder.name.endswith("-numbers") and "wrong numbers" in repro.happened and repro.kind == "inference"
    values = [repro.captured.constants[n.name] for n in repro.captured.gm.graph.find_nodes(op="placeholder")]
    assert len(values) == 1 and torch.equal(values[0], x)


def test_a_graph_that_runs_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_REPRO", str(tmp_path))
    torch.compiler.reset()
    run = keel.compile(norm, backends=[planted.right])
    for rows in (3, 5, 3):
        assert run(torch.randn(rows, 4)).shape == (rows, 4)
    assert not list(tmp_path.iterdir())


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "repro.json").write_text('{"keel": "repro"}')
    with pytest.raises(KeelError, match="It lacks format"):
        load_repro(tmp_path)


def test_no_call_of_a_folder_is_run_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_REPRO", str(tmp_path))
    with pytest.warns(KeelWarning, match="keel minify"), pytest.raises(RuntimeError, match="17 rows"):
        keel.compile(norm, backends=[planted.raises], strict=True)(torch.randn(3, 4))
    (folder,) = tmp_path.iterdir()
    graph = folder / "graph.keel"
    with zipfile.ZipFile(graph) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    (member,) = (name for name in parts if name.endswith("graph.json"))
    data = json.loads(parts[member])
    data["graph"]["nodes"][0]["args"]["self"] = 3  # a call on numbers, which PyTorch refuses
    with zipfile.ZipFile(graph, "w") as archive:
        for name, content in {**parts, member: json.dumps(data).encode()}.items():
            archive.writestr(name, content)
    assert any(3 in node.args for node in load_repro(folder).captured.gm.graph.nodes)
