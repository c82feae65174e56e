"""Installed plugins: they compile what lies on their device, without being named."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import keel
import keel_privateuse1
from keel_privateuse1 import NAME

PROJECT = Path(keel_privateuse1.__file__).parents[1] / "pyproject.toml"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, as pip would install it."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    info = tmp_path / "keel_privateuse1-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [f"{name} = {value}" for name, value in project["entry-points"]["keel.backends"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[keel.backends]", *points, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("KEEL_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()


def test_a_model_is_compiled_by_the_plugin_of_its_device() -> None:
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    want = model(x)
    here = torch.compile(model.to(NAME), backend="keel")
    torch.testing.assert_close(here(x.to(NAME)).cpu(), want)
    explanation = keel.explain(model, x.to(NAME))
    assert explanation.backends[:2] == (NAME, f"{NAME}_graph") and explanation.taken[NAME] > 0
    assert explanation.fell_back == {}


def test_tensors_that_only_the_graph_makes_are_seen() -> None:
    def ones() -> Tensor:
        return torch.ones(3, device=NAME) * 2

    compiled = keel.compile(ones, strict=True)
    assert compiled().cpu().equal(torch.full((3,), 2.0))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # by PyTorch, when it copies a program
def test_an_exported_program_and_single_calls() -> None:
    model, x = nn.Linear(4, 4).to(NAME), torch.randn(3, 4, device=NAME)
    program = torch.export.export(model, (x,))
    torch.testing.assert_close(keel.compile_exported(program, strict=True)(x).cpu(), model(x).detach().cpu())
    batch = keel.testing.compile_calls([(torch.ops.aten.sin.default, (x,), {})], strict=True)
    assert batch.owners == (frozenset({NAME}),)


def test_models_on_the_host_are_compiled_as_before() -> None:
    explanation = keel.explain(torch.sin, torch.randn(3))
    assert NAME not in explanation.backends


def test_pins_and_data_sheets_reach_the_plugins() -> None:
    sheet = keel.Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10)
    graph_level, x = f"{NAME}_graph", torch.randn(3, 4, device=NAME)
    explanation = keel.explain(torch.sin, x, pins={"sin": graph_level})
    assert explanation.taken[graph_level] == 1
    costs = {NAME: replace(sheet, call=1.0), graph_level: sheet}
    assert keel.explain(torch.sin, x, costs=costs).taken[graph_level] == 1
    assert keel.explain(torch.sin, x, costs=costs, placement="order").taken[NAME] == 1
    assert keel.explain(torch.sin, torch.randn(3), pins={"cos": NAME}).fell_back == {}


def test_a_plugin_that_an_explanation_leaves_out_stays_out() -> None:
    explanation = keel.explain(torch.sin, torch.randn(3, device=NAME), without=[NAME])
    assert NAME not in explanation.backends and explanation.taken[f"{NAME}_graph"] == 1
