"""Emits a group of fused tensors as one kernel: nested loops over a chain of iteration spaces.

A group's tensors have spaces (sets of axes) that form a chain by inclusion: the empty space, rows, elements of rows.
Each space is a loop depth. Stores and reductions are evaluated on demand. Each value is computed once, in the outermost
loop that binds its operands. The result of a reduction exists after its loop, so its users go to a later pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from keel.errors import KeelError
from keel.loops.builder import SMALL_FLOATS, CheckedIndex, Read, Step
from keel.loops.index import Axis, Index, axes_of, flatten, loaded_of, substitute
from keel.loops.ir import Apply, Buffer, Check, Const, Kernel, Load, Loop, Position, Reduce, Scan, Stmt, Store
from keel.schedule.tensor_graph import CheckSite, LoopNode, TensorGraph
from keel.types import Dim

TROUBLE = "trouble"
"""The buffer in which checks record."""

Space = frozenset[Axis]
Coords = tuple[Index, ...]


@dataclass(frozen=True, eq=False)
class FusedNode:
    """A fused node: its axes and reduced axes as indices over the group's axes."""

    node: LoopNode
    at: Mapping[Axis, Index]  # of the definition's axes and folded axes
    space: Space  # of its results
    body: Space  # of its steps before the fold; ``space`` for a map

    @property
    def is_fold(self) -> bool:
        return self.node.definition.kind == "fold"

    @property
    def coords(self) -> Coords:
        return tuple(self.at[a] if a in self.at else Index() for a in self.node.definition.axes)


@dataclass(frozen=True, eq=False)
class Group:
    """The content of one kernel: its nodes in order, and the numbers of the tensors that get memory."""

    members: tuple[FusedNode, ...]
    stored: frozenset[int]
    axes: tuple[Axis, ...]  # of all spaces, in loop order


@dataclass
class _Block:
    axes: Space
    stmts: list[Stmt] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)
    elements: dict[tuple[int, Coords, int | None, bool], int] = field(default_factory=dict)
    folds: dict[int, tuple[int, ...]] = field(default_factory=dict)  # fold (by id) -> its results, once computed


@dataclass(frozen=True)
class _Frame:
    """A definition under evaluation: the places of its axes, its mask, whether masked reads give zero, and the results
    of its reduction if it has one.
    """

    node: LoopNode
    at: Mapping[Axis, Index]
    mask: int | None = None
    zero: bool = False
    folded: tuple[int, ...] | None = None
    memo: dict[int, int] = field(default_factory=dict)


