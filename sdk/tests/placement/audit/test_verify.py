"""The certificate passes what ``place`` makes, and catches each way in which a plan can be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx

from keel.errors import KeelError
from keel.placement import Part, Plan, place, verify_placement
from keel.plugin import Backend

X = torch.ones(4, 4)


def model(x: torch.Tensor) -> Any:
    y = (x @ x).relu()
    a, b = y.split(2)
    noise = torch.rand_like(a) @ x
    return (a @ x).sum() + noise, torch.rand_like(b), b.view(b.shape[0] * 4).relu()


@pytest.fixture
def placed(
    trace: Callable[..., fx.GraphModule], takes: Callable[..., Backend], eager: Backend
) -> tuple[fx.GraphModule, Plan]:
    gm = trace(model, X, symbolic=True)
    return gm, place(gm, [takes("acme", "aten.mm"), takes("cpp", "aten.relu", "aten.view"), eager])


def caught(gm: fx.GraphModule, plan: Plan) -> str:
    with pytest.raises(KeelError) as error:
        verify_placement(gm, plan)
    assert error.value.code == "bad-plan"
    return str(error.value)


def at(plan: Plan, i: int, **changes: Any) -> Plan:
    parts = list(plan.parts)
    parts[i] = replace(parts[i], **changes)
    return replace(plan, parts=tuple(parts))


@pytest.mark.slow
def test_what_place_makes_holds(placed: tuple[fx.GraphModule, Plan]) -> None:
    gm, plan = placed
    assert len(plan.parts) > 3
    verify_placement(gm, plan)


def corruptions(gm: fx.GraphModule, plan: Plan) -> dict[str, Plan]:
    first, *rest = plan.parts
    whole = Part("p0", plan.backends[-1], tuple(n for p in plan.parts for n in p.nodes))
    pick = next(n.name for n in gm.graph.nodes if "getitem" in n.name)
    big = next(i for i, p in enumerate(plan.parts) if len(p.nodes) > 1)
    return {
        "a call is missing": replace(plan, parts=tuple(rest)),
        "a call is twice": replace(plan, parts=(*plan.parts, first)),
        "a strange node": at(plan, 0, nodes=(*first.nodes, "ghost")),
        "an empty part": replace(plan, parts=(*plan.parts, replace(first, nodes=()))),
        "a pick as a call": at(plan, 0, nodes=(*first.nodes, pick)),
        "a part out of order": at(plan, big, nodes=plan.parts[big].nodes[::-1]),
        "parts out of order": replace(plan, parts=tuple(reversed(plan.parts))),
        "an owner that refuses": at(plan, 0, owner=plan.backends[1]),
        "an owner that is not listed": at(plan, 0, owner=replace(first.owner, name="ghost")),
        "all in one, backwards": replace(plan, parts=(replace(whole, nodes=whole.nodes[::-1]),)),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "a call is missing",
        "a call is twice",
        "a strange node",
        "an empty part",
        "a pick as a call",
        "a part out of order",
        "parts out of order",
        "an owner that refuses",
        "an owner that is not listed",
        "all in one, backwards",
    ],
)
def test_a_corrupted_plan_is_caught(
    case: str, placed: tuple[fx.GraphModule, Plan], golden: Callable[..., None]
) -> None:
    gm, plan = placed
    golden(caught(gm, corruptions(gm, plan)[case]))


def test_a_part_that_is_not_convex_is_caught(
    trace: Callable[..., fx.GraphModule], takes: Callable[..., Backend], eager: Backend
) -> None:
    gm = trace(lambda x: (x @ x).relu() @ x, X)
    acme = takes("acme", "aten.mm")
    for parts in (
        (Part("p0", acme, ("mm", "mm_1")), Part("p1", eager, ("relu",))),
        (Part("p0", eager, ("relu",)), Part("p1", acme, ("mm", "mm_1"))),
    ):
        assert "later" in caught(gm, Plan(parts, (acme, eager), {}))


def test_random_numbers_out_of_order_are_caught(trace: Callable[..., fx.GraphModule], eager: Backend) -> None:
    gm = trace(lambda x: (torch.rand_like(x), torch.randn_like(x)), X)
    parts = (Part("p0", eager, ("randn_like",)), Part("p1", eager, ("rand_like",)))
    assert "has an effect and would run before an earlier one" in caught(gm, Plan(parts, (eager,), {}))


def test_operators_in_underscores_have_no_effect(trace: Callable[..., fx.GraphModule], eager: Backend) -> None:
    """``x << 2`` is aten.__lshift__, which writes to nothing."""
    gm = trace(lambda x: (torch.rand_like(x), x.long() << 2), X)
    first, *rest = (n.name for n in gm.graph.nodes if n.op == "call_function")
    verify_placement(gm, Plan((Part("p0", eager, tuple(rest)), Part("p1", eager, (first,))), (eager,), {}))


def test_a_size_read_off_a_tensor_of_a_later_part_is_caught(
    trace: Callable[..., fx.GraphModule], eager: Backend
) -> None:
    gm = trace(lambda x: x + 2 * x.nonzero().shape[0], X, symbolic=True)
    parts = (Part("p0", eager, ("nonzero",)), Part("p1", eager, ("add",)))
    verify_placement(gm, Plan(parts, (eager,), {}))
    assert "%add in p1 needs %mul, which p0 computes later" in caught(gm, Plan(parts[::-1], (eager,), {}))


def test_moving_any_call_to_any_other_part_is_caught_or_holds(placed: tuple[fx.GraphModule, Plan]) -> None:
    """Whatever the certificate lets through runs: each value is made before it is read."""
    gm, plan = placed
    chance, passed, failed = random.Random(7), 0, 0
    for _ in range(200):
        moved = _move(gm, plan, chance)
        try:
            verify_placement(gm, moved)
        except KeelError:
            failed += 1
            continue
        passed += 1
        done: set[str] = {n.name for n in gm.graph.nodes if n.op == "placeholder"}
        for part in moved.parts:
            for name in part.nodes:
                node = next(n for n in gm.graph.nodes if n.name == name)
                assert all(_made(a, done) for a in node.all_input_nodes)
                done.add(name)
    assert passed and failed


def _made(node: fx.Node, done: set[str]) -> bool:
    if node.name in done:
        return True
    return (
        bool(node.all_input_nodes)
        and node.name not in _calls(node.graph)
        and all(_made(a, done) for a in node.all_input_nodes)
    )


def _calls(graph: fx.Graph) -> set[str]:
    return {
        n.name
        for n in graph.nodes
        if n.op == "call_function" and "getitem" not in n.name and not isinstance(n.meta.get("val"), torch.SymInt)
    }


def _move(gm: fx.GraphModule, plan: Plan, chance: random.Random) -> Plan:
    order = {n.name: i for i, n in enumerate(gm.graph.nodes)}
    source, target = chance.randrange(len(plan.parts)), chance.randrange(len(plan.parts))
    name = chance.choice(plan.parts[source].nodes)
    nodes = [[n for n in p.nodes if n != name] for p in plan.parts]
    nodes[target] = sorted([*nodes[target], name], key=order.__getitem__)
    parts = (replace(p, nodes=tuple(ns)) for p, ns in zip(plan.parts, nodes, strict=True) if ns)
    return replace(plan, parts=tuple(parts))


def _asserting(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    y = x.relu()
    torch.ops.aten._assert_async.msg((n > 0).all(), "They are positive.")
    return y @ x.exp()


def test_what_stands_behind_an_assertion_and_runs_before_it_is_caught(
    trace: Callable[..., fx.GraphModule], eager: Backend
) -> None:
    gm = trace(_asserting, X, X)
    first, *asserted = [n.name for n in gm.graph.nodes if n.op == "call_function"][:-2]
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_async.msg):
        node.meta["val"] = None
    verify_placement(gm, Plan((Part("p0", eager, (first, *asserted)), Part("p1", eager, ("exp", "mm"))), (eager,), {}))
    verify_placement(
        gm, Plan((Part("p0", eager, tuple(asserted)), Part("p1", eager, (first, "exp", "mm"))), (eager,), {})
    )
    early = (Part("p0", eager, (first, *asserted[:-1], "exp")), Part("p1", eager, (asserted[-1], "mm")))
    assert "%exp in p0 stands behind an assertion and would run before it: the assertion is in p1" in caught(
        gm, Plan(early, (eager,), {})
    )


def test_an_assertion_in_a_branch_is_one(trace: Callable[..., fx.GraphModule], eager: Backend) -> None:
    gm = trace(lambda x: x.sin() + x.exp(), X)
    gm.branch = trace(_asserting, X, X)
    sin = next(n for n in gm.graph.nodes if n.name == "sin")
    with gm.graph.inserting_before(sin):
        body = gm.graph.get_attr("branch")
    sin.target, sin.args = torch.ops.higher_order.cond, (True, body, body, (sin.args[0],))
    verify_placement(gm, Plan((Part("p0", eager, ("sin",)), Part("p1", eager, ("exp", "add"))), (eager,), {}))
    assert "%exp in p0 stands behind an assertion" in caught(
        gm, Plan((Part("p0", eager, ("exp",)), Part("p1", eager, ("sin", "add"))), (eager,), {})
    )
