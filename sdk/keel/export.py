"""Exported programs: the same line without Dynamo and autograd, with what is not a value done here.

The compiled graph is pure.  What the program writes (buffers, inputs) is copied where it belongs after each call, and
results that are views are taken from their bases, so they share memory as they do in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from keel.compiler import compile_captured
from keel.errors import KeelError
from keel.graph.calls import alias_bases, type_of
from keel.plugin import Backend
from keel.runtime.contract_checks import bind, mismatch, strides_of
from keel.runtime.link import is_size, resolve_lazy_bits
from keel.serialize.save import unfit_program
from keel.settings import read_settings
from keel.torch_adapter import Captured, Symbolic, flatten_call, functional, tidied, unflatten, without_autocast
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
) -> Callable[..., Any]:
    """``program`` as a callable with the signature it was exported with, each operator by the first backend that takes
    it.

    Parameters and buffers are the program's own tensors, by reference: loading a state dict in place takes effect.  No
    gradients are computed.  Arguments must have the types that the program was exported for, and sizes in its ranges;
    that is checked on every call (KeelError[bad-input]).  Arguments with other strides are copied first.

    Raises KeelError as ``keel.compile`` does, and KeelError[bad-graph] for programs with effects, objects or gradients.
    """
    settings = read_settings(None, {"backends": backends, "strict": strict, "fuel": fuel})
    program = functional(program)
    stored = _stored(program)
    captured = tidied(program.graph_module, "inference")
    closing = _close(captured.gm, program)
    door = _door(program, captured.gm, stored)
    run = compile_captured(Captured(captured.gm, "inference", {**captured.constants, **stored}), settings)
    trees = program.call_spec

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = flatten_call(trees.in_spec, args, kwargs)
        except ValueError as e:
            raise KeelError("bad-input", _MISFIT, {"program": str(e)}) from None
        with torch.no_grad(), without_autocast():
            taken = door.enter(given)
            found = run([taken[i] for i in door.graph_inputs])
            return unflatten(trees.out_spec, closing(given, taken, found, stored))

    return call


def _stored(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors that the program carries, by placeholder name."""
    found: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _STORED:
            target = str(spec.target)
            held = program.state_dict if target in program.state_dict else program.constants
            found[spec.arg.name] = held[target]
        elif spec.kind is not InputKind.USER_INPUT:
            raise unfit_program(spec.arg.name, spec.kind.name)
    for out in program.graph_signature.output_specs:
        if out.kind not in (*_WRITES, OutputKind.USER_OUTPUT):
            raise unfit_program(out.arg.name, out.kind.name)
    return found


# -- before a call ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Door:
    """Checks a call's leaves.  ``fixed`` are the values of leaves that the program was exported for, by number."""

    names: tuple[str, ...]
    types: Mapping[int, Type]
    fixed: Mapping[int, Any]
    ranges: Mapping[Any, Any]
    graph_inputs: tuple[int, ...]

    def enter(self, given: list[Any]) -> list[Any]:
        """The leaves as the graph takes them.  Raises KeelError[bad-input]."""
        wrong = {
            self.names[i]: f"It is {given[i]!r}, not {value!r}, for which the program was exported."
            for i, value in self.fixed.items()
            if type(given[i]) is not type(value) or given[i] != value
        }
        order = [i for i in self.types if self._fits(i, given[i])]
        known = bind([self.types[i] for i in order], [given[i] for i in order])
        for i, want in self.types.items():
            if (why := mismatch(want, given[i], known, strides=False)) is not None:
                wrong[self.names[i]] = why.sentence
        for size, span in self.ranges.items():
            if (value := known.get(str(size))) is not None and not span.lower <= value <= span.upper:
                wrong[str(size)] = f"This size is {value}, not between {span.lower} and {span.upper}."
        if wrong:
            raise KeelError("bad-input", _MISFIT, wrong)
        taken = list(given)
        for i, want in self.types.items():
            if isinstance(want, TensorType):
                taken[i] = _laid_out(want, resolve_lazy_bits(given[i]), known)
        return taken

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


def _laid_out(want: TensorType, given: torch.Tensor, known: Mapping[str, int]) -> torch.Tensor:
    """``given``, or a copy of it, with the strides that the graph was traced for."""
    strides = strides_of(want, known)
    if all(n <= 1 or s in (None, t) for n, s, t in zip(given.shape, strides, given.stride(), strict=True)):
        return given
    solid = [t if s is None else s for s, t in zip(strides, given.stride(), strict=True)]
    return torch.empty_strided(given.shape, solid, dtype=given.dtype, device=given.device).copy_(given)


# -- after a call ------------------------------------------------------------------------------------------


@dataclass
class _Closing:
    """What follows a call, as a graph that PyTorch runs: writes, views, and the order of results.

    ``inputs`` says what its placeholders are given: a leaf as it came (``given``) or as the graph took it (``taken``),
    by number, a ``stored`` tensor, by name, or a result (``found``), by number.
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
        """The node's value: a view or a size is taken again, all else is a result of the graph."""
        if node not in self.made:
            if node.op == "placeholder":
                self.made[node] = self.stored_or("taken", node.name)
            elif is_size(node) or (node.op == "call_function" and views[node] != {node}):
                for a in node.all_input_nodes:
                    self.value(a, views)
                self.made[node] = self.graph.node_copy(node, self.made.__getitem__)
            else:
                self.made[node] = self.input("found", len(self.solid))
                self.solid.append(node)
        return self.made[node]


def _close(gm: fx.GraphModule, program: ExportedProgram) -> Callable[..., tuple[Any, ...]]:
    """Takes out of ``gm`` what is not a value, and returns what does it.

    That is called with the leaves as they came, the leaves as the graph took them, the graph's results, and the stored
    tensors; it returns the user's results, flat.
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
            value = written.get(node) or (closing.stored_or("given", node.name) if node.op == "placeholder" else value)
        results.append(value)
    closing.graph.output(tuple(results))
    gm.graph.output_node().args = (tuple(closing.solid),)
    end = fx.GraphModule({}, closing.graph, class_name="closing")
    order = [k for k, n in sorted(closing.inputs.items(), key=lambda kn: list(closing.graph.nodes).index(kn[1]))]

    def close(given: Any, taken: Any, found: Any, stored: Any) -> tuple[Any, ...]:
        sides = {"given": given, "taken": taken, "found": found, "stored": stored}
        results: tuple[Any, ...] = end(*(sides[kind][which] for kind, which in order))
        return results

    return close


def _write(
    closing: _Closing,
    program: ExportedProgram,
    outputs: Sequence[tuple[Any, Any]],
    values: list[Any],
    views: Mapping[fx.Node, frozenset[fx.Node]],
) -> dict[fx.Node, fx.Node]:
    """Writes what the program writes, all of it after all of it is known; by node, the tensor it was written to."""
    name_of = {str(s.target): s.arg.name for s in program.graph_signature.input_specs if s.target is not None}
    todo = []
    for (node, spec), value in zip(outputs, values, strict=True):
        if spec.kind in _WRITES:
            if any(b.op == "placeholder" for b in views[node]):
                value = closing.graph.call_function(aten.clone.default, (value,))
            todo.append((node, str(spec.target), value))
    written: dict[fx.Node, fx.Node] = {}
    for node, target, value in todo:
        place = closing.stored_or("given", name_of.get(target, target))
        written[node] = closing.graph.call_function(aten.copy_.default, (place, value))
    return written
