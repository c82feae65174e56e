"""Drawn programs are cut down to what fails, and become scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from keel.minify import LINES, Deadline
from keel_conformance.cases.case import Case
from keel_conformance.graphs import program_of
from keel_conformance.graphs.graph_ir import OPS, Input, Node, RandomGraph, random_inputs, run
from keel_conformance.repro import reduce_graph as graphs
from keel_conformance.repro.reduce_graph import Graph, expression, minimize, of_graph, replay, with_outputs
from keel_conformance.repro.replay import ReplayPool
from keel_conformance.results.verdict import Verdict

PROGRAM = RandomGraph(
    (Input((4, 6), "float32"), Input((4, 6), "float32"), Input((3,), "float32")),
    (
        Node("add", (0, 1)),
        Node("mul", (3, 1)),
        Node("sum", (4,), (("dim", 1), ("keepdim", True))),
        Node("neg", (0,)),
        Node("add", (5, 6)),
        Node("relu", (7,)),
        Node("mul_scalar", (8,), (("by", 2),)),
        Node("abs", (2,)),
    ),
    (9, 10, 6),
    True,
)


def started(backend: str) -> Graph:
    return Graph(f"failing_backends:{backend}", PROGRAM, tuple(tuple(random_inputs(PROGRAM, 0, k)) for k in range(3)))


def test_only_what_the_failure_needs_is_left() -> None:
    graph = started("fuses")
    kind, _, _ = replay(graph)
    assert kind == "exact"
    least = minimize(graph, lambda g: replay(g)[0] == kind, Deadline(60.0))
    assert [n.op for n in least.program.nodes] == ["sum", "relu"]
    assert len(least.calls) == 1 and sum(x.numel() for x in least.calls[0]) == 1
    assert replay(Graph("failing_backends:right", least.program, least.calls)) == ("", "", 0)


def test_outputs_bring_what_they_need() -> None:
    one = with_outputs(started("right"), [6])
    assert [n.op for n in one.program.nodes] == ["neg"] and len(one.program.inputs) == 1
    assert torch.equal(run(one.program, one.calls[0])[0], -started("right").calls[0][0])


def test_every_operator_has_a_text() -> None:
    assert set(graphs._texts()) == set(OPS)
    assert expression(Node("sum", (0,), (("dim", 1), ("keepdim", True))), ["a"]) == "a.sum(1, keepdim=True)"
    assert expression(Node("add", (0, 1)), ["a", "b"]) == "torch.add(a, b)"


@pytest.mark.parametrize("exact", [True, False])
def test_a_script_fails_where_it_should_and_passes_where_it_should(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAM if exact else RandomGraph(PROGRAM.inputs, PROGRAM.nodes, PROGRAM.outputs, False)
    monkeypatch.setattr(graphs, "program_of", lambda case: program)
    case = Case("drawn-program", "graphs", "graph", "core", dtype="float32", choice=(("number", "0"),))
    (tmp_path / "repro").mkdir()
    with ReplayPool() as bench:
        assert bench.value(len, ()) == 0  # it has started
        v = Verdict(case.id, "fail", "exact" if exact else "composite", "It differs.")
        found = of_graph(tmp_path, "failing_backends:fuses", case, v, bench, Deadline(20.0))
        text = (tmp_path / found.path).read_text()
        assert found.shown and found.smaller and text.count("\n") <= LINES and "keel_conformance" not in text
        right = tmp_path / "right.py"
        right.write_text(text.replace("import fuses as", "import right as"))
        assert bench.status(str(right)) == 0


def test_drawn_programs_have_scripts(tmp_path: Path) -> None:
    for n in range(6):
        case = Case(
            "drawn-program",
            "graphs",
            "graph",
            "core",
            dtype="float32",
            choice=(("number", str(n)), ("values", "exact" if n % 3 != 2 else "rounded")),
        )
        program = program_of(case)
        calls = (tuple(random_inputs(program, 0, 0)),)
        names = [f"x{k}" for k in range(len(program.inputs))]
        space = {
            "torch": torch,
            "F": torch.nn.functional,
            **dict(zip(names, calls[0], strict=True)),
            "_where": graphs.graph_ir._where,
            "_slice": graphs.graph_ir._slice,
            "_zeros": graphs.graph_ir._zeros,
        }
        for node in program.nodes:
            space[f"v{len(names)}"] = eval(expression(node, [names[a] for a in node.args]), space)
            names.append(f"v{len(names)}")
        for o, want in zip(program.outputs, run(program, calls[0]), strict=True):
            assert torch.equal(space[names[o]].nan_to_num(7), want.nan_to_num(7))
