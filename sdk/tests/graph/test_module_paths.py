"""The modules of nodes: their paths, from the compiled module on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from keel.graph.module_paths import common_path, module_path, range_name
from keel.torch_adapter import Captured, capture


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.by_name = nn.ModuleDict({"a-b": nn.Linear(4, 4)})

    def forward(self, x: Tensor) -> Any:
        return self.by_name["a-b"](self.layer[1](self.layer[0](x))) + 1


def paths(kind: str, call: Any, *inputs: Tensor) -> dict[str, set[str]]:
    """The paths of the modules of the graph of one kind, by operator."""
    found: dict[str, set[str]] = {}

    def compiler(captured: Captured) -> Any:
        if captured.kind == kind:
            for node in captured.gm.graph.nodes:
                found.setdefault(str(node.target), set()).add(module_path(node))
        return fx.Interpreter(captured.gm).boxed_run

    torch.compile(call, backend=lambda gm, args: capture(gm, args, compiler), fullgraph=True)(*inputs).sum().backward()
    return found


@pytest.mark.parametrize(("within", "prefix"), [("module", ""), ("function", "net.")])
def test_forward_and_backward_nodes_have_the_paths_of_their_modules(within: str, prefix: str) -> None:
    net, x = Net(), torch.randn(2, 4)
    args: tuple[Any, ...] = (net, x) if within == "module" else (lambda net, x: net(x), net, x)
    forward = paths("forward", *args)
    linear = {f"{prefix}{name}" for name in ("layer.0", "layer.1.0", "by_name.a-b")}
    assert forward["aten.addmm.default"] == linear
    assert forward["aten.tanh.default"] == {f"{prefix}layer.1.1"}
    assert forward["aten.add.Tensor"] == {"" if within == "module" else "net"}
    torch.compiler.reset()
    backward = paths("backward", *args)
    assert backward["aten.mm.default"] == linear
    assert backward["aten.tanh_backward.default"] == {f"{prefix}layer.1.1"}


def test_a_list_of_modules_that_python_holds_is_in_the_path() -> None:
    graph = fx.Graph()
    node = graph.call_function(torch.relu, ())
    assert module_path(node) == ""
    node.meta["nn_module_stack"] = {"1": ("L['self']", Net), "2": ("L['self'].blocks[0]['a'].norm", Net)}
    assert module_path(node) == "blocks.0.a.norm"


def test_the_common_path_is_of_whole_names() -> None:
    assert common_path(["a.layer.1.x", "a.layer.1.y", ""]) == "a.layer.1"
    assert common_path(["a.layer.1", "a.layer.11"]) == "a.layer"
    assert common_path(["a", "b"]) == common_path([]) == common_path([""]) == ""


def test_a_range_names_backend_modules_and_what_runs() -> None:
    assert range_name("acme", ["a.b", "a.c"], "part p0") == "keel.acme a: part p0"
    assert range_name("acme", [], "part p0") == "keel.acme: part p0"
    assert range_name("acme", ["\udc80é"], "part p0") == "keel.acme ?é: part p0"
