"""Parts as graphs: run one after another they give what the whole graph gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

from keel.placement import Part, Plan, build_part_graphs, place, verify_placement
from keel.plugin import Backend

Trace = Callable[..., fx.GraphModule]
Takes = Callable[..., Backend]
Run = Callable[..., Any]
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))  # not square: equal sizes share a symbol

# Each makes a value of 4 columns from values of 4 columns and as many rows.
STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mm": lambda a, b: a @ b[:1].t().expand(4, 4),
    "add": lambda a, b: a + b,
    "relu": lambda a, b: a.relu(),
    "sum": lambda a, b: a - b.sum(0, keepdim=True),
    "view": lambda a, b: a.reshape(b.shape[0] * 4).view(b.shape[0], 4),
    "sort": lambda a, b: a.sort(dim=1).values + b.sort(dim=0).indices,
    "size": lambda a, b: a * (b.shape[0] * 2 + 1),
    "full": lambda a, b: a + torch.full((b.shape[0], 1), 0.5),
    "split": lambda a, b: torch.cat(list(torch.cat([a, b], 1).split(2, 1))[1:3], 1),
    "topk": lambda a, b: torch.topk(a, a.shape[1] - 1, dim=1).values.sum(1, keepdim=True) * b,
}
OPS = (
    "aten.mm",
    "aten.add",
    "aten.relu",
    "aten.sum",
    "aten.view",
    "aten.sort",
    "aten.mul",
    "aten.full",
    "aten.cat",
    "aten.split",
    "aten.topk",
    "aten.t",
    "aten.expand",
    "aten.slice",
    "aten.sub",
)


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Any]:
    """A function of two tensors that returns some of what it computes, and some sizes."""
    steps = [
        (draw(st.sampled_from(sorted(STEPS))), draw(st.integers(0, i + 1)), draw(st.integers(0, i + 1)))
        for i in range(draw(st.integers(1, 8)))
    ]
    keep = draw(st.sets(st.integers(0, len(steps) + 1), min_size=1))

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        values = [x, y]
        for name, i, j in steps:
            values.append(STEPS[name](values[i], values[j]))
        return (*(values[i] * 1.0 for i in sorted(keep)), x.shape[0] + 1, None, values[-1])

    return program


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    program=programs(),
    first=st.sets(st.sampled_from(OPS)),
    second=st.sets(st.sampled_from(OPS)),
    symbolic=st.booleans(),
)
def test_parts_run_equal_to_the_whole(
    program: Callable[..., Any],
    first: set[str],
    second: set[str],
    symbolic: bool,
    trace: Trace,
    takes: Takes,
    eager: Backend,
    run: Run,
) -> None:
    gm = trace(program, ROWS, ROWS + 1, symbolic=symbolic)
    plan = place(gm, [takes("acme", *first), takes("cpp", *second), eager])
    verify_placement(gm, plan)
    parts = build_part_graphs(gm, plan)
    for rows in (5, 7) if symbolic else (5,):
        inputs = torch.randn(rows, 4), torch.randn(rows, 4)
        for got, want in zip(run(parts, gm, *inputs), gm(*inputs), strict=True):
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


def placed(gm: fx.GraphModule, *backends: Backend) -> list[Any]:
    plan = place(gm, backends)
    verify_placement(gm, plan)
    return build_part_graphs(gm, plan)


def test_a_part_graph_shares_values_and_keeps_where_nodes_come_from(trace: Trace, takes: Takes, eager: Backend) -> None:
    gm = trace(lambda x: (x @ x).relu(), X)
    gm.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)[0].meta["stack_trace"] = "here"
    mm, relu = placed(gm, takes("acme", "aten.mm"), eager)
    part, graph, inputs, outputs = mm
    assert (part.name, part.owner.name, inputs, outputs) == ("p0", "acme", ("x_1",), ("mm",))
    whole = {n.name: n for n in gm.graph.nodes}
    for node in graph.graph.nodes:
        if node.op != "output":
            assert node.meta["val"] is whole[node.name].meta["val"] and node.meta is not whole[node.name].meta
    assert next(n for n in graph.graph.nodes if n.name == "mm").meta["stack_trace"] == "here"
    assert relu.inputs == ("mm",) and relu.outputs == ("relu",)


def test_the_output_of_a_part_is_a_tuple_also_of_one(trace: Trace, eager: Backend) -> None:
    (part,) = placed(trace(lambda x: x.relu(), X), eager)
    assert isinstance(part.gm(X), tuple) and len(part.gm(X)) == 1


def test_arithmetic_on_sizes_is_repeated_where_it_is_needed(
    trace: Trace, takes: Takes, eager: Backend, run: Run
) -> None:
    def fn(x: torch.Tensor) -> Any:
        n = x.shape[0] * 2
        return x.relu().view(n, 2) @ torch.ones(2, n)

    gm = trace(fn, X, symbolic=True)
    parts = placed(gm, takes("acme", "aten.relu", "aten.view"), eager)
    assert len(parts) == 2
    assert all(any("sym_size" in n.name for n in p.gm.graph.nodes) for p in parts)
    assert not any("sym_size" in name or "mul" in name for p in parts for name in (*p.inputs, *p.outputs))
    assert torch.equal(run(parts, gm, X), fn(X))


def test_a_size_that_a_call_computes_crosses_as_a_number(trace: Trace, takes: Takes, eager: Backend, run: Run) -> None:
    def fn(x: torch.Tensor) -> Any:
        n = x.nonzero().shape[0] + 1
        return x.relu() * n, n

    gm = trace(fn, X, symbolic=True)
    parts = placed(gm, takes("acme", "aten.nonzero"), eager)
    assert [p.outputs for p in parts] == [("nonzero",), ("mul",)]
    got, want = run(parts, gm, X), fn(X)
    assert torch.equal(got[0], want[0]) and got[1] == want[1] == 17


def test_picks_stay_with_their_call(trace: Trace, takes: Takes, eager: Backend, run: Run) -> None:
    gm = trace(lambda x: torch.topk(x, 2)[0] + 1, X)
    parts = placed(gm, takes("acme", "aten.topk"), eager)
    assert [p.outputs for p in parts] == [("getitem",), ("add",)]
    assert torch.equal(run(parts, gm, X), torch.topk(X, 2)[0] + 1)


def test_a_graph_that_computes_nothing_has_no_parts(trace: Trace, eager: Backend, run: Run) -> None:
    gm = trace(lambda x: (x, x.shape[0]), X, symbolic=True)
    assert placed(gm, eager) == []
    assert run([], gm, X)[1] == 4


def test_the_body_of_a_higher_order_operator_travels_with_it(takes: Takes, eager: Backend, run: Run) -> None:
    def fn(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x.relu(),))

    seen = []

    def catch(gm: fx.GraphModule, inputs: Any) -> Any:
        from torch.fx.experimental.proxy_tensor import make_fx

        seen.append(make_fx(gm, tracing_mode="fake")(*inputs))
        return gm

    torch.compile(fn, backend=catch, fullgraph=True)(X, torch.tensor(True))
    parts = placed(seen[0], takes("acme", "aten.relu"), eager)
    assert [p.part.owner.name for p in parts] == ["acme", "eager"]
    for p in (True, False):
        (got,) = run(parts, seen[0], X, torch.tensor(p))
        assert torch.equal(got, fn(X, torch.tensor(p)))


def test_a_plan_need_not_be_the_one_that_was_made(trace: Trace, eager: Backend, run: Run) -> None:
    gm = trace(lambda x: (x.sin() + x.cos()) * x.sin(), X)
    names = [n.name for n in gm.graph.nodes if n.op == "call_function"]
    plan = Plan(tuple(Part(f"p{i}", eager, (n,)) for i, n in enumerate(names)), (eager,), {})
    verify_placement(gm, plan)
    assert torch.equal(run(build_part_graphs(gm, plan), gm, X), gm(X))


def test_alternating_owners_give_a_part_each(trace: Trace, takes: Takes, eager: Backend) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x.sin().cos()
        return x

    parts = placed(trace(chain, X), takes("acme", "aten.sin"), eager)
    assert len(parts) == 200 and all(len(p.inputs) == len(p.outputs) == 1 for p in parts)


def test_a_body_belongs_to_its_part(trace: Trace, eager: Backend) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    gm = trace(program, torch.ones(3))
    bodies = [m for m in gm.modules() if isinstance(m, fx.GraphModule) and m is not gm]
    before = [str(m.graph) for m in bodies]
    for part in placed(gm, eager):
        inside = [m for m in part.gm.modules() if isinstance(m, fx.GraphModule) and m is not part.gm]
        assert inside and torch.equal(part.gm(*[torch.ones(3)] * len(part.inputs))[0], torch.ones(3).sin())
        for body in inside:
            for node in reversed(body.graph.nodes):
                body.graph.erase_node(node)
    assert [str(m.graph) for m in bodies] == before and len(bodies) >= 2
