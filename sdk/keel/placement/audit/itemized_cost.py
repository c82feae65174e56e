"""What a placement costs by the data sheets of its backends, part by part.

The bill is counted from the graph and the parts alone, a call and a tensor at a time. It shares no code with ``solve``,
which states the same cost as a problem for solvers, so that the certificate can compare the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import fx

from keel.cost import Cost, price
from keel.cost.roofline import across, saved
from keel.cost.work import IMAGE, convolves, fusable, is_free, picks, size_of
from keel.graph.calls import argument_node, call_of, type_of
from keel.graph.leaf_calls import leaf_calls
from keel.graph.patterns import fused_calls, match_patterns
from keel.graph.size_hints import typical_sizes
from keel.placement.fallback_cost import FALLBACK_COST
from keel.placement.placement import Plan
from keel.types import Call, TensorType


@dataclass(frozen=True)
class PartCost:
    """The seconds of a part: for its calls (``work``), for tensors that come from or go to other backends (``moves``),
    and for entering it (``launch``).
    """

    name: str
    work: float
    moves: float
    launch: float

    @property
    def seconds(self) -> float:
        return self.work + self.moves + self.launch


def itemize(
    gm: fx.GraphModule, plan: Plan, constants: Collection[str] = (), *, per_part: bool = False
) -> tuple[PartCost, ...] | None:
    """Returns the bill of each part, or None if a backend other than a last resort has no data sheet.

    Sizes have the values that they had while tracing. A tensor that several backends take is charged to the first part
    that reads it on each. With ``per_part``, the traffic of loops is charged to every part, since a part of the same
    backend reads again what an earlier part had in a cache; solvers do not count that.
    """
    sheets = {b.name: b.cost or FALLBACK_COST for b in plan.backends if b.cost is not None or b.last_resort}
    if len(sheets) < len(plan.backends):
        return None
    book = _Ledger(gm, plan, sheets, constants, per_part)
    work, moves = book.work(), book.moves()
    return tuple(
        PartCost(part.name, work[i], moves[i], sheets[part.owner.name].launch) for i, part in enumerate(plan.parts)
    )


class _Ledger:
    def __init__(
        self, gm: fx.GraphModule, plan: Plan, sheets: Mapping[str, Cost], constants: Collection[str], per_part: bool
    ) -> None:
        self.per_part = per_part
        self.gm, self.plan, self.sheets, self.constants = gm, plan, sheets, constants
        self.claims = {b.name for b in plan.backends if b.claim is not None}
        self.part = {name: i for i, part in enumerate(plan.parts) for name in part.nodes}
        self.sizes = typical_sizes(gm.graph)
        self.fusing = any(s.fuses for s in sheets.values())
        self.returned = frozenset(gm.graph.output_node().all_input_nodes)
        self.sums = [[0.0] * len(plan.parts) for _ in range(2)]
        self.bytes = {node: self._bytes(node) for node in gm.graph.nodes}
        self.looped = {node for node in gm.graph.nodes if _looped(node)} if self.fusing else set()

    def calls(self) -> Iterator[tuple[fx.Node, Call]]:
        for node in self.gm.graph.nodes:
            if node.name in self.part and (call := call_of(node)) is not None:
                yield node, call

    def sheet(self, part: int) -> Cost:
        return self.sheets[self.plan.parts[part].owner.name]

    def work(self) -> list[float]:
        """Counts calls, and the memory traffic of loops that does not depend on their neighbors."""
        known: dict[object, float] = {}
        for node, call in self.calls():
            i = self.part[node.name]
            key = (self.plan.parts[i].owner.name, call.key)
            if key not in known:
                known[key] = price(call, self.sheet(i), self.sizes, leaf_calls(call, self.sizes)).alone
            self.sums[0][i] += known[key]
        for name, sheet in self.sheets.items():
            for match in match_patterns(self.gm.graph, () if name in self.claims else sheet.patterns):
                parts = {self.part[node.name] for node in match.nodes}
                i = min(parts)
                if len(parts) == 1 and self.plan.parts[i].owner.name == name:
                    group = fused_calls(match.nodes, self.sizes)
                    self.sums[0][i] -= saved(group, sheet, self.sizes, match.pattern.seconds)
        self._claimed()
        return self.sums[0]

    def _claimed(self) -> None:
        """Subtracts what the fusions that plugins claimed save."""
        nodes = {node.name: node for node in self.gm.graph.nodes}
        order = {name: i for i, name in enumerate(nodes)}
        for i, part in enumerate(self.plan.parts):
            for fusion in part.fusions:
                calls = [nodes[name] for name in sorted(fusion.calls, key=order.__getitem__)]
                self.sums[0][i] -= saved(fused_calls(calls, self.sizes), self.sheet(i), self.sizes, fusion.saves)

    def moves(self) -> list[float]:
        for node in self.gm.graph.nodes:
            if (maker := self._maker(node)) is not None or node.op == "placeholder":
                self._links(node, maker)
        if self.fusing:
            for node, readers in self._roots().items():
                self._loops(node, *readers)
        images = any(convolves(c) for _, c in self.calls())
        if any(across(sheet, images) for sheet in self.sheets.values()):
            for node, (full_readers, picking) in self._roots().items():
                self._border(node, [*full_readers, *picking], images and node.meta["val"].dim() >= IMAGE)
        return self.sums[1]

    def _border(self, node: fx.Node, readers: list[fx.Node], image: bool) -> None:
        """Counts a tensor that goes to other backends, which copy it or bring it into their layouts, or that leaves the
        graph.
        """
        maker = self._maker(node)
        if maker is None or _free(maker):
            return
        start, visited = self.part[maker.name], set[str | int]()
        if any(u.op == "output" for u in readers):
            self.sums[1][start] += self.bytes[node] * across(self.sheet(start), image)
        for end in self._parts(readers):
            if self._side(end) not in {self._side(start), *visited}:
                visited.add(self._side(end))
                for i in (start, end):
                    self.sums[1][i] += self.bytes[node] * across(self.sheet(i), image)

    def _maker(self, node: fx.Node) -> fx.Node | None:
        """The call that makes a tensor."""
        made = node.args[0] if node.op == "call_function" and node.name not in self.part else node
        return made if isinstance(made, fx.Node) and made.name in self.part and self.bytes[node] else None

    def _bytes(self, node: fx.Node) -> float:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return 0.0
        call = call_of(node)
        kind = call.out[0] if call is not None else type_of(value)
        return size_of(kind, self.sizes) if isinstance(kind, TensorType) else 0.0

    def _links(self, node: fx.Node, maker: fx.Node | None) -> None:
        """Counts the copies of one tensor to devices with memories of their own, and back."""
        size = self.bytes[node]
        if not size or node.name in self.constants:
            return
        start = None if maker is None else self._device(self.part[maker.name])
        visited = {start}
        for i in [*self._parts(node.users), *([-1] if node in self.returned else [])]:
            end = None if i < 0 else self._device(i)
            if end not in visited:
                visited.add(end)
                links = [self.sheets[name].link for name in (start, end) if name is not None]
                payer = i if i >= 0 else self.part[maker.name] if maker is not None else 0
                self.sums[1][payer] += sum(link.latency + size / link.bandwidth for link in links if link is not None)

    def _device(self, part: int) -> str | None:
        """The owner of a part, if it has a memory of its own."""
        owner = self.plan.parts[part].owner.name
        return owner if self.sheets[owner].link is not None else None

    def _parts(self, users: Iterable[fx.Node]) -> list[int]:
        return sorted(self.part[u.name] for u in users if u.name in self.part)

    def _roots(self) -> dict[fx.Node, tuple[list[fx.Node], list[fx.Node]]]:
        """Yields, for each tensor that is not a view, the calls other than views that read all of its memory (or the
        output), and the calls that gather from it.
        """
        root: dict[fx.Node, fx.Node] = {}
        results: dict[fx.Node, tuple[list[fx.Node], list[fx.Node]]] = {}
        for node in self.gm.graph.nodes:
            maker = self._maker(node)
            viewed = self._viewed(maker, root) if maker is not None else None
            if maker is None and (node.op != "placeholder" or not self.bytes[node]):
                continue
            base = root[node] = node if viewed is None else root[viewed]
            readers, picking = results.setdefault(base, ([], []))
            for u in node.users:
                if u.op == "output" or (u.name in self.part and not _free(u)):
                    (picking if _picks(u, node) else readers).append(u)
        return results

    def _viewed(self, maker: fx.Node, root: Mapping[fx.Node, fx.Node]) -> fx.Node | None:
        return next((a for a in maker.all_input_nodes if a in root), None) if _free(maker) else None

    def _loops(self, node: fx.Node, readers: list[fx.Node], picking: list[fx.Node]) -> None:
        """Counts what loops read and write of one tensor."""
        size, maker = self.bytes[node], self._maker(node)
        looped = self._parts(u for u in readers if u in self.looped)
        first = {self._side(i): i for i in reversed(looped)}
        own = None
        if maker is not None and maker in self.looped:
            i = self.part[maker.name]
            own = self._side(i)
            if any(u not in self.looped for u in readers) or not set(picking) <= set(readers):
                self.sums[0][i] += self._stream(i, size)
            else:
                self.sums[1][i] += self._stream(i, size) * len(first.keys() - {own})
        for owner, i in first.items():
            if owner != own:
                self.sums[1][i] += self._stream(i, size)

    def _side(self, part: int) -> str | int:
        """Returns the key that parts share if they pay for a tensor only once."""
        return part if self.per_part else self.plan.parts[part].owner.name

    def _stream(self, part: int, size: float) -> float:
        sheet = self.sheet(part)
        return size / sheet.bandwidth if sheet.fuses else 0.0


def _free(node: fx.Node) -> bool:
    call = call_of(node)
    return call is not None and is_free(call)


def _picks(user: fx.Node, node: fx.Node) -> bool:
    """True if a call gathers from the tensor and reads it in no other way."""
    call = call_of(user) if user.op == "call_function" else None
    return call is not None and argument_node(user, picks(call)) is node


def _looped(node: fx.Node) -> bool:
    call = call_of(node) if node.op == "call_function" else None
    return call is not None and fusable(call) and not is_free(call)
