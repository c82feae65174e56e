"""A part's graph as a function of JAX arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from torch import Tensor, fx
from torch.fx import map_arg

from keel import TensorType
from keel.opset import OPSET, Op, bind
from keel.plugin import Call
from keel_pjrt import contractions, gathers, pointwise, rearrangement, reductions, sliding_windows, solvers
from keel_pjrt.sites import Lowering, Site, converted, jax_dtype

ROOMS: tuple[Mapping[str, Lowering], ...] = (
    pointwise.TABLE,
    reductions.TABLE,
    rearrangement.TABLE,
    gathers.TABLE,
    contractions.TABLE,
    sliding_windows.TABLE,
    solvers.TABLE,
)
LOWERINGS: Mapping[str, Lowering] = {name: lowering for room in ROOMS for name, lowering in room.items()}
"""The function that lowers a call, by member of the opset."""


@dataclass(eq=False)
class Program:
    """A part as a function of arrays. ``messages`` has a sentence for each check that its last result makes."""

    gm: fx.GraphModule
    messages: list[str] = field(default_factory=list)

    def __call__(self, *inputs: Array) -> tuple[Array | None, ...]:
        """The results of the part, and last, if it checks anything, which checks failed."""
        values: dict[fx.Node, Any] = {}
        arrays = iter(inputs)
        self.messages.clear()
        failed: list[Array] = []
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(arrays)
            elif node.op == "output":
                results = own_memory(map_arg(node.args[0], values.__getitem__), inputs)
                return (*results, jnp.stack(failed)) if failed else results
            elif node.target is getitem:
                values[node] = values[node.args[0]][node.args[1]]
            else:
                values[node] = self._lowered(node, values, failed)
        raise AssertionError("a graph has an output")

    def _lowered(self, node: fx.Node, values: Mapping[fx.Node, Any], failed: list[Array]) -> Any:
        """The value of a call. Lowerings are asked for results with elements only."""
        assert callable(node.target)
        op: Op = OPSET[node.target]
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        types, named = map_arg((node.args, node.kwargs), type_of)
        arguments = bind(Call(node.target, args, kwargs, ()))
        site = Site(op, bind(Call(node.target, types, named, ())), results_of(node.meta["val"]), str(node.target))
        with jax.named_scope(node.name):
            if all(like is None or not like.numel() for like in site.results):
                value = tuple(None if like is None else jnp.zeros(tuple(like.shape)) for like in site.results)
            else:
                value = LOWERINGS[op.name](site, **site.operands(arguments))
            results = value if isinstance(value, tuple) else (value,)
            laid = [fitted(site, each, like) for each, like in zip(results, site.results, strict=True)]
        for check, message in site.checks:
            failed.append(jnp.any(check))
            self.messages.append(f"{node.target}: {message}")
        return tuple(laid) if isinstance(node.meta["val"], tuple | list) else laid[0]


def own_memory(results: Sequence[Array | None], inputs: Sequence[Array]) -> tuple[Array | None, ...]:
    """The results with a copy of each that is an input or another result, as JAX returns the same memory for both."""
    shared, own = {id(x) for x in inputs}, list[Array | None]()
    for x in results:
        own.append(jnp.copy(x) if x is not None and id(x) in shared else x)
        shared.add(id(x))
    return tuple(own)


def type_of(node: fx.Node) -> Any:
    """The type of a node's value; a tuple of types if it has several."""
    value = node.meta["val"]
    return [tensor_type(v) for v in value] if isinstance(value, tuple | list) else tensor_type(value)


def tensor_type(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return TensorType(value.dtype, tuple(value.shape), tuple(value.stride()), value.device)


def results_of(value: Any) -> Sequence[Tensor | None]:
    return value if isinstance(value, tuple | list) else (value,)


def fitted(site: Site, array: Array | None, like: Tensor | None) -> Array | None:
    """A result in its dtype. Raises ValueError if it has another shape than promised."""
    if like is None or array is None:
        return None
    if array.shape != tuple(like.shape):
        raise ValueError(f"{site.op.name} gives {array.shape} in place of {tuple(like.shape)}.")
    return converted(array, jax_dtype(like.dtype))
