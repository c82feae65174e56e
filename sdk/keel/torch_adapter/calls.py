"""Calls of overloads on real tensors as one graph: what Dynamo and autograd would make of them, without either."""

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
    """An inference graph of ``calls``, whose inputs are their tensors in order, and how many results each has.

    A result that is not a tensor counts too; every size of an input is known. Raises NotRecorded for a call without a
    functional graph."""
    mode = FakeTensorMode(shape_env=ShapeEnv())  # for results whose sizes only a run tells
    given = [v for _, args, kwargs in calls for v in flat(args, kwargs) if isinstance(v, torch.Tensor)]
    with mode:  # a tensor that is given twice has two inputs
        fakes = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in given]
    counts: list[int] = []

    def run(*tensors: Any) -> list[Any]:
        counts.clear()
        left, results = iter(tensors), list[Any]()
        for op, args, kwargs in calls:
            again = map_leaves(lambda v: next(left) if isinstance(v, torch.Tensor) else v, (tuple(args), dict(kwargs)))
            with torch._C._AutoDispatchBelowAutograd():  # where PyTorch takes some operators apart
                found = flat((op(*again[0], **again[1]),), {})
            counts.append(len(found))
            results += found
        return results

    graph = record(run, fakes, {}, mode)
    return tidied(fx.GraphModule(torch.nn.Module(), graph), "inference"), tuple(counts)


def recorded(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Graph:
    """The operators that ``fn`` runs on fake tensors of the types among its arguments, whose sizes are all known.

    Raises NotRecorded.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if not isinstance(value, TensorType):
            return value
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype, device=value.device)

    with mode:
        given = map_leaves(fake, (tuple(args), dict(kwargs)))
    return record(fn, given[0], given[1], mode)