class Emitter:
    """Evaluates elements of tensors into nested blocks. ``inlined`` maps a tensor to the node that is computed in
    place.
    """

    def __init__(self, tensors: TensorGraph, producers: Mapping[int, LoopNode], inlined: Callable[[int], bool]):
        self.tensors, self.producers, self.inlined = tensors, producers, inlined
        self.blocks = [_Block(frozenset())]
        self.depths: dict[int, int] = {}
        self.buffers: dict[tuple[int, str], Buffer] = {}
        self.members: dict[int, FusedNode] = {}
        self.results: dict[int, tuple[FusedNode, int]] = {}  # tensor -> its member, and which result it is
        self.steps: dict[int, dict[int, Step]] = {}  # by definition (its id): the step that makes each value
        self.checks: list[tuple[Check, CheckSite]] = []  # in the order of their numbers
        self.computed: dict[int, LoopNode] = {}  # the nodes whose steps are in the kernel, by id

    # -- values --------------------------------------------------------------------------------------

    def step(self, key: Any, axes: Iterable[Axis], args: Iterable[int], make: Callable[[int], Stmt]) -> int:
        """Returns the number of a value. If it is not computed yet, adds a statement in the outermost block that has
        its operands.
        """
        need = frozenset(axes)
        depth = max((self.depths[a] for a in args), default=0)
        while not need <= self.blocks[depth].axes:
            depth += 1
            if depth == len(self.blocks):
                raise KeelError("bad-graph", f"{sorted(a.name for a in need)} are not bound where {key} is computed.")
        block = self.blocks[depth]
        if key not in block.known:
            number = self.number(depth)
            block.stmts.append(make(number))
            block.known[key] = number
        return block.known[key]

    def number(self, depth: int) -> int:
        number = len(self.depths)
        self.depths[number] = depth
        return number

    def buffer(self, tensor: int, role: str) -> str:
        """Returns the buffer of a tensor that has its own memory."""
        key = (tensor, "in" if role == "in" else "out")
        if key not in self.buffers:
            t = self.tensors.tensors[tensor].type
            self.buffers[key] = Buffer(f"b{len(self.buffers)}", t.dtype, t.extent, role)  # type: ignore[arg-type]
        return self.buffers[key].name

    def element(self, tensor: int, coords: Coords, mask: int | None = None, zero: bool = True) -> int:
        """Returns the element of ``tensor`` at ``coords``. If ``mask`` is false, it is zero, or any value unless
        ``zero``.
        """
        if mask is not None and not zero and _inside(coords, self.tensors.tensors[tensor].type.shape):
            mask = None
        key = (tensor, coords, mask, zero or mask is None)
        known = next((b.elements[key] for b in self.blocks if key in b.elements), None)
        if known is None:
            known = self._element(tensor, coords, mask, zero)
            self.blocks[self.depths[known]].elements[key] = known
        return known

    def _element(self, tensor: int, coords: Coords, mask: int | None, zero: bool) -> int:
        if tensor in self.results:
            member, k = self.results[tensor]
            if member.is_fold:
                return self._folded(member, k, coords, mask if zero else None)
            return self._evaluate(member.node, k, coords, mask, zero)
        if self.inlined(tensor):
            node = self.producers[tensor]
            return self._evaluate(node, node.results.index(tensor), coords, mask, zero)
        base, offset = self.tensors.base(tensor)
        strides = self.tensors.tensors[tensor].type.strides
        at = flatten(coords, strides) + offset
        name = self.buffer(base, "in")
        dtype = self.tensors.tensors[tensor].type.dtype
        args = [*loaded_of(at), *([] if mask is None else [mask])]
        # An empty operand that is expanded has no element: it is read in a loop without steps.
        empty = 0 in self.tensors.tensors[tensor].type.shape
        axes = {*axes_of(at), *(a for c in coords if empty for a in axes_of(c))}
        return self.step(("load", base, at, mask), axes, args, lambda n: Load(n, name, at, dtype, mask))

    def _evaluate(self, node: LoopNode, k: int, coords: Coords, mask: int | None, zero: bool) -> int:
        at = dict(zip(node.definition.axes, coords, strict=True))
        output = node.definition.outputs[k]
        # The mask is applied once, to the result, so its operands may have any value under the mask.
        read = any(isinstance(s, Read) and s.result == output for s in node.definition.steps)
        value = self.value(_Frame(node, at, mask, zero and read), output)
        if mask is None or read or not zero:
            return value
        return self._masked(value, mask, self.tensors.tensors[node.results[k]].type.dtype)

    def _masked(self, value: int, mask: int, dtype: torch.dtype) -> int:
        """Returns ``value`` if ``mask`` is true, else zero; selected in f32 if the dtype has no arithmetic."""
        wide = torch.float32 if dtype in SMALL_FLOATS else dtype
        nothing: bool | int | float = False if wide == torch.bool else 0.0 if wide.is_floating_point else 0
        zero = self.step(("const", repr(nothing), wide), (), (), lambda n: Const(n, nothing, wide))
        chosen = self._applied("where", (mask, self._cast(value, dtype, wide), zero), wide)
        return self._cast(chosen, wide, dtype)

    def _cast(self, value: int, source: torch.dtype, target: torch.dtype) -> int:
        return value if source == target else self._applied("cast", (value,), target)

    def _applied(self, op: str, args: tuple[int, ...], dtype: torch.dtype) -> int:
        return self.step((op, args, dtype), (), args, lambda n: Apply(n, op, args, dtype))

    def _folded(self, member: FusedNode, k: int, coords: Coords, mask: int | None) -> int:
        results = next((b.folds[id(member)] for b in self.blocks if id(member) in b.folds), None)
        sizes = self.tensors.tensors[member.node.results[k]].type.shape
        # In a dimension of size 1 all indices are 0, also those that are data; the reader has checked them.
        if results is None or any(a != b and n != 1 for a, b, n in zip(coords, member.coords, sizes, strict=True)):
            raise KeelError("bad-graph", f"The fold {member.node.name} is read where it is not computed.")
        value = self.value(_Frame(member.node, member.at, folded=results), member.node.definition.outputs[k])
        if mask is None:
            return value
        return self._masked(value, mask, self.tensors.tensors[member.node.results[k]].type.dtype)

    def value(self, frame: _Frame, number: int) -> int:
        """Returns the kernel's number of a definition's value."""
        if number not in frame.memo:
            frame.memo[number] = self._compute(frame, number)
        return frame.memo[number]

    def _compute(self, frame: _Frame, number: int) -> int:
        self.computed[id(frame.node)] = frame.node
        match step := self._step_of(frame.node, number):
            case Const():
                const = step
                return self.step(
                    ("const", repr(const.value), const.dtype), (), (), lambda n: Const(n, const.value, const.dtype)
                )
            case Position():
                at = self.moved(frame, step.index)
                return self.step(("position", at), axes_of(at), loaded_of(at), lambda n: Position(n, at))
            case Apply():
                args = tuple(self.value(frame, a) for a in step.args)
                return self.step((step.op, args, step.dtype), (), args, lambda n: Apply(n, step.op, args, step.dtype))
            case CheckedIndex():
                return self._checked(frame, step)
            case Read():
                coords = tuple(self.moved(frame, i) for i in step.at)
                mask = self._mask(frame, step)
                zero = frame.zero or step.mask is not None
                return self.element(frame.node.operands[step.operand], coords, mask, zero)
            case Reduce() | Scan():
                if frame.folded is None:
                    raise KeelError("bad-graph", f"The fold {frame.node.name} is not computed here.")
                return frame.folded[step.results.index(number)]

    def _step_of(self, node: LoopNode, number: int) -> Step:
        """Returns the step of the node's definition that makes the value with this number."""
        definition = node.definition
        if id(definition) not in self.steps:
            self.steps[id(definition)] = {
                r: s for s in definition.steps for r in (s.results if isinstance(s, Reduce | Scan) else (s.result,))
            }
        return self.steps[id(definition)][number]

    def _checked(self, frame: _Frame, step: CheckedIndex) -> int:
        """Returns an index, with its bounds check at the element that needs it."""
        value, mask = self.value(frame, step.value), self._mask(frame, step)

        def made(n: int) -> Stmt:
            node = frame.node
            check = Check(n, value, step.bound, TROUBLE, len(self.checks), step.wrap, mask)
            self.checks.append((check, CheckSite(node.operator, node.line, step.bound, step.wrap, node.results[0])))
            return check

        args = (value,) if mask is None else (value, mask)
        return self.step(("place", value, step.bound, step.wrap, mask), (), args, made)

    def passed(self) -> int | None:
        """Returns a bool, whether all checks that were emitted pass; None without checks."""
        result: int | None = None
        for check, _ in self.checks:
            result = self.both(result, self._passes(check))
        return result

    def _passes(self, check: Check) -> int:
        """Returns a bool, whether a check passes: one that fails yields another index than its value."""
        value = check.value
        if check.wrap:
            bound = Index(check.bound)
            size = self.step(("position", bound), (), (), lambda n: Position(n, bound))
            zero = self.step(("const", "0", torch.int64), (), (), lambda n: Const(n, 0, torch.int64))
            below = self._applied("lt", (value, zero), torch.bool)
            value = self._applied(
                "where", (below, self._applied("add", (value, size), torch.int64), value), torch.int64
            )
        passes = self._applied("eq", (check.result, value), torch.bool)
        if check.mask is None:
            return passes
        return self._applied("or", (passes, self._applied("not", (check.mask,), torch.bool)), torch.bool)

    def _mask(self, frame: _Frame, step: Read | CheckedIndex) -> int | None:
        if step.mask is None:
            return frame.mask
        return self.both(frame.mask, self.value(frame, step.mask))

    def both(self, mask: int | None, other: int | None) -> int | None:
        """Returns the conjunction of two masks; None stands for true."""
        if mask is None or other is None:
            return other if mask is None else mask
        return self._applied("and", (mask, other), torch.bool)

    def moved(self, frame: _Frame, i: Index) -> Index:
        """Returns a definition's index over the group's axes, with its loaded indices renumbered."""
        return substitute(i, frame.at, lambda n: self.value(frame, n))

    # -- groups --------------------------------------------------------------------------------------

    def group(self, group: Group) -> Kernel:
        for member in group.members:
            for k, tensor in enumerate(member.node.results):
                self.results[tensor] = (member, k)
        chain = spaces(group)
        stores = [(m, k) for m in group.members for k, t in enumerate(m.node.results) if t in group.stored]
        _Passes(self, chain, group.axes).process(0, [*stores])
        return self.kernel()

    def arguments(self, node: LoopNode, at: Mapping[Axis, Index], numbers: Sequence[int]) -> tuple[int, ...]:
        """Returns the values with these numbers in the node's definition, for axes ``at``."""
        frame = _Frame(node, at)
        return tuple(self.value(frame, n) for n in numbers)

    def output(self, node: LoopNode, at: Mapping[Axis, Index], folded: tuple[int, ...], k: int) -> int:
        """Returns the node's k-th output, given the results ``folded`` of its reduction or scan."""
        return self.value(_Frame(node, at, folded=folded), node.definition.outputs[k])

    def coordinates(self, node: LoopNode, at: Mapping[Axis, Index], coords: Coords) -> Coords:
        """Returns coordinates of the node's definition over the loops' axes."""
        frame = _Frame(node, at)
        return tuple(self.moved(frame, i) for i in coords)

    def store(self, member: FusedNode, k: int) -> None:
        tensor = member.node.results[k]
        value = self.element(tensor, member.coords)
        at = flatten(member.coords, self.tensors.tensors[tensor].type.strides)
        self.blocks[-1].stmts.append(Store(self.buffer(tensor, "out"), at, value))

    def kernel(self) -> Kernel:
        """Returns the emitted kernel, with a buffer for the results of its checks."""
        if self.checks:
            device = self.tensors.tensors[next(iter(self.buffers))[0]].type.device
            trouble = {
                (self.tensors.trouble(tuple(site for _, site in self.checks), device), "in"): Buffer(
                    TROUBLE, torch.int64, len(self.checks), "inout"
                )
            }
            read = {key: b for key, b in self.buffers.items() if b.role == "in"}
            self.buffers = {**read, **trouble, **{key: b for key, b in self.buffers.items() if b.role != "in"}}
        return Kernel("kernel", tuple(self.buffers.values()), tuple(self.blocks[0].stmts))

    def open(self, axes: Iterable[Axis]) -> None:
        self.blocks.append(_Block(self.blocks[-1].axes | frozenset(axes)))

    def close(self, kind: str, axes: Sequence[Axis]) -> None:
        block = self.blocks.pop()
        self.blocks[-1].stmts.append(Loop(kind, tuple(axes), tuple(block.stmts)))  # type: ignore[arg-type]


