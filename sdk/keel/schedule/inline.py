"""Decides which tensors get no memory: maps that are cheap to recompute, or whose only reader evaluates them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from keel.loops.builder import Read
from keel.loops.ir import Apply
from keel.loops.scalar_ops import SCALARS
from keel.schedule.tensor_graph import ExternCall, LoopNode, TensorGraph
from keel.types import Dim, TensorType, product

CHEAP = {op.name for op in SCALARS.values() if op.exact} | {"add", "sub", "mul", "fma"}
CHEAP -= {"floordiv", "truncdiv", "mod", "fmod", "nextafter"}
"""The scalar ops that take one or two instructions."""
MAX_DEPTH = 24
"""The most inlined nodes in a chain: evaluation nests with their number."""
MAX_RECOMPUTED = 6
"""The most cheap steps that may be recomputed in each reader."""
Hint = Callable[[Dim], int]


class Inliner:
    """Decides for each node of ``tensors`` whether its readers compute it in place; ``inlined`` are its results.

    ``escaping`` are the tensors that must have memory.
    """

    def __init__(self, tensors: TensorGraph, producers: Mapping[int, LoopNode], hint: Hint):
        self.tensors, self.producers, self.hint = tensors, producers, hint
        self.escaping = self._escaping()
        self.readers = self._readers()
        self.cones: dict[int, tuple[int, frozenset[int]]] = {}  # of what is computed in place
        self.inlined = self._inlined()

    def _escaping(self) -> set[int]:
        """Returns tensors that must have memory: outputs, operands of library calls, bases of scatters, and the bases
        of views among those.
        """
        needed: set[int] = {o for o in self.tensors.outputs if isinstance(o, int)}
        for node in self.tensors.nodes:
            if isinstance(node, ExternCall):
                needed |= set(node.operands)
        return {self.tensors.base(t)[0] for t in needed}

    def _readers(self) -> dict[int, list[LoopNode]]:
        """Returns the nodes other than views that read each tensor, through views."""
        readers: dict[int, list[LoopNode]] = {}
        for node in self.tensors.nodes:
            if isinstance(node, LoopNode) and not node.definition.is_view:
                for t in set(node.operands):
                    for s in self._through_views(t):
                        readers.setdefault(s, []).append(node)
        return readers

    def _through_views(self, tensor: int) -> Iterator[int]:
        yield tensor
        while (node := self.producers.get(tensor)) is not None and node.definition.is_view:
            tensor = node.operands[0]
            yield tensor

    def _inlined(self) -> set[int]:
        inlined: set[int] = set()
        depth: dict[int, int] = {}
        for node in self.tensors.nodes:
            if not isinstance(node, LoopNode) or node.definition.kind != "map":
                continue
            if len(node.results) == 1 and (node.results[0] not in self.escaping or self._is_alias(node)):
                below = 1 + max((depth.get(t, 0) for t in node.operands), default=0)
                if node.definition.is_view or (below <= MAX_DEPTH and self._is_inlined(node)):
                    inlined.add(node.results[0])
                    self.cones[node.results[0]] = self._cone(node)
                    depth[node.results[0]] = below
                elif (source := self._narrower_source(node)) in inlined:
                    inlined.remove(source)
                    inlined.add(node.results[0])
                    self.cones[node.results[0]] = 1, frozenset([source])
                    depth[node.results[0]] = 1
        return inlined

    def _narrower_source(self, node: LoopNode) -> int | None:
        """Returns the tensor that the node only casts to a wider dtype. Memory for it is smaller than for the result,
        and readers that compute the cast in place read less.
        """
        match node.definition.steps:
            case (Read() as read, Apply(op="cast")):
                *_, source = self._through_views(node.operands[read.operand])
                types = [self.tensors.tensors[t].type for t in (source, node.results[0])]
                same_size = types[0].numel == types[1].numel
                return source if same_size and types[0].dtype.itemsize < types[1].dtype.itemsize else None
        return None

    def _is_alias(self, node: LoopNode) -> bool:
        return self.tensors.tensors[node.results[0]].alias is not None

    def _is_inlined(self, node: LoopNode) -> bool:
        definition = node.definition
        ops = [s.op for s in definition.steps if isinstance(s, Apply)]
        reads = [s for s in definition.steps if isinstance(s, Read)]
        readers = self.readers.get(node.results[0], [])
        light = all(op in CHEAP for op in ops) and len(ops) <= 4
        if not reads:
            return light
        if any(r.definition.is_contraction for r in readers):  # would compute each element many times
            return False
        size = self.hint(self.tensors.tensors[node.results[0]].type.numel)
        if self._cheap_to_recompute(node):
            return True
        return len(readers) == 1 and (8 * iterations(self.hint, readers[0]) <= 9 * size or (light and len(reads) <= 2))

    def _cheap_to_recompute(self, node: LoopNode) -> bool:
        """True if recomputing the node takes few cheap steps and reads hardly more than loading it."""
        work, leaves = self._cone(node)
        result = bytes_of(self.hint, self.tensors.tensors[node.results[0]].type)
        read = sum(bytes_of(self.hint, self.tensors.tensors[t].type) for t in leaves)
        alone = len(leaves) == 1 and len(self.readers.get(node.results[0], ())) <= 1
        return work <= MAX_RECOMPUTED and (alone or 8 * read <= 9 * result)

    def _cone(self, node: LoopNode) -> tuple[int, frozenset[int]]:
        """Returns how many steps the node takes from tensors in memory, many if one is expensive, and which tensors it
        reads. Steps that compute a single number are not counted: loops compute it once.
        """
        ops = [s.op for s in node.definition.steps if isinstance(s, Apply)]
        work, leaves = len(ops) if all(op in CHEAP for op in ops) else MAX_RECOMPUTED + 1, frozenset[int]()
        for t in {node.operands[s.operand] for s in node.definition.steps if isinstance(s, Read)}:
            more, below = self.cones[t] if t in self.cones else (0, frozenset([t]))
            work += 0 if self.tensors.tensors[t].type.numel == 1 else more
            leaves |= below
        return work, leaves


def bytes_of(hint: Hint, type: TensorType) -> int:
    """Returns the bytes of a tensor of that type, at the sizes that ``hint`` assumes."""
    return hint(type.numel) * type.dtype.itemsize


def iterations(hint: Hint, node: LoopNode) -> int:
    """Returns how often the body of the node's loops runs."""
    return hint(product(a.size for a in (*node.definition.axes, *node.definition.folded)))
