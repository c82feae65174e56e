"""Compiles exported programs, without Dynamo and autograd. Side effects and aliases are handled here.

The compiled graph is functional. New contents of buffers and inputs are copied after each call. Results that are views
are made from their bases, so that they share memory as in PyTorch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from keel.compiler import compile_captured
from keel.errors import KeelError
from keel.freeze import frozen
from keel.graph.calls import alias_bases, type_of
from keel.graph.tensor_devices import device_types
from keel.plugin import Backend
from keel.runtime.contract_checks import bind, mismatch, strides_of
from keel.runtime.link import resolve_lazy_bits
from keel.runtime.link_program import is_size
from keel.runtime.result_casts import with_strides
from keel.serialize.save import unfit_program
from keel.settings import read_settings, with_plugins
from keel.torch_adapter import (
    Captured,
    StoredKind,
    StoredTensor,
    Symbolic,
    flatten_call,
    functional,
    tidied,
    unflatten,
    without_autocast,
)
from keel.types import TensorType, Type

aten = torch.ops.aten
_STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_MISFIT = "The arguments do not fit the exported program."
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
    settings = read_settings(None, passed)
    program = functional(program)
    stored = _stored(program)
    captured = tidied(program.graph_module, "inference")
    settings = with_plugins(settings, device_types(captured.gm.graph))
    closing = _close(captured.gm, program)
    door = _door(program, captured.gm, stored)
    origins = _origins(program, stored)
    captured = Captured(captured.gm, "inference", {**captured.constants, **stored}, stored=origins)
    if settings.freeze:
        captured, _ = frozen(captured)
    run = compile_captured(captured, settings)
    trees = program.call_spec

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = flatten_call(trees.in_spec, args, kwargs)
        except ValueError as e:
            raise KeelError("bad-input", _MISFIT, {"program": str(e)}) from None
        with torch.no_grad(), without_autocast():
            graph_inputs = door.enter(arguments)
            results = run([graph_inputs[i] for i in door.graph_inputs])
            return unflatten(trees.out_spec, closing(arguments, graph_inputs, results, stored))

    return call


def _stored(program: ExportedProgram) -> dict[str, torch.Tensor]:
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


def _origins(program: ExportedProgram, stored: Mapping[str, torch.Tensor]) -> dict[str, StoredTensor]:
    """What the program's tensors are in the model, by placeholder name. Those that never change are left out."""
    kinds: Mapping[InputKind, StoredKind] = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs if s.kind in kinds}
    written = {out.target for out in program.graph_signature.output_specs if out.kind in _WRITES}
    return {
        name: StoredTensor(kinds[spec.kind], str(spec.target), weakref.ref(stored[name]), spec.target in written)
        for name, spec in specs.items()
    }


# -- before a call ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Door:
    """Checks the leaves of a call's arguments. ``fixed`` maps numbers of leaves to the values that the program was
    exported for.
    """

    names: tuple[str, ...]
    types: Mapping[int, Type]
    fixed: Mapping[int, Any]
    ranges: Mapping[Any, Any]
    graph_inputs: tuple[int, ...]

    def enter(self, leaves: list[Any]) -> list[Any]:
        """Returns the leaves in the form that the graph takes. Raises KeelError[bad-input]."""
        wrong = {
            self.names[i]: f"It is {leaves[i]!r}, but the program was exported for {value!r}."
            for i, value in self.fixed.items()
            if type(leaves[i]) is not type(value) or leaves[i] != value
        }
        order = [i for i in self.types if self._fits(i, leaves[i])]
        known = bind([self.types[i] for i in order], [leaves[i] for i in order])
        for i, want in self.types.items():
            if (why := mismatch(want, leaves[i], known, strides=False)) is not None:
                wrong[self.names[i]] = why.sentence
        for size, span in self.ranges.items():
            if (value := known.get(str(size))) is not None and not span.lower <= value <= span.upper:
                wrong[str(size)] = f"This size is {value}, not between {span.lower} and {span.upper}."
        if wrong:
            raise KeelError("bad-input", _MISFIT, wrong)
        inputs = list(leaves)
        for i, want in self.types.items():
            if isinstance(want, TensorType):
                inputs[i] = _laid_out(self.names[i], want, resolve_lazy_bits(leaves[i]), known)
        return inputs

    def _fits(self, i: int, value: Any) -> bool:
        want = self.types[i]
        return (
            isinstance(value, torch.Tensor) and value.dim() == want.rank
            if isinstance(want, TensorType)
            else isinstance(value, int | float)
        )


def _door(program: ExportedProgram, gm: fx.GraphModule, stored: Mapping[str, Any]) -> _Door:
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
    return _Door(tuple(names), types, fixed, program.range_constraints, tuple(names.index(n) for n in left))


