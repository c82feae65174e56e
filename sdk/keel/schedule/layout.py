"""Chooses how the values of a part lie in memory: as captured, or channels-last.

Library calls may prefer a layout (``LayoutPreference``): without it they spend time on conversions of their own.  One
choice is made for the whole part.  Its cost is counted in bytes that go through memory: what a library call spends in
the layout that it does not prefer, what an explicit conversion reads and writes, and what a kernel spends that reads
one layout and writes the other.  Each term depends on one value or on two, and charges two values for being unlike, so
a minimum cut gives the best choice (Greig, Porteous, Seheult 1989, "Exact maximum a posteriori estimation for binary
images").  A kernel that transposes is charged for values that are alike, which no cut can; such terms are left out, so
they are the only ones by which a choice may be worse than the best.

Inputs, outputs and views of memory keep the layout of the captured graph: others see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product as combinations

import sympy

from keel.fuel import Fuel
from keel.loops.builder import Read
from keel.loops.index import Index, axes_of, index, substitute
from keel.loops.symbolic_sizes import canonicalize
from keel.schedule.inline import Hint, bytes_of
from keel.schedule.tensor_graph import (
    ExternCall,
    LoopNode,
    Node,
    Slot,
    Tensor,
    TensorGraph,
    copy_node,
    library_views,
    with_slots,
)
from keel.types import Dim, TensorType, as_dim, contiguous_strides

UNLIKE = 2
"""How often the bytes of a value go through memory more if it is converted, or if a kernel reads it across its rows."""
LAUNCH = 2**15
"""How many bytes could go through memory while a conversion of its own is launched."""


def channels_last(type: TensorType) -> TensorType:
    """``type`` with the strides of ``torch.channels_last`` (rank 4) or ``channels_last_3d`` (rank 5)."""
    batch, channels, *image = type.shape
    *outer, within = contiguous_strides((batch, *image, channels))
    return replace(type, strides=(outer[0], within, *outer[1:]))


def matters(type: TensorType) -> bool:
    """True if channels-last is another layout than row-major for a tensor of that dtype and shape."""
    return type.rank in (4, 5) and not _lies_as(_row_major(type), channels_last(type))


def lies_row_major(type: TensorType) -> bool:
    """True if a tensor is known to lie row-major, and not channels-last as well."""
    return matters(type) and _lies_as(type, _row_major(type))


def choose_layouts(graph: TensorGraph, hint: Hint, fuel: Fuel | None = None) -> TensorGraph:
    """Returns ``graph`` with the layouts that cost least, and conversions where a library call needs another.

    Returns it unchanged if no library call in it prefers a layout.  ``hint`` estimates symbolic sizes; each call whose
    preference is honored takes ``fuel``.
    """
    wishes = [w for n in graph.nodes if isinstance(n, ExternCall) and (w := _wish(n, graph)) is not None]
    fuel = fuel or Fuel()
    honored = [w for w in wishes if fuel.take()]
    return _without_copies(_Chooser(graph, honored, hint).run()) if honored else graph


@dataclass(frozen=True)
class _Wish:
    """A library call with a preference: the images that it then converts no more, and what it takes and returns
    channels-last, weights too.
    """

    call: str
    passes: float
    images: tuple[int, ...]
    arguments: frozenset[int]
    results: tuple[int, ...]


def _wish(node: ExternCall, graph: TensorGraph) -> _Wish | None:
    """Returns what the library prefers for this call, if it prefers anything for its ranks and dtypes."""
    preference = node.extern.layout
    if preference is None or not preference.is_about(node.args):
        return None

    def tensors(positions: Sequence[int]) -> frozenset[int]:
        return frozenset(a.number for n in positions if isinstance(a := node.args[n], Slot))

    results = tuple(t for n in preference.results if (t := node.results[n]) >= 0)
    arguments = tensors(preference.arguments)
    types = [graph.tensors[t].type for t in (*arguments, *results)]
    if not types or not all(t.rank in (4, 5) and t.dtype in preference.dtypes for t in types):
        return None
    arguments_and_weights = arguments | tensors(preference.converted)
    return _Wish(node.name, preference.passes, (*arguments, *results), arguments_and_weights, results)


def _without_copies(graph: TensorGraph) -> TensorGraph:
    """Returns the graph without copies of what lies already as the copy is to lie.

    A result of the part stays a copy of an input or of another result, for it must not share their memory.
    """
    same: dict[int, int] = {}
    outputs = {t for t in graph.outputs if isinstance(t, int)}
    views = library_views(graph.nodes)

    def memory(tensor: int) -> int:
        *_, last = graph.memories(tensor, views)
        return last

    shared = {memory(t) for t in (*graph.inputs, *graph.outputs) if isinstance(t, int)}
    nodes: list[Node] = []
    for node in graph.nodes:
        source = same.get(node.operands[0], node.operands[0]) if node.operands else None
        result = node.results[0]
        if source is None or not _copies(graph, node, source) or (result in outputs and memory(source) in shared):
            nodes.append(node)
            continue
        same[result] = source
        if result in outputs:
            shared.add(memory(source))
    return replace(
        graph,
        tensors=[
            x if x.alias is None else replace(x, alias=(same.get(x.alias[0], x.alias[0]), x.alias[1]))
            for x in graph.tensors
        ],
        nodes=[_reading(n, same) for n in nodes],
        outputs=[same.get(t, t) if isinstance(t, int) else t for t in graph.outputs],
    )


def _copies(graph: TensorGraph, node: Node, source: int) -> bool:
    (result, *_) = node.results
    if not isinstance(node, LoopNode) or not node.definition.is_view:
        return False
    (read,) = node.definition.steps
    assert isinstance(read, Read)
    one, other = graph.tensors[source], graph.tensors[result]
    reads_all = one.alias is None and other.alias is None and read.at == tuple(map(index, node.definition.axes))
    return reads_all and one.type == replace(other.type, strides=one.type.strides) and _lies_as(one.type, other.type)


def _reading(node: Node, same: Mapping[int, int]) -> Node:
    if isinstance(node, ExternCall):
        return with_slots(node, same)
    return replace(node, operands=tuple(same.get(t, t) for t in node.operands))


class _Chooser:
    """A choice is true if something lies, or works, channels-last.

    Choices are numbered: those of tensors by the tensor's number, then those of ``wishes``.  ``images`` are the tensors
    for which they make a difference.
    """

    def __init__(self, graph: TensorGraph, honored: Sequence[_Wish], hint: Hint):
        self.graph, self.hint = graph, hint
        count = len(graph.tensors)
        self.wishes = {w.call: w for w in honored}
        self.choice = {w.call: count + k for k, w in enumerate(honored)}
        self.images = {t for t, x in enumerate(graph.tensors) if matters(x.type)}
        self.calls = [n for n in graph.nodes if isinstance(n, ExternCall)]
        self.producers = {t: n for n in graph.nodes if isinstance(n, LoopNode) for t in n.results}
        self.escaping = {t for t in graph.outputs if isinstance(t, int)}.union(*(n.operands for n in self.calls))
        self.costs = Choices(count + len(honored), dict(self._fixed()))

    def run(self) -> TensorGraph:
        for wish in self.wishes.values():
            self._add_wish(wish)
        self._add_transfers()
        for node in self.graph.nodes:
            if isinstance(node, LoopNode) and not self._in_place(node) and node.definition.kind in ("map", "fold"):
                self._add_kernel(node)
        return self._laid_out(self.costs.cheapest())

    # -- what may be chosen -------------------------------------------------------------------------------

    def _fixed(self) -> Iterator[tuple[int, bool]]:
        """Yields the tensors that keep their layout, and whether that is channels-last."""
        viewed = {self.graph.base(t)[0] for t in self.escaping if self.graph.tensors[t].alias is not None}
        made = {t for w in self.wishes.values() for t in w.results}
        made |= {t for t, n in self.producers.items() if not self._in_place(n)}
        outputs = {t for t in self.graph.outputs if isinstance(t, int)}
        for number, tensor in enumerate(self.graph.tensors):
            movable = number in made and tensor.alias is None and number not in viewed | outputs
            image = number in self.images
            if not (movable and image and _lies_as(tensor.type, _row_major(tensor.type))):
                yield number, image and _lies_as(tensor.type, channels_last(tensor.type))

    def _in_place(self, node: LoopNode) -> bool:
        """True if readers of a view read what it is a view of."""
        (result, *_) = node.results
        return node.definition.is_view and (result not in self.escaping or self.graph.tensors[result].alias is not None)

    def _bytes(self, number: int) -> int:
        return bytes_of(self.hint, self.graph.tensors[number].type)

    # -- costs --------------------------------------------------------------------------------------------

    def _add_wish(self, wish: _Wish) -> None:
        images = [t for t in wish.images if t in self.images]
        costs, choice = self.costs, self.choice[wish.call]
        costs.add(choice, -wish.passes * sum(map(self._bytes, images)))
        for t in filter(self.images.__contains__, wish.results):
            cost = costs.never if t not in costs.fixed else UNLIKE * self._bytes(t)
            costs.add_pair(choice, t, cost)
            costs.add_pair(t, choice, cost)

    def _add_transfers(self) -> None:
        """Adds the conversions of what library calls read: one for each tensor, however many calls read the result."""
        readers: dict[int, list[int | bool]] = {}
        for call in self.calls:
            wish = self.wishes.get(call.name)
            for t in filter(self.images.__contains__, dict.fromkeys(call.operands)):
                choice = self.choice[call.name] if wish is not None and t in wish.arguments else False
                readers.setdefault(t, []).append(choice)
        for t, choices in readers.items():
            some, all_ = self.costs.new(), self.costs.new()  # some reader wants it channels-last; all do
            for choice in choices:
                self.costs.add_pair(choice, some, self.costs.never)
                self.costs.add_pair(all_, choice, self.costs.never)
            self.costs.add_pair(some, t, UNLIKE * self._bytes(t) + LAUNCH)
            self.costs.add_pair(t, all_, UNLIKE * self._bytes(t) + LAUNCH)

    def _add_kernel(self, node: LoopNode) -> None:
        result = node.results[0]
        for t, at in dict.fromkeys(self._reads(node)):
            if t in self.images or result in self.images:
                smaller = min(map(self._bytes, (t, result)))  # either can be gone through across its rows
                table = {
                    (read, made): UNLIKE * smaller * self._across(node, t, at, read, made)
                    for read, made in combinations((False, True), repeat=2)
                }
                self.costs.add_table(t, result, table)

    def _reads(self, node: LoopNode) -> Iterator[tuple[int, tuple[Index, ...]]]:
        """Yields what a kernel of the node reads, through views, and at which coordinates."""
        for step in node.definition.steps:
            if isinstance(step, Read):
                t, at = node.operands[step.operand], step.at
                while (view := self.producers.get(t)) is not None and self._in_place(view):
                    (read,) = view.definition.steps
                    assert isinstance(read, Read)
                    values = dict(zip(view.definition.axes, at, strict=True))
                    t, at = view.operands[read.operand], tuple(substitute(i, values) for i in read.at)
                yield t, at

    def _across(self, node: LoopNode, t: int, at: tuple[Index, ...], read: bool, made: bool) -> bool:
        """True if neighbors of the result are made of elements of ``t`` that are not neighbors."""
        along = _dense_dim(self.graph.tensors[node.results[0]].type, made)
        if along is None or not at:
            return False
        axis = node.definition.axes[along]
        dim = _dense_dim(self.graph.tensors[t].type, read)
        if dim is None or not any(axis in axes_of(i) for i in at):
            return False
        return not any(at[dim].coefficient(a) in (1, -1) for a in (axis, *node.definition.folded))

    # -- the graph ----------------------------------------------------------------------------------------

    def _laid_out(self, chosen: Callable[[int], bool]) -> TensorGraph:
        moved = {t for t in range(len(self.graph.tensors)) if t not in self.costs.fixed and chosen(t)}
        tensors = [
            replace(x, type=channels_last(x.type))
            if t in moved
            else replace(x, alias=None)
            if self.graph.base(t)[0] in moved
            else x
            for t, x in enumerate(self.graph.tensors)
        ]
        out = replace(self.graph, tensors=tensors, nodes=[])
        converted: dict[tuple[int, bool], int] = {}
        for node in self.graph.nodes:
            if isinstance(node, ExternCall):
                slots: dict[int, int] = {}
                for t, last in self._conversions(node, moved, chosen):
                    if (t, last) not in converted:
                        converted[t, last] = len(out.tensors)
                        copy = _conversion(self.graph.tensors[t], last)
                        out.tensors.append(copy)
                        out.nodes.append(
                            copy_node(f"{node.name}_laid_out", copy.type, t, converted[t, last], node.module)
                        )
                    slots[t] = converted[t, last]
                node = with_slots(node, slots) if slots else node
            out.nodes.append(node)
        return out

    def _conversions(
        self, call: ExternCall, moved: Set[int], chosen: Callable[[int], bool]
    ) -> Iterator[tuple[int, bool]]:
        """Yields the operands that lie otherwise than the call needs, and whether it needs them channels-last."""
        wish = self.wishes.get(call.name)
        images = wish.arguments if wish is not None and chosen(self.choice[call.name]) else frozenset()
        for t in filter(self.images.__contains__, dict.fromkeys(call.operands)):
            if t in images and not (t in moved or self.costs.fixed.get(t, False)):
                yield t, True
            elif t in moved and t not in images:
                yield t, False


class Choices:
    """A cost for each combination of choices, as terms of one choice or two, and the combination that costs least.

    ``fixed`` are choices that are made already.
    """

    def __init__(self, count: int, fixed: dict[int, bool]):
        self.count, self.fixed = count, fixed
        self.edges: dict[tuple[int, int], float] = {}
        self.never = float("inf")

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def add(self, choice: int, cost: float) -> None:
        """Adds a cost, or a gain, of a choice that is true."""
        if cost > 0:
            self._edge(choice, _FALSE, cost)
        elif cost < 0:
            self._edge(_TRUE, choice, -cost)

    def add_pair(self, one: int | bool, other: int | bool, cost: float) -> None:
        """Adds a cost of ``one`` true and ``other`` false; either may be made already."""
        self._edge(self._node(one), self._node(other), cost)

    def add_table(self, one: int, other: int, cost: Mapping[tuple[bool, bool], float]) -> None:
        """Adds a cost by both choices, unless it is less for unlike choices than for like ones."""
        none, both = cost[False, False], cost[True, True]
        second, first = cost[False, True], cost[True, False]
        if one in self.fixed:
            self.add(other, cost[self.fixed[one], True] - cost[self.fixed[one], False])
        elif other in self.fixed:
            self.add(one, cost[True, self.fixed[other]] - cost[False, self.fixed[other]])
        elif none + both <= first + second:
            self.add(one, first - none)
            self.add(other, both - first)
            self.add_pair(other, one, first + second - none - both)

    def cheapest(self) -> Callable[[int], bool]:
        """Returns the choices that cost least; of several such, those with the fewest true."""
        from networkx import DiGraph, minimum_cut  # of which torch brings some release

        network = DiGraph()
        network.add_nodes_from((_TRUE, _FALSE))
        for (tail, head), cost in self.edges.items():
            network.add_edge(head, tail, **({} if cost == self.never else {"capacity": cost}))
        _, (_, true) = minimum_cut(network, _FALSE, _TRUE)
        return lambda choice: self.fixed.get(choice, choice in true)

    def _node(self, choice: int | bool) -> int:
        if isinstance(choice, bool):
            return _TRUE if choice else _FALSE
        return self._node(self.fixed[choice]) if choice in self.fixed else choice

    def _edge(self, tail: int, head: int, cost: float) -> None:
        tail, head = self._node(tail), self._node(head)
        if tail != head and (tail, head) != (_TRUE, _FALSE) and head != _TRUE and tail != _FALSE and cost > 0:
            self.edges[tail, head] = self.edges.get((tail, head), 0) + cost


_TRUE, _FALSE = -1, -2


def _row_major(type: TensorType) -> TensorType:
    return TensorType.dense(type.dtype, type.shape, type.device)


def _lies_as(one: TensorType, other: TensorType) -> bool:
    """True if the strides are known to be equal, those of dimensions of size 1 aside."""
    pairs = zip(one.shape, one.strides, other.strides, strict=True)
    return all(n == 1 or a == b or sympy.expand(_of_elements(a) - _of_elements(b)) == 0 for n, a, b in pairs)


def _is_size(d: sympy.Expr) -> bool:
    return isinstance(d, sympy.Max) and len(d.args) == 2 and 1 in d.args


def _of_elements(stride: Dim) -> Dim:
    """Returns the stride with n for each Max(1, n): PyTorch counts sizes of 0 as 1, but then there are no elements."""
    stride = canonicalize(stride)
    if isinstance(stride, int):
        return stride
    return as_dim(stride.replace(_is_size, lambda d: sympy.Mul(*d.args)))


def _dense_dim(type: TensorType, last: bool) -> int | None:
    """Returns the dimension whose elements are neighbors, if ``type`` lies channels-last or as it is."""
    strides = channels_last(type).strides if last and type.rank in (4, 5) else type.strides
    return next((d for d, (n, s) in enumerate(zip(type.shape, strides, strict=True)) if n != 1 and s == 1), None)


def _conversion(tensor: Tensor, last: bool) -> Tensor:
    return Tensor(f"{tensor.name}_laid_out", channels_last(tensor.type) if last else tensor.type)
