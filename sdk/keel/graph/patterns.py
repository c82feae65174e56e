"""Matches patterns that a backend runs as one kernel: chains of calls, each the only reader of the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import fx

from keel.cost import Pattern
from keel.cost.work import is_free, named
from keel.graph.calls import call_of
from keel.torch_adapter import has_effect
from keel.types import TensorType, leaves


@dataclass(frozen=True)
class PatternMatch:
    """A pattern, its calls, the tensor arguments of each call that come from the call before, and all nodes in graph
    order, with the views between the calls.
    """

    pattern: Pattern
    calls: tuple[fx.Node, ...]
    inner: tuple[tuple[int, ...], ...]
    nodes: tuple[fx.Node, ...]


def match_patterns(graph: fx.Graph, patterns: Sequence[Pattern]) -> Iterator[PatternMatch]:
    """The matches in the graph, in the order in which they begin. If several patterns begin at a call, the first is
    matched. Matches do not overlap. Takes time linear in the graph for each pattern.
    """
    matched: set[fx.Node] = set()
    for node in graph.nodes if patterns else ():
        for pattern in patterns:
            if node not in matched and (match := _match(node, pattern)) is not None and matched.isdisjoint(match.nodes):
                matched |= {*match.nodes}
                yield match


def _match(node: fx.Node, pattern: Pattern) -> PatternMatch | None:
    if not _is(node, pattern.names[0]):
        return None
    calls, nodes = [node], [node]
    inner: list[tuple[int, ...]] = [()]
    for name in pattern.names[1:]:
        between = _reader(nodes[-1])
        views = []
        while between is not None and _free(between):
            views.append(between)
            between = _reader(between)
        if between is None or not _is(between, name):
            return None
        inner.append(_positions(between, (views or calls)[-1]))
        calls.append(between)
        nodes += [*views, between]
    return PatternMatch(pattern, tuple(calls), tuple(inner), tuple(nodes))


def _reader(node: fx.Node) -> fx.Node | None:
    """The only reader of the only result of a call; None if there are several."""
    call = call_of(node)
    if call is None or len(call.out) != 1 or not isinstance(call.out[0], TensorType) or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    return user if user.op == "call_function" and call_of(user) is not None else None


def _positions(node: fx.Node, operand: fx.Node) -> tuple[int, ...]:
    """The positions of the operand among the call's tensors."""
    call = call_of(node)
    arguments = leaves([list(node.args), list(node.kwargs.values())])
    types = leaves([] if call is None else [list(call.args), list(call.kwargs.values())])
    tensors = [a for a, t in zip(arguments, types, strict=True) if isinstance(t, TensorType)]
    return tuple(i for i, a in enumerate(tensors) if a is operand)


def _is(node: fx.Node, name: str) -> bool:
    call = call_of(node) if node.op == "call_function" else None
    return call is not None and not is_free(call) and name in named(call) and not has_effect(call.op)


def _free(node: fx.Node) -> bool:
    call = call_of(node)
    return call is not None and is_free(call)
