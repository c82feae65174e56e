"""Products of 16-bit matrices with odd sizes, as products of matrices that are padded with zeros.

Fast kernels for 16-bit matrix products load, and store, 16 bytes at a time. They need rows that start at aligned
addresses, and sums and rows of the result that are whole numbers of such loads. For others, as the projection to a
vocabulary of 50,257 words, a library falls back to kernels that take several times as long.

A product here reads padded matrices, and kernels read a part of its result. The pads and the parts are ordinary nodes:
fusion decides whether the kernel that makes a matrix pads it at once, or another copies it. A large result that is
needed without its pad is computed by blocks of rows (``row_blocks``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import and_

import torch

from keel.loops.builder import Builder, LoopDefinition, Operand, Value, trace_rule
from keel.schedule.row_blocks import blocks_of_rows
from keel.schedule.tensor_graph import ExternCall, LoopNode, Node, Slot, Tensor, TensorGraph, copy_node, with_slots
from keel.types import Call, Dim, TensorType, contiguous_strides

LEAST = 2**16
"""The least number of elements of a matrix that is worth a pad."""
LEAST_DEPTH = 64
"""The least number of multiplications for each element that is copied for a product, or after it."""


def pad_products(graph: TensorGraph) -> TensorGraph:
    """Returns ``graph`` with pads for the library calls that want aligned rows (``Extern.aligned_rows``).

    Only products of static sizes, and of at most 16 bits an element, are padded, where that costs less than it saves.
    """
    return _Padder(graph).run() if any(map(_alignment, graph.nodes)) else graph


def _alignment(node: Node) -> int:
    """The bytes of which a library call wants rows to be a multiple, 0 if it does not care, and so for loops."""
    return node.extern.aligned_rows if isinstance(node, ExternCall) and node.extern.aligned_rows > 1 else 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Dense memory that operands read: ``shape`` is from its slowest dimension to its fastest."""

    base: int
    offset: Dim
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Pad:
    """``tensor`` lies at ``place``, its dimensions in ``order``. A product should read it with the sizes ``read``, from
    memory with the sizes ``lies``.
    """

    tensor: int
    place: _Place
    order: tuple[int, ...]
    read: tuple[int, ...]
    lies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Product:
    """The operands of a product that are padded, and the number of columns of its result."""

    pads: tuple[_Pad, ...]
    columns: int


