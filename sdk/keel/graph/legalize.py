"""Legalization: a call that some backend takes stays whole, and any other call is decomposed into calls that backends
take.

Memoized by operator and types, so a decomposition is recorded once for all equal calls of a graph. All its expansions
share its fake values: two nodes with the same fake value may have different memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import alias_bases, call_of, is_call, source_line
from keel.graph.decompose import Lookup, decompose_call
from keel.graph.opset_check import reject_excluded, why_no_decomposition
from keel.plugin import Backend, Refusal
from keel.refusals import refusal
from keel.spec import broken, descent, evens
from keel.torch_adapter import (
    Captured,
    NotRecorded,
    Symbolic,
    expression,
    has_effect,
    is_overload,
    is_random,
    lazy_module,
    makes_sizes,
    origin_of,
)
from keel.types import Call, leaves

Made = fx.Node | tuple[Any, ...] | None
"""The new value of a node of the old graph: a node, or one per result."""


@dataclass(frozen=True)
class Legalized:
    """A graph of calls that backends take, and the refusals of its calls by node and backend."""

    gm: fx.GraphModule
    refusals: Mapping[str, Mapping[str, Refusal]]


@dataclass(frozen=True)
class Decision:
    """The decision about a call: it stays whole, or the graph ``parts`` replaces it; None if no backend takes it.
    ``first`` is True if backends of last resort are not needed for it. ``once`` is True if the parts cannot be used for
    another call.
    """

    intact: bool
    first: bool
    parts: fx.Graph | None = None

    @property
    def once(self) -> bool:
        """True if the parts have a data-dependent size: its symbol stands for one size only."""
        return self.parts is not None and any(is_call(n) and makes_sizes(n.target) for n in self.parts.nodes)


def legalize(
    captured: Captured, backends: Sequence[Backend], *, descent: Lookup = descent, strict: bool = False
) -> Legalized:
    """Rewrites the graph to calls that ``backends`` take.

    A call that a backend takes stays whole. A call that at most a backend of last resort takes is decomposed if other
    backends take all its pieces; if not, it is left to the last resort. Equal pure calls are merged, and unused calls
    are dropped. ``descent`` returns the decomposition of a call, or None. A node from a decomposition has the name of
    the decomposed node in ``meta["keel.composite"]``.

    Raises KeelError[no-owner] for a call that no backend takes, whole or in pieces; KeelError[out-of-opset] for a graph
    with values that the operator set leaves out; and under ``strict`` KeelError[refuse-raised] for a backend whose
    ``supports`` fails.
    """
    reject_excluded(captured.gm)
    desk = _Desk(tuple(backends), descent, strict, captured.fake_mode)
    gm = _Rewrite(captured.gm, desk).run()
    return Legalized(gm, {n.name: desk.reasons(n) for n in gm.graph.nodes if is_call(n)})


def unclaimed_calls(captured: Captured, backends: Sequence[Backend]) -> list[tuple[Call, str]]:
    """The leaf calls that no backend takes, and why each is not decomposed. With an owner for these, ``legalize`` would
    succeed. Empty if every call has an owner.
    """
    desk, unclaimed = _Desk(tuple(backends), descent, False, captured.fake_mode), dict[Any, tuple[Call, str]]()
    above: list[Any] = []

    def descend(node: fx.Node) -> None:
        call = call_of(node)
        assert call is not None
        if call.key in unclaimed or desk.verdict(node) is not None:
            return
        parts = desk.written_out(node, call)
        pieces = [n for n in parts.nodes if is_call(n)] if parts is not None else []
        if parts is None or call.key in above:
            refused = (str(why) for why in desk.refusals(node).values())
            unclaimed[call.key] = (
                call,
                " ".join([*refused, desk.undone.get(call.key, "Its decomposition contains the call itself.")]),
            )
            return
        above.append(call.key)
        for piece in pieces:
            descend(piece)
        above.pop()

    for node in captured.gm.graph.nodes:
        if is_call(node):
            descend(node)
    return list(unclaimed.values())


@dataclass
class _Desk:
    """Asks backends about calls. Each question is asked once."""

    backends: tuple[Backend, ...]
    descent: Lookup
    strict: bool
    mode: Any
    known_refusals: dict[Any, Mapping[str, Refusal]] = field(default_factory=dict)
    decided: dict[Any, Decision | None] = field(default_factory=dict)
    undone: dict[Any, str] = field(default_factory=dict)
    intact_reasons: dict[Any, str] = field(default_factory=dict)
    breaks: dict[Any, str | None] = field(default_factory=dict)

    def reasons(self, node: fx.Node) -> dict[str, Refusal]:
        """The refusals of a call, which also say why a call with a decomposition is left to a last resort."""
        call = call_of(node)
        assert call is not None
        by, more = self.refusals(node), self.intact_reasons.get(call.key)
        return (
            dict(by)
            if more is None
            else {who: replace(why, sentence=f"{why.sentence} {more}") for who, why in by.items()}
        )

    def refusals(self, node: fx.Node) -> Mapping[str, Refusal]:
        call = call_of(node)
        assert call is not None
        if (refusals := self.known_refusals.get(call.key)) is None:
            answers = ((b.name, self._refusal(b, call)) for b in self.backends)
            refusals = self.known_refusals[call.key] = {name: why for name, why in answers if why is not None}
        return refusals

    def _refusal(self, backend: Backend, call: Call) -> Refusal | None:
        if not backend.last_resort and (sentence := self._broken(call)) is not None:
            return Refusal(f"{call.name} has a precondition that this call breaks: {sentence}")
        return refusal(backend, call, strict=self.strict)

    def _broken(self, call: Call) -> str | None:
        if call.key not in self.breaks:
            self.breaks[call.key] = broken(call)
        return self.breaks[call.key]

    def verdict(self, node: fx.Node) -> Decision | None:
        call = call_of(node)
        assert call is not None
        # The values of a decomposition have storage offsets, which depend on those of the arguments.
        key = (call.key, tuple(_starts(node)))
        if key not in self.decided:
            self.decided[key] = None  # a decomposition must not contain the call itself
            self.decided[key] = self._decide(node, call)
        return self.decided[key]

    def _decide(self, node: fx.Node, call: Call) -> Decision | None:
        refused = self.refusals(node)
        if any(b.name not in refused for b in self.backends if not b.last_resort):
            return Decision(intact=True, first=True)
        last = any(b.name not in refused for b in self.backends if b.last_resort)
        if (self._broken(call) is not None and not evens(call)) or (last and all(b.last_resort for b in self.backends)):
            return Decision(intact=True, first=False) if last else None
        parts = self.written_out(node, call)
        below = None if parts is None else [self.verdict(n) for n in parts.nodes if is_call(n)]
        if below is not None and all(v is not None and v.first for v in below):
            return Decision(intact=False, first=True, parts=parts)
        if last:
            if parts is not None and below is not None:
                pieces = zip(filter(is_call, parts.nodes), below, strict=True)
                left = next(str(n.target) for n, v in pieces if v is None or not v.first)
                self.intact_reasons[call.key] = f"It stays whole because no other backend takes its piece {left}."
            return Decision(intact=True, first=False)
        if below is not None and None not in below:
            return Decision(intact=False, first=False, parts=parts)
        return None

    def written_out(self, node: fx.Node, call: Call) -> fx.Graph | None:
        decomposition = self.descent(call) if is_overload(call.op) else None
        if decomposition is None:
            self.undone[call.key] = why_no_decomposition(call)
            return None
        try:
            parts = decompose_call(node, decomposition, self.mode)
        except NotRecorded as e:
            self.undone[call.key] = str(e)
            self.intact_reasons[call.key] = (
                f"It stays whole because its decomposition failed: {str(e).removesuffix('.')}."
            )
            return None
        _drop_unused(parts)  # a value of which only the dtype was used needs no owner
        return parts

    def nobody(self, node: fx.Node) -> KeelError:
        """The error for a call without an owner, with each backend's reason, also for its pieces."""
        call = call_of(node)
        assert call is not None
        reasons = {name: str(why) for name, why in self.refusals(node).items()}
        if (why := self.undone.get(call.key)) is not None:
            reasons["decomposition"] = why
        else:
            reasons |= self._missing(node, call)
        names = [b.name for b in self.backends]
        return KeelError(
            "no-owner",
            f"no backend takes %{node.name} = {call}.",
            reasons,
            source_line(node),
            f"Add a backend that takes it, for instance backends={[*names, 'eager']}, or see docs/errors/no-owner.md.",
        )

    def _missing(self, node: fx.Node, call: Call) -> dict[str, str]:
        parts = self.written_out(node, call)
        pieces = [n for n in parts.nodes if is_call(n) and n.target != node.target] if parts is not None else []
        lacking = [n for n in pieces if self.verdict(n) is None]
        if not lacking:
            return {}
        return {"decomposition": f"Nobody takes its piece {call_of(lacking[0])}."}


