"""What a decomposition gives takes on the sizes and the layout that its operator promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel.graph.calls import types_of
from keel.graph.decompose import decompose_call
from keel.torch_adapter import NotRecorded
from keel.torch_adapter.recorder import fake_mode_of

from ..line import trace

aten = torch.ops.aten


def node_of(fn: Callable[..., Any], op: Any, *inputs: Tensor, symbolic: bool) -> tuple[fx.Node, Any]:
    gm = trace(fn, *inputs, symbolic=symbolic)
    (node,) = (n for n in gm.graph.nodes if n.target is op)
    return node, fake_mode_of(gm)


def results(node: fx.Node, mode: Any, decomposition: Callable[..., Any], *inputs: Any) -> Any:
    parts = decompose_call(node, decomposition, mode)
    got = [types_of(r.meta["val"])[0] for r in parts.output_node().args[0]]  # type: ignore[union-attr]
    want = types_of(node.meta["val"])
    assert [(t.dtype, t.shape) for t in got] == [(t.dtype, t.shape) for t in want]  # type: ignore[union-attr]
    return fx.GraphModule(torch.nn.Module(), parts)(*inputs)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("strides", [(7, 2), (2, 9), (10, 3)], ids=str)
def test_a_copy_may_have_gaps(strides: tuple[int, int], symbolic: bool) -> None:
    x, y = torch.randn(60).as_strided((3, 4), strides), torch.randn(3, 4)
    node, mode = node_of(lambda x, y: aten.copy.default(x, y), aten.copy.default, x, y, symbolic=symbolic)
    assert node.meta["val"].stride() == strides or symbolic
    (found,) = results(node, mode, lambda x, y, **_: aten.clone.default(y), x, y)
    assert torch.equal(found, y) and found.stride() == strides


def test_a_copy_onto_elements_that_share_memory_is_refused() -> None:
    x, y = torch.randn(60).as_strided((3, 4), (2, 1)), torch.randn(3, 4)
    node, mode = node_of(lambda x, y: aten.copy.default(x, y), aten.copy.default, x, y, symbolic=False)
    with pytest.raises(NotRecorded, match="a layout that cannot be copied to the promised one"):
        decompose_call(node, lambda x, y, **_: aten.clone.default(y), mode)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("strides", [(0, 1), (2, 0), (0, 3), (0, 0)], ids=str)
def test_a_copy_may_repeat_what_lies_in_one_place(strides: tuple[int, int], symbolic: bool) -> None:
    x = torch.randn(30).as_strided((3, 4), strides)
    node, mode = node_of(lambda x: aten._neg_view.default(x), aten._neg_view.default, x, symbolic=symbolic)
    (found,) = results(node, mode, aten.neg.default, x)
    assert torch.equal(found, -x) and found.stride() == strides


def test_a_size_of_its_own_is_the_promised_one_everywhere() -> None:
    x = torch.tensor([[2.0, 0, 3]])
    node, mode = node_of(lambda x: aten.nonzero.default(x), aten.nonzero.default, x, symbolic=False)
    (promised,) = types_of(node.meta["val"])
    seen: list[Any] = []

    def again(x: Tensor) -> Tensor:
        seen.append(aten.nonzero.default(aten.abs.default(x)))
        return aten.add.Tensor(seen[-1], aten.full.default([seen[-1].shape[0], 2], 0))

    (found,) = results(node, mode, again, x)
    assert torch.equal(found, torch.tensor([[0, 0], [0, 2]])) and found.stride() == (1, 2)
    assert types_of(seen[0]) == (promised,)


def test_other_sizes_that_only_the_run_tells_are_no_promise() -> None:
    x = torch.tensor([[2.0, 0, 3]])
    node, mode = node_of(lambda x: aten.nonzero.default(x), aten.nonzero.default, x, symbolic=False)
    with pytest.raises(NotRecorded, match="returns the shape"):
        decompose_call(node, lambda x: aten.constant_pad_nd.default(aten.nonzero.default(x), [0, 0, 1, 0]), mode)


@pytest.mark.parametrize("length", [0, 2])
def test_where_a_view_begins_may_be_for_the_run_to_tell(length: int) -> None:
    x, start = torch.arange(10.0).reshape(2, 5), torch.tensor(-3)
    gm = trace(lambda x, start: torch.narrow(x, -1, start, length), x, start, symbolic=True)
    (node,) = (n for n in gm.graph.nodes if n.target is aten.slice.Tensor)
    at = [n.meta["val"] if isinstance(n, fx.Node) else n for n in node.args[2:]]
    parts = decompose_call(node, lambda x, dim, *bounds: aten.slice.Tensor(x, 1, *bounds), fake_mode_of(gm))
    assert len(at) == 2 and all(isinstance(n, torch.SymInt) for n in at)
    (found,) = fx.GraphModule(torch.nn.Module(), parts)(x, -3, -3 + length or 5)
    assert torch.equal(found, x[:, 2 : 2 + length])
