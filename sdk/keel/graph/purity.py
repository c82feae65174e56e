"""Tells whether a graph may run several times on the same inputs with the effect of one run."""

from __future__ import annotations

from torch import fx

from keel.graph.calls import is_call
from keel.spec.bind import bound
from keel.torch_adapter import has_effect, is_overload, is_random, writes


def why_not_rerunnable(graph: fx.Graph) -> str | None:
    """A sentence about the first call that must run only once; None if the graph may run several times. Graphs are
    functional, so the only such calls are random draws, which advance the generator, collectives, checks, and
    higher-order operators, whose graphs may contain any of these.
    """
    for node in graph.nodes:
        if is_call(node) and has_effect(node.target) and not draws_nothing(node):
            what = "draws random numbers" if is_random(node.target) else "may have an effect"
            return f"%{node.name} = {node.target} {what}."
    return None


def draws_nothing(node: fx.Node) -> bool:
    """True if a call has dropout with probability 0, such as attention, so that it draws no random numbers."""
    if not callable(node.target) or not is_overload(node.target) or writes(node.target):
        return False
    return is_random(node.target) and bound(node.target, node.args, node.kwargs).get("dropout_p") == 0
