"""The values of symbols while tracing."""

from __future__ import annotations

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from keel.graph.size_hints import typical_sizes
from keel.torch_adapter import tensor_type


def test_a_symbol_that_was_replaced_by_an_equal_one_has_its_value() -> None:
    mode, graph = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False)), fx.Graph()
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    values = [mode.from_tensor(torch.ones(5), symbolic_context=context, source=ConstantSource(n)) for n in "xy"]
    for number, value in enumerate(values):
        graph.placeholder(f"x{number}").meta["val"] = value
    before = [str(symbol) for value in values for symbol in tensor_type(value).shape]
    assert len({*before}) == 2 and typical_sizes(graph) == dict.fromkeys(before, 5)
    assert values[0].shape[0] == values[1].shape[0]  # a guard
    assert tensor_type(values[0]).shape == tensor_type(values[1]).shape
    assert typical_sizes(graph) == dict.fromkeys(before, 5)
