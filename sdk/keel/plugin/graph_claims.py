"""What a plugin says about a whole graph: calls that it runs as one kernel, and calls that it leaves to others."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from keel.registration import bad, checked_flag, checked_number, checked_operators, checked_type
from keel.spec import OPSET
from keel.spec.bind import bound


@dataclass(frozen=True)
class Fusion:
    """Calls that a backend runs as one kernel. ``name`` is its name in reports, ``calls`` are nodes of the graph or
    their names, at least two, in any order; names are stored. Placement gives the calls to one part. Its cost is that
    of one call: the tensors between the calls stay out of memory, or the fusion saves ``saves`` seconds. Since API 2.
    """

    name: str
    calls: tuple[Any, ...]  # names of nodes
    saves: float | None = None

    def __post_init__(self) -> None:
        checked_type("A Fusion", "name", self.name, str, "a text, which reports show")
        what = f"The Fusion {self.name!r}"
        object.__setattr__(self, "calls", _names(what, self.calls))
        if len(set(self.calls)) < 2:
            bad(f"{what} has fewer than two calls.", "Leave it out: what is one call is one kernel anyway.")
        if self.saves is not None:
            checked_number(what, "saves", self.saves)


def complete_fusions(fusions: Iterable[Fusion], graph: fx.Graph) -> tuple[Fusion, ...]:
    """The fusions all of whose calls are in a graph: other calls may have become views of results, or masked pieces."""
    names = {node.name for node in graph.nodes}
    return tuple(fusion for fusion in fusions if names.issuperset(fusion.calls))


@dataclass(frozen=True)
class Veto:
    """Calls that a backend takes by its ``supports``, and leaves to others in this graph. ``calls`` are nodes of the
    graph or their names; names are stored. ``why`` is a sentence, as in a ``Refusal``. Since API 2.
    """

    calls: tuple[Any, ...]  # names of nodes
    why: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", _names("A Veto", self.calls))
        checked_type("A Veto", "why", self.why, str, "a sentence")
        if not self.calls or not self.why.strip():
            bad("A Veto has no calls or no sentence.", "Write both: Veto((node,), 'acme has no room for it.').")


def _names(what: str, calls: object) -> tuple[str, ...]:
    checked_type(what, "calls", calls, (tuple, list), "a tuple of nodes, or of their names")
    names = tuple(c.name if isinstance(c, fx.Node) else c for c in calls)  # type: ignore[attr-defined]
    for name in names:
        checked_type(what, "calls", name, str, "nodes, or their names")
    return names


@dataclass(frozen=True)
class Wildcard:
    """Any argument of a call in a ``CallPattern``: a tensor, a number, a list. Where the same ``name`` is in a pattern
    several times, the arguments are the same; an empty name stands for any argument each time. Since API 2.
    """

    name: str = ""


@dataclass(frozen=True, eq=False)
class CallMatch:
    """The ``calls`` of a pattern in the order of the graph, the last of which makes the result, and the arguments in
    the places of the wildcards, by name. Since API 2.
    """

    calls: tuple[fx.Node, ...]
    bindings: Mapping[str, Any] = field(default_factory=dict)


class CallPattern:
    """A call whose arguments are calls, wildcards or values: the tree, or the graph, that a kernel computes.

    ``op`` is an overload (``aten.mul.Tensor``), a packet (``aten.mul``) or a tag of the operator set (``pointwise``).
    ``args`` are its arguments by the order of the overload's parameters, defaults filled in; those that are left out
    may be anything. A pattern that is used several times stands for one call with several users. ``commutes`` means
    that the first two arguments may be in either order. The results of calls inside a match are used in it only, unless
    ``used_outside``. Since API 2.
    """

    def __init__(self, op: str, *args: Any, commutes: bool = False, used_outside: bool = False) -> None:
        """Raises KeelError[bad-plugin] for an operator that does not exist."""
        checked_type("A CallPattern", "op", op, str, "the name of an operator")
        tags = {tag for member in OPSET.values() for tag in member.tags}
        checked_operators("A CallPattern", "op", (op,), families=tags)
        checked_flag("A CallPattern", "commutes", commutes)
        checked_flag("A CallPattern", "used_outside", used_outside)
        self.op, self.args, self.commutes, self.used_outside = op, args, commutes, used_outside

    def matches(self, graph: fx.Graph, offered: Collection[fx.Node]) -> Iterator[CallMatch]:
        """The matches in a graph among the calls ``offered``, in the order of their results. They do not overlap."""
        used, order = set[fx.Node](), {node: i for i, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            for match in _matched(self, node, _Match(offered)):
                calls = {n: p for p, n in match.calls.items()}
                if used.isdisjoint(calls) and all(n is node or _inside(n, p, calls) for n, p in calls.items()):
                    used |= calls.keys()
                    yield CallMatch(tuple(sorted(calls, key=order.__getitem__)), match.bindings)
                    break


@dataclass(frozen=True, eq=False)
class _Match:
    """A match of some of a pattern's calls."""

    offered: Collection[fx.Node]
    calls: Mapping[CallPattern, fx.Node] = field(default_factory=dict)
    bindings: Mapping[str, Any] = field(default_factory=dict)


