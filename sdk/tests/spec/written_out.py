"""Decompositions at work: calls of a graph written out until only primitives are left, with known sizes and symbols."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.graph.calls import call_of, is_call
from keel.graph.expand import expand
from keel.spec import OPSET, decomposition_of


def traced(op: Callable[..., Any], *args: Any, symbolic: bool, **kwargs: Any) -> tuple[fx.Node, FakeTensorMode]:
    """The node of one call, and the mode that its values belong to."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not symbolic)
    flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    places = [i for i, a in enumerate(flat) if isinstance(a, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        given = list(flat)
        for i, t in zip(places, tensors, strict=True):
            given[i] = t
        positional, named = torch.utils._pytree.tree_unflatten(given, spec)
        return op(*positional, **named)
    with mode, enable_python_dispatcher():
        gm = make_fx(call)(*(mode.from_tensor(flat[i], static_shapes=not symbolic) for i in places))
    nodes = [n for n in gm.graph.nodes if n.target is op]
    assert len(nodes) == 1, f"{op} is not one node of {gm.graph}"
    return nodes[0], mode


def pieces(op: Callable[..., Any], *args: Any, symbolic: bool, **kwargs: Any) -> set[str]:
    """The names of the operators that a call ends in: written out as negotiation does, which checks types and strides,
    again and again as long as there is a decomposition.
    """
    node, mode = traced(op, *args, symbolic=symbolic, **kwargs)
    return set(_ends(node, mode, (op,)))


def _ends(node: fx.Node, mode: FakeTensorMode, above: tuple[Any, ...]) -> Iterator[str]:
    found = decomposition_of(node.target)  # type: ignore[arg-type]
    if found is None or (above[-1] is node.target and len(above) > 1):
        yield str(node.target)
        return
    for n in expand(node, found, mode).nodes:
        if is_call(n):
            assert call_of(n) is not None
            yield from [str(n.target)] if n.target in above else _ends(n, mode, (*above, n.target))


class WrittenOut(fx.Interpreter):
    """Runs a graph with every call of a member written out by its decomposition."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        member = OPSET.get(target)
        if member is not None and (found := decomposition_of(target)) is not None:
            result = found(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return super().call_function(target, args, kwargs)