class _Padder:
    def __init__(self, graph: TensorGraph):
        self.graph, self.tensors = graph, list(graph.tensors)
        self.producers: dict[int, Node] = {t: n for n in graph.nodes for t in n.results if t >= 0}
        results = {graph.base(t)[0] for t in graph.outputs if isinstance(t, int)}
        calls = [n for n in graph.nodes if isinstance(n, ExternCall)]
        self.in_memory = results.union(graph.base(t)[0] for c in calls for t in c.operands)
        self.read_otherwise = results.union(*(self._read_by(n) for n in graph.nodes if not _alignment(n)))
        self.sizes: dict[_Place, tuple[int, ...]] = {}  # of the padded copy of a place
        self.copies: dict[_Place, int] = {}

    def _read_by(self, node: Node) -> set[int]:
        """The bases of what a node reads; a view does not read."""
        views = {self.graph.base(t)[0] for t in node.results if t >= 0 and self.tensors[t].alias is not None}
        return {self.graph.base(t)[0] for t in node.operands} - views

    def run(self) -> TensorGraph:
        products = {n.name: p for n in self.graph.nodes if isinstance(n, ExternCall) and (p := self._product(n))}
        for pad in (pad for product in products.values() for pad in product.pads):
            sizes = (pad.lies[d] for d in pad.order)
            self.sizes[pad.place] = tuple(map(max, self.sizes.get(pad.place, pad.place.shape), sizes))
        nodes: list[Node] = []
        for node in self.graph.nodes:
            if isinstance(node, ExternCall) and node.name in products:
                nodes += self._padded(node, products[node.name])
            else:
                nodes.append(node)
        return replace(self.graph, tensors=self.tensors, nodes=nodes)

    # -- which products ------------------------------------------------------------------------------

    def _product(self, call: ExternCall) -> _Product | None:
        """How ``call`` should be padded; None if it should not."""
        numbers = [a.number for a in call.args if isinstance(a, Slot)]
        types = [self._type(t) for t in (*numbers, *call.results)]
        if not _alignment(call) or len(numbers) < 2 or not all(t.is_static and t.dtype.itemsize <= 2 for t in types):
            return None
        if len({*numbers}) < len(numbers):  # a tensor can be read with one shape only
            return None
        *added, left, right = numbers
        if (rank := self._type(left).rank) < 2 or self._type(right).rank != rank:
            return None
        (*batch, m, k), n = self._shape(left), self._shape(right)[-1]
        sums = self._fastest(left) == rank - 1 or self._fastest(right) == rank - 2
        step = _alignment(call) // self._type(left).dtype.itemsize
        deep, wide = _up(k, step) if sums else k, _up(n, step)
        tall = _up(m, step) if self._fastest(left) == rank - 2 else m
        changes = {t: ((*self._shape(t)[:-1], wide),) * 2 for t in added if self._shape(t)[-1:] == (n,)}
        changes[left] = (*batch, m, deep), (*batch, tall, deep)
        changes[right] = ((*batch, deep, wide),) * 2
        pads = [self._pad(t, *sizes) for t, sizes in changes.items() if sizes[1] != self._shape(t)]
        result = prod((*batch, m, n)) if wide != n else 0
        copied = 0 if call.results[0] not in self.in_memory else result
        least = result
        for pad in pads:
            if pad is None:
                return None
            least = max(least, prod(pad.place.shape))
            copied += 0 if self._made_for_products(pad.place.base) else prod(pad.place.shape)
        worth = least >= LEAST and prod((*batch, m, k, n)) >= LEAST_DEPTH * copied
        return _Product(tuple(filter(None, pads)), wide) if worth else None

    def _pad(self, tensor: int, read: tuple[int, ...], lies: tuple[int, ...]) -> _Pad | None:
        """None if ``tensor`` does not lie densely."""
        type, (base, offset) = self._type(tensor), self.graph.base(tensor)
        order = tuple(sorted(range(type.rank), key=lambda d: (-int(type.strides[d]), d)))
        shape = tuple(int(type.shape[d]) for d in order)
        if tuple(type.strides[d] for d in order) != contiguous_strides(shape):
            return None
        return _Pad(tensor, _Place(base, offset, shape), order, read, lies)

    def _made_for_products(self, base: int) -> bool:
        """True if a kernel makes the tensor, and only products read it, so that the kernel can pad it."""
        maker = self.producers.get(base)
        made = isinstance(maker, LoopNode) and maker.definition.kind == "map"
        return made and base not in self.read_otherwise

    # -- pads ----------------------------------------------------------------------------------------

    def _padded(self, call: ExternCall, product: _Product) -> Iterator[Node]:
        slots: dict[int, int] = {}
        for pad in product.pads:
            if pad.place not in self.copies:
                yield self._copy(pad)
            slots[pad.tensor] = self._view(pad)
        (result,) = call.results
        type = self._type(result)
        call = with_slots(call, slots)
        if product.columns == type.shape[-1]:
            yield call
            return
        if result in self.in_memory and (blocks := blocks_of_rows(self.tensors, call)):
            yield replace(call, extern=replace(call.extern, run=blocks, out=None))
            return
        wide = self._new(f"{self.tensors[result].name}_padded", type, (*type.shape[:-1], product.columns))
        yield replace(call, results=(wide,))
        yield copy_node(f"{call.name}_part", type, wide, result, call.module)

    def _copy(self, pad: _Pad) -> LoopNode:
        """The node that pads a place."""
        source = self.tensors[pad.tensor]
        copy = self._new(f"{source.name}_padded", source.type, self.sizes[pad.place])
        self.copies[pad.place] = copy
        return LoopNode(
            f"{source.name}_pad", _padding(source.type, pad.order, self._type(copy)), (pad.tensor,), (copy,)
        )

    def _view(self, pad: _Pad) -> int:
        """The view of a padded copy that a product reads."""
        copy = self.copies[pad.place]
        strides = dict(zip(pad.order, self._type(copy).strides, strict=True))
        type = replace(self._type(copy), shape=pad.read, strides=tuple(strides[d] for d in range(len(pad.order))))
        self.tensors.append(Tensor(f"{self.tensors[copy].name}_view", type, (copy, 0)))
        return len(self.tensors) - 1

    def _new(self, name: str, like: TensorType, shape: tuple[Dim, ...]) -> int:
        self.tensors.append(Tensor(name, TensorType.dense(like.dtype, shape, like.device)))
        return len(self.tensors) - 1

    # -- types ---------------------------------------------------------------------------------------

    def _type(self, tensor: int) -> TensorType:
        return self.tensors[tensor].type

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(map(int, self._type(tensor).shape))

    def _fastest(self, tensor: int) -> int:
        """The dimension along which elements are neighbors."""
        strides = self._type(tensor).strides
        return min(range(len(strides)), key=lambda d: (int(strides[d]), -d))


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _padding(source: TensorType, order: tuple[int, ...], padded: TensorType) -> LoopDefinition:
    """The definition of ``padded``: its dimensions are those of ``source`` in ``order``, with zeros behind."""

    def rule(b: Builder, x: Operand) -> Value:
        at = dict(zip(order, b.at, strict=True))
        more = [d for d, size in zip(order, padded.shape, strict=True) if size != x.type.shape[d]]
        inside = [b.position(at[d]) < b.number(x.type.shape[d], torch.int64) for d in more]
        return x.where(reduce(and_, inside), [at[d] for d in range(len(order))])

    return trace_rule(rule, Call(torch.ops.aten.constant_pad_nd.default, (source,), {}, (padded,)))
