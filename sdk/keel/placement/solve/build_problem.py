"""States the cost of a graph on backends with data sheets as a placement problem.

A call has the price of its roofline on each backend that takes it, a composite that of all its pieces' arithmetic. What
a backend that fuses passes between calls of one loop stays out of memory, so such a call has the price of its
arithmetic, and its traffic is charged by tensor: on each backend that reads a tensor in loops, once, unless its own
loops made it; on its maker, unless only loops of that same backend read it.  What a call reads at places that are data
comes from memory, as much as there are places, and is part of its own price.  A view is free, shares its operand's
traffic, and stays with it where it can.  What passes between backends that copy it, or bring it into a layout of their
own, is charged to both (``Cost.copies``, ``Cost.border``), and what the graph returns to its maker.

What a backend runs as one saves time where it has all of it.

Tensors lie where the graph's are, and move to the memory of a backend that has one of its own (``Cost.link``) and back,
once for all its calls.  What the graph returns ends where the graph's tensors are: so what is saved for a backward
graph pays its way out here and its way in there.  Constants are moved once for all runs, for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from keel.cost import Cost, price
from keel.cost.roofline import across, saved
from keel.cost.work import IMAGE, convolves, fusable, is_free, picks, size_of
from keel.graph.calls import argument_node, type_of
from keel.graph.leaf_calls import leaf_calls
from keel.graph.patterns import fused_calls, match_patterns
from keel.graph.size_hints import typical_sizes
from keel.placement.call_graph import CallGraph, is_getitem
from keel.placement.fallback_cost import FALLBACK_COST
from keel.placement.solve.problem import Floats, Ints, Problem, Saving, Tensors, problem, tensors
from keel.plugin import Backend
from keel.types import TensorType, Type

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Pricing:
    """Prices for ``place``.  ``constants`` are the names of inputs that never change.

    Unless ``compete``, a backend of last resort is priced only for the calls that no other backend takes.
    """

    constants: Collection[str] = ()
    compete: bool = False

    def __call__(self, units: CallGraph, backends: Sequence[Backend], supported: Mask) -> Problem | None:
        """Returns the problem in seconds, or None if a backend other than a last resort has no data sheet."""
        sheets = sheets_of(backends)
        if sheets is None or not units.nodes:
            return None
        sizes = typical_sizes(units.nodes[0].graph)
        free = np.array([is_free(call) for call in units.calls], bool)
        supported = supported if self.compete else _last(supported, free, backends)
        values = _Values.of(units, sizes)
        compute = _alone(units, sheets, supported, sizes)
        rows, fixed = _traffic(values, free, _loops(units, sheets), sheets)
        crossing, returned = _borders(values, free, any(map(convolves, units.calls)), sheets)
        passed, fixed = _passed([rows, crossing], len(sheets)), fixed + returned
        place, moved = _moved(values, sheets, self.constants)
        return problem(
            compute + fixed,
            units.needs,
            moved,
            place=place,
            launch=[s.launch for s in sheets],
            memory=_memory(sheets, place),
            together=_together(units, free, supported),
            passed=passed,
            savings=list(_savings(units, backends, sheets, supported, sizes)),
        )


def sheets_of(backends: Sequence[Backend]) -> list[Cost] | None:
    """Returns the data sheet of each backend, or None if a backend other than a last resort lacks one."""
    sheets = [FALLBACK_COST if b.cost is None and b.last_resort else b.cost for b in backends]
    known = [s for s in sheets if s is not None]
    return known if len(known) == len(sheets) else None


@dataclass(frozen=True, eq=False)
class _Values:
    """The tensors of a graph: its inputs, then the results of units. ``root[i]`` is the tensor whose memory tensor i
    aliases (itself unless a view made it); it comes before i. ``readers[i]`` are the units that read tensor i itself,
    and ``pickers[i]`` those of them that only gather from it.
    """

    nodes: list[fx.Node]
    maker: Ints
    size: Floats
    root: Ints
    readers: list[list[int]]
    pickers: list[set[int]]
    returned: Mask

    @staticmethod
    def of(units: CallGraph, sizes: Mapping[str, int]) -> _Values:
        number: dict[fx.Node, int] = {}
        nodes: list[fx.Node] = []
        maker: list[int] = []
        size: list[float] = []
        root: list[int] = []
        known: dict[TensorType, float] = {}
        graph = units.nodes[0].graph
        for node in graph.nodes:
            unit, kind = _made(node, units)
            if not isinstance(kind, TensorType):
                continue
            if kind not in known:
                known[kind] = size_of(kind, sizes)
            number[node] = len(nodes)
            root.append(_base(node, unit, units, number, root))
            nodes.append(node)
            maker.append(unit)
            size.append(known[kind])
        readers: list[list[int]] = [[] for _ in nodes]
        for u, node in enumerate(units.nodes):
            for a in node.all_input_nodes:
                if (i := number.get(a)) is not None:
                    readers[i].append(u)
        pickers: list[set[int]] = [set() for _ in nodes]
        for u, (node, call) in enumerate(zip(units.nodes, units.calls, strict=True)):
            if (operand := argument_node(node, picks(call))) is not None and operand in number:
                pickers[number[operand]].add(u)
        returned = np.zeros(len(nodes), bool)
        returned[[number[r] for r in graph.output_node().all_input_nodes if r in number]] = True
        return _Values(
            nodes, np.array(maker, np.int64), np.array(size), np.array(root, np.int64), readers, pickers, returned
        )


def _base(node: fx.Node, unit: int, units: CallGraph, number: Mapping[fx.Node, int], root: Sequence[int]) -> int:
    if unit >= 0 and is_free(units.calls[unit]):
        operand = next((a for a in units.nodes[unit].all_input_nodes if a in number), None)
        if operand is not None:
            return root[number[operand]]
    return len(root)


def _made(node: fx.Node, units: CallGraph) -> tuple[int, Type | None]:
    """Returns the unit that makes a value (-1 for an input of the graph) and the type of the value. The type is None if
    the node is not a value of a call.
    """
    if node.op == "placeholder":
        return -1, type_of(node.meta["val"]) if isinstance(node.meta.get("val"), torch.Tensor) else None
    if (unit := units.numbers.get(node)) is not None:
        out = units.calls[unit].out
        return unit, out[0] if len(out) == 1 and isinstance(node.meta["val"], torch.Tensor) else None
    if is_getitem(node) and (unit := units.numbers.get(node.all_input_nodes[0])) is not None:
        return unit, type_of(node.meta["val"]) if isinstance(node.meta.get("val"), torch.Tensor) else None
    return -1, None


def _last(supported: Mask, free: Mask, backends: Sequence[Backend]) -> Mask:
    """Removes last resorts from ``supported`` wherever another backend takes the call, unless the call is free."""
    last = np.array([b.last_resort for b in backends], bool)
    others = supported[:, ~last].any(axis=1) & ~free
    return np.asarray(supported & ~(others[:, None] & last[None]))


def _kinds(units: CallGraph) -> tuple[list[int], Ints]:
    """Returns one unit for each distinct call, and for each unit the index of its call among them."""
    number: dict[Any, int] = {}
    firsts: list[int] = []
    kind = np.empty(len(units.calls), np.int64)
    for u, call in enumerate(units.calls):
        if (k := number.setdefault(call.key, len(firsts))) == len(firsts):
            firsts.append(u)
        kind[u] = k
    return firsts, kind


def _alone(units: CallGraph, sheets: Sequence[Cost], supported: Mask, sizes: Mapping[str, int]) -> Floats:
    """Returns the seconds of each unit on each backend, without the traffic of loops, and inf if it is not taken."""
    firsts, kind = _kinds(units)
    table = np.array(
        [
            [price(call, s, sizes, parts).alone for s in sheets]
            for call, parts in ((units.calls[u], leaf_calls(units.calls[u], sizes)) for u in firsts)
        ]
    )
    return np.where(supported, table.reshape(-1, len(sheets))[kind], np.inf)


def _loops(units: CallGraph, sheets: Sequence[Cost]) -> Mask:
    """Returns which units can share a loop with others on a backend that fuses."""
    if not any(s.fuses for s in sheets):
        return np.zeros(len(units.calls), bool)
    known: dict[Any, bool] = {}
    return np.array(
        [known[c.op] if c.op in known else known.setdefault(c.op, fusable(c) and not is_free(c)) for c in units.calls],
        bool,
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Charges on tensors that pass between backends and memory. Memory is numbered after the backends. A row has the
    maker (-1: memory), the readers, and ``ways[row, from, to]`` in seconds.
    """

    made_by: Ints
    readers: list[list[int]]
    ways: Floats
    size: Floats