def _inside(coords: Coords, shape: Sequence[Dim]) -> bool:
    """True if the coordinates are within ``shape`` for all values of the axes: each runs along its dimension, or is a
    constant within a known size.
    """
    return all(
        isinstance(i.const, int) and isinstance(size, int) and 0 <= i.const < size
        if i.is_const
        else i.const == 0
        and len(i.terms) == 1
        and i.terms[0][1] == 1
        and isinstance(axis := i.terms[0][0], Axis)
        and axis.size == size
        for i, size in zip(coords, shape, strict=True)
    )


def spaces(group: Group) -> list[Space]:
    """Returns the chain of the group's spaces, from the empty one. Raises KeelError[bad-graph] if they do not form a
    chain.
    """
    chain = sorted({frozenset(), *(s for m in group.members for s in (m.space, m.body))}, key=len)
    if not all(a < b for a, b in pairwise(chain)):
        raise KeelError("bad-graph", "The spaces of a group form no chain.")
    return chain


Target = FusedNode | tuple[FusedNode, int]
"""A reduction to compute, or a store of a member's k-th result."""


class _Passes:
    """Orders stores and reductions in passes over the chain of spaces."""

    def __init__(self, emitter: Emitter, chain: Sequence[Space], order: Sequence[Axis]):
        self.emitter, self.chain, self.order = emitter, chain, order
        self.depth = {space: d for d, space in enumerate(chain)}
        self.position = {id(m): k for k, m in enumerate(dict.fromkeys(m for m, _ in emitter.results.values()))}
        self._needs: dict[int, tuple[FusedNode, ...]] = {}
        self._rests: dict[int, tuple[FusedNode, ...]] = {}

    def process(self, depth: int, targets: Sequence[Target]) -> None:
        """Emits ``targets``, and the reductions they need whose results are at this depth, into the innermost open
        block.
        """
        block = self.emitter.blocks[-1]
        pending: list[Target] = [*self._required(depth, targets), *targets]
        partial: dict[int, tuple[int, ...]] = {}
        while pending:
            ready = [
                t for t in pending if all(id(f) in block.folds for f in self.closure(t) if self.depth[f.space] == depth)
            ]
            if not ready:
                raise KeelError("bad-graph", "The folds of a group wait for each other.")
            pending = [t for t in pending if t not in ready]
            inner = [t for t in ready if self._body(t) > depth]
            for target in ready:
                if self._body(target) == depth:
                    self._here(target, partial)
            if inner:
                partial |= self._pass(depth, inner)
            # A reduction over axes of size 1 only is its argument.
            for fold in [t for t in ready if isinstance(t, FusedNode) and self.depth[t.space] == depth]:
                block.folds[id(fold)] = partial.pop(id(fold))
        self.partial = partial

    def _pass(self, depth: int, inner: Sequence[Target]) -> dict[int, tuple[int, ...]]:
        """Emits one loop over the next space for all of ``inner``, and returns the results of its reductions by id."""
        axes = [a for a in self.order if a in self.chain[depth + 1] - self.chain[depth]]
        self.emitter.open(axes)
        self.process(depth + 1, inner)
        folds = [t for t in inner if isinstance(t, FusedNode)]
        partial = self.partial
        results: dict[int, tuple[int, ...]] = {}
        for fold in folds:
            reduce = next(s for s in fold.node.definition.steps if isinstance(s, Reduce))
            numbers = tuple(self.emitter.number(depth) for _ in reduce.results)
            self.emitter.blocks[-1].stmts.append(Reduce(numbers, reduce.monoid, partial[id(fold)], reduce.dtypes))
            results[id(fold)] = numbers
        self.emitter.close("reduce" if folds else "parallel", axes)
        return results

    def _here(self, target: Target, partial: dict[int, tuple[int, ...]]) -> None:
        """Emits a target whose body is at the open depth: a store, or the arguments of a reduction."""
        if isinstance(target, FusedNode):
            self._settle(target)
            reduce = next(s for s in target.node.definition.steps if isinstance(s, Reduce))
            frame = _Frame(target.node, target.at)
            partial[id(target)] = tuple(self.emitter.value(frame, a) for a in reduce.args)
        else:
            if not target[0].is_fold:
                self._settle(target[0])
            self.emitter.store(*target)

    def _settle(self, member: FusedNode) -> None:
        """Evaluates the maps that ``member`` depends on one by one, in order, so that evaluation does not nest
        deeply.
        """
        below: dict[int, FusedNode] = {}
        todo = [member]
        while todo:
            for other in self.rests_on(todo.pop()):
                if not other.is_fold and self.position[id(other)] not in below:
                    below[self.position[id(other)]] = other
                    todo.append(other)
        bound = self.emitter.blocks[-1].axes
        for _, other in sorted(below.items()):
            if other.space <= bound:  # else it is read at another point, and computed there
                self.emitter.element(other.node.results[0], other.coords)

    def _required(self, depth: int, targets: Sequence[Target]) -> list[FusedNode]:
        """Returns the reductions at this depth that the targets need, in order of dependence."""
        out: dict[int, FusedNode] = {}
        for target in targets:
            for fold in self.closure(target):
                if self.depth[fold.space] == depth:
                    out[id(fold)] = fold
        return [f for f in out.values() if f not in targets]

    def _body(self, target: Target) -> int:
        return self.depth[target.body if isinstance(target, FusedNode) else target[0].space]

    def closure(self, target: Target) -> tuple[FusedNode, ...]:
        """Returns all reductions that must finish before ``target``."""
        member, fold = (target, target) if isinstance(target, FusedNode) else (target[0], None)
        folds = self.needs(member)
        return folds if fold is not None or not member.is_fold else (*folds, member)

    def needs(self, member: FusedNode) -> tuple[FusedNode, ...]:
        """Returns the reductions of the group that the member's steps depend on, through inlined nodes and other
        members.
        """
        if id(member) not in self._needs:
            folds: dict[int, FusedNode] = {}
            for member_below in self.rests_on(member):
                folds |= {id(f): f for f in self.needs(member_below)}
                if member_below.is_fold:
                    folds[id(member_below)] = member_below
            self._needs[id(member)] = tuple(folds.values())
        return self._needs[id(member)]

    def rests_on(self, member: FusedNode) -> tuple[FusedNode, ...]:
        """Returns the members of the group that the member's steps read, through inlined nodes, in the group's
        order.
        """
        if id(member) not in self._rests:
            members: dict[int, FusedNode] = {}
            visited: set[int] = set()
            todo = list(member.node.operands)
            while todo:
                tensor = todo.pop()
                if tensor in visited:
                    continue
                visited.add(tensor)
                if tensor in self.emitter.results:
                    other = self.emitter.results[tensor][0]
                    members[self.position[id(other)]] = other
                elif self.emitter.inlined(tensor):
                    todo.extend(self.emitter.producers[tensor].operands)
            self._rests[id(member)] = tuple(members[k] for k in sorted(members))
        return self._rests[id(member)]
