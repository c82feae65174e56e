"""Graphs as placement problems, and their bills: what calls, loops, links and launches come to, by both counts."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

from keel.cost import Cost, Link, Pattern
from keel.errors import KeelError
from keel.placement import Part, Plan, place, verify_placement
from keel.placement.audit.itemized_cost import itemize
from keel.placement.call_graph import call_graph_of
from keel.placement.cluster import cluster, contracted
from keel.placement.fallback_cost import FALLBACK_COST
from keel.placement.solve.build_problem import Pricing
from keel.placement.solve.problem import FORBIDDEN, scaled, value
from keel.plugin import Backend, Fusion

X, W = torch.ones(64, 64), torch.ones(64, 64)
MB = 64 * 64 * 4 / 1e6
SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e9)
LOOPS = replace(SHEET, fuses=True)
FAR = replace(SHEET, link=Link(1e9, 1e-3))
Trace = Callable[..., fx.GraphModule]
Takes = Callable[..., Backend]


def model(x: Any, w: Any, b: Any) -> Any:
    y = ((x @ w).relu() * 2 + b).t()
    mean, rest = torch.std_mean(y, 1, keepdim=True)
    z = (y - mean).exp() / rest
    order = b.argsort()
    rows = torch.nn.functional.embedding(order[:8], y.t()) * z[order][:8] + order[order][:8, None]
    put = x.index_put((order[:3],), rows[:3] * 2)
    return z @ w, torch.softmax(z[:32], -1).sum(0), z.unsqueeze(0), x + b, rows, put + put.gather(1, order[None])


def problem_of(gm: fx.GraphModule, backends: Sequence[Backend], **how: Any) -> Any:
    units = call_graph_of(gm.graph)
    taken = np.ones((len(units.nodes), len(backends)), bool)
    return units, Pricing(**how)(units, backends, taken)


def plan_of(gm: fx.GraphModule, backends: Sequence[Backend], labels: Sequence[int]) -> Plan:
    """The plan in which each call, in graph order, is with the backend of that number."""
    units = call_graph_of(gm.graph)
    groups = cluster(list(labels), units.needs)
    names = [[units.nodes[u].name for u, g in enumerate(groups) if g == p] for p in range(max(groups) + 1)]
    owners = [backends[labels[groups.index(p)]] for p in range(len(names))]
    return Plan(
        tuple(Part(f"p{i}", o, tuple(n)) for i, (o, n) in enumerate(zip(owners, names, strict=True))),
        tuple(backends),
        {},
    )


def seconds(gm: fx.GraphModule, plan: Plan, **more: Any) -> float:
    bills = itemize(gm, plan, **more)
    assert bills is not None
    return sum(b.seconds for b in bills)


def images(x: Any, w: Any, b: Any) -> Any:
    y = torch.conv2d(torch.relu(x), w, b)
    z = torch.max_pool2d(y, 2) + y[..., ::2, ::2].exp()
    return torch.conv2d(z, w[:, :, :1, :1]).mean((2, 3)) @ b, y.transpose(1, 2).sin(), z


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(18))
def test_the_problem_and_the_bill_agree_on_every_placement(seed: int, trace: Trace, takes: Takes) -> None:
    r = random.Random(seed)
    pictures = torch.ones(2, 8, 10, 10), torch.ones(8, 8, 3, 3), torch.ones(8)
    gm = trace(model, X, W, X[0], symbolic=seed % 3 == 0) if seed < 12 else trace(images, *pictures)

    def sheet() -> Cost:
        return Cost(
            flops={torch.float32: r.choice((1e8, 1e9))},
            scalars=r.choice((1e8, 1e10)),
            bandwidth=r.choice((1e8, 1e9, math.inf)),
            launch=r.choice((0.0, 1e-5)),
            call=r.choice((0.0, 1e-6)),
            fuses=r.random() < 0.6,
            border=r.choice((0.0, 2.0)),
            copies=r.choice((0.0, 3.0)),
            link=r.choice((None, Link(r.choice((1e8, 1e9)), 1e-5))),
            seconds=r.choice(({}, {"aten.mm": 1e-4, "aten.exp.default": lambda call: 2e-5})),
        )

    backends = [replace(takes(n, "*"), cost=sheet()) for n in ("a", "b", "c")[: r.randint(2, 3)]]
    patterns = (
        Pattern(("aten.mm", "aten.relu", "aten.mul")),
        Pattern(("pointwise", "pointwise")),
        Pattern(("pointwise", "contraction"), 2e-6),
    )
    backends[0] = replace(backends[0], cost=replace(backends[0].cost, patterns=patterns[: r.randint(0, 3)]))
    constants = frozenset(r.sample([n.name for n in gm.graph.find_nodes(op="placeholder")], 1))
    units, given = problem_of(gm, backends, constants=constants)
    terms = scaled(given)
    for _ in range(10):
        bundles = np.array([r.randrange(len(backends)) for _ in terms.cost])
        labels = bundles[terms.bundle].tolist()
        plan = plan_of(gm, backends, labels)
        launches = sum(p.owner.cost.launch for p in plan.parts if p.owner.cost)
        assert seconds(gm, plan, constants=constants) == pytest.approx(
            value(terms, bundles) * terms.tick + launches, abs=terms.tick * 200
        )
    plan = place(gm, backends, price=Pricing(constants))
    verify_placement(gm, plan, constants)
    assert (
        plan.claim is not None
        and plan.claim.seconds
        <= min(
            seconds(gm, plan_of(gm, backends, [b] * len(units.nodes)), constants=constants)
            for b in range(len(backends))
        )
        + 1e-9
    )


LINEAR = Pattern(("contraction", "aten.relu"))


def test_a_pattern_saves_what_passes_between_its_calls_and_all_calls_but_one(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x, w: (x @ w).t().relu(), X, W)
    slow = replace(SHEET, flops={torch.float32: 1e12}, call=1e-6)
    apart, whole = (replace(takes(n, "*"), cost=replace(slow, patterns=p)) for n, p in (("a", ()), ("w", (LINEAR,))))
    assert seconds(gm, plan_of(gm, [apart], [0, 0, 0])) == pytest.approx((3 + 2) * MB / 1e3 + 2e-6)
    assert seconds(gm, plan_of(gm, [whole], [0, 0, 0])) == pytest.approx(3 * MB / 1e3 + 1e-6)
    loops = replace(takes("l", "*"), cost=replace(LOOPS, flops={torch.float32: 1e12}, patterns=(LINEAR,)))
    product = 2 * 64**3 / 1e12
    assert seconds(gm, plan_of(gm, [loops], [0, 0, 0])) == pytest.approx(  # the result is written by the loop
        max(2 * MB / 1e3, product + MB / 4e3) + MB / 1e3
    )


def test_what_is_run_as_one_stays_on_one_backend_and_in_one_part(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x, w: (x @ w).relu() + (x.sin() @ w).cos(), X, W)
    quick = replace(takes("quick", "*"), cost=replace(SHEET, scalars=1e8, patterns=(LINEAR,)))
    loops = replace(takes("loops", "*"), cost=replace(SHEET, flops={torch.float32: 1e8}, call=4e-6))
    for patterns, relu in (((), "loops"), ((replace(LINEAR, seconds=5e-5),), "quick")):
        backends = [replace(quick, cost=replace(quick.cost, patterns=patterns)), loops]
        plan = place(gm, backends, price=Pricing())
        verify_placement(gm, plan)
        owners = {n: o.name for n, o in plan.owner_of.items()}
        assert owners["mm"] == owners["mm_1"] == "quick" and owners["relu"] == relu and owners["cos"] == "loops"
    [part] = [p for p in plan.parts if "relu" in p.nodes]
    assert "mm" in part.nodes


@pytest.mark.slow
def test_placements_with_patterns_are_the_best_there_are(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x, w: ((x @ w).relu() @ w).relu().t() @ (x @ x).sin(), X, W)
    count = len(call_graph_of(gm.graph).nodes)
    for seed in range(6):
        r = random.Random(seed)

        def sheet(r: random.Random = r) -> Cost:
            patterns = (LINEAR, Pattern(("pointwise", "contraction"), r.choice((1e-6, 1e-4, 1e-3))))
            return Cost(
                flops={torch.float32: r.choice((1e9, 3e9))},
                scalars=r.choice((1e8, 1e9)),
                bandwidth=r.choice((1e8, 1e9)),
                call=r.choice((0.0, 1e-5)),
                fuses=r.random() < 0.5,
                patterns=tuple(r.sample(patterns, r.randint(0, 2))),
            )

        backends = [replace(takes(n, "*"), cost=sheet()) for n in "ab"]
        plan = place(gm, backends, price=Pricing())
        verify_placement(gm, plan)
        assert plan.claim is not None and plan.claim.seconds == pytest.approx(
            min(seconds(gm, one_part(gm, backends, labels)) for labels in itertools.product((0, 1), repeat=count))
        )


def one_part(gm: fx.GraphModule, backends: Sequence[Backend], labels: Sequence[int]) -> Plan:
    """A plan as the bill reads it, in which all calls of a backend are one part, runnable or not."""
    units = call_graph_of(gm.graph)
    parts = [(b, tuple(units.nodes[u].name for u, at in enumerate(labels) if at == i)) for i, b in enumerate(backends)]
    return Plan(tuple(Part(b.name, b, names) for b, names in parts if names), tuple(backends), {})


def test_an_image_pays_for_the_layouts_on_both_sides(trace: Trace, takes: Takes) -> None:
    def net(x: Any, w: Any) -> Any:
        return torch.conv2d(torch.conv2d(x, w), w).sum()

    gm = trace(net, torch.ones(1, 4, 8, 8), torch.ones(4, 4, 1, 1))
    sheet = Cost(flops={torch.float32: math.inf}, scalars=math.inf, bandwidth=1e9, border=2.0)
    one, two = (replace(takes(n, "*"), cost=replace(sheet, border=b)) for n, b in (("one", 2.0), ("two", 0.5)))
    whole = seconds(gm, plan_of(gm, [one, two], [0, 0, 0]))
    assert seconds(gm, plan_of(gm, [one, two], [0, 1, 1])) - whole == pytest.approx(2.5 * 1024 / 1e9)
    gm = trace(lambda x: x.exp().sum(), torch.ones(1, 4, 8, 8))  # where nothing is convolved
    assert seconds(gm, plan_of(gm, [one, two], [0, 1])) == seconds(gm, plan_of(gm, [one, two], [0, 0]))


def test_an_image_that_the_graph_returns_is_brought_back(trace: Trace, takes: Takes) -> None:
    """As what is saved for a backward graph is."""

    def net(x: Any, w: Any, saved: bool) -> Any:
        y = torch.conv2d(x, w)
        return (torch.conv2d(y, w).sum(), y.transpose(2, 3)) if saved else torch.conv2d(y, w).sum()

    sheet = Cost(flops={torch.float32: math.inf}, scalars=math.inf, bandwidth=1e9, border=2.0)
    one, args = replace(takes("one", "*"), cost=sheet), (torch.ones(1, 4, 8, 8), torch.ones(4, 4, 1, 1))
    without, saved = trace(lambda x, w: net(x, w, False), *args), trace(lambda x, w: net(x, w, True), *args)
    assert seconds(saved, plan_of(saved, [one], [0] * len(call_graph_of(saved.graph).nodes))) - seconds(
        without, plan_of(without, [one], [0] * 3)
    ) == pytest.approx(2 * 1024 / 1e9)


def test_who_copies_tensors_pays_for_those_that_cross_however_they_are_viewed(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: x.exp().view(32, 128).sum(), X)
    sheet = Cost(flops={}, scalars=math.inf, bandwidth=1e9, copies=3.0)
    one, two = (replace(takes(n, "*"), cost=replace(sheet, copies=c)) for n, c in (("one", 3.0), ("two", 0.5)))
    whole = seconds(gm, plan_of(gm, [one, two], [0, 0, 0]))
    for view in (0, 1):
        assert seconds(gm, plan_of(gm, [one, two], [0, view, 1])) - whole == pytest.approx(3.5 * MB / 1e3, rel=1e-3)


def test_what_a_loop_passes_on_costs_where_it_leaves(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: (x.sin().cos() + x).exp(), X)
    fast = replace(takes("fast", "*"), cost=LOOPS)
    slow = replace(takes("slow", "*"), cost=replace(LOOPS, bandwidth=5e8))
    arithmetic, stream = 4 * MB / 4e3, MB / 1e3
    one = plan_of(gm, [fast, slow], [0, 0, 0, 0])
    assert seconds(gm, one) == pytest.approx(arithmetic + 2 * stream)  # x once, and the result
    two = plan_of(gm, [fast, slow], [0, 0, 1, 1])  # x twice, and cos in between
    assert seconds(gm, two) == pytest.approx(arithmetic + 2 * stream + 3 * 2 * stream)


def test_costs_per_part_count_again_what_another_part_of_the_backend_read(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: (x.sin() @ x).cos() + x, X)
    loops, products = replace(takes("loops", "*"), cost=LOOPS), replace(takes("products", "*"), cost=SHEET)
    plan = plan_of(gm, [loops, products], [0, 1, 0, 0])
    assert len(plan.parts) == 3
    assert seconds(gm, plan, per_part=True) == pytest.approx(seconds(gm, plan) + MB / 1e3)  # x
    one = plan_of(gm, [loops], [0, 0, 0, 0])
    assert seconds(gm, one, per_part=True) == seconds(gm, one)


def test_what_is_no_loop_reads_and_writes_memory_by_itself(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: (x.sin() @ x).cos(), X)
    acme = replace(takes("acme", "*"), cost=LOOPS)
    product = 2 * 64**3 / 1e9
    assert seconds(gm, plan_of(gm, [acme], [0, 0, 0])) == pytest.approx(2 * MB / 4e3 + product + 4 * MB / 1e3)


def test_what_is_read_at_places_that_are_data_is_read_from_memory_as_far_as_there_are_places(
    trace: Trace, takes: Takes
) -> None:
    at = torch.arange(4)
    acme = replace(takes("acme", "*"), cost=LOOPS)
    gm = trace(lambda x, i: x[i].sin(), X, at)
    rows = 4 * 64 * 4 / 1e9  # read, and written after the sine, and 8 bytes an index
    assert seconds(gm, plan_of(gm, [acme], [0, 0])) == pytest.approx(2 * rows + 32 / 1e9 + 2 * 256 / 1e9)
    gm = trace(lambda x, i: x.cos()[i].sin(), X, at)  # the cosine has to be written before
    assert seconds(gm, plan_of(gm, [acme], [0, 0, 0])) == pytest.approx(
        MB / 4e3 + 2 * MB / 1e3 + 2 * rows + 32 / 1e9 + 2 * 256 / 1e9
    )


def test_views_between_loops_pass_nothing_through_memory(trace: Trace, takes: Takes) -> None:
    acme = replace(takes("acme", "*"), cost=LOOPS)
    plain, viewed = (trace(f, X) for f in (lambda x: x.sin().cos(), lambda x: x.sin().t().unsqueeze(0).cos()))
    assert seconds(plain, plan_of(plain, [acme], [0, 0])) == seconds(viewed, plan_of(viewed, [acme], [0] * 4))


def test_tensors_cross_once_and_constants_never(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x, w: (x.sin() + w, x.cos() + w), X, W)
    far, near = replace(takes("far", "*"), cost=FAR), replace(takes("near", "*"), cost=SHEET)
    plan = plan_of(gm, [far, near], [0, 0, 0, 0])
    way = 1e-3 + MB / 1e3
    still = seconds(gm, plan_of(gm, [far, near], [1, 1, 1, 1]))
    assert seconds(gm, plan) == pytest.approx(still + 4 * way)  # x and w there, both sums back
    constant = gm.graph.find_nodes(op="placeholder")[1].name
    assert seconds(gm, plan, constants={constant}) == pytest.approx(still + 3 * way)


def test_a_slow_link_keeps_small_work_at_home_and_large_work_pays_for_it(trace: Trace, takes: Takes) -> None:
    fast = replace(takes("acme", "*"), cost=replace(FAR, flops={torch.float32: 1e14}, link=Link(1e9, 1e-4)))
    home = replace(takes("cpp", "*"), cost=SHEET)
    for n, owner in ((16, "cpp"), (512, "acme")):
        gm = trace(lambda x: x @ x @ x, torch.ones(n, n))
        plan = place(gm, [fast, home], price=Pricing())
        verify_placement(gm, plan)
        assert {p.owner.name for p in plan.parts} == {owner}


def test_a_last_resort_competes_only_where_it_is_asked_to(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    acme = replace(takes("acme", "aten.mm"), cost=replace(SHEET, call=1.0))
    eager = replace(takes("eager", "*", last=True), cost=SHEET)
    assert [p.owner.name for p in place(gm, [acme, eager], price=Pricing()).parts] == ["acme", "eager"]
    assert [p.owner.name for p in place(gm, [acme, eager], price=Pricing(compete=True)).parts] == ["eager"]
    dear = replace(eager, cost=None)
    plan = place(gm, [acme, dear], price=Pricing())
    verify_placement(gm, plan)
    assert plan.claim and plan.claim.seconds > FALLBACK_COST.call


def test_views_stay_with_what_makes_or_reads_them(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: (x.t().unsqueeze(0).sin(), x.cos().t().exp()), X)
    a, b = replace(takes("a", "*"), cost=SHEET), replace(takes("b", "*"), cost=SHEET)
    units, given = problem_of(gm, [a, b])
    together = dict(zip([n.name for n in units.nodes], given.together.tolist(), strict=True))
    assert together["t"] == together["unsqueeze"] == together["sin"]
    assert together["cos"] == together["t_1"] != together["exp"]


def test_a_view_that_the_neighbor_refuses_stays_apart(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).t().relu(), X)
    acme, cpp = replace(takes("acme", "aten.mm"), cost=SHEET), replace(takes("cpp", "aten.t", "aten.relu"), cost=SHEET)
    plan = place(gm, [acme, cpp, eager], price=Pricing())
    verify_placement(gm, plan)
    assert [str(p) for p in plan.parts] == ["p0 on acme: mm", "p1 on cpp: t, relu"]


def test_symbolic_sizes_count_as_they_were_while_tracing(trace: Trace, takes: Takes) -> None:
    small, large = (trace(lambda x: x @ x, torch.ones(n, n), symbolic=True) for n in (8, 512))
    acme = replace(takes("acme", "*"), cost=SHEET)
    assert seconds(small, plan_of(small, [acme], [0])) < seconds(large, plan_of(large, [acme], [0])) / 1e3


def test_without_all_data_sheets_there_is_no_price(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: x.sin(), X)
    assert problem_of(gm, [takes("acme", "*"), eager])[1] is None
    plan = place(gm, [takes("acme", "*"), eager], price=Pricing())
    assert plan.claim is None and itemize(gm, plan) is None


def test_the_certificate_holds_the_claim_to_the_bill(trace: Trace, takes: Takes) -> None:
    gm = trace(model, X, W, X[0])
    plan = place(gm, [replace(takes("a", "*"), cost=LOOPS), replace(takes("b", "*"), cost=FAR)], price=Pricing())
    assert plan.claim is not None
    verify_placement(gm, plan)
    for wrong in (
        replace(plan.claim, seconds=plan.claim.seconds * 1.001),
        replace(plan.claim, bound=plan.claim.seconds * 1.001),
    ):
        with pytest.raises(KeelError, match="bad-plan"):
            verify_placement(gm, replace(plan, claim=wrong))


def test_a_launch_that_was_rounded_up_is_no_broken_bound(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: x.sin(), X)
    plan = place(gm, [replace(takes("a", "*"), cost=replace(SHEET, launch=2.6e-12))], price=Pricing())
    assert plan.claim is not None and plan.claim.bound > plan.claim.seconds
    verify_placement(gm, plan)


def test_work_that_fits_into_no_device_is_told_and_less_goes_there(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: ((x @ x).sin(), (x @ x.t()).cos()), X)
    roomy = replace(takes("home", "*"), cost=SHEET)
    little = replace(FAR, flops={torch.float32: 1e14}, link=Link(1e12, 1e-9), memory=MB)
    tight = replace(takes("acme", "*"), cost=little)
    with pytest.raises(KeelError, match="no-room"):
        place(gm, [tight], price=Pricing())
    assert {p.owner.name for p in place(gm, [tight, roomy], price=Pricing()).parts} == {"home"}


def test_forbidden_stays_forbidden(trace: Trace, takes: Takes) -> None:
    gm = trace(lambda x: x.sin().cos(), X)
    units = call_graph_of(gm.graph)
    backends = [replace(takes("a", "*"), cost=SHEET), replace(takes("b", "*"), cost=LOOPS)]
    given = Pricing()(units, backends, np.array([[True, False], [True, True]]))
    assert given is not None and (scaled(given).cost >= FORBIDDEN).tolist() == [[False, True], [False, False]]


def drawn_claim(r: random.Random) -> Callable[[fx.GraphModule, frozenset[fx.Node]], list[Fusion]]:
    """Neighbors in the graph, a few of which are fused with a saving of their own."""
    share, saves = r.random(), r.choice((None, 1e-6, 1e-3))

    def claim(gm: fx.GraphModule, offered: frozenset[fx.Node]) -> list[Fusion]:
        units = call_graph_of(gm.graph)
        fusions: list[Fusion] = []
        used: set[fx.Node] = set()
        for node in units.nodes:
            pair = [a for a in node.all_input_nodes if a in offered and a not in used]
            if node in offered and node not in used and pair and random.Random(f"{share}{node}").random() < share:
                sets = [units.numbers_of(f.calls) for f in fusions]
                if contracted(units.needs, [*sets, units.numbers_of([pair[0].name, node.name])]) is not None:
                    fusions.append(Fusion("pair", (pair[0], node), saves))
                    used |= {pair[0], node}
        return fusions

    return claim


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_certificate_accepts_placements_with_claims(seed: int, trace: Trace, takes: Takes) -> None:
    r = random.Random(seed)
    gm = trace(model, X, W, X[0])

    def sheet() -> Cost:
        return Cost(
            flops={torch.float32: r.choice((1e8, 1e9))},
            scalars=r.choice((1e8, 1e9)),
            bandwidth=r.choice((1e8, 1e9)),
            launch=r.choice((0.0, 1e-6, 1e-5)),
            call=r.choice((0.0, 1e-6)),
            fuses=r.random() < 0.5,
            copies=r.choice((0.0, 1.0)),
        )

    backends = [replace(takes(name, "*"), cost=sheet(), claim=drawn_claim(r)) for name in "abc"[: r.randint(2, 3)]]
    for price in (Pricing(), None):
        plan = place(gm, backends, price=price)
        verify_placement(gm, plan)
        assert price is not None or sum(len(part.fusions) for part in plan.parts) > 0