def _passed(rows: Sequence[_Rows | None], memory: int) -> Tensors | None:
    some = [r for r in rows if r is not None and len(r.readers)]
    if not some:
        return None
    made_by = np.concatenate([r.made_by for r in some])
    return tensors(
        made_by,
        [units for r in some for units in r.readers],
        np.concatenate([r.ways for r in some]),
        home=np.where(made_by < 0, memory, -1),
        size=np.concatenate([r.size for r in some]),
    )


def _traffic(values: _Values, free: Mask, loops: Mask, sheets: Sequence[Cost]) -> tuple[_Rows | None, Floats]:
    """Returns what loops read and write, and what calls pay wherever their neighbors are, [units, backends]."""
    fixed = np.zeros((len(free), len(sheets)))
    if not loops.any():
        return None, fixed
    pace = np.array([1 / s.bandwidth if s.fuses else 0.0 for s in sheets])
    rows: list[int] = []
    readers: list[list[int]] = []
    written: list[bool] = []
    for i, (reading, picking, shown) in enumerate(_shown(values, free)):
        looped = [u for u in reading if loops[u] and u not in picking]
        made = values.maker[i] >= 0 and bool(loops[values.maker[i]])
        out = made and (shown or len(looped) < len(reading))
        if out:
            fixed[values.maker[i]] += values.size[i] * pace
        if looped:
            rows.append(i)
            readers.append(looped)
            written.append(made and not out)
    size, made_by = values.size[rows], values.maker[rows]
    own = np.where((made_by >= 0) & loops[made_by], made_by, -1)
    paces = np.append(pace, 0.0)
    ways = (
        size[:, None, None] * paces[None, None]
        + (size * np.array(written, float))[:, None, None] * paces[None, :, None]
    )
    return _Rows(own, readers, ways, size), fixed


