"""A compiled graph as one flat program for the C++ runtime: values are slots, and sizes expressions over symbols.

The program has what happens around the parts, too: arguments are checked and laid out, results that are views are made,
and new contents are copied into weights and arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from keel.artifact.runtime_boundary import Arguments, Ending, Weights
from keel.artifact.runtime_data import ProgramData
from keel.artifact.runtime_host import HostPart
from keel.artifact.runtime_kernels import KernelFunctions
from keel.artifact.runtime_launches import Launches
from keel.artifact.runtime_tables import symbol_names
from keel.artifact.runtime_views import ViewMaker, type_in
from keel.graph.calls import is_call
from keel.plugin import CodeObject
from keel.runtime.call_boundary import CallBoundary
from keel.runtime.link_program import LinkProgram, Value
from keel.runtime.part_interface import BuiltPart
from keel.serialize.codec import Data, NotSerializable
from keel.types import SymType, TensorType, leaves, operator_name

SHOWN = 4
"""The most operators of a part that a sentence names."""
FORMAT = 1
"""The version of programs. A runtime refuses others."""


@dataclass(frozen=True)
class RuntimeGraph:
    """A compiled graph, with what happens around it.

    ``code`` has the machine code of each loop-level part, by name, with the members of the package that hold it.
    ``weights`` are the tensors that the program carries, by placeholder, with their names in the package and their
    types. ``saved`` has the member with the bytes of each graph-level part that a library of its vendor runs, by name.
    """

    boundary: CallBoundary
    link: LinkProgram
    parts: Sequence[BuiltPart]
    code: Mapping[str, Sequence[tuple[str, CodeObject]]]
    weights: Mapping[str, tuple[str, TensorType]]
    saved: Mapping[str, str] = field(default_factory=dict)


def runtime_program(graph: RuntimeGraph) -> Data:
    """The program, as JSON. Raises NotSerializable with a sentence if the graph cannot run without Python."""
    return _Printer(graph).program()


class _Printer:
    def __init__(self, graph: RuntimeGraph) -> None:
        self.graph, self.data = graph, ProgramData()
        self.tables = self.data.tables
        self.scope: dict[str, int] = {}
        self.values: dict[str, Any] = {}  # of the graph's nodes: a slot, or a number with its expression
        self.held: frozenset[int] = frozenset()  # the slots of weights, and of what the end of a call needs

    def program(self) -> Data:
        graph, data = self.graph, self.data
        if graph.link.sizes:
            raise NotSerializable("The graph returns sizes, which the graph of an exported program leaves out.")
        if lazy := sorted(graph.link.lazy.difference(graph.link.inputs)):
            raise NotSerializable(f"The C++ runtime has no complex tensors, of which {lazy[0]} may be a part.")
        weights = Weights(data, graph.weights)
        arguments = Arguments(data, self.scope, graph.boundary)
        sides = {"argument": arguments.passed, "input": arguments.inputs}
        needed = [sides[side][which] for side, which in graph.boundary.end_inputs if side in sides]  # type: ignore[index]
        self.held = frozenset(v for v in (*weights.slots.values(), *needed) if isinstance(v, int))
        self.values |= {name: weights.slots[name] for name in graph.link.constants}
        self.values |= {
            n: arguments.inputs[i] for n, i in zip(graph.link.inputs, graph.boundary.graph_inputs, strict=True)
        }
        self._run_parts()
        returned = [self.values[v.name] if isinstance(v, Value) else None for v in graph.link.results]
        results = Ending(data, self.scope, graph.boundary).write(arguments, returned, weights)
        return {
            "format": FORMAT,
            "symbols": self.tables.symbols,
            "expressions": self.tables.expressions,
            "types": self.tables.types,
            "slots": data.slots,
            "inputs": arguments.described,
            "outputs": [[f"result_{k}", *result] for k, result in enumerate(results)],
            "weights": weights.described(),
            "code": data.code,
            "functions": data.functions,
            "arenas": data.arenas,
            "records": data.records,
            "packed": data.packed,
            "parts": data.parts,
            "steps": data.steps,
        }

    def _run_parts(self) -> None:
        """Writes the parts in order. Slots are freed after their last use."""
        parts, results = self.graph.parts, [v.name for v in leaves(self.graph.link.results) if isinstance(v, Value)]
        for k, part in enumerate(parts):
            later = {*results, *(n for p in parts[k + 1 :] for n in p.interface.inputs)}
            before = {v for n in later if isinstance(v := self.values.get(n), int)} | self.held
            self._run(part, before)
            after = {v for n in later if isinstance(v := self.values.get(n), int)} | self.held
            self._free((self.values[n] for n in (*part.interface.inputs, *part.interface.outputs)), after)

    def _free(self, values: Any, held: Set[int]) -> None:
        for slot in dict.fromkeys(values):
            if isinstance(slot, int) and slot not in held:
                self.data.free(slot)

    def _run(self, part: BuiltPart, held: Set[int]) -> None:
        """Writes one part. Of its inputs it frees none that are ``held``."""
        at, inputs = part.interface, [self.values[n] for n in part.interface.inputs]
        viewed = [inputs[i] for i in at.views.inputs] if at.views is not None else []
        computed = self._computed(part, inputs, {*held, *(v for v in viewed if isinstance(v, int))})
        results = computed
        if at.views is not None:
            graph = at.views.graph.graph
            known = dict(zip(graph.find_nodes(op="placeholder"), (*viewed, *computed), strict=True))
            for node, value in known.items():
                if isinstance(value, int):
                    self.data.bind_sizes(self.scope, type_in(node), value)
            views = ViewMaker(self.data, self.scope, graph, known)
            returned: Sequence[Any] = graph.output_node().args[0]  # type: ignore[assignment]
            results = [views.value(node) for node in returned]
        for name, type, value in zip(at.outputs, at.promised.outputs, results, strict=True):
            self.values[name] = value
            if isinstance(value, int) and isinstance(type, TensorType):
                self.data.bind_sizes(self.scope, type, value)
        self._free(computed, {*held, *(v for v in results if isinstance(v, int))})

    def _computed(self, part: BuiltPart, inputs: Sequence[Any], held: Set[int]) -> list[Any]:
        """Writes what the backend of a part computes."""
        at = part.interface
        if (loop_part := part.loop_part) is None:
            if HostPart.is_one(part.graph.graph):
                return HostPart(self.data, self.scope, part.graph.graph, inputs).write()
            return self._saved_part(part, inputs)
        functions = KernelFunctions(self.data, loop_part.program.kernels(), self.graph.code.get(at.name, ()))
        return Launches(self.data, loop_part.program, inputs, functions, at.name, held).write()

    def _saved_part(self, part: BuiltPart, inputs: Sequence[Any]) -> list[int]:
        """Writes a part that a library of its vendor runs."""
        at, owner = part.interface, part.graph.part.owner.name
        if (member := self.graph.saved.get(at.name)) is None:
            called = dict.fromkeys(operator_name(n.target) for n in part.graph.graph.nodes if is_call(n))
            names = ", ".join([*called][:SHOWN]) + (" ..." if len(called) > SHOWN else "")
            raise NotSerializable(f"Part {at.name} is compiled by {owner}, which runs it in Python: {names}.")
        outputs = []
        for type in (at.promised if at.computed is None else at.computed).outputs:
            if not isinstance(type, TensorType):
                raise NotSerializable(f"Part {at.name}, which {owner} compiled, returns a number.")
            if missing := [s for s in symbol_names((*type.shape, *type.strides)) if s not in self.scope]:
                raise NotSerializable(f"The size {missing[0]} of a result of part {at.name} depends on data.")
            outputs.append([self.data.slot(), self.tables.type(type, self.scope)])
        passed = [["number", v.expr, v.kind] if isinstance(v, SymType) else ["tensor", v] for v in inputs]
        self.data.parts.append([owner, member])
        self.data.do("part", len(self.data.parts) - 1, passed, outputs)
        for slot, type_number in outputs:
            self.data.do("lay_out", slot, type_number, [])
        return [slot for slot, _ in outputs]
