"""Calls traced on fake tensors of their arguments' types, and what is written out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from keel.graph.calls import is_call
from keel.graph.decompose import decompose_call
from keel.spec import decomposition_of
from keel.torch_adapter import fake_mode_of


def traced(call: Callable[..., Any], *args: Any, symbolic: bool, **kwargs: Any) -> fx.GraphModule:
    """The graph of the call as a function of the tensors among its arguments (``tensors_of``), all else constant; with
    symbols for sizes, or with known ones.
    """
    flat, spec = tree_flatten((args, kwargs))
    places = [i for i, a in enumerate(flat) if isinstance(a, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        given = list(flat)
        for i, t in zip(places, tensors, strict=True):
            given[i] = t
        positional, named = tree_unflatten(given, spec)
        return call(*positional, **named)

    return make_fx(function, tracing_mode="symbolic" if symbolic else "fake")(*tensors_of((args, kwargs)))


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a nest, in order."""
    return [v for v in tree_flatten(value)[0] if isinstance(v, torch.Tensor)]


def ends(gm: fx.GraphModule) -> set[str]:
    """The names of the operators that a graph's calls are written out as in the end, as legalization does it, which
    checks types and strides; one that is made of itself is an end.
    """
    mode = fake_mode_of(gm)
    return {end for n in gm.graph.nodes if is_call(n) for end in _ends(n, mode, frozenset())}


def _ends(node: fx.Node, mode: Any, above: frozenset[Any]) -> Iterator[str]:
    assert callable(node.target)
    found = None if node.target in above else decomposition_of(node.target)
    if found is None:
        yield str(node.target)
        return
    for n in decompose_call(node, found, mode).nodes:
        if is_call(n):
            yield from _ends(n, mode, above | {node.target})
