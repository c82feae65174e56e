"""Judges the results of a part, or of any functional graph, against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

from torch import fx

from keel.error_budgets.judgment import Judgment, judge_several
from keel.error_budgets.node_runs import NodeRuns
from keel.graph.calls import source_line
from keel.graph.module_paths import module_path
from keel.plugin.numeric_facts import IEEE, Arithmetic
from keel.torch_adapter import may_alias, without_modes
from keel.types import leaves


@dataclass(frozen=True)
class JudgedResult:
    """The judgment on the value of a node. ``name``, ``operator``, ``module`` and ``line`` are those of the node.
    ``is_drawn`` says that the value depends on random numbers.
    """

    name: str
    operator: str
    module: str
    line: str | None
    judgment: Judgment
    is_drawn: bool = False

    @classmethod
    def of(cls, node: fx.Node, judgment: Judgment, *, is_drawn: bool = False) -> JudgedResult:
        """The judgment on the value of this node. The operator of a view is that of its base."""
        maker = node
        while maker.op == "call_function" and maker.all_input_nodes and (maker.target is getitem or _is_view(maker)):
            maker = maker.all_input_nodes[0]
        operator = str(maker.target) if maker.op == "call_function" else maker.op
        return cls(node.name, operator, module_path(node), source_line(node), judgment, is_drawn)


def _is_view(node: fx.Node) -> bool:
    return callable(node.target) and 0 in may_alias(node.target).get(0, ())


def judge_part(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    results: Sequence[Any],
    arithmetic: Arithmetic = IEEE,
    *,
    runs: NodeRuns | None = None,
) -> tuple[JudgedResult, ...]:
    """Judges the results of a functional graph on these inputs, one for each output that is a node.

    Random numbers are drawn again, so the generators of PyTorch must be as they were before the results were computed.
    Raises KeelError[bad-graph] for a graph that may run only once.
    """
    outputs = [n for n in leaves(gm.graph.output_node().args[0]) if isinstance(n, fx.Node)]
    values = {n.name: value for n, value in zip(outputs, results, strict=True)}
    return judge_values(gm, inputs, values, arithmetic, runs=runs)


def judge_values(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    values: Mapping[str, Any],
    arithmetic: Arithmetic = IEEE,
    *,
    one_by_one: bool = False,
    runs: NodeRuns | None = None,
) -> tuple[JudgedResult, ...]:
    """Judges values of nodes of a graph, by the names of the nodes, in their order. If they are judged ``one_by_one``,
    each call gets the values of the nodes before it, so that an error is found only where it is made.
    """
    runs = NodeRuns(gm, arithmetic) if runs is None else runs
    judged = []
    with without_modes():
        for node, expected in runs.run(inputs, values.keys(), values if one_by_one else None):
            judgment = judge_several(values[node.name], expected)
            judged.append(JudgedResult.of(node, judgment, is_drawn=expected.is_drawn))
    return tuple(judged)
