"""Whether a graph may be run several times on the same inputs as if it had run once."""

from __future__ import annotations

from torch import fx

from keel.graph.calls import is_call
from keel.spec.bind import bound
from keel.torch_adapter import has_effect, is_overload, is_random, writes


def why_not_rerunnable(graph: fx.Graph) -> str | None:
    """A sentence on the first call for which a graph may run only once; None if it may run as often as one likes.

    Graphs are functional: what is left are random draws, which move the generator on, collectives, checks, and
    operators of higher order, whose graphs may hold any of these.
    """
    for node in graph.nodes:
        if is_call(node) and has_effect(node.target) and not _draws_nothing(node):
            what = "draws random numbers" if is_random(node.target) else "may have an effect"
            return f"%{node.name} = {node.target} {what}."
    return None


def _draws_nothing(node: fx.Node) -> bool:
    """Whether a call is of those that draw random numbers for dropout, and drops nothing: attention, mostly."""
    if not callable(node.target) or not is_overload(node.target) or writes(node.target):
        return False
    return is_random(node.target) and bound(node.target, node.args, node.kwargs).get("dropout_p") == 0
