"""Reading graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel.errors import KeelError
from keel.graph.calls import alias_bases, call_of, is_call, source_line, to_type, type_of
from keel.types import SymType, TensorType

from ..line import trace

aten = torch.ops.aten


def node(gm: fx.GraphModule, target: Any) -> fx.Node:
    return next(iter(gm.graph.find_nodes(op="call_function", target=target)))


def test_a_call_has_types_for_tensors_and_sizes() -> None:
    gm = trace(lambda x: x.view(x.shape[0] * x.shape[1]).sum(0, keepdim=True), torch.randn(3, 4), symbolic=True)
    call = call_of(node(gm, aten.view.default))
    assert call is not None and call.name == "aten.view.default"
    x, (size,) = call.args
    assert isinstance(x, TensorType) and isinstance(size, SymType)
    assert size.expr == x.shape[0] * x.shape[1] and call.out[0].shape == (size.expr,)


def test_a_call_with_several_results_has_a_type_for_each() -> None:
    gm = trace(lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5)[0], torch.randn(3, 4))
    call = call_of(node(gm, aten.native_layer_norm.default))
    assert call is not None and [str(t) for t in call.out] == ["f32[3, 4]", "f32[3, 1]", "f32[3, 1]"]
    assert call.args[2] is None


def test_what_does_no_work_is_no_call() -> None:
    gm = trace(lambda x: (x * x.shape[0]).split(2)[0], torch.randn(3, 4), symbolic=True)
    calls = [str(n.target) for n in gm.graph.nodes if is_call(n)]
    assert calls == ["aten.mul.Tensor", "aten.split.Tensor"]
    assert all((call_of(n) is not None) == is_call(n) for n in gm.graph.nodes)


def test_a_call_is_read_again_when_its_arguments_change() -> None:
    gm = trace(lambda x, y: x + 1, torch.randn(3), torch.randn(3, dtype=torch.float64))
    add = node(gm, aten.add.Tensor)
    first = call_of(add)
    assert call_of(add) is first
    add.args = (gm.graph.find_nodes(op="placeholder")[1], 1)
    assert call_of(add).args[0].dtype == torch.float64


def test_a_sparse_tensor_has_no_type() -> None:
    with pytest.raises(KeelError, match=r"of layout sparse_coo, and opset 1\.0 leaves out sparse layouts"):
        type_of(torch.eye(3).to_sparse())


def test_memory_is_followed_through_views_and_picks() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        a, b = x.view(2, 6).split(1)
        return a[0], b + 1, y.t()[1:], torch.native_layer_norm(y, [4], None, None, 1e-5)

    gm = trace(fn, torch.randn(3, 4), torch.randn(3, 4))
    found = alias_bases(gm.graph)
    results = list(gm.graph.output_node().args[0])
    flat = [r for r in results if isinstance(r, fx.Node)]
    names = [{b.name for b in found[r]} for r in flat[:3]]
    inputs = [n.name for n in gm.graph.find_nodes(op="placeholder")]
    assert names == [{inputs[0]}, {flat[1].name}, {inputs[1]}]


def test_the_users_line_is_found() -> None:
    made = fx.Graph().placeholder("x")
    assert source_line(made) is None
    made.meta["stack_trace"] = (
        'File "/a/lib.py", line 1, in f\n  g()\nFile "/a/model.py", line 7, in g\n    y = x @ w\n'
    )
    assert source_line(made) == "/a/model.py:7   y = x @ w"


def test_arguments_are_typed_wherever_they_come_from() -> None:
    x = torch.ones(2, 3)
    assert to_type(([x, None], 1.5, "sum", torch.Size([2]))) == ([type_of(x), None], 1.5, "sum", (2,))
    gm = trace(lambda x: torch.cat([x, x], 1), x)
    cat = node(gm, aten.cat.default)
    assert to_type(cat.args) == to_type(((x, x), 1))
