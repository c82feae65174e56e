"""A part's FX graph as tensors and steps on plain integers, the input of the scheduler.

Every tensor of the graph has a number. It is an input (a placeholder), defined (a lowering rule computes its elements),
the result of a library call, or a view that shares another tensor's storage. A view is also defined, so kernels can
read through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.assertion_calls import asserts
from keel.graph.calls import call_of, source_line, type_of, types_of
from keel.graph.module_paths import module_path
from keel.loops.builder import LoopDefinition, Read
from keel.loops.host_symbols import hosted_type
from keel.loops.index import Axis, index
from keel.loops.ir import Apply, Reduce
from keel.loops.lower import calls_by_result
from keel.plugin import Extern
from keel.spec import bind
from keel.symbols import HostNumbers, free_symbols, implied_symbols
from keel.torch_adapter import dim_of, hides_alias, map_leaves, may_alias
from keel.types import Call, Dim, SymType, TensorType, Type, as_dim, leaves


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph. ``alias`` is (base tensor, offset in elements) for one that shares another's storage."""

    name: str
    type: TensorType
    alias: tuple[int, Dim] | None = None


@dataclass(frozen=True, slots=True)
class LoopNode:
    """A node with a lowering rule: ``results[k]`` is computed by ``definition`` from ``operands``.

    ``operator`` is the overload's name, ``line`` the user's line that made it, and ``module`` the path of its module.
    """

    name: str
    definition: LoopDefinition
    operands: tuple[int, ...]
    results: tuple[int, ...]
    operator: str = ""
    line: str | None = None
    module: str = ""


