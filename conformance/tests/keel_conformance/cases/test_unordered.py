"""Operators that sum in any order. One whose decomposition has such an operator is one too; otherwise a backend that
sums in any order would be called flaky.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import fx

from keel import Backend, Call
from keel.opset import MEMBERS, OPSET
from keel.testing import compile_calls
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.harness.backend_worker import overload

aten = torch.ops.aten
ADDING = (aten.scatter_add.default, aten.scatter_reduce.two)
PUTTING = (aten.index_put.default, aten._unsafe_index_put.default)
FEW = 2
"""Cases of each operator."""
EXACT = {"histc"}
"""Made of ones, which add up to the same in any order."""


def only_primitives(call: Call) -> str | None:
    member = OPSET.get(call.op)
    return "It is written out." if member is not None and member.kind == "composite" else None


def adds(node: fx.Node) -> bool:
    return node.target in ADDING or (node.target in PUTTING and len(node.args) > 3 and bool(node.args[3]))


def test_what_is_written_out_in_additions_of_any_order_is_of_any_order_too() -> None:
    reached, done = set[str](), Counter[str]()

    def watching(op: str) -> Backend:
        def compile(gm: fx.GraphModule) -> Any:
            if any(map(adds, gm.graph.nodes)):
                reached.add(op)
            return gm.forward

        return Backend(name="watch", device="*", supports=only_primitives, compile=compile)

    for case in plan(profile="strict", tier="smoke", seed=1):
        member = MEMBERS.get(case.op) if case.kind == "op" else None
        if member is None or member.kind != "composite" or member.tags & {"pointwise", "list"} or case.dtype != "f32":
            continue
        if done[case.op] == FEW:
            continue
        done[case.op] += 1
        inputs = draw_inputs(case, 0)
        compile_calls([(overload(case.overload), inputs.args, inputs.kwargs)], backends=[watching(case.op)])
    here = {name for name, member in MEMBERS.items() if member.targets}  # this PyTorch may lack one
    tagged = {name for name in here if "nondeterministic_bitwise" in MEMBERS[name].tags}
    assert reached - EXACT == {name for name in tagged if MEMBERS[name].kind == "composite"}
