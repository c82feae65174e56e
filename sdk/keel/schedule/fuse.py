"""Fusion is one decision: which tensors get memory.

1. A map that is cheap to repeat, or has one reader that evaluates it once, is computed in place (``inline``). 2.
Every other defined node joins, in topological order, the group with which it shares most bytes: its producers'
groups (vertical) or those that read the same tensors (horizontal), if its loops match theirs (``match_loops``), the
spaces stay a chain, the machine stays busy, and no cycle arises. 3. Only tensors that leave their group are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from keel.fuel import Fuel
from keel.loops.builder import Read
from keel.loops.index import Axis, Index, axes_of, index, substitute
from keel.plugin import Limits
from keel.schedule.emit import Coords, FusedNode, Group, Space
from keel.schedule.inline import Hint, Inliner, bytes_of, iterations
from keel.schedule.match_loops import MixedRadix, NoSolution, Solution
from keel.schedule.tensor_graph import ExternCall, LoopNode, TensorGraph
from keel.schedule.topological_order import UnitOrder
from keel.types import Dim, product

MIN_SHRINK = 4
"""A map is recomputed at other points only if there are fewer of them by this factor."""
MAX_CANDIDATES = 8
"""The most groups tried for a node, and the most groups considered of those that touch a tensor."""
MAX_GROUP = 48
"""The most nodes of a group."""
LeafRead = tuple[int, Coords]


@dataclass(eq=False)
class _OpenGroup:
    """A group that can still grow. ``at`` maps each tensor that it makes or reads to coordinates over its digits."""

    order: int
    digits: MixedRadix
    members: list[FusedNode] = field(default_factory=list)
    made: dict[int, Coords] = field(default_factory=dict)
    read: dict[int, list[Coords]] = field(default_factory=dict)


Unit = _OpenGroup | LoopNode | ExternCall


@dataclass(frozen=True)
class Fusion:
    """Groups and library calls in an order in which they can run, and which tensors are computed in place."""

    steps: tuple[Group | LoopNode | ExternCall, ...]  # a lone Defined is a scan or a scatter
    inlined: frozenset[int]
    producers: Mapping[int, LoopNode]


def fuse(tensors: TensorGraph, limits: Limits, hint: Hint, fuel: Fuel | None = None) -> Fusion:
    """Decides what gets memory and which nodes share a kernel."""
    return _Fuser(tensors, limits, hint, fuel or Fuel()).run()


class _Fuser:
    def __init__(self, tensors: TensorGraph, limits: Limits, hint: Hint, fuel: Fuel):
        self.tensors, self.limits, self.hint, self.fuel = tensors, limits, hint, fuel
        self.producers: dict[int, LoopNode] = {
            t: n for n in tensors.nodes if isinstance(n, LoopNode) for t in n.results
        }
        self.position = {id(n): k for k, n in enumerate(tensors.nodes)}
        inliner = Inliner(tensors, self.producers, hint)
        self.escaping, self.inlined = inliner.escaping, inliner.inlined
        self.leaves: dict[int, list[LeafRead]] = {}
        self.unit: dict[int, Unit] = {}  # of each tensor with a producer that is not inlined
        self.order: UnitOrder[Unit] = UnitOrder(self._before)
        self.groups: list[_OpenGroup] = []
        self.touching: dict[int, list[_OpenGroup]] = {}  # groups that read or make a tensor

    def run(self) -> Fusion:
        for node in self.tensors.nodes:
            if isinstance(node, ExternCall) or node.definition.kind in ("scan", "scatter"):
                self.order.append(node)
                for t in node.results:
                    self.unit[t] = node
            elif not all(t in self.inlined for t in node.results):
                self._place(node)
        order = self._ordered()
        stored = self._stored()
        steps = tuple(self._closed(u, stored) if isinstance(u, _OpenGroup) else u for u in order)
        return Fusion(steps, frozenset(self.inlined), self.producers)

    # -- which loops match ----------------------------------------------------------------------------

    def _leaf_reads(self, node: LoopNode) -> list[LeafRead]:
        """Returns the node's reads from memory and from other members, as coordinates over its own axes."""
        key = self.position[id(node)]
        if key not in self.leaves:
            reads: list[LeafRead] = []
            for step in node.definition.steps:
                if isinstance(step, Read):
                    reads.extend(self._reads_at(node.operands[step.operand], step.at))
            self.leaves[key] = list(dict.fromkeys(reads))
        return self.leaves[key]

    def _reads_at(self, tensor: int, coords: Coords) -> Iterator[LeafRead]:
        if tensor not in self.inlined:
            yield tensor, coords
            return
        node = self.producers[tensor]
        values = dict(zip(node.definition.axes, coords, strict=True))
        for leaf, at in self._leaf_reads(node):
            yield leaf, tuple(substitute(i, values) for i in at)

    def _place(self, node: LoopNode) -> None:
        reads = self._leaf_reads(node)
        for group in self._candidates(reads):
            joined = self._joined(group, node, reads)
            if joined is not None and self.fuel.take():
                self._add(group, *joined)
                for other in self._makers(group, joined[1]):
                    self._absorb(group, other)
                return
        group = _OpenGroup(len(self.groups), MixedRadix(f"g{len(self.groups)}_"))
        self.groups.append(group)
        self.order.append(group)
        definition = node.definition
        at = {a: index(group.digits.new(a.size)) for a in (*definition.axes, *definition.folded)}
        self._add(group, _placed(node, at), reads)

    def _makers(self, group: _OpenGroup, reads: Sequence[LeafRead]) -> list[_OpenGroup]:
        """Returns the other groups that make a tensor that is read."""
        units = [u for t, _ in reads if isinstance(u := self.unit.get(t), _OpenGroup) and u is not group]
        return list(dict.fromkeys(units))

    def _absorb(self, group: _OpenGroup, other: _OpenGroup) -> None:
        """Merges ``other``, whose tensors the group reads, into the group. Leaves both unchanged if one of its nodes
        does not join or a cycle would arise.
        """
        outside = [u for u in self._before(group) if u is not other]
        if len(group.members) + len(other.members) > MAX_GROUP or self.order.reaches(outside, other):
            return
        before = _OpenGroup(
            group.order,
            group.digits,
            list(group.members),
            dict(group.made),
            {t: list(at) for t, at in group.read.items()},
        )
        for member in other.members:
            joined = self._joined(group, member.node, self._leaf_reads(member.node))
            if joined is None:
                break
            self._add(group, *joined)
        else:
            if self.fuel.take():
                group.members.sort(key=lambda m: self.position[id(m.node)])
                self.groups.remove(other)
                self.order.merge(group, other)
                for t in {*other.made, *other.read}:
                    self.touching[t].remove(other)
                return
        for t in {*group.made, *group.read} - {*before.made, *before.read}:
            self.touching[t].remove(group)
        self.unit.update(dict.fromkeys(other.made, other))
        group.digits, group.members, group.made, group.read = before.digits, before.members, before.made, before.read

    def _candidates(self, reads: Sequence[LeafRead]) -> list[_OpenGroup]:
        """Returns groups that make or read tensors that this node reads, sorted by shared bytes, later groups first
        among equals.

        A group that makes none of these tensors must share an eighth of the bytes: merging unrelated groups only
        extends lifetimes.
        """
        shared: dict[int, int] = {}
        by_id: dict[int, _OpenGroup] = {}
        makers: set[int] = set()
        total = 0
        for tensor in dict.fromkeys(t for t, _ in reads):
            size = bytes_of(self.hint, self.tensors.tensors[tensor].type)
            total += size
            for group in self.touching.get(tensor, ())[-MAX_CANDIDATES:]:
                made = tensor in group.made
                shared[id(group)] = shared.get(id(group), 0) + (2 * size if made else size)
                by_id[id(group)] = group
                makers |= {id(group)} if made else set()
        worth = [g for k, g in by_id.items() if k in makers or 8 * shared[k] >= total]
        return sorted(worth, key=lambda g: (-shared[id(g)], -g.order))[:MAX_CANDIDATES]

    def _joined(
        self, group: _OpenGroup, node: LoopNode, reads: Sequence[LeafRead]
    ) -> tuple[FusedNode, Sequence[LeafRead]] | None:
        """Returns the place of ``node`` in the group's loops and its reads there, or None if it does not join.

        The group's digits are refined only if it does.
        """
        if len(group.members) >= MAX_GROUP or self._buffers(group, node, reads) > self.limits.max_buffers:
            return None
        definition = node.definition
        if definition.is_contraction:  # begins a group, which maps of its result may join
            return None
        own = (*definition.axes, *definition.folded)
        solution = Solution(MixedRadix("x"), group.digits.copy())
        try:
            solution, reads = self._met(group, node, reads, solution)
            for result in node.results:
                for known in group.read.get(result, ()):
                    solution.equate(map(index, definition.axes), known, self.tensors.tensors[result].type.shape)
            for tensor, coords in sorted(reads, key=lambda r: -bytes_of(self.hint, self.tensors.tensors[r[0]].type)):
                for known in group.read.get(tensor, ()):
                    solution = self._attempt(solution, coords, known, self.tensors.tensors[tensor].type.shape)
            placed = self._complete(group, node, own, solution)
        except NoSolution:
            return None
        if placed is None or not self._sound(group, placed, solution) or self._cyclic(group, reads):
            return None
        self._refine(group, solution.y)
        return placed, reads

    def _met(
        self, group: _OpenGroup, node: LoopNode, reads: Sequence[LeafRead], solution: Solution
    ) -> tuple[Solution, Sequence[LeafRead]]:
        """Equates the coordinates at which the node reads the group's tensors with those at which they are made.

        A map that is read at another point than the loops' own (a row at its target, for instance) is recomputed there
        if that is rare; then its operands are read instead. Raises NoSolution.
        """
        todo, matched = list(reads), []
        while todo:
            tensor, coords = todo.pop(0)
            matched.append((tensor, coords))
            if tensor not in group.made:
                continue
            shape = self.tensors.tensors[tensor].type.shape
            trial = solution.copy()
            try:
                trial.equate(coords, group.made[tensor], shape)
                solution = trial
            except NoSolution:
                maker = self.producers[tensor]
                if maker.definition.kind != "map" or MIN_SHRINK * iterations(self.hint, node) > self.hint(
                    product(shape)
                ):
                    raise
                matched.pop()
                values = dict(zip(maker.definition.axes, coords, strict=True))
                todo += [(leaf, tuple(substitute(i, values) for i in at)) for leaf, at in self._leaf_reads(maker)]
        return solution, matched

    def _attempt(self, solution: Solution, coords: Coords, known: Coords, shape: Sequence[Dim]) -> Solution:
        trial = solution.copy()
        try:
            trial.equate(coords, known, shape)
        except NoSolution:
            return solution
        return trial

    def _complete(self, group: _OpenGroup, node: LoopNode, own: Sequence[Axis], solution: Solution) -> FusedNode | None:
        """Assigns the digits that no equation determined: to the group's other axes if they match in order, or to new
        ones.
        """
        digits = [d for a in own if a.size != 1 for d in _digits(solution.x.now(index(a)))]
        free = [d for d in digits if d not in solution.matched]
        if not solution.matched and digits:
            return None
        axes = [d for a in self._axes(group) for d in _digits(solution.y.now(index(a)))]
        rest = [a for a in axes if a not in set(solution.matched.values())]
        more: dict[Axis, Axis] = {}
        if free and rest:
            if [d.size for d in free] != [a.size for a in rest]:
                return None
            more = dict(zip(free, rest, strict=True))
        elif free:
            more = {d: solution.y.new(d.size) for d in free}
        return _placed(node, {a: solution.value(index(a), more) for a in own})

    def _axes(self, group: _OpenGroup) -> list[Axis]:
        axes: dict[Axis, None] = {}
        for member in group.members:
            for i in member.at.values():
                for a in sorted(axes_of(group.digits.now(i)), key=lambda a: a.name):
                    axes[a] = None
        return list(axes)

    def _sound(self, group: _OpenGroup, placed: FusedNode, solution: Solution) -> bool:
        """True if the spaces stay a chain and enough iterations stay independent."""
        members = [_moved(m, solution.y) for m in group.members]
        if any(m.node.definition.is_contraction and not placed.space == placed.body == m.space for m in members):
            return False  # each pass of a fold would compute the products again
        chain = sorted({s for m in (*members, placed) for s in (m.space, m.body)}, key=len)
        if not all(a < b for a, b in pairwise(chain)) or self._strides_through_memory(members, placed, chain):
            return False
        before = min((self._size(m.space) for m in members), default=0)
        after = self._size(chain[0])
        work = max(self._size(s) for s in chain)
        if after < min(self.limits.parallel, before):
            return False
        few = max(2, self.limits.parallel)
        if self.limits.columns > 1 and work > 4096 and self._in_columns(group, chain[0], solution, work):
            few *= self.limits.columns
        if after < few and work > 4096:  # a fold to almost nothing: nobody waits for it here
            folds = [m for m in (*members, placed) if m.is_fold and self._size(m.space) < few]
            made = {t for f in folds for t in f.node.results}
            split = self.limits.parallel > 1  # one fold after the other can be split as well
            larger = [m for m in (*members, placed) if len(m.body) > len(chain[0]) and not (split and m.is_fold)]
            return not any(self._depends(m.node, made) for m in larger)
        return True

    def _in_columns(self, group: _OpenGroup, smallest: Space, solution: Solution, work: int) -> bool:
        """True if the group reads a tensor of about ``work`` elements, the number of iterations, and neighbors in it
        are iterations of the smallest space.
        """
        reads = ((t, at) for t, places in group.read.items() for at in places)
        largest = max(reads, key=lambda r: bytes_of(self.hint, self.tensors.tensors[r[0]].type), default=None)
        if largest is None or 8 * self.hint(self.tensors.tensors[largest[0]].type.numel) < work:
            return False
        t, coords = largest
        return not smallest.isdisjoint(self._neighbors(t, [solution.y.now(i) for i in coords]))

    def _neighbors(self, tensor: int, coords: Coords | Sequence[Index]) -> Set[Axis]:
        """Returns the axes along which neighbors in the memory of a tensor at ``coords`` follow each other."""
        type = self.tensors.tensors[tensor].type
        dense = (axes_of(i) for i, n, s in zip(coords, type.shape, type.strides, strict=True) if n != 1 and s == 1)
        return next(dense, frozenset())

    def _strides_through_memory(self, members: Sequence[FusedNode], placed: FusedNode, chain: Sequence[Space]) -> bool:
        """True if maps of the smallest space (of each channel, say) would make the loops stride through memory: they
        come first, and neighbors in memory belong to it.
        """
        smallest, *larger = chain
        every = (*members, placed)
        if not smallest or not larger or any(m.is_fold for m in every if m.space == smallest):
            return False
        results = [
            (bytes_of(self.hint, self.tensors.tensors[t].type), t, m.coords) for m in every for t in m.node.results
        ]
        _, t, coords = max(results, key=lambda r: r[0])
        return not smallest.isdisjoint(self._neighbors(t, coords))

    def _depends(self, node: LoopNode, made: set[int]) -> bool:
        """True if the node needs one of ``made``, through members and inlined nodes."""
        todo, visited = list(node.operands), set()
        while todo:
            t = todo.pop()
            if t in made:
                return True
            if t not in visited and t in self.producers:
                visited.add(t)
                todo.extend(self.producers[t].operands)
        return False

    def _size(self, space: Space) -> int:
        return self.hint(product(a.size for a in space))

    def _buffers(self, group: _OpenGroup, node: LoopNode, reads: Sequence[LeafRead]) -> int:
        return len({*group.made, *group.read, *(t for t, _ in reads), *node.results})

    def _cyclic(self, group: _OpenGroup, reads: Sequence[LeafRead]) -> bool:
        """True if the node needs a unit outside the group that needs the group."""
        return self.order.reaches(self._made_outside(group, reads), group)

    def _made_outside(self, group: _OpenGroup, reads: Sequence[LeafRead]) -> list[Unit]:
        """Returns the other units that make a tensor that is read."""
        return [self.unit[t] for t, _ in reads if t in self.unit and self.unit[t] is not group]

    def _last(self, unit: Unit) -> int:
        nodes = [m.node for m in unit.members] if isinstance(unit, _OpenGroup) else [unit]
        return max(self.position[id(n)] for n in nodes)

    def _before(self, unit: Unit) -> list[Unit]:
        """Returns the units that make the tensors that this one reads from memory."""
        if isinstance(unit, _OpenGroup):
            read = list(unit.read)
        elif isinstance(unit, ExternCall):
            read = [self.tensors.base(t)[0] for t in unit.operands]
        else:
            read = [t for t, _ in self._leaf_reads(unit)]
            if unit.definition.base is not None:
                read += [t for t, _ in self._reads_at(unit.operands[unit.definition.base], _anywhere(self, unit))]
        return [self.unit[t] for t in read if t in self.unit and self.unit[t] is not unit]

    # -- bookkeeping --------------------------------------------------------------------------------

    def _refine(self, group: _OpenGroup, digits: MixedRadix) -> None:
        group.digits = digits
        group.members = [_moved(m, digits) for m in group.members]
        group.made = {t: tuple(map(digits.now, c)) for t, c in group.made.items()}
        group.read = {t: [tuple(map(digits.now, c)) for c in cs] for t, cs in group.read.items()}

    def _add(self, group: _OpenGroup, placed: FusedNode, reads: Sequence[LeafRead]) -> None:
        self.order.put_after(group, self._made_outside(group, reads))
        group.members.append(placed)
        for t in placed.node.results:
            group.made[t] = placed.coords
            group.read.pop(t, None)
            self.unit[t] = group
            if group not in (touching := self.touching.setdefault(t, [])):
                touching.append(group)
        for tensor, coords in reads:
            if tensor in group.made:
                continue
            at = tuple(substitute(i, placed.at) for i in coords)
            known = group.read.setdefault(tensor, [])
            if at not in known:
                known.append(at)
            if group not in (touching := self.touching.setdefault(tensor, [])):
                touching.append(group)

    def _stored(self) -> set[int]:
        """Returns tensors that are used outside the group that makes them."""
        stored = set(self.escaping)
        for group in self.groups:
            stored |= set(group.read)
        for node in self.tensors.nodes:
            if isinstance(node, LoopNode) and node.definition.kind in ("scan", "scatter"):
                stored |= {t for t, _ in self._leaf_reads(node)}
                if node.definition.base is not None:
                    stored |= {t for t, _ in self._reads_at(node.operands[node.definition.base], _anywhere(self, node))}
        return stored

    def _closed(self, group: _OpenGroup, stored: set[int]) -> Group:
        members = tuple(group.members)
        out = frozenset(t for m in members for t in m.node.results if t in stored)
        return Group(members, out, tuple(self._axes(group)))

    def _ordered(self) -> list[Unit]:
        """Returns all units in topological order, otherwise in the order of their first nodes in the graph."""
        units: list[Unit] = [*self.groups]
        units += [
            n for n in self.tensors.nodes if isinstance(n, ExternCall) or n.definition.kind in ("scan", "scatter")
        ]
        units.sort(key=self._last)
        done: dict[int, None] = {}
        out: list[Unit] = []

        def visit(unit: Unit) -> None:
            stack = [(unit, iter(self._before(unit)))]
            done[id(unit)] = None
            while stack:
                top, rest = stack[-1]
                following = next((u for u in rest if id(u) not in done), None)
                if following is None:
                    out.append(top)
                    stack.pop()
                else:
                    done[id(following)] = None
                    stack.append((following, iter(self._before(following))))

        for unit in units:
            if id(unit) not in done:
                visit(unit)
        return out


def _anywhere(fuser: _Fuser, node: LoopNode) -> Coords:
    """Returns coordinates of a scatter's base, as separate axes."""
    shape = fuser.tensors.tensors[node.results[0]].type.shape
    return tuple(index(Axis(f"b{n}", size)) for n, size in enumerate(shape))


def _digits(i: Index) -> list[Axis]:
    """Returns the digits of a split axis, highest first."""
    terms = [(a, c) for a, c in i.terms if isinstance(a, Axis)]
    out: list[Axis] = []
    step: Dim = 1
    while terms:
        term = next(t for t in terms if t[1] == step)
        terms.remove(term)
        out.append(term[0])
        step = (index(step) * term[0].size).const
    return out[::-1]


def _placed(node: LoopNode, at: Mapping[Axis, Index]) -> FusedNode:
    definition = node.definition
    space = frozenset(a for d in definition.axes for a in axes_of(at[d]))
    return FusedNode(node, at, space, space | frozenset(a for d in definition.folded for a in axes_of(at[d])))


def _moved(member: FusedNode, digits: MixedRadix) -> FusedNode:
    return _placed(member.node, {a: digits.now(i) for a, i in member.at.items()})