def _borders(values: _Values, free: Mask, convolves: bool, sheets: Sequence[Cost]) -> tuple[_Rows | None, Floats]:
    """Returns the cost of bringing tensors from one backend to another, through any views, and what makers pay for the
    tensors that the graph returns, [units, backends].
    """
    paces = np.array([[across(s, image) for s in sheets] + [0.0] for image in (False, True)])
    fixed = np.zeros((len(free), len(sheets)))
    if not paces.any():
        return None, fixed
    rows, readers, images = list[int](), list[list[int]](), list[int]()
    for i, (reading, _, shown) in enumerate(_shown(values, free)):
        maker = values.maker[i]
        if maker < 0 or free[maker]:
            continue
        image = int(convolves and values.nodes[i].meta["val"].dim() >= IMAGE)
        if shown:
            fixed[maker] += values.size[i] * paces[image, :-1]
        if reading:
            rows.append(i)
            readers.append(reading)
            images.append(image)
    size, pace = values.size[rows], paces[images]
    return _Rows(values.maker[rows], readers, size[:, None, None] * (pace[:, :, None] + pace[:, None]), size), fixed


def _shown(values: _Values, free: Mask) -> list[tuple[list[int], set[int], bool]]:
    """Yields for each tensor the units that read its memory through any views, those of them that only gather from it,
    and whether the graph returns it.

    All of this is attributed to the tensor that a view aliases, not to the view.
    """
    work, returned = (~free).tolist(), values.returned.tolist()
    reading = [[u for u in units if work[u]] for units in values.readers]
    other_readers = [
        {u for u in units if u not in picking} for units, picking in zip(reading, values.pickers, strict=True)
    ]
    for i, r in enumerate(values.root.tolist()):
        if r != i:
            reading[r] = sorted({*reading[r], *reading[i]})
            other_readers[r] |= other_readers[i]
            reading[i], other_readers[i] = [], set()
            returned[r] |= returned[i]
            returned[i] = False
    return [(units, {*units} - other_readers[i], returned[i]) for i, units in enumerate(reading)]


