"""Removes the input mutations that AOTAutograd leaves at the end of its graphs, so that compiled graphs are functional.
PyTorch applies the mutations after each call.

A graph that Keel compiles returns the new contents as its last results. AOTAutograd puts an input's mutation into a
graph if autograd does not have to follow it: ``copy_`` of the new contents, ``set_`` where the program gave the input
other memory (``x.data = y``), and a resize of its storage. All others it applies itself.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import fx
from torch._ops import OpOverload
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from keel.torch_adapter.operators import may_alias
from keel.torch_adapter.sympy_expressions import dim_of
from keel.types import Dim, contiguous_strides

aten = torch.ops.aten
Boxed = Callable[[list[Any]], Sequence[Any]]
_SETS = frozenset({"aten::set_", "aten::shallow_copy_data_"})
"""Operators that give an input other memory. The second is ``x.data = y`` from PyTorch 2.14 on."""
_MUTATIONS = frozenset({"aten::copy_", "inductor::resize_storage_bytes_"}) | _SETS
COPIED = "keel.copied"


@dataclass(frozen=True)
class Mutations:
    """The mutations of a graph's inputs after each call. ``program`` takes the inputs with the numbers ``inputs`` and
    the last ``values`` results of the graph. ``copied`` are the numbers of results that share memory with a mutated
    input and must keep their values, so they are copied. ``shares`` is True if an input may take over the memory of a
    result. ``overwrites`` are pairs of a result and the input that it is copied to: a graph may write the result to the
    input's memory instead, and return the input.
    """

    program: fx.GraphModule
    inputs: tuple[int, ...]
    values: int
    copied: tuple[int, ...]
    shares: bool
    overwrites: tuple[tuple[int, int], ...] = ()

    def after(self, run: Boxed, *, hidden: bool) -> Boxed:
        """Wraps ``run`` so that the mutations follow it. It returns the results of ``run`` without those that the
        mutations take. ``hidden`` keeps the version counters of inputs: AOTAutograd advances them before a forward
        graph runs, if autograd has to see the mutation.
        """
        inputs, copied, program = self.inputs, self.copied, self.program.forward
        pairs = [(inputs.index(i), result) for result, i in self.overwrites]

        def mutating(args: list[Any]) -> Sequence[Any]:
            mutated = [args[i] for i in inputs]
            results = list(run(args))
            end = len(results) - self.values
            for i in copied:
                results[i] = copy_of(results[i])
            copies = [(i, r) for i, r in pairs if mutated[i].data_ptr() != results[r].data_ptr()]
            with torch.no_grad(), _unseen(mutated) if hidden else nullcontext():
                if len(copies) == len(pairs):
                    program(*mutated, *results[end:])
                else:
                    for i, r in copies:
                        mutated[i].copy_(results[r])
            del results[end:]
            return results

        return mutating


def _unseen(tensors: Sequence[Any]) -> Any:
    """A context that keeps the version counters of tensors that have one."""
    return _unsafe_preserve_version_counter(
        tuple(t for t in tensors if isinstance(t, torch.Tensor) and not t.is_inference())
    )


def copy_of(x: torch.Tensor) -> torch.Tensor:
    """A copy of ``x`` with the same strides."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.as_strided((span,), (1,)).clone().as_strided(x.shape, x.stride(), 0)


def taken_out(gm: fx.GraphModule) -> Mutations | None:
    """Takes the mutations of inputs out of ``gm``, in place, and makes what they need its last results."""
    mutating = [n for n in gm.graph.nodes if mutates_input(n)]
    if not mutating:
        return None
    output = gm.graph.output_node()
    placeholders = gm.graph.find_nodes(op="placeholder")
    recorder = _Recorder(mutating)
    copies = _copies(mutating) if COPIED not in output.meta else []
    for node in reversed(mutating):  # its result is the input after all mutations
        node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user is output)
        node.replace_all_uses_with(_contents(node))
        gm.graph.erase_node(node)
    results: tuple[Any, ...] = tuple(output.args[0])  # type: ignore[arg-type]
    output.args = ((*results, *recorder.values),)
    gm.recompile()
    return Mutations(
        recorder.program,
        tuple(placeholders.index(n) for n in recorder.inputs),
        len(recorder.values),
        output.meta.get(COPIED, ()),
        recorder.shares,
        tuple((len(results) + [*recorder.values].index(v), placeholders.index(i)) for i, v in copies),
    )


def _copies(mutating: Sequence[fx.Node]) -> list[tuple[fx.Node, fx.Node]]:
    """The inputs and their new contents, if all mutations are copies of what is computed to what lies alike."""
    if not _independent(mutating) or any(_kind_of_copy(n) is None or not _is_computed(n.args[1]) for n in mutating):
        return []
    return [(n.args[0], n.args[1]) for n in mutating]  # type: ignore[misc]


