"""Between two processes right backends pass, wrong ones break the right clause, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import fx

import keel
import keel_eager
from keel_conformance import programs
from keel_conformance.programs import process_group

CASES = {c.op: c for c in programs.cases() if c.op.startswith("collectives-")}
pytestmark = pytest.mark.skipif(not process_group.can_meet(), reason="No process group of gloo can be made here.")
REDUCED, WAITED = "_c10d_functional.all_reduce.default", "_c10d_functional.wait_tensor.default"


def verdict(name: str, backend: keel.Backend) -> Any:
    case = CASES[f"collectives-{name}"]
    return programs.judge(case, programs.run_case(case, programs.Compiler(backend)))


def children() -> set[str]:
    """Processes that this one has started and not waited for; other tests may have left a server."""
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    before = children()
    yield
    assert not dist.is_initialized()
    assert children() <= before


@pytest.mark.parametrize("name", ["all-reduce-sum", "all-to-all", "not-used", "two-in-flight", "result-written-to"])
def test_eager_passes(name: str) -> None:
    found = verdict(name, keel.testing.find("eager"))
    assert found.status == "pass", found.sentence


def test_a_backend_that_takes_some_operators_passes() -> None:
    found = verdict("in-several-parts", keel.testing.find("cpp"))
    assert found.status == "pass", found.sentence


def test_every_clause_has_programs_and_they_are_many() -> None:
    cited = {clause for case in CASES.values() for clause in case.clauses}
    assert {f"contract.collectives.C{k}" for k in (1, 2, 3, 4)} <= cited and len(CASES) >= 25


def faulty(change: Callable[[fx.GraphModule], None]) -> keel.Backend:
    """Eager PyTorch on a graph that was changed."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        change(gm)
        gm.recompile()
        return gm.forward

    return replace(keel_eager.backend, name="faulty", last_resort=False, compile=compile)


def calls(gm: fx.GraphModule, name: str) -> list[fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "call_function" and str(n.target) == name]


def alone(gm: fx.GraphModule) -> None:
    """Gives this process's own input."""
    for node in calls(gm, REDUCED):
        with gm.graph.inserting_after(node):
            node.replace_all_uses_with(gm.graph.call_function(torch.ops.aten.clone.default, (node.args[0],)))
        gm.graph.erase_node(node)


def merged(gm: fx.GraphModule) -> None:
    """Reduces once what is to be reduced twice."""
    first, *others = calls(gm, REDUCED)
    for node in others:
        if node.args == first.args:
            node.replace_all_uses_with(first)
            gm.graph.erase_node(node)


def without_waiting(gm: fx.GraphModule) -> None:
    for node in calls(gm, WAITED):
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        gm.graph.erase_node(node)


def exchanged(gm: fx.GraphModule) -> None:
    """The first two reductions change places."""
    first, second, *_ = calls(gm, REDUCED)
    inputs = first.args[0], second.args[0]
    after = next(n for n in reversed(list(gm.graph.nodes)) if n in inputs)
    for node in (first, second):
        after.append(node)  # the last one put there stands first


def left_out(gm: fx.GraphModule) -> None:
    """What nobody uses is not done."""
    for node in calls(gm, WAITED):
        if not node.users:
            gm.graph.erase_node(node)
    for node in calls(gm, REDUCED):
        if not node.users:
            gm.graph.erase_node(node)


def in_place(gm: fx.GraphModule) -> None:
    """Reduces into the input's memory."""
    for node in calls(gm, REDUCED):
        node.target = torch.ops._c10d_functional.all_reduce_.default


@pytest.mark.parametrize(
    ("change", "name", "clause"),
    [
        (alone, "all-reduce-sum", "C1"),
        (merged, "twice-the-same", "C2"),
        (without_waiting, "of-a-late-peer", "C3"),
        (exchanged, "two-of-one-size", "C"),
        (left_out, "not-used", "C2"),
        (in_place, "input-read-afterwards", "C4"),
    ],
    ids=["alone", "merged", "without_waiting", "exchanged", "left_out", "in_place"],
)
def test_wrong_backends_break_a_clause(change: Callable[[fx.GraphModule], None], name: str, clause: str) -> None:
    found = verdict(name, faulty(change))
    assert found.status == "fail" and found.clause.startswith(f"contract.collectives.{clause}"), found
