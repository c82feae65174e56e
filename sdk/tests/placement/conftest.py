"""Graphs and backends to place, and the running of parts one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from keel.placement import PartGraph
from keel.plugin import Backend, Rule, Support

Trace = Callable[..., fx.GraphModule]


def trace(fn: Callable[..., Any], *inputs: Any, symbolic: bool = False) -> fx.GraphModule:
    """``fn`` as a functional graph with a value on every node; sizes are symbols where ``symbolic``."""
    return make_fx(fn, tracing_mode="symbolic" if symbolic else "fake")(*inputs)


def takes(name: str, *ops: str, last: bool = False) -> Backend:
    """A backend that takes these operators and runs them in PyTorch."""
    return Backend(
        name=name,
        device="*",
        compile=lambda gm: gm.forward,
        last_resort=last,
        supports=Support((Rule(ops=ops),)) if ops else lambda call: f"{name} has no {call.name}.",
    )


def run(parts: Sequence[PartGraph], gm: fx.GraphModule, *inputs: Any) -> Any:
    """What the parts compute one after another; sizes that the graph returns follow from the values known by then."""
    values = dict(zip((n.name for n in gm.graph.find_nodes(op="placeholder")), inputs, strict=True))
    for part in parts:
        results = part.part.owner.compile(part.gm)(*(values[name] for name in part.inputs))
        assert isinstance(results, tuple)
        values.update(zip(part.outputs, results, strict=True))

    def value(node: fx.Node) -> Any:
        if node.name not in values:
            values[node.name] = node.target(*fx.map_arg(node.args, value))
        return values[node.name]

    return fx.map_arg(gm.graph.output_node().args[0], value)


EAGER = takes("eager", "*", last=True)


@pytest.fixture(scope="session", name="trace")
def trace_fixture() -> Trace:
    return trace


@pytest.fixture(scope="session", name="takes")
def takes_fixture() -> Callable[..., Backend]:
    return takes


@pytest.fixture(scope="session", name="run")
def run_fixture() -> Callable[..., Any]:
    return run


@pytest.fixture(scope="session")
def eager() -> Backend:
    return EAGER
