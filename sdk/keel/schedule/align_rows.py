"""Matrices of libraries with rows that start at aligned addresses, by strides with a gap at the end of each row.

Fast kernels for 16-bit matrix products load 16 bytes at a time.  A matrix of 50,257 columns has rows that start
anywhere, and a library then falls back to kernels that take several times as long.  Nobody sees how a value within a
part lies, so its rows may have a gap.  What must lie densely is copied, before or after the product: that is much
cheaper than a slow product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from keel.schedule.tensor_graph import ExternCall, LoopNode, Node, Slot, Tensor, TensorGraph, copy_node, with_slots
from keel.types import Dim, TensorType

LEAST = 2**16
"""The least number of elements of a matrix that is worth a gap."""
LEAST_DEPTH = 64
"""The least number of multiplications for each element of a matrix that is copied for a product, or after it."""


def align_rows(graph: TensorGraph) -> TensorGraph:
    """Returns ``graph`` with gaps in the matrices of library calls that want aligned rows (``Extern.aligned_rows``).

    Only matrices of static sizes, and of at most 16 bits an element, have gaps.
    """
    return _Aligner(graph).run() if any(map(_bytes, graph.nodes)) else graph


def _bytes(node: Node) -> int:
    """The alignment that a library call wants, 0 if it wants none, and so for loops."""
    return node.extern.aligned_rows if isinstance(node, ExternCall) and node.extern.aligned_rows > 1 else 0


class _Aligner:
    def __init__(self, graph: TensorGraph):
        self.graph, self.tensors = graph, list(graph.tensors)
        self.views: dict[int, list[int]] = {}  # those of each tensor
        for t in range(len(graph.tensors)):
            if graph.tensors[t].alias is not None:
                self.views.setdefault(graph.base(t)[0], []).append(t)
        self.producers: dict[int, Node] = {t: n for n in graph.nodes for t in n.results if t >= 0}
        self.readers: dict[int, list[ExternCall]] = {}
        for call in (n for n in graph.nodes if isinstance(n, ExternCall)):
            for t in dict.fromkeys(call.operands):
                self.readers.setdefault(t, []).append(call)
        self.outputs = {t for t in graph.outputs if isinstance(t, int)}
        self.written: dict[int, int] = {}  # where a product writes what is then copied to its place
        self.read: dict[int, int] = {}  # what products read in place of a tensor that lies otherwise
        self.copied: set[int] = set()  # the tensors of which that is a copy

    def run(self) -> TensorGraph:
        for t, alignment in self._alignments().items():
            row = _row(self.tensors[t].type, alignment)
            if self._hidden(t) and (views := self._views(t, t, row, self.views.get(t, ()))) is not None:
                self.tensors[t] = replace(self.tensors[t], type=_with_gap(self.tensors[t].type, row))
                for v, view in views.items():
                    self.tensors[v] = view
                continue
            if self._filled(t) and self._depth(self.producers[t], t) >= LEAST_DEPTH:
                self.written[t] = self._aligned(t, row)
            self._copy_operand(t, row)
        return replace(self.graph, tensors=self.tensors, nodes=self._nodes())

    def _alignments(self) -> Mapping[int, int]:
        """Returns the tensors that a library reads or writes, themselves or by a view, with the alignment it wants."""
        alignments: dict[int, int] = {}
        for n in self.graph.nodes:
            for t in dict.fromkeys(self.graph.base(t)[0] for t in (*n.operands, *n.results) if t >= 0):
                if _bytes(n) and _row(self.tensors[t].type, _bytes(n)) > 0:
                    alignments[t] = max(alignments.get(t, 0), _bytes(n))
        return alignments

    def _filled(self, t: int) -> bool:
        """True if a library that wants aligned rows writes ``t`` into memory that it is given."""
        maker = self.producers.get(t)
        return isinstance(maker, ExternCall) and bool(_bytes(maker)) and maker.extern.out is not None

    def _hidden(self, t: int) -> bool:
        """True if kernels make ``t``, or a library that fills what it is given, and only kernels and libraries that
        want aligned rows read it."""
        maker = self.producers.get(t)
        made = isinstance(maker, LoopNode) and maker.definition.kind in ("map", "fold")
        here = (t, *self.views.get(t, ()))
        read = all(_bytes(n) for v in here for n in self.readers.get(v, ()))
        return (made or self._filled(t)) and read and self.outputs.isdisjoint(here)

    def _views(self, t: int, base: int, row: int, views: Iterable[int]) -> dict[int, Tensor] | None:
        """Returns ``views`` of ``t`` as views of ``base``, where its rows are ``row`` elements apart.

        A view across rows cannot be one of them: the result is None if a library reads such a view.
        """
        dense = self.graph.tensors[t].type.shape[-1]
        relaid: dict[int, Tensor] = {}
        for v in views:
            view = self.graph.tensors[v]
            strides = _view(view.type, self.graph.base(v)[1], dense, row)
            if strides is not None:
                relaid[v] = replace(view, type=replace(view.type, strides=strides[0]), alias=(base, strides[1]))
            elif v in self.readers:
                return None
            else:
                relaid[v] = replace(view, alias=None)  # kernels read through it
        return relaid

    def _copy_operand(self, t: int, row: int) -> None:
        """Has products read a copy of ``t`` with gaps, or what was written with gaps, if that is worth it."""
        read = [v for v in (t, *self.views.get(t, ())) if any(self._gains(n, t) for n in self.readers.get(v, ()))]
        if not read:
            return
        base = self.written.get(t, len(self.tensors))
        views = self._views(t, base, row, [v for v in read if v != t])
        if views is None:
            return
        if t not in self.written:
            self._aligned(t, row)
            self.copied.add(t)
        self.read[t] = base
        for v, view in views.items():
            self.read[v] = len(self.tensors)
            self.tensors.append(view)

    def _aligned(self, t: int, row: int) -> int:
        self.tensors.append(Tensor(f"{self.tensors[t].name}_aligned", _with_gap(self.graph.tensors[t].type, row)))
        return len(self.tensors) - 1

    def _gains(self, call: ExternCall, t: int) -> bool:
        return bool(_bytes(call)) and self._depth(call, t) >= LEAST_DEPTH

    def _depth(self, call: Node, t: int) -> int:
        """How many multiplications a product does for each element of ``t``, 0 if that is not known."""
        assert isinstance(call, ExternCall)
        shapes = [self.graph.tensors[a.number].type.shape for a in call.args if isinstance(a, Slot)]
        if len(shapes) < 2 or len(shapes[-1]) < 2:
            return 0
        total = self.graph.tensors[call.results[0]].type.numel * shapes[-1][-2]
        return total // int(self.graph.tensors[t].type.numel) if isinstance(total, int) else 0

    def _nodes(self) -> list[Node]:
        nodes: list[Node] = []
        missing = set(self.copied)
        for n in self.graph.nodes:
            if isinstance(n, ExternCall) and _bytes(n):
                for t in dict.fromkeys(self.graph.base(t)[0] for t in n.operands if t in self.read):
                    if t in missing:
                        missing.remove(t)
                        copy = self.tensors[self.read[t]]
                        nodes.append(copy_node(copy.name, copy.type, t, self.read[t]))
                n = with_slots(n, self.read)
            copied = [t for t in n.results if t in self.written]
            nodes.append(replace(n, results=tuple(self.written.get(t, t) for t in n.results)) if copied else n)
            nodes += [
                copy_node(f"{self.tensors[t].name}_dense", self.tensors[t].type, self.written[t], t) for t in copied
            ]
        return nodes


def _row(type: TensorType, alignment: int) -> int:
    """The elements from one row to the next with which all rows are aligned; 0 if they are, or if that is not known."""
    *outer, n = type.shape if type.rank > 1 else (0,)
    static = all(isinstance(d, int) for d in type.shape)
    if not outer or not static or type.dtype.itemsize > 2 or not type.is_contiguous or int(type.numel) < LEAST:
        return 0
    step = alignment // type.dtype.itemsize
    row = -(-int(n) // step) * step
    return row if row != n else 0


def _with_gap(type: TensorType, row: int) -> TensorType:
    strides: list[Dim] = [1, row]
    for n in reversed(type.shape[1:-1]):
        strides.append(n * strides[-1])
    return replace(type, strides=tuple(reversed(strides)))


def _view(type: TensorType, offset: Dim, dense: Dim, row: int) -> tuple[tuple[Dim, ...], Dim] | None:
    """The strides and the offset of a view of dense rows, where the rows are ``row`` elements apart; None if it goes
    across rows, or if its sizes are not known."""
    numbers = (*type.shape, *type.strides, offset, dense)
    if not all(isinstance(d, int) for d in numbers):
        return None
    within = sum((n - 1) * s for n, s in zip(type.shape, type.strides, strict=True) if s % dense) + offset % dense
    if within >= dense:
        return None

    def spread(d: Dim) -> Dim:
        return d // dense * row + d % dense

    return tuple(map(spread, type.strides)), spread(offset)
