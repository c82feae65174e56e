"""Graphs that can be padded because masks keep what is behind a size out of reductions, indices and divisors.

``keel.padding`` says which operands have to have which value behind the size: 0 where they are added up, -inf where
the largest is taken. Here ``where`` calls are written that give them this value. They take masks, inputs of the graph
that a caller computes for each of its sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from keel.graph.calls import type_of
from keel.loops.growing_index import Blocks
from keel.neutral_operands import AddedMask
from keel.padded_loops import Fill
from keel.padding import PaddedCalls, padded_calls
from keel.plugin import SizeRange
from keel.symbols import evaluate
from keel.torch_adapter import fake_mode_of_value, origin_of, record
from keel.types import Dim, TensorType, leaves

aten = torch.ops.aten


@dataclass(frozen=True)
class Mask:
    """An input of a masked graph: a vector of bools that are True behind the size ``symbol``. It has ``size`` elements,
    in blocks of ``block``.
    """

    name: str
    symbol: str
    size: Dim
    block: Dim
    device: torch.device

    def value(self, sizes: Mapping[str, int], larger: Mapping[str, int]) -> torch.Tensor:
        """The mask for inputs of these ``sizes`` that are padded to the ``larger`` ones."""
        size, block = (int(evaluate(d, larger)) for d in (self.size, self.block))
        real = int(evaluate(self.block, {**larger, self.symbol: sizes[self.symbol]}))
        return (torch.arange(size, device="cpu") % block >= real).to(self.device)


@dataclass(frozen=True, eq=False)
class MaskedGraph:
    """A graph, and those of its placeholders, the last ones, that are masks. For each size that it can be padded along,
    ``inputs`` has the blocks of its inputs, by name, and ``outputs`` those of its results.
    """

    gm: fx.GraphModule
    masks: tuple[Mask, ...] = ()
    inputs: Mapping[str, Mapping[str, Blocks]] = field(default_factory=dict)
    outputs: Mapping[str, Sequence[Blocks]] = field(default_factory=dict)


def masked(graph: MaskedGraph, symbol: str, sizes: Mapping[str, SizeRange]) -> MaskedGraph | str:
    """The graph in a form that can be padded along ``symbol``: no element of a result that is in front of the size
    differs. Or a sentence that says why it has none, as ``keel.padding.why_not_padded`` does.
    """
    changed = padded_calls(graph.gm, symbol, sizes, [mask.name for mask in graph.masks])
    if isinstance(changed, str):
        return changed
    inputs, outputs = {**graph.inputs, symbol: changed.inputs}, {**graph.outputs, symbol: changed.outputs}
    if not changed.fills:  # then nothing else, either
        return replace(graph, inputs=inputs, outputs=outputs)
    writer = _Writer(symbol, changed)
    return MaskedGraph(writer.written(graph.gm), (*graph.masks, *writer.masks), inputs, outputs)


@dataclass(eq=False)
class _Writer:
    """Copies a graph with its calls changed."""

    symbol: str
    changed: PaddedCalls
    graph: fx.Graph = field(default_factory=fx.Graph)
    inputs: dict[Any, fx.Node] = field(default_factory=dict)
    masks: list[Mask] = field(default_factory=list)
    end: fx.Node | None = None

    def written(self, gm: fx.GraphModule) -> fx.GraphModule:
        made: dict[fx.Node, Any] = {}
        for node in gm.graph.nodes:
            if node.op == "output":
                self.graph.output(fx.map_arg(node.args[0], made.__getitem__))
            elif node.op == "placeholder":
                made[node] = self.end = self.graph.node_copy(node)
            else:
                made[node] = self.function(node, made, {})
        return fx.GraphModule(gm, self.graph)

    def function(self, node: fx.Node, made: Mapping[fx.Node, Any], origin: Mapping[str, Any]) -> Any:
        """Writes a node, of the graph or of the pieces of a call with the metadata ``origin``."""
        if node.target is operator.getitem and isinstance(results := made[node.args[0]], tuple):  # type: ignore[index]
            return results[node.args[1]]  # type: ignore[index]
        inherited = origin or origin_of(node)
        if (pieces := self.changed.pieces.get(node)) is not None:
            operands = [made[a] for a in leaves((*node.args, *node.kwargs.values())) if isinstance(a, fx.Node)]
            results = self.inlined(pieces, operands, inherited)
            return results if isinstance(node.meta["val"], tuple | list) else results[0]
        fills, operands = self.changed.fills.get(node, ()), list[Any]()

        def operand(value: fx.Node) -> Any:
            if not isinstance(value.meta.get("val"), torch.Tensor):
                return made[value]
            result = made[value]
            for fill in fills:
                if fill.operand == len(operands):
                    result = self.filled(result, fill, inherited)
            operands.append(result)
            return result

        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), operand)
        if (mask := self.changed.masks.get(node)) is not None:
            added = self.added(operands[mask.query], operands[mask.key], mask, inherited)
            kwargs = {**kwargs, mask.parameter: added}
        copy = self.graph.create_node(node.op, node.target, args, kwargs, None if origin else node.name)
        copy.meta = {**node.meta} if not origin else {**origin, "val": node.meta["val"]}
        return copy

    def inlined(self, pieces: fx.Graph, operands: Sequence[Any], origin: Mapping[str, Any]) -> tuple[Any, ...]:
        made: dict[fx.Node, Any] = dict(zip(pieces.find_nodes(op="placeholder"), operands, strict=True))
        for node in pieces.nodes:
            if node.op == "call_function":
                made[node] = self.function(node, made, origin)
        return tuple(made[r] if isinstance(r, fx.Node) else r for r in pieces.output_node().args[0])  # type: ignore[union-attr]

    def filled(self, x: fx.Node, fill: Fill, origin: Mapping[str, Any]) -> fx.Node:
        value = x.meta["val"]
        mask = self.mask(value, fill)
        mode = fake_mode_of_value(value)
        assert mode is not None
        parts = record(partial(_filled, fill=fill), [value, mask.meta["val"]], {}, mode)
        return self.inlined(parts, [x, mask], origin)[0]  # type: ignore[no-any-return]

    def added(self, query: fx.Node, key: fx.Node, mask: AddedMask, origin: Mapping[str, Any]) -> fx.Node:
        """A mask that is -inf for keys behind the size, and 0 for others."""
        values = [query.meta["val"], key.meta["val"]]
        behind = self.mask(values[1], mask)
        mode = fake_mode_of_value(values[0])
        assert mode is not None
        parts = record(partial(_added, dim=mask.dim), [*values, behind.meta["val"]], {}, mode)
        return self.inlined(parts, [query, key, behind], origin)[0]  # type: ignore[no-any-return]

    def mask(self, value: torch.Tensor, fill: Fill | AddedMask) -> fx.Node:
        """The mask for a dimension of a value: an input of the graph, one for all equal dimensions."""
        type = type_of(value)
        assert isinstance(type, TensorType)
        size = type.shape[fill.dim]
        block = size if fill.block is None else fill.block
        key = size, block, value.device
        if key not in self.inputs:
            name = f"behind_{self.symbol}_{len(self.masks)}"
            self.masks.append(Mask(name, self.symbol, *key))
            with self.graph.inserting_after(self.end):
                self.inputs[key] = self.end = self.graph.placeholder(name)
            with fake_mode_of_value(value) or nullcontext():
                self.end.meta = {"val": torch.empty([value.shape[fill.dim]], dtype=torch.bool, device=value.device)}
        return self.inputs[key]


def _added(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor, dim: int) -> torch.Tensor:
    hidden, shown = (aten.full.default([], value, dtype=query.dtype, device=query.device) for value in (-math.inf, 0.0))
    row = aten.where.self(mask, hidden, shown)
    result: torch.Tensor = aten.expand.default(row, [*query.shape[:-1], key.shape[dim]])
    return result


def _filled(x: torch.Tensor, mask: torch.Tensor, fill: Fill) -> torch.Tensor:
    for _ in range(x.dim() - 1 - fill.dim):
        mask = aten.unsqueeze.default(mask, -1)
    value = aten.full.default([], fill.value, dtype=x.dtype, device=x.device)
    result: torch.Tensor = aten.where.self(mask, value, x)
    return result
