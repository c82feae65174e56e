"""Sizes that kernels cannot compute are symbols of a schedule, which stand for what the host computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.loop_level import hints_of
from keel.loops.lower import lower
from keel.schedule.tensor_graph import TensorGraph, build_tensor_graph
from keel.torch_adapter import record


def tensors_of(sizes: Callable[[Any], list[Any]], function: Callable[..., Any]) -> tuple[fx.GraphModule, TensorGraph]:
    """The tensors of a graph whose argument has these sizes, of a symbol that is 20."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    (n,) = mode.from_tensor(torch.empty(20), static_shapes=False).shape
    with mode:
        x = torch.empty(sizes(n))
    gm = fx.GraphModule(torch.nn.Module(), record(function, [x], {}, mode))
    return gm, build_tensor_graph(gm, lower, {})


def test_a_fraction_of_a_size_is_a_symbol_with_its_value_as_hint() -> None:
    gm, tensors = tensors_of(
        lambda n: [n],
        lambda x: torch.ops.aten.mul.Tensor(
            torch.ops.aten.slice.Tensor(x, 0, 0, torch.sym_int(x.shape[0] * 0.75)), 2.0
        ),
    )
    (size,) = tensors.tensors[-1].type.shape
    assert str(tensors.host.by_name[str(size)].func) == "TruncToInt"
    assert hints_of(gm, tensors.host)(size) == 15


def test_a_size_that_only_stands_as_a_whole_is_a_symbol() -> None:
    """Nothing tells n where an input has n // 2 elements."""
    _, tensors = tensors_of(lambda n: [n // 2], lambda x: torch.ops.aten.mul.Tensor(x, 2.0))
    (name,) = tensors.host.by_name
    assert [str(d) for t in tensors.tensors for d in t.type.shape] == [name, name]


def test_a_float_is_the_bits_of_one() -> None:
    _, tensors = tensors_of(lambda n: [n], lambda x: torch.ops.aten.mul.Tensor(x, x.shape[0] * 0.3))
    assert {str(e.func) for e in tensors.host.by_name.values()} == {"BitsOfFloat"}


def test_sizes_that_kernels_compute_stay() -> None:
    _, tensors = tensors_of(lambda n: [n, 4], lambda x: torch.ops.aten.view.default(x, [-1]))
    assert not tensors.host.by_name
