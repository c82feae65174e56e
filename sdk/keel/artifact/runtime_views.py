"""Views in graphs, for the C++ runtime: where each lies in the memory of another tensor. No operator has to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from keel.artifact.runtime_data import ProgramData
from keel.graph.calls import alias_bases
from keel.serialize.codec import NotSerializable
from keel.symbols.evaluate import constant
from keel.torch_adapter import Symbolic, dim_of, expression, tensor_type
from keel.types import Dim, SymType, TensorType, as_dim


@dataclass(frozen=True)
class View:
    """A tensor in the memory of ``root``, ``offset`` bytes behind its first element. It may be the root itself."""

    root: fx.Node
    type: TensorType
    offset: Dim


class Views:
    """The views of one graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self._bases: Mapping[fx.Node, frozenset[fx.Node]] = alias_bases(graph)

    def of(self, node: fx.Node) -> View:
        """The view that a node computes. Raises NotSerializable if it may lie in several tensors, or if a bit says that
        its elements differ from those in memory.
        """
        bases = self._bases[node]
        if len(bases) != 1:
            raise NotSerializable(f"{node.target} returns a tensor that may lie in several others.")
        (root,) = bases
        at, base = value_of(node), value_of(root)
        if at.is_conj() or at.is_neg():
            raise NotSerializable(f"{node.target} returns a tensor with a conjugate or a negative bit.")
        type, start = tensor_type(at), dim_of(base.storage_offset()) * base.element_size()
        return View(root, type, as_dim(dim_of(at.storage_offset()) * at.element_size() - start))


def value_of(node: fx.Node) -> Any:
    """The fake tensor, or the number, that a node computes. A copy has the value of what is copied."""
    while "val" not in node.meta and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    if "val" not in node.meta:
        raise NotSerializable(f"The type of {node.name} is not known.")
    return node.meta["val"]


def type_in(node: fx.Node) -> TensorType:
    """The type of the tensor that a node computes."""
    return tensor_type(value_of(node))


def number_in(node: fx.Node) -> SymType | None:
    """The number that a node computes; None if it computes something else."""
    value = node.meta.get("val")
    if isinstance(value, Symbolic):
        kind = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(value)]
        return SymType(expression(value), kind)  # type: ignore[arg-type]
    if isinstance(value, bool | int | float):
        return SymType(constant(value), type(value).__name__)  # type: ignore[arg-type]
    return None


class ViewMaker:
    """Writes the views of a graph. ``known`` are the values of nodes that compute something else: slots of tensors, and
    numbers.
    """

    def __init__(self, data: ProgramData, scope: Mapping[str, int], graph: fx.Graph, known: Mapping[fx.Node, Any]):
        self.data, self.scope, self.known, self.views = data, scope, known, Views(graph)
        self._made: dict[fx.Node, int] = {}

    def value(self, node: fx.Node) -> Any:
        """The slot of a tensor, or a SymType with the expression of a number."""
        if node in self.known:
            return self.known[node]
        if (number := number_in(node)) is not None:
            return SymType(self.data.tables.number(number.expr, self.scope, number.kind), number.kind)
        if node not in self._made:
            view = self.views.of(node)
            if view.root not in self.known:
                raise NotSerializable(f"The C++ runtime cannot run {view.root.target} after the last part.")
            type, offset = (
                self.data.tables.type(view.type, self.scope),
                self.data.tables.number(view.offset, self.scope),
            )
            self._made[node] = self.data.slot()
            self.data.do("view", self._made[node], type, self.known[view.root], offset)
        return self._made[node]
