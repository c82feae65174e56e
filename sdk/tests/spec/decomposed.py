"""What is asked of a decomposition: eager's values as accurately, and a functional form on symbolic sizes."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from keel.graph.calls import is_call
from keel.spec import OPSET, decomposition_of
from keel.torch_adapter import writes

from .agreement import agree


def holds(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition agrees with eager, leaves its arguments alone, and is traced with symbolic sizes into members
    whose results are the same.
    """
    before = [t.clone() for t in _tensors((args, kwargs))]
    agree(op, *args, **kwargs)
    for was, now in zip(before, _tensors((args, kwargs)), strict=True):
        assert torch.equal(torch.nan_to_num(was), torch.nan_to_num(now)), f"{op} wrote to an argument"
    traced(op, *args, **kwargs)


def traced(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition on symbolic sizes gives what it gives on known ones, in members alone."""
    flat, spec = tree_flatten((args, kwargs))
    places = [i for i, a in enumerate(flat) if isinstance(a, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        given = list(flat)
        for i, t in zip(places, tensors, strict=True):
            given[i] = t
        a, k = tree_unflatten(given, spec)
        return decomposition_of(op)(*a, **k)
    gm = make_fx(function, tracing_mode="symbolic")(*(flat[i] for i in places))
    for node in gm.graph.nodes:
        assert not is_call(node) or node.target in OPSET or node.target is torch.ops.aten._to_copy.default, node.target
        assert not is_call(node) or not writes(node.target), f"{node.target} writes"
    want, got = decomposition_of(op)(*args, **kwargs), gm(*(flat[i] for i in places))
    for w, g in zip(_tensors(want), _tensors(got), strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (v for v in tree_flatten(value)[0] if isinstance(v, torch.Tensor))