@dataclass(frozen=True, slots=True)
class CheckSite:
    """A bounds check of a kernel: the operator of the index, and the bound below which it must be; with ``wrap``, the
    index must be at least -bound. ``result`` is the tensor that the operator computes.
    """

    operator: str
    line: str | None
    bound: Dim
    wrap: bool
    result: int = -1


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of tensor ``number`` in an extern's arguments."""

    number: int


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A library call: ``args`` and ``kwargs`` have a Slot for each tensor and a SymType for each symbolic integer.

    ``absolute`` says that its offsets count from the start of its operand's storage, not from the operand. ``module``
    is the path of its module.
    """

    name: str
    extern: Extern
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...]  # -1 for an output that is not a tensor
    absolute: bool = False
    module: str = ""

    @property
    def operands(self) -> tuple[int, ...]:
        return tuple(v.number for v in leaves((*self.args, *self.kwargs.values())) if isinstance(v, Slot))


Node = LoopNode | ExternCall
VALUE_ALONE = {"argmax": "max", "argmin": "min"}


@dataclass
class TensorGraph:
    """The part: ``inputs`` are placeholders in order (a tensor number, or a SymType), ``outputs`` likewise (None for
    None).
    """

    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # in topological order
    inputs: list[int | SymType] = field(default_factory=list)
    outputs: list[int | SymType | None] = field(default_factory=list)
    checks: dict[int, tuple[CheckSite, ...]] = field(default_factory=dict)  # of the tensors that checks record in
    host: HostNumbers = field(default_factory=HostNumbers)  # what symbols of the sizes stand for

    def trouble(self, sites: tuple[CheckSite, ...], device: torch.device) -> int:
        """Adds a tensor for the results of the checks at ``sites``."""
        self.tensors.append(Tensor("trouble", TensorType.dense(torch.int64, (len(sites),), device)))
        self.checks[len(self.tensors) - 1] = sites
        return len(self.tensors) - 1

    def base(self, number: int) -> tuple[int, Dim]:
        """Returns the tensor whose storage ``number`` uses, and its offset there, in elements."""
        offset: Dim = 0
        while (alias := self.tensors[number].alias) is not None:
            number, offset = alias[0], as_dim(offset + alias[1])
        return number, offset

    def memories(self, number: int, views: Mapping[int, int]) -> Iterator[int]:
        """The base tensor that ``number`` lies in, then those that a library's view of them lies in, where ``views``
        are ``library_views``.
        """
        base, _ = self.base(number)
        yield base
        if base in views:
            yield from self.memories(views[base], views)


def library_views(nodes: Iterable[object]) -> dict[int, int]:
    """The tensors that library calls among ``nodes`` return as views, each with the tensor that it views."""
    calls = (n for n in nodes if isinstance(n, ExternCall) and n.extern.view and n.operands)
    return {call.results[0]: call.operands[0] for call in calls}


def copy_node(name: str, type: TensorType, source: int, result: int, module: str) -> LoopNode:
    """Returns the node that copies tensor ``source`` to ``result``, which is of ``type``, for a call in ``module``."""
    axes = tuple(Axis(f"c{n}", size) for n, size in enumerate(type.shape))
    read = Read(0, 0, tuple(map(index, axes)), type.dtype)
    return LoopNode(name, LoopDefinition("map", axes, (), (read,), (0,)), (source,), (result,), module=module)


def with_slots(node: ExternCall, slots: Mapping[int, int]) -> ExternCall:
    """Returns the call with other tensors in the place of those in ``slots``."""

    def one(arg: Any) -> Any:
        return Slot(slots.get(arg.number, arg.number)) if isinstance(arg, Slot) else arg

    return replace(node, args=map_leaves(one, node.args), kwargs=map_leaves(one, dict(node.kwargs)))


Lower = Callable[[Call, HostNumbers], LoopDefinition | str]


@dataclass(frozen=True)
class Instead:
    """Library calls that take the place of several nodes: each by the last of its nodes, with the tensors that it
    takes. ``absorbed`` are the other nodes, whose values nothing else uses. ``modules`` are the paths of the modules of
    each call.
    """

    calls: Mapping[fx.Node, tuple[Extern, tuple[fx.Node, ...]]] = field(default_factory=dict)
    absorbed: Set[fx.Node] = frozenset()
    modules: Mapping[fx.Node, str] = field(default_factory=dict)


def build_tensor_graph(
    gm: fx.GraphModule, lower: Lower, externs: Mapping[str, Extern], instead: Instead | None = None
) -> TensorGraph:
    """Builds the tensor graph of ``gm``, with sizes and numbers that kernels can compute.

    Raises KeelError[no-lowering] for a node that has neither a rule nor an extern.
    """
    return _Reader(lower, externs, instead or Instead()).read(gm)


class _Reader:
    def __init__(self, lower: Lower, externs: Mapping[str, Extern], instead: Instead):
        self.lower, self.externs, self.instead = lower, externs, instead
        self.out = TensorGraph()
        self.values: dict[fx.Node, Any] = {}  # tensor number, SymType, or a tuple of them
        self.undeclared: set[int] = set()  # the tensors that are views though their schemas declare fresh memory

    def read(self, gm: fx.GraphModule) -> TensorGraph:
        self.out.host = HostNumbers(_names(gm))
        self._stand_for_inputs(gm)
        for node in gm.graph.nodes:
            match node.op:
                case "placeholder":
                    type = self._type(node.meta["val"])
                    value = type if isinstance(type, SymType) else self._fresh(node.name, type)
                    self.out.inputs.append(value)
                    self.values[node] = value
                case "output":
                    self.out.outputs.extend(self._value(a) for a in node.args[0])
                case "call_function" if node in self.instead.calls:
                    self.values[node] = self._instead(node, *self.instead.calls[node])
                case "call_function" if node not in self.instead.absorbed:
                    self.values[node] = self._node(node)
                case "call_function":
                    pass
                case _:
                    raise KeelError("bad-graph", f"A part holds {node.format_node()}, which no loop backend takes.")
        self._separate_results()
        used = {t for t in self.out.outputs if isinstance(t, int)}.union(*(n.operands for n in self.out.nodes))
        self.out.nodes = [_narrowed(n, used) if isinstance(n, LoopNode) else n for n in self.out.nodes]
        return self.out

    def _fresh(self, name: str, type: Type, alias: tuple[int, Dim] | None = None) -> int:
        if not isinstance(type, TensorType):
            raise KeelError("bad-graph", f"%{name} gives a number, which no loop backend computes.")
        self.out.tensors.append(Tensor(name, type, alias))
        return len(self.out.tensors) - 1

    def _value(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return self.values[arg]
        if isinstance(arg, list | tuple):
            return [self._value(a) for a in arg]
        return arg

    def _node(self, node: fx.Node) -> Any:
        call = call_of(node)
        if call is None:  # getitem, or arithmetic on sizes
            if str(getattr(node.target, "__name__", "")) == "getitem" and isinstance(node.args[0], fx.Node):
                return self.values[node.args[0]][node.args[1]]
            return self._type(node.meta["val"])
        if asserts(node):  # whose order no schedule keeps
            raise KeelError("bad-graph", f"%{node.name} = {call} is an assertion, which no loop backend takes.")
        vals = node.meta["val"]
        several = isinstance(vals, list | tuple)
        if call.name in self.externs and _takes(self.externs[call.name], call):
            # A number among the results (a sequence length, say) is known from the types already.
            out = [hosted_type(t, self.out.host) for t in call.out]
            values = [self._fresh(node.name, t) if isinstance(t, TensorType) else t for t in out]
            results = tuple(v if isinstance(v, int) else -1 for v in values)
            self.out.nodes.append(
                ExternCall(
                    node.name,
                    self.externs[call.name],
                    tuple(map(self._slots, node.args)),
                    {k: self._slots(v) for k, v in node.kwargs.items()},
                    results,
                    bind(call).get("storage_offset") is not None,
                    module_path(node),
                )
            )
            return values if several else values[0]
        made: list[Any] = [None] * len(call.out)
        for each in calls_by_result(call):
            results_left = iter(self._loops(node, each))
            made = [m if t is None else next(results_left) for m, t in zip(made, each.out, strict=True)]
        return made if several else made[0]

    def _loops(self, node: fx.Node, call: Call) -> tuple[int, ...]:
        """Adds the loops of ``call``, which is all of ``node`` or some results of it, and returns the results."""
        definition = self.lower(call, self.out.host)
        if isinstance(definition, str):
            raise KeelError("no-lowering", f"{call} has no loop form and no extern.", {"lowering": definition})
        nodes = [a for a in leaves((*node.args, *node.kwargs.values())) if isinstance(a, fx.Node)]
        operands = tuple(self.values[n] for n in nodes if not isinstance(self.values[n], SymType))
        definition, operands = _without_unread(definition, operands)
        alias = self._alias(node, definition, operands)
        results = tuple(self._fresh(node.name, hosted_type(t, self.out.host), alias) for t in call.out if t is not None)
        if alias is not None and hides_alias(call.op):
            self.undeclared.update(results)
        origin = call.name, source_line(node), module_path(node)
        self.out.nodes.append(LoopNode(node.name, definition, operands, results, *origin))
        return results

    def _instead(self, node: fx.Node, extern: Extern, operands: Sequence[fx.Node]) -> int:
        result = self._fresh(node.name, self._type(node.meta["val"]))
        args = tuple(map(self._slots, operands))
        module = self.instead.modules.get(node, "")
        self.out.nodes.append(ExternCall(node.name, extern, args, {}, (result,), module=module))
        return result

    def _slots(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            value = self.values[arg]
            return value if isinstance(value, SymType) else Slot(value)
        if isinstance(arg, list | tuple):
            return [self._slots(a) for a in arg]
        return arg

    def _alias(self, node: fx.Node, definition: LoopDefinition, operands: Sequence[int]) -> tuple[int, Dim] | None:
        """Returns where the node's storage is, if it is a view."""
        if not definition.is_view or len(operands) != 1 or may_alias(node.target).get(0) != (0,):
            return None
        source = next(a for a in node.args if isinstance(a, fx.Node))
        here, there = (dim_of(n.meta["val"].storage_offset()) for n in (node, source))
        return operands[0], as_dim(self.out.host.integer(as_dim(here - there)))

    def _separate_results(self) -> None:
        """Gives memory of their own to undeclared views that would share an input's, or another result's.

        Results may share memory only as schemas declare, since the caller may write to one of them.
        """
        views = library_views(self.out.nodes)
        owners: dict[int, int] = {}
        outside = {self._declared(t) for t in (*self.out.inputs, *self.out.outputs) if isinstance(t, int)}
        for declared in sorted(outside, key=lambda t: (t in self.undeclared, t)):
            *_, memory = self.out.memories(declared, views)
            if owners.setdefault(memory, declared) != declared and declared in self.undeclared:
                self.out.tensors[declared] = replace(self.out.tensors[declared], alias=None)

    def _declared(self, tensor: int) -> int:
        """The tensor in whose memory ``tensor`` lies as far as schemas say."""
        while tensor not in self.undeclared and (alias := self.out.tensors[tensor].alias) is not None:
            tensor, _ = alias
        return tensor

    def _type(self, value: Any) -> Any:
        return hosted_type(type_of(value), self.out.host)

    def _stand_for_inputs(self, gm: fx.GraphModule) -> None:
        """Gives a symbol to each size and number of the inputs whose own symbols no input determines."""
        types = [type_of(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder")]
        sizes = [d for t in types if isinstance(t, TensorType) for d in t.shape]
        strides = [d for t in types if isinstance(t, TensorType) for d in t.strides if isinstance(d, sympy.Symbol)]
        sizes += [t.expr for t in types if isinstance(t, SymType) and t.kind == "int"]
        known = implied_symbols([*strides, *sizes])
        for d in sizes:
            if not known.issuperset(free_symbols(d)):
                self.out.host.stand(d)


def _names(gm: fx.GraphModule) -> frozenset[str]:
    """Returns the names of all symbols in a graph."""
    values = [t for n in gm.graph.nodes for t in types_of(n.meta.get("val"))]
    return frozenset(
        s
        for t in values
        for s in (t.symbols if isinstance(t, TensorType) else free_symbols(t.expr) if isinstance(t, SymType) else ())
    )


def _without_unread(definition: LoopDefinition, operands: Sequence[int]) -> tuple[LoopDefinition, tuple[int, ...]]:
    """Returns the definition and its operands without operands that give no elements, only a type or sizes.

    ``aten.copy`` has such an operand first, so a copy would pass for a view of what it overwrites.
    """
    read = {s.operand for s in definition.steps if isinstance(s, Read)}
    if definition.base is not None:
        read.add(definition.base)
    if len(read) == len(operands):
        return definition, tuple(operands)
    numbers = {operand: number for number, operand in enumerate(sorted(read))}
    steps = tuple(replace(s, operand=numbers[s.operand]) if isinstance(s, Read) else s for s in definition.steps)
    base = None if definition.base is None else numbers[definition.base]
    return replace(definition, steps=steps, base=base), tuple(operands[n] for n in numbers)


def _narrowed(node: LoopNode, used: Set[int]) -> LoopNode:
    """Returns ``node`` without positions, if it reduces values with their positions and the positions are unused."""
    definition = node.definition
    reduce = next((s for s in definition.steps if isinstance(s, Reduce) and s.monoid in VALUE_ALONE), None)
    if reduce is None or reduce.dtypes[0] == torch.bool:
        return node
    outputs = [o for o, t in zip(definition.outputs, node.results, strict=True) if t in used]
    live = set(outputs)
    for step in reversed(definition.steps):
        if isinstance(step, Apply) and step.result in live:
            live.update(step.args)
    if not outputs or reduce.results[1] in live:
        return node
    alone = Reduce(reduce.results[:1], VALUE_ALONE[reduce.monoid], reduce.args[:1], reduce.dtypes[:1])
    steps = tuple(alone if s is reduce else s for s in definition.steps)
    results = tuple(t for t in node.results if t in used)
    return replace(node, definition=replace(definition, steps=steps, outputs=tuple(outputs)), results=results)


def _takes(extern: Extern, call: Call) -> bool:
    return extern.refuse is None or extern.refuse(call) is None
