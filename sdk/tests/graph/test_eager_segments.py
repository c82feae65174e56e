"""Graphs that record events and wait for them, without a device that has any."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from keel import Backend
from keel.compiler import compile_captured
from keel.graph.eager_segments import segments
from keel.settings import Settings
from keel.torch_adapter import Captured

from ..line import trace
from ..releases import runs_control_deps, skip_without

R = torch.randn


def program(x: Tensor) -> Any:
    values, places = (x * 2).sort()
    return values + 1, places, x.sum()


def graph_with(events: dict[str, nn.Module], symbolic: bool = False) -> fx.GraphModule:
    """``program`` with a call of each of ``events`` behind the node of that name, which later nodes see through it."""
    skip_without(runs_control_deps)
    gm = trace(program, R(3), symbolic=symbolic)
    for name, does in events.items():
        node = next(n for n in gm.graph.nodes if n.name == name)
        setattr(gm, f"does_{name}", does)
        users = list(node.users)
        with gm.graph.inserting_after(node):
            attribute = gm.graph.get_attr(f"does_{name}")
        with gm.graph.inserting_after(attribute):
            call = gm.graph.call_function(torch.ops.higher_order.control_deps, ((node,), attribute, node))
        with gm.graph.inserting_after(call):
            through = gm.graph.call_function(operator.getitem, (call, 1))
        through.meta["val"] = node.meta["val"]
        for user in users:
            user.replace_input_with(node, through)
    gm.recompile()
    return gm


class Event(nn.Module):
    """Says when it is recorded, and hands on what it waited for."""

    def __init__(self, name: str, happened: list[str]) -> None:
        super().__init__()
        self.name, self.happened = name, happened

    def forward(self, value: Any) -> Any:
        self.happened.append(self.name)
        return None, value


def noting(happened: list[str]) -> Backend:
    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        calls = [str(n.target) for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]

        def run(*args: Any) -> Any:
            happened.extend(calls)
            return gm.forward(*args)

        return run

    return Backend(name="noting", device="*", supports=lambda call: None, compile=compile)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "dynamic"])
def test_what_stands_before_an_event_is_done_before_it_and_the_rest_after(symbolic: bool) -> None:
    happened: list[str] = []
    gm = graph_with({"mul": Event("record", happened), "sort": Event("wait", happened)}, symbolic)
    run = compile_captured(Captured(gm, "inference", {}), Settings((noting(happened),)))
    x = R(3)
    sizes = [3] if symbolic and len(gm.graph.find_nodes(op="placeholder")) > 1 else []
    torch.testing.assert_close(tuple(run([*sizes, x])), program(x))
    order = ("aten.mul.Tensor", "record", "aten.sort.default", "wait", "aten.add.Tensor")
    at = [happened.index(name) for name in order]
    assert at == sorted(at)


def test_a_graph_between_two_events_gets_the_constants_that_it_uses() -> None:
    happened: list[str] = []
    gm = graph_with({"mul": Event("record", happened)})
    x = next(iter(gm.graph.find_nodes(op="placeholder")))
    with gm.graph.inserting_after(x):
        weight = gm.graph.placeholder("weight")
    weight.meta["val"] = x.meta["val"]
    add = next(n for n in gm.graph.nodes if n.name.startswith("add"))
    add.update_arg(1, weight)
    value, w = R(3), R(3)
    run = compile_captured(Captured(gm, "inference", {"weight": w}), Settings((noting(happened),)))
    torch.testing.assert_close(run([value])[0], (value * 2).sort().values + w)


def test_a_graph_between_two_events_overwrites_no_input() -> None:
    """Which of its results an input gets is known of the whole graph alone."""
    whole = Captured(graph_with({"sort": Event("sort", [])}), "inference", {}, static=(0,), overwrites=((0, 0),))
    pieces = [step.captured for step in segments(whole) if step.captured is not None]
    assert len(pieces) > 1 and not any(piece.overwrites or piece.static for piece in pieces)


def test_a_graph_without_events_is_not_cut() -> None:
    assert segments(Captured(trace(program, R(3)), "inference", {})) == []
