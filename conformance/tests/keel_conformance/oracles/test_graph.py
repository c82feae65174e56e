"""Bounds of whole graphs: eager and more precise runs are within them, wrong ones are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel_conformance.oracles.graph import graph_bounds, judge_graph

aten = torch.ops.aten


def built(*steps: Callable[..., Any], inputs: int = 2) -> fx.GraphModule:
    """A graph of calls, each on all values so far; the result is the last one of them."""
    graph = fx.Graph()
    values = [graph.placeholder(f"x{i}") for i in range(inputs)]
    for step in steps:
        op, args = step(values)
        values.append(graph.call_function(op, args))
    graph.output((values[-1],))
    return fx.GraphModule({}, graph)


def chain() -> fx.GraphModule:
    return built(
        lambda v: (aten.mm.default, (v[0], v[1])),
        lambda v: (aten.gelu.default, (v[2],)),
        lambda v: (aten._softmax.default, (v[3], -1, False)),
        lambda v: (aten.sub.Tensor, (v[4], v[3])),
    )


@pytest.fixture
def inputs() -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(9, 33, generator=random), torch.randn(33, 17, generator=random) / 5]


def wide(gm: fx.GraphModule, inputs: list[Tensor]) -> Tensor:
    out: Tensor = gm(*[x.double() for x in inputs])[0]
    return out


def test_eager_and_float64_are_within_the_bound(inputs: list[Tensor]) -> None:
    gm = chain()
    for got in (gm(*inputs)[0], wide(gm, inputs).float()):
        [found] = judge_graph(gm, inputs, [got])
        assert not found.sentence and found.figures["ratio"] < 1


def test_the_bound_is_of_use(inputs: list[Tensor]) -> None:
    [bound] = graph_bounds(chain(), inputs)
    assert bound is not None and bound.by == "error analysis" and not bound.mask.any()
    assert float(bound.bound.max()) < 1e-3


def test_a_wrong_element_is_found(inputs: list[Tensor]) -> None:
    gm = chain()
    got = gm(*inputs)[0].clone()
    got[4, 3] += 1e-3
    [found] = judge_graph(gm, inputs, [got])
    assert "At (4, 3)" in found.sentence


@pytest.mark.parametrize("op", [aten.mean.default, aten.prod.default], ids=str)
def test_a_scalar(op: Any) -> None:
    gm, x, y = built(lambda v: (aten.mul.Tensor, (v[0], v[1])), lambda v: (op, (v[2],))), torch.rand(9), torch.rand(9)
    for factor, wrong in ((1.0, False), (1.01, True)):
        [found] = judge_graph(gm, [x, y], [gm(x, y)[0] * factor])
        assert bool(found.sentence) == wrong


def test_choices_that_rounding_may_turn_are_masked() -> None:
    gm = built(lambda v: (aten.mul.Tensor, (v[0], v[1])), lambda v: (aten.gt.Scalar, (v[2], 0.3)))
    x = torch.full((300,), 0.1)
    x[:298] = 5.0
    [bound] = graph_bounds(gm, [x, torch.full((300,), 3.0)])
    assert bound is not None and bound.mask.tolist() == [False] * 298 + [True] * 2


def test_half_precision_between_kernels_may_be_kept_wider() -> None:
    gm = built(lambda v: (aten.mul.Tensor, (v[0], v[1])), lambda v: (aten.add.Tensor, (v[2], v[1])))
    x, y = (torch.linspace(1, 2, 50).half(), torch.linspace(2, 3, 50).half())
    got = (x.float() * y.float() + y.float()).half()
    [found] = judge_graph(gm, [x, y], [got])
    assert not found.sentence
    [found] = judge_graph(gm, [x, y], [got * 1.01])
    assert found.sentence
