"""The compilers that a measurement compares: eager PyTorch, Inductor, and Keel with a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from keel.testing import claims_of

EAGER = "eager"
INDUCTOR = "inductor"
BASELINES = (EAGER, INDUCTOR)


def compiled(fn: Callable[..., Any], compiler: str) -> Callable[..., Any]:
    """``fn`` under ``compiler``: "eager" is ``fn`` itself, "inductor" is torch.compile's default, any other name is
    Keel with that backend, and eager PyTorch for what the backend does not take.
    """
    match compiler:
        case "eager":
            return fn
        case "inductor":
            return torch.compile(fn, fullgraph=True)
    options: dict[str, Any] = {"backends": [compiler, EAGER]}
    return torch.compile(fn, backend="keel", fullgraph=True, options=options)


def counted(fn: Callable[..., Any], compiler: str) -> tuple[Callable[..., Any], list[int]]:
    """``compiled(fn, compiler)``, and a list that grows by a graph's number of nodes with each compilation.

    "eager" captures as the others do and runs the captured graph: its count is the least that any compiler can have.
    Inductor offers no public way to be counted: ValueError.
    """
    if compiler == INDUCTOR:
        raise ValueError("inductor's compilations cannot be counted through public names.")
    sizes: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        sizes.append(len(graph.graph.nodes))
        if compiler == EAGER:
            return graph.forward
        [point, *_] = claims_of("torch_dynamo_backends")["keel"]
        return point.load()(graph, inputs, options={"backends": [compiler, EAGER]})  # type: ignore[no-any-return]

    return torch.compile(fn, backend=backend, fullgraph=True), sizes
