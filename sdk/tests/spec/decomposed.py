"""What is asked of a decomposition: eager's values as accurately, and a functional form on symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from keel.graph.calls import is_call
from keel.spec import OPSET, decomposition_of
from keel.torch_adapter import writes

from .agreement import agree
from .traced import tensors_of, traced


def holds(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition agrees with eager, leaves its arguments alone, and is traced with symbolic sizes into members
    whose results are the same.
    """
    before = [t.clone() for t in tensors_of((args, kwargs))]
    agree(op, *args, **kwargs)
    for was, now in zip(before, tensors_of((args, kwargs)), strict=True):
        assert torch.equal(torch.nan_to_num(was), torch.nan_to_num(now)), f"{op} wrote to an argument"
    traces(op, *args, **kwargs)


def traces(op: Any, *args: Any, **kwargs: Any) -> None:
    """The decomposition on symbolic sizes gives what it gives on known ones, in members alone."""
    gm = traced(decomposition_of(op), *args, symbolic=True, **kwargs)
    for node in gm.graph.nodes:
        assert not is_call(node) or node.target in OPSET or node.target is torch.ops.aten._to_copy.default, node.target
        assert not is_call(node) or not writes(node.target), f"{node.target} writes"
    want, got = decomposition_of(op)(*args, **kwargs), gm(*tensors_of((args, kwargs)))
    for w, g in zip(tensors_of(want), tensors_of(got), strict=True):
        torch.testing.assert_close(g, w, rtol=0, atol=0, equal_nan=True)
