"""Graphs of parts as data and back. Unlike saved graphs, they may call any operator, and hold no constants."""

from __future__ import annotations

from typing import Any

from torch import fx

from keel.serialize.codec import Data, encode
from keel.serialize.load import graph_module
from keel.serialize.save import graph_data, numbers_of
from keel.torch_adapter import facts_of


def part_data(gm: fx.GraphModule) -> dict[str, Any]:
    """A functional graph with its types as JSON. Raises NotSerializable."""
    results = encode(gm.graph.output_node().args[0])
    symbols = {name: vars(facts) for name, facts in facts_of(numbers_of(gm)).items()}
    return {"symbols": symbols, "graph": {**graph_data(gm, {}, {}), "results": results, "writes": []}}


def part_from(data: Data, *, typed: bool = True) -> fx.GraphModule:
    """The graph that ``part_data`` wrote. If it is ``typed``, its nodes have values of a fake mode of its own. Raises
    NotSerializable, or KeelError if this PyTorch lacks an operator.
    """
    return graph_module(data, typed=typed)
