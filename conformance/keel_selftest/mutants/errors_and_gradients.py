"""Mutants that misbehave after an exception, and in gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken, wrong
from ..rewiring import packet, run, run_eager, with_layout_of
from .stateful import Called, copied, shapes, shares


@wrong(
    "aten.embedding",
    "aten.index_select",
    "aten.gather",
    "aten.index",
    breaks=("embedding", "index_select", "gather", "index", "contract.errors"),
    programs=("errors-*",),
    level="system",
    as_is=True,
)
def indices_clamped(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """An index out of range is the nearest one in range, and no error."""
    try:
        return op(x, *args, **kw)
    except (IndexError, RuntimeError):

        def near(i: Any) -> Any:
            if isinstance(i, list | tuple):
                return [near(j) for j in i]
            return i.clamp(-min(x.shape), min(x.shape) - 1) if isinstance(i, Tensor) and i.dtype == torch.int64 else i

        return op(x, *map(near, args), **kw)


@broken(breaks="contract.errors", programs=("errors-*", "modes-*"))
def broken_by_an_exception(gm: fx.GraphModule) -> Called:
    """After an exception all results are zeros."""
    state = [False]

    def call(*inputs: Any) -> Any:
        try:
            result = run(gm, inputs, run_eager)
        except Exception:
            state[0] = True
            raise
        return tuple(torch.zeros_like(x) if state[0] and isinstance(x, Tensor) else x for x in result)

    return call


@broken(breaks=("contract.gradients", "contract.calls"), programs=("gradients-*", "layouts-incoming*", "training-*"))
def gradients_of_the_last_forward(gm: fx.GraphModule) -> Called:
    """The next forward pass overwrites what this one saved for the backward pass."""
    held: dict[Any, list[Any]] = {}

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        if len(results) < 2:
            return tuple(results)
        memory = held.setdefault(shapes(inputs), [])
        if not memory:
            memory[:] = copied(results)
        for k, fresh in enumerate(results[1:], 1):
            if isinstance(fresh, Tensor) and not shares(fresh, inputs):
                results[k] = memory[k].copy_(fresh)
        return tuple(results)

    return call


@broken(breaks=("contract.gradients", "contract.layouts"), programs=("gradients-*", "layouts-*", "training-*"))
def sums_of_gradients_lost(gm: fx.GraphModule) -> Called:
    """The second of two gradients that add up is lost: sums of products keep their first term."""

    def do(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        both = packet(node) == "aten.add" and all(isinstance(a, fx.Node) and packet(a) == "aten.mul" for a in node.args)
        result = run_eager(node, args, kwargs)
        return with_layout_of(args[0].expand(result.shape), result) if both else result

    return lambda *inputs: run(gm, inputs, do)
