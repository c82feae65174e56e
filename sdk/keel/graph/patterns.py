"""Calls that a backend runs as one kernel: chains that match the patterns of a data sheet, and what passes between the
calls of such a group.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from keel.cost import Pattern
from keel.cost.roofline import FusedCall
from keel.cost.work import is_free, named
from keel.graph.calls import call_of
from keel.graph.leaf_calls import leaf_calls
from keel.torch_adapter import has_effect
from keel.types import TensorType, leaves


@dataclass(frozen=True)
class PatternMatch:
    """A pattern and the nodes of its calls in graph order, with the views between the calls."""

    pattern: Pattern
    nodes: tuple[fx.Node, ...]


def match_patterns(graph: fx.Graph, patterns: Sequence[Pattern]) -> Iterator[PatternMatch]:
    """The matches in the graph, in the order in which they begin: chains of calls, each the only reader of the one
    before. If several patterns begin at a call, the first is matched. Matches do not overlap. Takes time linear in the
    graph for each pattern.
    """
    matched: set[fx.Node] = set()
    for node in graph.nodes if patterns else ():
        for pattern in patterns:
            if node not in matched and (match := _match(node, pattern)) is not None and matched.isdisjoint(match.nodes):
                matched |= {*match.nodes}
                yield match


def fused_calls(nodes: Sequence[fx.Node], sizes: Mapping[str, int]) -> list[FusedCall]:
    """The calls among ``nodes``, which are in graph order and run as one kernel, without views of their results."""
    group, number = set(nodes), dict[fx.Node, int]()  # the number of the call whose memory a value is in
    made: list[FusedCall] = []
    for node in nodes:
        call = call_of(node)
        assert call is not None
        if is_free(call) and (base := next((number[a] for a in node.all_input_nodes if a in number), None)) is not None:
            number |= dict.fromkeys(_values(node), base)
            continue
        inner = tuple((i, number[a]) for i, a in enumerate(_tensors(node)) if a in number)
        number |= {value: len(made) for value in _values(node)}
        made.append(FusedCall(call, inner, _escapes(node, group), leaf_calls(call, sizes)))
    return made


def _values(node: fx.Node) -> list[fx.Node]:
    """The node and the picks of its results."""
    return [node, *(user for user in node.users if user.target is operator.getitem)]


def _escapes(node: fx.Node, group: set[fx.Node]) -> bool:
    """Whether something outside of the group uses a result, or a view of it that is in the group."""
    values = _values(node)
    users = [user for value in values for user in value.users if user not in values]
    return any(user not in group or (_free(user) and _escapes(user, group)) for user in users)


def _match(node: fx.Node, pattern: Pattern) -> PatternMatch | None:
    if not _is(node, pattern.names[0]):
        return None
    nodes = [node]
    for name in pattern.names[1:]:
        between = _reader(nodes[-1])
        views = []
        while between is not None and _free(between):
            views.append(between)
            between = _reader(between)
        if between is None or not _is(between, name):
            return None
        nodes += [*views, between]
    return PatternMatch(pattern, tuple(nodes))


def _reader(node: fx.Node) -> fx.Node | None:
    """The only reader of the only result of a call; None if there are several."""
    call = call_of(node)
    if call is None or len(call.out) != 1 or not isinstance(call.out[0], TensorType) or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    return user if user.op == "call_function" and call_of(user) is not None else None


def _tensors(node: fx.Node) -> list[fx.Node | None]:
    """The nodes of a call's tensor arguments, in their order."""
    call = call_of(node)
    arguments = leaves([list(node.args), list(node.kwargs.values())])
    types = leaves([] if call is None else [list(call.args), list(call.kwargs.values())])
    return [
        a if isinstance(a, fx.Node) else None
        for a, t in zip(arguments, types, strict=True)
        if isinstance(t, TensorType)
    ]


def _is(node: fx.Node, name: str) -> bool:
    call = call_of(node) if node.op == "call_function" else None
    return call is not None and not is_free(call) and name in named(call) and not has_effect(call.op)


def _free(node: fx.Node) -> bool:
    call = call_of(node)
    return call is not None and is_free(call)
