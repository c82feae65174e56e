"""Decompositions at work: calls of a graph written out until only primitives are left, with known sizes and symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from keel.spec import OPSET, decomposition_of

from .traced import ends, traced


def pieces(op: Callable[..., Any], *args: Any, symbolic: bool, **kwargs: Any) -> set[str]:
    """The names of the operators that a call ends in, which is one node of its graph."""
    gm = traced(op, *args, symbolic=symbolic, **kwargs)
    assert [n.target for n in gm.graph.nodes].count(op) == 1, f"{op} is not one node of {gm.graph}"
    return ends(gm)


class WrittenOut(fx.Interpreter):
    """Runs a graph with every call of a member written out by its decomposition."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        member = OPSET.get(target)
        if member is not None and (found := decomposition_of(target)) is not None:
            result = found(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return super().call_function(target, args, kwargs)
