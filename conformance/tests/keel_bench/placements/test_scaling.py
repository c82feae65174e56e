"""Graphs of given sizes, what is timed on them, and how figures become bars."""

from __future__ import annotations

import operator

import pytest

from keel import placement
from keel_bench.jobs import Job, Selection
from keel_bench.placements import scaling
from keel_bench.placements.synthetic_graphs import FAMILIES, LATENCY, priced, unsupported
from keel_conformance.workers.pool import Outcome


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("calls", [30, 77])
def test_graphs_have_as_many_calls_as_asked_for(family: str, calls: int) -> None:
    gm = FAMILIES[family](calls)
    units = placement.call_graph_of(gm.graph)
    assert len(units.nodes) == calls
    gm.graph.lint()
    read = {n for node in gm.graph.nodes for n in node.all_input_nodes}
    assert all(n in read for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem)


def test_a_tenth_is_refused_and_every_tensor_has_its_way() -> None:
    units = placement.call_graph_of(FAMILIES["transformer"](400).graph)
    refused = unsupported(units)
    assert 20 <= len(refused) <= 60
    problem = priced(units, 3, refused)
    found = placement.solve_placement(problem)
    assert not {units.nodes[u].name for u, b in enumerate(found.backend.tolist()) if b == 0} & refused
    t = problem.tensors
    inputs = units.nodes[0].graph.find_nodes(op="placeholder")
    assert (t.maker < 0).sum() == sum(bool(node.users) for node in inputs)
    assert (t.transfer[:, 0, 1] >= LATENCY).all() and (t.ends[t.maker < 0] == -1).all() and (t.ends == 1).any()


def test_a_size_is_measured() -> None:
    found = scaling._placed(FAMILIES["resnet"](60))
    assert found["calls"] == 60 and found["parts"] >= 2
    assert all(found[key] > 0 for key in ("read", "alone", "solve", "three", "split", "module", "check"))
    assert scaling._other_partitioner(FAMILIES["chain"](40))["partitions"] >= 2


def row(calls: int, seconds: float) -> dict[str, float]:
    return {
        "calls": calls,
        **dict.fromkeys(("read", "alone", "solve", "three", "split", "check", "module"), seconds),
        **dict.fromkeys(("parts", "three_parts", "fewest"), 3),
        "gap": 0.0,
        "three_gap": 0.0,
    }


def bars(sizes: list[dict[str, float]], beside: float) -> list[bool | None]:
    figures = {"sizes": sizes, "beside": [{"calls": c, "seconds": beside * c**3, "partitions": 2} for c in (500, 2000)]}
    return [bar.holds for bar in scaling.bars({Job("scale", "chain", "keel"): Outcome(figures)})]


def test_slow_or_steep_falls_short() -> None:
    good = [row(2_000, 1e-3), row(100_000, 0.05)]
    assert bars(good, 1e-9) == [True] * 8 + [None, None]
    assert bars(good, 1e-11)[7] is False
    assert bars([row(2_000, 1e-3), row(100_000, 2.6)], 1e-9)[:2] == [False, False]
    assert bars([row(2_000, 1e-3), row(100_000, 0.2)], 1e-9)[3:7] == [False] * 4
    assert scaling.exponent([row(10, 3.0), row(100, 300.0)], "solve") == pytest.approx(2)


def test_every_family_is_asked_for() -> None:
    assert [job.model for job in scaling.jobs(Selection((), (), "cpp"))] == list(FAMILIES)