def _laid_out(name: str, want: TensorType, x: torch.Tensor, known: Mapping[str, int]) -> torch.Tensor:
    """A tensor with the strides that the graph was traced for: the argument itself if it has them, else a copy. Raises
    KeelError[bad-input] if the graph takes a tensor that is expanded, and elements that would be one differ.
    """
    strides = strides_of(want, known)
    if all(n <= 1 or s in (None, t) for n, s, t in zip(x.shape, strides, x.stride(), strict=True)):
        return x
    solid = [t if s is None else s for s, t in zip(strides, x.stride(), strict=True)]
    copy = with_strides(x, solid)
    for d, (n, step, t) in enumerate(zip(x.shape, solid, x.stride(), strict=True)):
        if n > 1 and step == 0 != t and not torch.equal(x, x.narrow(d, 0, 1).expand_as(x)):
            why = f"Its elements differ along dimension {d}, along which the example of the export was expanded."
            raise KeelError("bad-input", _MISFIT, {name: why}, do="Export the program with an example of contiguous().")
    return copy


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
    inputs: dict[tuple[str, int | str], fx.Node] = field(default_factory=dict)
    made: dict[fx.Node, fx.Node] = field(default_factory=dict)
    solid: list[fx.Node] = field(default_factory=list)

    def input(self, kind: str, which: int | str) -> fx.Node:
        if (kind, which) not in self.inputs:
            first = next(iter(self.graph.nodes), None)
            with self.graph.inserting_before(first):
                self.inputs[kind, which] = self.graph.placeholder(f"{kind}_{which}")
        return self.inputs[kind, which]

    def stored_or(self, kind: str, name: str) -> fx.Node:
        return self.input(kind, self.numbers[name]) if name in self.numbers else self.input("stored", name)

    def value(self, node: fx.Node, views: Mapping[fx.Node, frozenset[fx.Node]]) -> fx.Node:
        """The node's value: a view or a size is computed here again, and anything else is a result of the graph."""
        if node not in self.made:
            if node.op == "placeholder":
                self.made[node] = self.stored_or("input", node.name)
            elif is_size(node) or (node.op == "call_function" and views[node] != {node}):
                for a in node.all_input_nodes:
                    self.value(a, views)
                self.made[node] = self.graph.node_copy(node, self.made.__getitem__)
            else:
                self.made[node] = self.input("result", len(self.solid))
                self.solid.append(node)
        return self.made[node]


def _close(gm: fx.GraphModule, program: ExportedProgram) -> Callable[..., tuple[Any, ...]]:
    """Removes mutations and views from ``gm``, and returns a function that applies them after a call.

    The function takes the leaves as the caller passed them, the leaves as the graph took them, the graph's results, and
    the stored tensors. It returns the user's results, flat.
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
        if isinstance(node, fx.Node):
            value = written.get(node) or (
                closing.stored_or("argument", node.name) if node.op == "placeholder" else value
            )
        results.append(value)
    closing.graph.output(tuple(results))
    gm.graph.output_node().args = (tuple(closing.solid),)
    end = fx.GraphModule({}, closing.graph, class_name="closing")
    order = [k for k, n in sorted(closing.inputs.items(), key=lambda kn: list(closing.graph.nodes).index(kn[1]))]

    def close(arguments: Any, inputs: Any, results: Any, stored: Any) -> tuple[Any, ...]:
        sides = {"argument": arguments, "input": inputs, "result": results, "stored": stored}
        closed: tuple[Any, ...] = end(*(sides[kind][which] for kind, which in order))
        return closed

    return close


def _write(
    closing: _Closing,
    program: ExportedProgram,
    outputs: Sequence[tuple[Any, Any]],
    values: list[Any],
    views: Mapping[fx.Node, frozenset[fx.Node]],
) -> dict[fx.Node, fx.Node]:
    """Appends the program's writes, after all values have been read. Maps nodes to the tensors that they are written
    to.
    """
    name_of = {str(s.target): s.arg.name for s in program.graph_signature.input_specs if s.target is not None}
    todo = []
    for (node, spec), value in zip(outputs, values, strict=True):
        if spec.kind in _WRITES:
            if any(b.op == "placeholder" for b in views[node]):
                value = closing.graph.call_function(aten.clone.default, (value,))
            todo.append((node, str(spec.target), value))
    written: dict[fx.Node, fx.Node] = {}
    for node, target, value in todo:
        place = closing.stored_or("argument", name_of.get(target, target))
        written[node] = closing.graph.call_function(aten.copy_.default, (place, value))
    return written