@dataclass
class _Rewrite:
    """The new graph under construction."""

    gm: fx.GraphModule
    desk: _Desk
    graph: fx.Graph = field(default_factory=fx.Graph)
    made: dict[fx.Node, Made] = field(default_factory=dict)
    numbers: dict[Any, fx.Node] = field(default_factory=dict)
    equal: dict[Any, fx.Node] = field(default_factory=dict)
    placed: set[fx.Graph] = field(default_factory=set)

    def run(self) -> fx.GraphModule:
        old = alias_bases(self.gm.graph)
        returned = _returned(self.gm.graph)
        # A returned value must not share memory with any other value.
        returned_memory = frozenset[fx.Node]().union(*(old[n] for n in returned if n is not None))
        for node in self.gm.graph.nodes:
            self.made[node] = self._old(node, bool(old[node] & returned_memory))
        self._unalias(old, returned)
        _drop_unused(self.graph)
        self.graph.lint()
        return lazy_module(self.gm, self.graph, "legalized")

    def _old(self, node: fx.Node, returned: bool) -> Made:
        if node.op == "call_function":
            return self._function(node, self.made, None, returned)
        new = self.graph.node_copy(node, lambda n: self.made[n])
        if isinstance(value := node.meta.get("val"), Symbolic):
            self.numbers.setdefault(expression(value), new)
        return new

    def _function(self, node: fx.Node, made: Mapping[fx.Node, Made], origin: fx.Node | None, returned: bool) -> Made:
        """Adds ``node``, of the old graph or of the parts of its node ``origin``, to the new graph."""
        if node.target is operator.getitem:
            source = made[node.args[0]]  # type: ignore[index]
            if isinstance(source, tuple):
                return cast(Made, source[node.args[1]])  # type: ignore[index]
        if not is_call(node):
            return self._once(node, made, origin, returned)
        verdict = self.desk.verdict(node)
        if verdict is None:
            raise self.desk.nobody(node if origin is None else origin)
        if verdict.parts is None:
            return self._once(node, made, origin, returned)
        operands = (made[a] for a in leaves((*node.args, *node.kwargs.values())) if isinstance(a, fx.Node))
        results = self._inline(self._parts(node, verdict), list(operands), node if origin is None else origin, returned)
        return results if isinstance(node.meta["val"], tuple | list) else results[0]

    def _parts(self, node: fx.Node, verdict: Decision) -> fx.Graph:
        """Adds the parts that replace ``node``, with fresh symbols if they have data-dependent sizes."""
        parts, call = verdict.parts, call_of(node)
        assert parts is not None and call is not None
        if verdict.once:
            if parts in self.placed:
                parts = self.desk.written_out(node, call) or parts
            self.placed.add(parts)
        return parts

    def _inline(self, parts: fx.Graph, operands: list[Made], origin: fx.Node, returned: bool) -> tuple[Any, ...]:
        made: dict[fx.Node, Made] = {}
        inputs = iter(operands)
        for node in parts.nodes:
            match node.op:
                case "placeholder":
                    made[node] = next(inputs)
                case "call_function":
                    made[node] = self._function(node, made, origin, returned)
                case "output":
                    return tuple(made[r] if isinstance(r, fx.Node) else r for r in node.args[0])
        raise AssertionError("a graph ends in its output")

    def _once(self, node: fx.Node, made: Mapping[fx.Node, Made], origin: fx.Node | None, returned: bool) -> fx.Node:
        """Copies ``node``, or returns an equal node of the new graph."""
        value = node.meta["val"]
        number = expression(value) if isinstance(value, Symbolic) and not is_call(node) else None
        if number is not None and (known := self.numbers.get(number)) is not None:
            return known
        args, kwargs = fx.node.map_aggregate(
            (node.args, node.kwargs), lambda a: made[a] if isinstance(a, fx.Node) else a
        )
        pure = not returned and not has_effect(node.target) and not is_random(node.target)
        key = (node.target, _frozen(args), _frozen(tuple(kwargs.items()))) if pure else None
        if key is not None and (known := self.equal.get(key)) is not None:
            return known
        new = self.graph.create_node("call_function", node.target, args, kwargs, None if origin else node.name)
        new.meta = dict(node.meta) if origin is None else {**_origin(origin), "val": value}
        if key is not None:
            self.equal[key] = new
        for v in value if isinstance(value, tuple | list) else (value,):
            if isinstance(v, Symbolic) and v is value:
                self.numbers.setdefault(expression(v), new)
        return new

    def _unalias(self, old: Mapping[fx.Node, frozenset[fx.Node]], returned: list[fx.Node | None]) -> None:
        """Copies results that share memory with an input or with each other because of a decomposition."""
        output = self.graph.output_node()
        results = list(output.args[0])  # type: ignore[arg-type]
        new = dict(alias_bases(self.graph))
        before: dict[fx.Node, list[fx.Node]] = {}  # the old nodes of the results, by their memory
        for i, (was, now) in enumerate(zip(returned, results, strict=True)):
            if was is None or not isinstance(now, fx.Node) or not isinstance(now.meta["val"], torch.Tensor):
                continue
            own_inputs = {self.made[b] for b in old[was] if b.op == "placeholder"}
            inputs = {b for b in new[now] if b.op == "placeholder"} - own_inputs
            shared = any(not old[o] & old[was] for base in new[now] for o in before.get(base, ()))
            if inputs or shared:
                with self.graph.inserting_before(output):
                    results[i] = self.graph.call_function(torch.ops.aten.clone.default, (now,))
                with self.desk.mode:  # a copy of a view has no gaps
                    results[i].meta = {**now.meta, "val": torch.ops.aten.clone.default(now.meta["val"])}
                new[results[i]] = frozenset({results[i]})
            for base in new[results[i]]:
                before.setdefault(base, []).append(was)
        output.args = (tuple(results),)


def _starts(node: fx.Node) -> Iterator[Any]:
    for a in node.all_input_nodes:
        value = a.meta.get("val")
        if isinstance(value, torch.Tensor):
            start = value.storage_offset()
            yield start if isinstance(start, int) else expression(start)


def _returned(graph: fx.Graph) -> list[fx.Node | None]:
    return [r if isinstance(r, fx.Node) else None for r in graph.output_node().args[0]]  # type: ignore[union-attr]


def _origin(node: fx.Node) -> dict[str, Any]:
    """The metadata that the nodes of a decomposition inherit from ``node``."""
    return {**origin_of(node), "keel.composite": node.meta.get("keel.composite", node.name)}


def _frozen(value: Any) -> Any:
    """A hashable key of arguments. Numbers that compare equal but differ (1, 1.0, True) have different keys."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, slice):
        return ("slice", _frozen(value.start), _frozen(value.stop), _frozen(value.step))
    return (type(value), repr(value)) if isinstance(value, float | bool | int) else value


def _drop_unused(graph: fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if (
            node.op in ("call_function", "get_attr")
            and not node.users
            and not (node.op == "call_function" and has_effect(node.target))
        ):
            graph.erase_node(node)