def _moved(values: _Values, sheets: Sequence[Cost], constants: Collection[str]) -> tuple[Ints, Tensors]:
    """Returns the place of each backend (0 is where the graph's tensors are), and the tensors that may have to move."""
    place = np.zeros(len(sheets), np.int64)
    linked = [b for b, s in enumerate(sheets) if s.link is not None]
    place[linked] = np.arange(1, len(linked) + 1)
    links = [link for s in sheets if (link := s.link) is not None]
    wait = np.array([0.0, *(link.latency for link in links)])
    pace = np.array([0.0, *(1 / link.bandwidth for link in links)])
    size = values.size * np.array([n.name not in constants for n in values.nodes])
    moves = (size > 0)[:, None, None] * (wait[:, None] + wait[None])[None]
    ways = (moves + size[:, None, None] * (pace[:, None] + pace[None])[None]) * ~np.eye(len(wait), dtype=bool)
    made = values.maker >= 0
    return place, tensors(
        values.maker,
        values.readers,
        ways,
        home=np.where(made, -1, 0),
        ends=np.where(values.returned, 0, -1),
        size=values.size.astype(np.int64),
    )


def _savings(
    units: CallGraph,
    backends: Sequence[Backend],
    sheets: Sequence[Cost],
    supported: Mask,
    sizes: Mapping[str, int],
) -> Iterator[Saving]:
    """Yields what each backend saves by running calls as one: those of the fusions that it claims or, if it has no
    ``claim``, of the patterns of its data sheet.
    """
    for b, (backend, sheet) in enumerate(zip(backends, sheets, strict=True)):
        claimed = [(units.numbers_of(f.calls), f.saves) for f in units.fusions.get(backend.name, ())]
        matches = match_patterns(units.nodes[0].graph, sheet.patterns if backend.claim is None else ())
        matched = [([units.numbers[node] for node in m.nodes], m.pattern.seconds) for m in matches]
        for members, override in (*claimed, *matched):
            if supported[members, b].all():
                seconds = saved(fused_calls([units.nodes[u] for u in members], sizes), sheet, sizes, override)
                if seconds > 0 or claimed:
                    yield Saving(tuple(members), b, seconds, in_one_part=True)


def _memory(sheets: Sequence[Cost], place: Ints) -> Floats:
    """Returns the bytes of each place: the least number that any backend there declares."""
    memory = np.full(int(place.max(initial=0)) + 1, np.inf)
    np.minimum.at(memory, place, [s.memory for s in sheets])
    return memory


def _together(units: CallGraph, free: Mask, supported: Mask) -> Ints:
    """Keeps each view together with the maker of its operand or, if that is an input of the graph, with the view's
    first reader; unless a backend that takes this neighbor refuses the view.
    """
    lead = list(range(len(units.nodes)))
    heads: dict[int, list[int]] = {}  # views of inputs, each with the views of it
    for u in np.nonzero(free)[0].tolist():
        maker = units.maker(u)
        if maker is None:
            heads[u] = [u]
        elif not (supported[lead[maker]] & ~supported[u]).any():
            lead[u] = lead[maker]
            heads.get(lead[u], []).append(u)
    readers = units.readers()
    for head, views in reversed(heads.items()):
        into = next((lead[r] for v in views for r in readers[v] if lead[r] != head), None)
        if into is not None and not (supported[into] & ~supported[head]).any():
            for v in views:
                lead[v] = into
            if into in heads:
                heads[into] = heads[into] + views
    return np.array(lead, np.int64)