def _is_computed(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function"


def mutates_input(node: fx.Node) -> bool:
    """True if a node is an input mutation that is applied after the graph's calls."""
    return (
        isinstance(node.target, OpOverload)
        and node.target._schema.name in _MUTATIONS
        and isinstance(node.args[0], fx.Node)
        and node.args[0].op == "placeholder"
    )


def _contents(node: fx.Node) -> Any:
    """The contents of an input after its mutation."""
    return node.args[1] if isinstance(node.args[1], fx.Node) else node.args[0]


def _sets(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.name in _SETS


def roots(node: Any) -> set[fx.Node]:
    """The inputs of the graph whose memory a node may share."""
    inputs, visited, waiting = set(), set(), [node]
    while waiting:
        n = waiting.pop()
        if not isinstance(n, fx.Node) or n in visited:
            continue
        visited.add(n)
        if n.op == "placeholder":
            inputs.add(n)
        waiting += viewed(n)
    return inputs


def viewed(node: fx.Node) -> list[Any]:
    """The arguments whose memory the results of a node may share."""
    if node.target is operator.getitem:
        return [node.args[0]]
    if not isinstance(node.target, OpOverload):
        return []
    positions = {p for among in may_alias(node.target).values() for p in among}
    return [node.args[p] for p in positions if p < len(node.args)]


class _Recorder:
    """Builds a separate program of the mutations. It takes ``inputs`` of the graph and ``values`` that the graph
    computes, and reads all values before it mutates anything. If an input takes over the memory of another, or of a
    view of it, the program makes that view itself, because a functional graph must not. Independent copies are made
    many in one call.
    """

    def __init__(self, mutating: Sequence[fx.Node]) -> None:
        targets = [n.args[0] for n in mutating]
        self.inputs: dict[Any, Any] = dict.fromkeys(targets)
        self.values: dict[Any, Any] = {}
        self.shares = False
        for node in mutating:
            self._need(node.args[1], shared=_sets(node))
        graph = fx.Graph()
        for i, among in enumerate((self.inputs, self.values)):
            for n in among:
                among[n] = graph.placeholder(f"{('input', 'value')[i]}_{len(graph.nodes)}")
        self._made: dict[fx.Node, fx.Node] = {**self.values, **self.inputs}
        sources = {node: self._source(graph, node, targets[:i]) for i, node in enumerate(mutating)}
        for group in _groups(mutating):
            into, contents = [self.inputs[n.args[0]] for n in group], [sources[n] for n in group]
            if len(group) > 1:
                graph.call_function(aten._foreach_copy_.default, (into, contents))
            else:
                graph.call_function(group[0].target, (*into, *contents))  # type: ignore[arg-type]
        graph.output(None)
        self.program = fx.GraphModule({}, graph)

    def _need(self, node: Any, *, shared: bool) -> None:
        if not isinstance(node, fx.Node):
            return
        if node.op == "placeholder":
            self.inputs.setdefault(node, node)
        elif shared and (viewed(node) or not isinstance(node.meta.get("val"), torch.Tensor)):
            for n in node.all_input_nodes:
                self._need(n, shared=True)
        else:
            self.values[node] = node
            self.shares |= shared

    def _source(self, graph: fx.Graph, mutation: fx.Node, written: Sequence[Any]) -> Any:
        source = mutation.args[1]
        if not isinstance(source, fx.Node):
            return source
        if _sets(mutation):
            return graph.call_function(aten.alias.default, (self._node(graph, source),))
        if roots(source).isdisjoint(written):
            return self._made[source]
        return graph.call_function(copy_of, (self._made[source],))

    def _node(self, graph: fx.Graph, node: fx.Node) -> fx.Node:
        if node not in self._made:
            self._made[node] = graph.node_copy(node, lambda n: self._node(graph, n))
        return self._made[node]


def _groups(mutating: Sequence[fx.Node]) -> Iterator[list[fx.Node]]:
    """The mutations, those together that one call of ``_foreach_copy_`` can make. With several dtypes or layouts in a
    call, PyTorch would copy each tensor in a kernel of its own.
    """
    groups = defaultdict[Hashable, list[fx.Node]](list)
    together = _independent(mutating)
    for node in mutating:
        groups[(_kind_of_copy(node) if together else None) or node].append(node)
    yield from groups.values()


def _independent(mutating: Sequence[fx.Node]) -> bool:
    """True if all mutations are copies to different inputs, and none reads an input that is written, so that their
    order does not matter.
    """
    targets = {n.args[0] for n in mutating}
    return len(targets) == len(mutating) and all(
        n.target is aten.copy_.default and isinstance(n.args[1], fx.Node) and roots(n.args[1]).isdisjoint(targets)
        for n in mutating
    )


def _kind_of_copy(node: fx.Node) -> Hashable:
    """The dtype and device of a copy between tensors that lie alike, without gaps; None if another copy is needed.
    ``_foreach_copy_`` cannot write to tensors that are conjugated or negated when they are read.
    """
    target, source = (n.meta.get("val") if isinstance(n, fx.Node) else None for n in node.args[:2])
    if not (_is_plain(target) and _is_plain(source)) or (target.dtype, target.device) != (source.dtype, source.device):
        return None
    lie, *others = ((tuple(map(dim_of, t.shape)), tuple(map(dim_of, t.stride()))) for t in (target, source))
    return (target.dtype, target.device) if others == [lie] and _has_no_gaps(*lie) else None


def _is_plain(value: Any) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(value, torch.Tensor)
        and not is_traceable_wrapper_subclass(value)
        and value.layout is torch.strided
        and not (value.is_complex() or value.is_neg())
    )


def _has_no_gaps(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    """True if elements fill a block of memory and none share a place. Symbolic sizes are compared in their order."""
    sizes = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    if all(isinstance(s, int) for _, s in sizes):
        sizes.sort(key=lambda size: size[1], reverse=True)
    return tuple(s for _, s in sizes) == contiguous_strides(tuple(n for n, _ in sizes))
