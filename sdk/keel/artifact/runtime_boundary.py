"""What happens around a compiled graph, for the C++ runtime: arguments, weights, and what follows the last part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from keel.artifact.runtime_data import ProgramData
from keel.artifact.runtime_tables import symbol_names
from keel.artifact.runtime_views import ViewMaker, type_in, value_of
from keel.runtime.call_boundary import CallBoundary
from keel.serialize.codec import Data, NotSerializable
from keel.symbols import free_symbols
from keel.types import SymType, TensorType, Type, contiguous_strides

aten = torch.ops.aten
Passed = int | SymType | None
"""A value of the graph: the slot of a tensor, a number with its expression in the tables, or None."""


class Weights:
    """The tensors that the program carries, by placeholder, with their names in the package."""

    def __init__(self, data: ProgramData, weights: Mapping[str, tuple[str, TensorType]]) -> None:
        self.slots = {placeholder: data.slot() for placeholder in weights}
        self.written: set[int] = set()
        self._described = [
            [name, data.tables.type(type, {}), self.slots[placeholder]] for placeholder, (name, type) in weights.items()
        ]

    def described(self) -> list[Data]:
        """Each weight: its name, its type, its slot, and whether the program writes to it."""
        return [[name, type, slot, slot in self.written] for name, type, slot in self._described]


class Arguments:
    """The leaves of a call's arguments. ``passed`` are those of the caller, and ``inputs`` those that the graph takes,
    laid out as it was traced for. Values for which the program was exported are None, and the runtime does not take
    them.
    """

    def __init__(self, data: ProgramData, scope: dict[str, int], boundary: CallBoundary) -> None:
        self.data, self.scope, self.boundary = data, scope, boundary
        self.passed: list[Passed] = [None] * len(boundary.names)
        self.inputs: list[Passed] = [None] * len(boundary.names)
        self.described: list[Data] = []
        for i, type in boundary.types.items():
            self.inputs[i] = self.passed[i] = self._number(type) if isinstance(type, SymType) else data.slot()
        tensors = [(type, slot) for i, type in boundary.types.items() if isinstance(slot := self.passed[i], int)]
        self._bind(tensors)
        for i, type in boundary.types.items():
            self._describe(i, type)
        self._check_symbols()

    def slots(self) -> list[int]:
        """The slots of all tensors."""
        return [value for value in (*self.passed, *self.inputs) if isinstance(value, int)]

    def _number(self, type: SymType) -> SymType:
        """The symbol of a number, which the runtime has read when the steps begin."""
        name = str(type.expr)
        number = self.data.tables.symbol(name)
        if isinstance(type.expr, sympy.Symbol):
            self.scope[name] = number
        return SymType(self.data.tables.number(sympy.Symbol(name), {name: number}), type.kind)

    def _bind(self, tensors: Sequence[tuple[Type, int]]) -> None:
        """Binds symbols that are a size by themselves first, as a call in Python does."""
        for type, slot in tensors:
            assert isinstance(type, TensorType)
            for dim, size in enumerate(type.shape):
                if isinstance(size, sympy.Symbol) and size.name not in self.scope:
                    self.data.bind(self.scope, size.name, ["size", slot, dim])
        for type, slot in tensors:
            assert isinstance(type, TensorType)
            self.data.bind_sizes(self.scope, type, slot)

    def _describe(self, i: int, type: Type) -> None:
        tables, name = self.data.tables, self.boundary.names[i]
        if isinstance(type, SymType):
            symbol = tables.expressions[self.passed[i].expr][1]  # type: ignore[union-attr]
            self.described.append({"name": name, "number": type.kind, "symbol": symbol})
            return
        plain = tables.type(TensorType(type.dtype, (), (), type.device), {})
        self.inputs[i] = self.data.slot()
        self.described.append(
            {
                "name": name,
                "dtype": tables.types[plain][0],
                "device": type.device.type,
                "shape": [self._size(n) for n in type.shape],
                "strides": [self._size(n) for n in type.strides],
                "slot": self.passed[i],
            }
        )
        self.data.do("enter", len(self.described) - 1, self.inputs[i])

    def _size(self, size: Any) -> int | None:
        """The expression of a size; None if its symbols are not known, so that it may have any value."""
        known = all(name in self.scope for name in free_symbols(size))
        return self.data.tables.number(size, self.scope) if known else None

    def _check_symbols(self) -> None:
        for name, (low, high) in self.boundary.ranges.items():
            if name in self.scope:
                self.data.do("range", self.scope[name], low, high)
        for guard in self.boundary.guards:
            if all(name in self.scope for name in symbol_names([guard])):
                self.data.do("guard", self.data.tables.number(guard, self.scope, "bool"), str(guard))


class Ending:
    """Writes what follows the last part: copies into arguments and weights, and results that are views."""

    def __init__(self, data: ProgramData, scope: dict[str, int], boundary: CallBoundary) -> None:
        self.data, self.scope, self.boundary = data, scope, boundary
        self.known: dict[fx.Node, Passed] = {}
        self.views = ViewMaker(data, scope, boundary.end.graph, self.known)

    def write(self, arguments: Arguments, results: Sequence[Passed], weights: Weights) -> list[list[Data]]:
        """Returns the results: ``["tensor", slot]``, ``["number", expression, kind]`` or ``["none"]``."""
        graph = self.boundary.end.graph
        sides: Mapping[str, Any] = {
            "argument": arguments.passed,
            "input": arguments.inputs,
            "result": results,
            "stored": weights.slots,
        }
        for node, (side, which) in zip(graph.find_nodes(op="placeholder"), self.boundary.end_inputs, strict=True):
            value = self.known[node] = sides[side][which]
            if isinstance(value, int):
                self.data.bind_sizes(self.scope, type_in(node), value)
        for node in graph.nodes:
            if node.target is aten.clone.default:
                self._clone(node)
            elif node.target is aten.copy_.default:
                weights.written.add(self._copy(node))
        returned: Sequence[Any] = graph.output_node().args[0]  # type: ignore[assignment]
        return [*map(self._result, returned)]

    def _clone(self, node: fx.Node) -> None:
        """A copy in memory of its own, with the strides that PyTorch gives to it."""
        (source,) = node.all_input_nodes
        value, type = self.views.value(source), type_in(source)
        if not type.is_static and not type.is_contiguous:
            raise NotSerializable(f"The strides of a copy of {source.name} depend on its sizes.")
        strides = contiguous_strides(type.shape) if type.is_contiguous else value_of(source).clone().stride()
        made = TensorType(type.dtype, type.shape, tuple(strides), type.device)
        self.known[node] = self.data.slot()
        self.data.do("clone", self.known[node], self.data.tables.type(made, self.scope), value)

    def _copy(self, node: fx.Node) -> int:
        place, source = node.all_input_nodes
        to, type = type_in(place), type_in(source)
        if to.shape != type.shape or to.dtype != type.dtype:
            raise NotSerializable(f"The C++ runtime does not convert or repeat {source.name} to write it.")
        written = self.known[node] = self.views.value(place)
        assert isinstance(written, int)
        self.data.do("copy", written, self.views.value(source))
        return written

    def _result(self, value: Any) -> list[Data]:
        if isinstance(value, fx.Node):
            made = self.views.value(value)
            return ["tensor", made] if isinstance(made, int) else ["number", made.expr, made.kind]
        if value is None:
            return ["none"]
        if not isinstance(value, bool | int | float):
            raise NotSerializable(f"The program returns a {type(value).__name__}.")
        return ["number", self.data.tables.number(value, {}), type(value).__name__]
