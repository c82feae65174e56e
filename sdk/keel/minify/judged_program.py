"""Whether the results of a program are within the error budgets of ``keel.error_budgets``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from keel.error_budgets import Budget, Expected, NodeRuns, budget_of, judge
from keel.minify.graph_program import Program, Value, function_of, run_calls
from keel.plugin import Arithmetic
from keel.plugin.numeric_facts import IEEE


@dataclass(frozen=True)
class WrongResult:
    """A result that is wrong: its number, a sentence, and whether it is NaN where eager PyTorch's is not."""

    output: int
    sentence: str
    is_nan: bool


def graph_of(program: Program, inputs: Sequence[Any]) -> fx.GraphModule:
    """The program as a graph, whose nodes have the values on these inputs. It has no outputs."""
    graph, nodes = fx.Graph(), dict[str, fx.Node]()
    with torch.no_grad():
        values = run_calls(program, inputs)
    for name in program.params:
        nodes[name] = graph.placeholder(name)
    for call in program.calls:
        args, kwargs = call.mapped(lambda v: nodes[v.name] if isinstance(v, Value) else v).arguments
        nodes[call.name] = graph.call_function(function_of(call.op), args, kwargs)
    for name, node in nodes.items():
        node.meta["val"] = values[name]
    graph.output(tuple(nodes[name] for name in program.outputs))
    return fx.GraphModule({}, graph)


def expectations(program: Program, inputs: Sequence[Any], arithmetic: Arithmetic = IEEE) -> list[Expected]:
    """What is expected of each output of the program on these inputs."""
    gm = graph_of(program, inputs)
    outputs: Sequence[fx.Node] = gm.graph.output_node().args[0]  # type: ignore[assignment]
    expected_of: Mapping[str, Expected] = {
        node.name: expected for node, expected in NodeRuns(gm, arithmetic).run(inputs, {n.name for n in outputs})
    }
    return [expected_of[node.name] for node in outputs]


def budgets(program: Program, inputs: Sequence[Any], arithmetic: Arithmetic = IEEE) -> list[Budget]:
    """The budget of each output of the program, element by element."""
    return [budget_of(expected) for expected in expectations(program, inputs, arithmetic)]


def wrong_result(
    program: Program, inputs: Sequence[Any], results: Sequence[Any], arithmetic: Arithmetic = IEEE
) -> WrongResult | None:
    """What is wrong with the first result that is over its budget; None if none is. Results that depend on random
    numbers are not judged.
    """
    for k, (x, expected) in enumerate(zip(results, expectations(program, inputs, arithmetic), strict=True)):
        judgment = judge(x, expected)
        if expected.is_drawn or not judgment.is_over:
            continue
        is_nan = isinstance(x, Tensor) and x.is_floating_point() and bool((x.isnan() & ~expected.eager.isnan()).any())
        return WrongResult(k, f"Result {k} ({program.outputs[k]}) is wrong. {judgment.defect}", is_nan)
    return None
