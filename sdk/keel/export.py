"""Compiles exported programs, without Dynamo and autograd. Side effects and aliases are handled here.

The compiled graph is functional. New contents of buffers and inputs are copied after each call. Results that are views
are made from their bases, so that they share memory as in PyTorch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from keel.compiler import compile_captured
from keel.freeze import frozen
from keel.graph.calls import alias_bases, type_of
from keel.graph.tensor_devices import device_types
from keel.plugin import Backend
from keel.runtime.call_boundary import CallBoundary, Side, leaves_of
from keel.runtime.link_program import is_size
from keel.serialize.save import unfit_program
from keel.settings import Settings, read_settings, with_plugins
from keel.torch_adapter import (
    Captured,
    FunctionalProgram,
    StoredKind,
    StoredTensor,
    Symbolic,
    Tree,
    functional,
    guards_of,
    tidied,
    unflatten,
)
from keel.types import Type

aten = torch.ops.aten
_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def compile_exported(
    program: ExportedProgram,
    *,
    backends: Sequence[str | Backend] | None = None,
    strict: bool = False,
    fuel: int | None = None,
    freeze: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles ``program`` to a callable with the signature that it was exported with. The first backend that takes an
    operator runs it.

    Parameters and buffers are the program's own tensors, by reference: loading a state dict in place takes effect. With
    ``freeze``, those that the program does not write to are constants, and later changes have no effect. ``options``
    are options of backends, as in ``keel.compile``. No gradients are computed. Arguments must have the types that the
    program was exported for, and sizes in its ranges. Every call checks this (KeelError[bad-input]). Arguments with
    other strides are copied first.

    Raises KeelError as ``keel.compile`` does, and KeelError[bad-graph] for programs with effects, objects or gradients.
    """
    passed = {"backends": backends, "strict": strict, "fuel": fuel, "freeze": freeze, **(options or {})}
    made = exported_graph(program, read_settings(None, passed))
    before = len(guards_of(made.captured.fake_mode))
    run = compile_captured(made.captured, made.settings)
    boundary = replace(made.boundary, guards=guards_of(made.captured.fake_mode)[before:])

    def call(*args: Any, **kwargs: Any) -> Any:
        return unflatten(made.results, boundary.call(run, leaves_of(made.arguments, args, kwargs), made.stored))

    return call


@dataclass(frozen=True)
class ExportedGraph:
    """The graph of an exported program, ready to be compiled with these settings. The trees describe how the
    ``arguments`` and the ``results`` of a call are nested. ``stored`` are the program's own tensors, by placeholder.
    """

    captured: Captured
    settings: Settings
    boundary: CallBoundary
    arguments: Tree
    results: Tree
    stored: Mapping[str, torch.Tensor]


def exported_graph(program: ExportedProgram, settings: Settings) -> ExportedGraph:
    """The functional graph of a program, without its writes and views. Raises KeelError[bad-graph]."""
    return graph_of(functional(program), settings)


def graph_of(program: FunctionalProgram, settings: Settings) -> ExportedGraph:
    """The graph of a functional program, without its writes and views. Raises KeelError[bad-graph]."""
    stored = _stored(program)
    captured = tidied(program.graph_module, "inference")
    settings = with_plugins(settings, device_types(captured.gm.graph))
    boundary = _boundary(program, captured.gm)
    captured = Captured(captured.gm, "inference", {**captured.constants, **stored}, stored=_origins(program, stored))
    if settings.freeze:
        captured, _ = frozen(captured)
    trees = program.call_spec
    return ExportedGraph(captured, settings, boundary, trees.in_spec, trees.out_spec, stored)


def _stored(program: FunctionalProgram) -> dict[str, torch.Tensor]:
    """The tensors that the program carries, by placeholder name."""
    tensors: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _STORED:
            target = str(spec.target)
            held = program.state_dict if target in program.state_dict else program.constants
            tensors[spec.arg.name] = held[target]
        elif spec.kind is not InputKind.USER_INPUT:
            raise unfit_program(spec.arg.name, spec.kind.name)
    for out in program.graph_signature.output_specs:
        if out.kind not in (*_WRITES, OutputKind.USER_OUTPUT):
            raise unfit_program(out.arg.name, out.kind.name)
    return tensors


def _origins(program: FunctionalProgram, stored: Mapping[str, torch.Tensor]) -> dict[str, StoredTensor]:
    """What the program's tensors are in the model, by placeholder name. Those that never change are left out."""
    kinds: Mapping[InputKind, StoredKind] = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs if s.kind in kinds}
    written = {out.target for out in program.graph_signature.output_specs if out.kind in _WRITES}
    return {
        name: StoredTensor(kinds[spec.kind], str(spec.target), weakref.ref(stored[name]), spec.target in written)
        for name, spec in specs.items()
    }


# -- before a call ---------------------------------------------------------------------------------------


def _boundary(program: FunctionalProgram, gm: fx.GraphModule) -> CallBoundary:
    """Removes writes, views and fixed arguments from ``gm``, and returns what handles them around a call."""
    end, end_inputs = _ending(gm, program)
    placeholders = {n.name: n for n in gm.graph.find_nodes(op="placeholder")}
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    types: dict[int, Type] = {}
    fixed: dict[int, Any] = {}
    for i, name in enumerate(names):
        value = placeholders[name].meta["val"]
        if isinstance(value, torch.Tensor | Symbolic):
            types[i] = type_of(value)
        else:
            fixed[i] = value
            gm.graph.erase_node(placeholders[name])
    gm.recompile()
    left = [n.name for n in gm.graph.find_nodes(op="placeholder") if n.name in names]
    ranges = {str(symbol): (_end(span.lower), _end(span.upper)) for symbol, span in program.range_constraints.items()}
    return CallBoundary(tuple(names), types, fixed, ranges, tuple(map(names.index, left)), end, end_inputs)