def _matched(pattern: Any, value: Any, state: _Match) -> Iterator[_Match]:
    """All ways in which a value matches a pattern, given what has been matched before."""
    if isinstance(pattern, Wildcard):
        if pattern.name not in state.bindings:
            more = {pattern.name: value} if pattern.name else {}
            yield _Match(state.offered, state.calls, {**state.bindings, **more})
        elif _same(state.bindings[pattern.name], value):
            yield state
    elif not isinstance(pattern, CallPattern):
        if _same(pattern, value):
            yield state
    elif isinstance(value, fx.Node):
        yield from _matched_call(pattern, _maker(value), state)


def _matched_call(pattern: CallPattern, node: fx.Node, state: _Match) -> Iterator[_Match]:
    if pattern in state.calls:
        if state.calls[pattern] is node:
            yield state
        return
    if node not in state.offered or node in state.calls.values() or not _is(node, pattern.op):
        return
    args = list(bound(node.target, node.args, node.kwargs).values())  # type: ignore[arg-type]
    if len(args) < len(pattern.args):
        return
    first = _Match(state.offered, {**state.calls, pattern: node}, state.bindings)
    orders = [pattern.args]
    if pattern.commutes and len(pattern.args) > 1:
        orders.append((pattern.args[1], pattern.args[0], *pattern.args[2:]))
    for order in orders:
        states = [first]
        for each, value in zip(order, args, strict=False):
            states = [after for before in states for after in _matched(each, value, before)]
        yield from states


def _maker(value: fx.Node) -> fx.Node:
    """The call that makes a value, which may be the first of several results."""
    if value.op == "call_function" and value.target is operator.getitem and value.args[1] == 0:
        made = value.args[0]
        return made if isinstance(made, fx.Node) else value
    return value


def _is(node: fx.Node, name: str) -> bool:
    if node.op != "call_function":
        return False
    overload = str(node.target)
    member = OPSET.get(node.target) if callable(node.target) else None
    return name in (overload, overload.rpartition(".")[0]) or (member is not None and name in member.tags)


def _same(one: object, other: object) -> bool:
    """Whether two arguments are the same: one node, or equal values of one type. Lists are compared by elements."""
    if isinstance(one, fx.Node) or isinstance(other, fx.Node):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _inside(node: fx.Node, pattern: CallPattern, calls: Collection[fx.Node]) -> bool:
    """Whether the calls of a match are the only users of a result, of all results if there are several."""
    if pattern.used_outside:
        return True
    return all(
        user in calls or (user.target is operator.getitem and _inside(user, pattern, calls)) for user in node.users
    )
