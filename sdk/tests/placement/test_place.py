"""Owners by order of preference, views with their neighbors, and the parts that follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import call_of
from keel.placement import Plan, place, verify_placement
from keel.placement.call_graph import CallGraph
from keel.placement.solve.problem import Problem, problem, tensors
from keel.plugin import Backend, Refusal

X = torch.ones(4, 4)
Trace = Callable[..., fx.GraphModule]
Takes = Callable[..., Backend]


def owners(plan: Plan, gm: fx.GraphModule) -> list[str]:
    """``mm acme`` per call, in graph order."""
    of = plan.owner_of
    return [f"{str(n.target).split('.')[1]} {of[n.name].name}" for n in gm.graph.nodes if n.name in of]


def test_the_first_that_takes_a_call_owns_it(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: ((x @ x).relu() + 1).sum(), X)
    plan = place(gm, [eager, takes("acme", "aten.mm", "aten.sum"), takes("cpp", "aten.relu", "aten.mm")])
    assert owners(plan, gm) == ["mm acme", "relu cpp", "add eager", "sum acme"]
    assert [b.name for b in plan.backends] == ["acme", "cpp", "eager"]
    verify_placement(gm, plan)


def test_refusals_are_kept_by_node_and_backend(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    plan = place(gm, [takes("acme", "aten.relu"), eager])
    assert plan.refusals == {"mm": {"acme": Refusal("acme has no aten.mm.default.")}, "relu": {}}


def test_what_is_already_known_is_not_asked_again(trace: Trace, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)

    def supports(call: Any) -> str | None:
        raise AssertionError("asked")

    acme = Backend(name="acme", device="cpu", supports=supports, compile=lambda gm: gm.forward)
    no = {"acme": Refusal("No.")}
    assert owners(place(gm, [acme, eager], {"mm": no, "relu": no}), gm) == ["mm eager", "relu eager"]
    assert owners(place(gm, [acme, eager], {"mm": {}, "relu": no}), gm) == ["mm acme", "relu eager"]


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: x.relu().t().relu(), ["relu acme", "t acme", "relu acme"]),  # with its producer
        (lambda x: (x @ x).t().relu(), ["mm cpp", "t cpp", "relu acme"]),  # with its producer, not its reader
        (lambda x: x.t() @ x, ["t cpp", "mm cpp"]),  # of an input: with its reader
        (lambda x: x.t().t().relu(), ["t acme", "t acme", "relu acme"]),
        (
            lambda x: x.sum(0).unsqueeze(0) @ x,
            ["sum eager", "unsqueeze cpp", "mm cpp"],
        ),  # rather than with a last resort
        (
            lambda x: x.sum(0).unsqueeze(0).sin(),
            ["sum eager", "unsqueeze eager", "sin eager"],
        ),  # no part for a view alone
        (lambda x: x.relu().unsqueeze(0), ["relu acme", "unsqueeze acme"]),
    ],
)
def test_views_go_with_their_neighbors(
    fn: Callable[..., Any], expected: list[str], trace: Trace, takes: Takes, eager: Backend
) -> None:
    views = ("aten.t", "aten.unsqueeze")
    gm = trace(fn, X)
    plan = place(gm, [takes("acme", "aten.relu", *views), takes("cpp", "aten.mm", *views), eager])
    assert owners(plan, gm) == expected
    verify_placement(gm, plan)


def test_a_view_stays_where_its_neighbor_refuses_it(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: x.relu().t().relu(), X)
    plan = place(gm, [takes("acme", "aten.relu"), takes("cpp", "aten.t"), eager])
    assert owners(plan, gm) == ["relu acme", "t cpp", "relu acme"] and len(plan.parts) == 3


def test_one_owner_is_one_part(trace: Trace, eager: Backend) -> None:
    gm = trace(lambda x: (x.split(2)[0] + 1, x.sum(), x.shape[0] + 1), X, symbolic=True)
    plan = place(gm, [eager])
    assert [p.name for p in plan.parts] == ["p0"]
    assert plan.parts[0].nodes == tuple(n.name for n in gm.graph.nodes if call_of(n))


def test_independent_branches_share_parts(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x, y: ((x @ x).relu() @ x, (y @ y).relu() @ y), X, X)
    plan = place(gm, [takes("acme", "aten.mm"), eager])
    assert [p.owner.name for p in plan.parts] == ["acme", "eager", "acme"]
    assert [len(p.nodes) for p in plan.parts] == [2, 2, 2]


def test_a_constant_is_made_where_it_is_read(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: x.relu().sin().add(torch.full((4, 4), 2.0)), X)
    plan = place(gm, [takes("acme", "aten.relu", "aten.add", "aten.full"), eager])
    assert [sorted(n.split("_")[0] for n in p.nodes) for p in plan.parts] == [["relu"], ["sin"], ["add", "full"]]


def test_random_numbers_are_drawn_in_the_order_of_the_graph(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (torch.rand_like(x).relu(), torch.randn_like(x)), X)
    plan = place(gm, [takes("acme", "aten.randn_like"), eager])
    assert [p.nodes for p in plan.parts] == [("rand_like", "relu"), ("randn_like",)]


def priced(
    compute: dict[str, dict[str, float]], move: float = 0.0, launch: float = 0.0, memory: float = np.inf
) -> Callable[..., Problem]:
    """Seconds by backend and operator, one second by default; and the seconds for each tensor that moves."""

    def price(units: CallGraph, backends: tuple[Backend, ...], taken: Any) -> Problem:
        ops = [call.name.split(".")[1] for call in units.calls]
        seconds = [[compute.get(b.name, {}).get(op, 1.0) for b in backends] for op in ops]
        assert taken.shape == (len(units.nodes), len(backends)) and taken.any(axis=1).all()
        moved = tensors(range(len(units.nodes)), units.readers(), move * (1 - np.eye(len(backends))), size=64)
        return problem(seconds, units.needs, moved, launch=launch, memory=memory)

    return price


def test_by_cost_a_call_goes_where_it_is_cheap_and_transfers_pay(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: ((x @ x).relu() + 1).sum(), X)
    acme, cpp = takes("acme", "aten.mm", "aten.relu", "aten.sum"), takes("cpp", "*")
    seconds = {"acme": {"mm": 1, "relu": 9, "sum": 2}, "cpp": {"mm": 5, "relu": 1, "sum": 1}, "eager": {"add": 9}}
    for move, expected in (
        (0.5, ["mm acme", "relu cpp", "add cpp", "sum cpp"]),
        (6.0, ["mm cpp", "relu cpp", "add cpp", "sum cpp"]),
    ):
        plan = place(gm, [acme, cpp, eager], price=priced(seconds, move))
        verify_placement(gm, plan)
        assert owners(plan, gm) == expected
    assert place(gm, [acme, cpp, eager]).owner_of != plan.owner_of


def test_by_cost_what_a_backend_refuses_it_does_not_get(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    plan = place(gm, [takes("acme", "aten.mm"), eager], price=priced({"acme": {"relu": 0.0}}))
    verify_placement(gm, plan)
    assert owners(plan, gm) == ["mm acme", "relu eager"] and set(plan.refusals["relu"]) == {"acme"}


def test_no_price_is_placement_by_order(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    backends = [takes("acme", "aten.mm"), eager]
    assert place(gm, backends, price=lambda *_: None).parts == place(gm, backends).parts


def test_by_cost_independent_branches_share_parts_and_repeats_agree(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x, y: ((x @ x).relu() @ x, (y @ y).relu() @ y), X, X)
    acme = takes("acme", "aten.mm")
    plans = [place(gm, [acme, eager], price=priced({"acme": {"mm": 0.1}}, 0.1, 0.2)) for _ in range(2)]
    verify_placement(gm, plans[0])
    assert [len(p.nodes) for p in plans[0].parts] == [2, 2, 2] and plans[0].parts == plans[1].parts


def test_by_cost_what_fits_into_no_memory_is_an_error(trace: Trace, eager: Backend) -> None:
    with pytest.raises(KeelError, match="32 bytes at eager are missing"):
        place(trace(lambda x: x.relu(), X), [eager], price=priced({}, memory=32))


def test_by_cost_what_nobody_takes_is_the_same_error(trace: Trace, takes: Takes) -> None:
    with pytest.raises(KeelError, match="no backend takes %relu"):
        place(trace(lambda x: x.relu(), X), [takes("acme", "aten.mm")], price=priced({}))


def test_what_nobody_takes_is_an_error(trace: Trace, takes: Takes, golden: Callable[..., None]) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    next(n for n in gm.graph.nodes if n.name == "mm").meta["stack_trace"] = (
        '  File "/models/model.py", line 41, in forward\n    y = (x @ x).relu()\n'
    )
    with pytest.raises(KeelError) as caught:
        place(gm, [takes("acme", "aten.relu"), takes("cpp", "aten.mm.dtype")], strict=True)
    assert caught.value.code == "no-owner"
    golden(str(caught.value))


def test_the_plan_as_json_and_as_text(trace: Trace, takes: Takes, eager: Backend, golden: Callable[..., None]) -> None:
    gm = trace(lambda x: (x @ x).relu().sum(), X)
    plan = place(gm, [takes("acme", "aten.mm", "aten.sum"), eager])
    golden(str(plan) + "\n" + json.dumps(plan.as_json(), indent=1))