def _end(bound: Any) -> int | None:
    """The end of a range; None if it is infinite."""
    return int(bound) if bound.is_Integer else None


# -- after a call ------------------------------------------------------------------------------------------


@dataclass
class _Closing:
    """The graph that PyTorch runs after each call: it writes mutated tensors, makes views, and orders the results.

    ``inputs`` describes its placeholders: a leaf as the caller passed it (``argument``) or as the graph took it
    (``input``), by number; a ``stored`` tensor, by name; or a ``result`` of the graph, by number.
    """

    gm: fx.GraphModule
    numbers: Mapping[str, int]
    graph: fx.Graph = field(default_factory=fx.Graph)
    inputs: dict[tuple[Side, int | str], fx.Node] = field(default_factory=dict)
    made: dict[fx.Node, fx.Node] = field(default_factory=dict)
    solid: list[fx.Node] = field(default_factory=list)

    def input(self, side: Side, which: int | str, like: fx.Node) -> fx.Node:
        if (side, which) not in self.inputs:
            first = next(iter(self.graph.nodes), None)
            with self.graph.inserting_before(first):
                made = self.graph.placeholder(f"{side}_{which}")
            made.meta["val"] = like.meta.get("val")
            self.inputs[side, which] = made
        return self.inputs[side, which]

    def stored_or(self, side: Side, node: fx.Node) -> fx.Node:
        number = self.numbers.get(node.name)
        return self.input("stored", node.name, node) if number is None else self.input(side, number, node)

    def call(self, function: Callable[..., Any], *args: fx.Node, like: fx.Node) -> fx.Node:
        made = self.graph.call_function(function, args)
        made.meta["val"] = like.meta["val"]
        return made

    def result(
        self, node: fx.Node, views: Mapping[fx.Node, frozenset[fx.Node]], written: dict[fx.Node, fx.Node]
    ) -> fx.Node:
        """What the caller gets for a node: the tensor that its value was ``written`` to, a view of such a tensor, the
        caller's argument, or the value.
        """
        if node in written:
            return written[node]
        if node.op == "placeholder":
            return self.stored_or("argument", node)
        if node.op != "call_function" or views[node] == {node} or views[node].isdisjoint(written):
            return self.made[node]
        inner = {a: self.result(a, views, written) for a in node.all_input_nodes}
        written[node] = self.graph.node_copy(node, inner.__getitem__)
        return written[node]

    def value(self, node: fx.Node, views: Mapping[fx.Node, frozenset[fx.Node]]) -> fx.Node:
        """The node's value: a view or a size is computed here again, and anything else is a result of the graph."""
        if node not in self.made:
            if node.op == "placeholder":
                self.made[node] = self.stored_or("input", node)
            elif is_size(node) or (node.op == "call_function" and views[node] != {node}):
                for a in node.all_input_nodes:
                    self.value(a, views)
                self.made[node] = self.graph.node_copy(node, self.made.__getitem__)
            else:
                self.made[node] = self.input("result", len(self.solid), node)
                self.solid.append(node)
        return self.made[node]


def _ending(
    gm: fx.GraphModule, program: FunctionalProgram
) -> tuple[fx.GraphModule, tuple[tuple[Side, int | str], ...]]:
    """Removes writes and views from ``gm``, and returns the graph that does them after a call, with what it takes. Its
    results are those of the user, flat.
    """
    signature = program.graph_signature
    user = [s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    closing = _Closing(gm, {name: i for i, name in enumerate(user)})
    outputs = list(zip(gm.graph.output_node().args[0], signature.output_specs, strict=True))  # type: ignore[arg-type]
    views = alias_bases(gm.graph)
    values = [closing.value(o, views) if isinstance(o, fx.Node) else o for o, _ in outputs]
    written = _write(closing, program, outputs, values, views)
    results = []
    for (node, spec), value in zip(outputs, values, strict=True):
        if spec.kind is not OutputKind.USER_OUTPUT:
            continue
        results.append(closing.result(node, views, written) if isinstance(node, fx.Node) else value)
    closing.graph.output(tuple(results))
    closing.graph.eliminate_dead_code()  # views of values that the caller gets from a written tensor
    gm.graph.output_node().args = (tuple(closing.solid),)
    inputs = closing.graph.find_nodes(op="placeholder")
    sides = {node: side for side, node in closing.inputs.items()}
    return fx.GraphModule({}, closing.graph, class_name="closing"), tuple(sides[node] for node in inputs)


def _write(
    closing: _Closing,
    program: FunctionalProgram,
    outputs: Sequence[tuple[Any, Any]],
    values: list[Any],
    views: Mapping[fx.Node, frozenset[fx.Node]],
) -> dict[fx.Node, fx.Node]:
    """Appends the program's writes, after all values have been read. Maps nodes to the tensors that they are written
    to.
    """
    name_of = {str(s.target): s.arg.name for s in program.graph_signature.input_specs if s.target is not None}
    placeholders = {n.name: n for n in closing.gm.graph.find_nodes(op="placeholder")}
    todo = []
    for (node, spec), value in zip(outputs, values, strict=True):
        if spec.kind in _WRITES:
            if any(b.op == "placeholder" for b in views[node]):
                value = closing.call(aten.clone.default, value, like=node)
            todo.append((node, str(spec.target), value))
    written: dict[fx.Node, fx.Node] = {}
    for node, target, value in todo:
        place = closing.stored_or("argument", placeholders[name_of.get(target, target)])
        written[node] = closing.call(aten.copy_.default, place, value, like=place)
    return written
