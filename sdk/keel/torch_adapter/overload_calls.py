"""Builds a graph of overload calls on real tensors, without Dynamo or autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.torch_adapter.capture import Captured, tidied
from keel.torch_adapter.recorder import record
from keel.torch_adapter.trees import flat, map_leaves
from keel.types import TensorType

Asked = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
"""An overload and its arguments."""


def captured_calls(calls: Sequence[Asked]) -> tuple[Captured, tuple[int, ...]]:
    """Returns an inference graph of ``calls``, whose inputs are their tensors in order, and the number of results of
    each call. Results that are not tensors count too. All sizes of inputs are known. Raises NotRecorded for a call
    without a functional graph.
    """
    tensors = [v for _, args, kwargs in calls for v in flat(args, kwargs) if isinstance(v, torch.Tensor)]
    counts: list[int] = []

    def run(*tensors: Any) -> list[Any]:
        counts.clear()
        left, results = iter(tensors), list[Any]()
        for op, args, kwargs in calls:
            again = map_leaves(lambda v: next(left) if isinstance(v, torch.Tensor) else v, (tuple(args), dict(kwargs)))
            returned = flat((op(*again[0], **again[1]),), {})
            counts.append(len(returned))
            results += returned
        return results

    return captured_function(run, tensors), tuple(counts)


def captured_function(fn: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Captured:
    """Returns an inference graph of the operators that ``fn`` calls on these tensors. All sizes of inputs are known.
    Raises NotRecorded for a function without a functional graph.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())  # for results with data-dependent sizes
    with mode:  # a tensor that is passed twice becomes two inputs
        fakes = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in tensors]

    def below_autograd(*inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # below autograd PyTorch decomposes some operators
            return fn(*inputs)

    return tidied(fx.GraphModule(torch.nn.Module(), record(below_autograd, fakes, {}, mode)), "inference")


def recorded(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Graph:
    """Records the operators that ``fn`` runs. TensorTypes among its arguments, whose sizes are all known, become fake
    tensors. Raises NotRecorded.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if not isinstance(value, TensorType):
            return value
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype, device=value.device)

    with mode:
        fake_arguments = map_leaves(fake, (tuple(args), dict(kwargs)))
    return record(fn, fake_arguments[0], fake_arguments[1], mode)
