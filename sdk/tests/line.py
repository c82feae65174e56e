"""Backends for trying the line on: one that takes all, one that takes little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from keel import Backend, Call

LITTLE = frozenset(
    {
        "_to_copy",
        "_unsafe_view",
        "abs",
        "add",
        "addmm",
        "amax",
        "arange",
        "bitwise_and",
        "bmm",
        "cat",
        "clone",
        "div",
        "eq",
        "erf",
        "exp",
        "expand",
        "full",
        "gather",
        "ge",
        "gt",
        "index",
        "le",
        "log",
        "logical_and",
        "logical_not",
        "lt",
        "maximum",
        "mean",
        "minimum",
        "mm",
        "mul",
        "ne",
        "neg",
        "ones",
        "permute",
        "pow",
        "reciprocal",
        "rsqrt",
        "scatter",
        "select",
        "sigmoid",
        "slice",
        "sqrt",
        "squeeze",
        "sub",
        "sum",
        "t",
        "tanh",
        "transpose",
        "unsqueeze",
        "var_mean",
        "view",
        "where",
        "zeros",
    }
)


def whole(name: str = "whole", **more: Any) -> Backend:
    """Takes every call as it is."""
    return Backend(name=name, device="*", supports=lambda call: None, compile=lambda gm: gm.forward, **more)


def takes(
    *names: str, name: str = "some", compile: Callable[[fx.GraphModule], Any] = lambda gm: gm.forward, **more: Any
) -> Backend:
    """Takes the calls of the given operators (``mm``, or ``aten.mm.default``)."""

    def supports(call: Call) -> str | None:
        known = call.name in names or call.name.split(".")[1] in names
        return None if known else f"{name} has no {call.name}."

    return Backend(name=name, device="*", supports=supports, compile=compile, **more)


@dataclass
class Seen:
    """Graphs that a backend was given."""

    graphs: list[fx.GraphModule] = field(default_factory=list)

    def compile(self, gm: fx.GraphModule) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward

    @property
    def operators(self) -> list[str]:
        return [str(n.target) for gm in self.graphs for n in gm.graph.nodes if n.op == "call_function"]


def trace(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> fx.GraphModule:
    """``fn`` as a functional graph with a value on every node; sizes are symbols where ``symbolic``."""
    return make_fx(torch.func.functionalize(fn), tracing_mode="symbolic" if symbolic else "fake")(*inputs)
