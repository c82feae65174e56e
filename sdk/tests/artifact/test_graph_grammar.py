"""A compiled graph from outside that is wrong raises an error with the place, before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim, export

import keel
from keel.artifact.graph_grammar import check_boundary, check_compiled, checked_for_saving
from keel.documents import Malformed
from keel.packages.boundary_data import _FIELDS, boundary_from_data
from keel.packages.package_file import PackageFile
from keel.serialize.codec import NotSerializable

# PyTorch's own exporter uses what PyTorch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
Change = Callable[[Any], Any]


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.exp().sum(0), x[1:]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("package") / "a.keel"
    program = export(Model(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n", min=3)},))
    keel.package(program, path, backends=["cpp"])
    file = PackageFile.opened(path)
    return {name: bytes(file.member(name)).decode() for name in ("graph.json", "boundary.json")}


def test_what_keel_writes_is_right(members: dict[str, str]) -> None:
    check_compiled(json.loads(members["graph.json"]), "graph")
    check_boundary(json.loads(members["boundary.json"]), _FIELDS, "boundary")


def big(name: str, *sizes: Any) -> Change:
    return lambda data: data["guards"].append({"size": [name, *sizes]})


@pytest.mark.parametrize(
    ("change", "place", "why"),
    [
        (lambda data: data.pop("parts"), "graph", "lacks parts"),
        (lambda data: data.update(code="1"), "graph", "unknown key"),
        (lambda data: data["symbols"].update({"x y": {}}), "graph.symbols.'x y'", "valid name"),
        (lambda data: data["symbols"].update(s1={"prime": True}), "graph.symbols.s1", "unknown key"),
        (lambda data: data["parts"][0].update(device=0), "graph.parts[0].device", "not a text"),
        (lambda data: data["parts"][0].update(views={"inputs": ["x"], "graph": {}}), "inputs[0]", "not an integer"),
        (lambda data: data["parts"][0].update(graph={}), "graph.parts[0]", "either `loops` or `graph`"),
        (lambda data: data["parts"][0]["loops"].update(kernels=[["x"]]), "kernels[0]", "1 elements, not 2"),
        (big("Pow", 10, ["Pow", 10, 10]), "graph.guards", "more than 8192 bits"),
        (big("Mul", *[["Add", "s77", 1]] * 30), "graph.guards", "more than 2048 terms"),
        (big("Add", "s99", 1), "graph.guards", "not a size"),
    ],
)
def test_a_damaged_graph_is_refused_with_its_place(
    change: Change, place: str, why: str, members: dict[str, str]
) -> None:
    data = json.loads(members["graph.json"])
    data["symbols"].setdefault("s77", {"integer": True})
    check_compiled(data, "graph")
    change(data)
    with pytest.raises(Malformed, match=why) as refused:
        check_compiled(data, "graph")
    assert place in refused.value.place
    with pytest.raises(NotSerializable, match=why):
        checked_for_saving(data, "graph")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda data: data.pop("names"), "boundary"),
        (lambda data: data["names"].append("y"), "boundary.types"),
        (lambda data: data.update(fixed={"dict": [[0, 1]]}), "boundary.types"),
        (lambda data: data["graph_inputs"].append(5), "boundary.graph_inputs"),
        (lambda data: data["end_inputs"].append(["result", 0]), "boundary.end_inputs"),
        (lambda data: data["end_inputs"][0].__setitem__(0, "self"), "boundary.end_inputs"),
        (lambda data: data["end"]["graph"]["inputs"][0].update(name="lambda"), "boundary.end.graph.inputs[0].name"),
    ],
)
def test_a_damaged_boundary_is_refused_with_its_place(change: Change, place: str, members: dict[str, str]) -> None:
    data = json.loads(members["boundary.json"])
    change(data)
    with pytest.raises(Malformed) as refused:
        boundary_from_data(data)
    assert refused.value.place == place
