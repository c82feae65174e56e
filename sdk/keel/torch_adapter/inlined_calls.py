"""Has PyTorch's partitioner see into calls that it does not know.

It decides what forward saves and what backward computes again. It may repeat only operators on its list, and it takes a
value for one that backward needs in memory if an operator that is not on the list uses it there. The list has what
Inductor's decompositions leave, but Keel keeps calls such as log_softmax whole: their results would all be saved.
So these calls are replaced by their decompositions before the graph is partitioned. Afterwards each is put back unless
forward or backward uses a value from inside it: then that use is what recomputation has gained.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from keel.torch_adapter.node_origin import origin_of
from keel.torch_adapter.sympy_expressions import Symbolic

aten = torch.ops.aten
Decomposed = Callable[[fx.Node], fx.Graph | None]
"""Returns the graph that a call is replaced by; None for a call that stays whole. The placeholders are the nodes among
the call's arguments, in order, and the output is a tuple of its results.
"""
_CALL = "keel.inlined"


def nothing_decomposed(node: fx.Node) -> fx.Graph | None:
    """Returns None, so that every call stays whole."""
    return None


@dataclass(frozen=True)
class _Call:
    """A call that was inlined. Arguments that are nodes are given by their names, which partitioning keeps."""

    target: Any
    args: Any
    kwargs: Any
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class _Result:
    """Which result of an inlined call a node is; ``item`` is None if the call has one result."""

    call: _Call
    item: int | None


@dataclass(frozen=True)
class _Name:
    """The name of a node."""

    text: str


def drop_detached(graph: fx.Graph) -> None:
    """Replaces each ``detach`` by its argument. It only matters to autograd, and is not on the partitioner's list."""
    for node in graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
        if not node.users:
            graph.erase_node(node)


def inline_calls(graph: fx.Graph, decomposed: Decomposed) -> None:
    """Replaces calls that the partitioner does not know by decompositions of which it knows everything, but for those
    of which a checkpoint of the user says whether they are saved.
    """
    from torch._functorch.partitioners import get_default_op_list

    known = get_default_op_list()
    fit: dict[fx.Graph, bool] = {}

    def fits(parts: fx.Graph) -> bool:
        if parts not in fit:
            repeated = all(known.is_recomputable(n) for n in parts.nodes if _computes(n))
            fit[parts] = repeated and _makes_its_results(parts)
        return fit[parts]

    for node in graph.nodes:
        if _computes(node) and not known.is_recomputable(node) and "recompute" not in node.meta:
            parts = decomposed(node)
            if parts is not None and fits(parts):
                _inline(node, parts)


def _computes(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor | tuple | list)


def _is_value(node: fx.Node) -> bool:
    """True if a decomposition has a placeholder for the argument: a tensor or a symbolic number."""
    return isinstance(node.meta.get("val"), torch.Tensor | Symbolic)


def _makes_its_results(parts: fx.Graph) -> bool:
    """True if the results of a decomposition are different tensors that it computes."""
    results = parts.output_node().args[0]
    assert isinstance(results, tuple)
    return len({*results}) == len(results) and all(isinstance(r, fx.Node) and _computes(r) for r in results)


def _inline(node: fx.Node, parts: fx.Graph) -> None:
    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _named)
    call = _Call(node.target, args, kwargs, dict(node.meta))
    operands = [a for a in tree_leaves((node.args, dict(node.kwargs))) if isinstance(a, fx.Node) and _is_value(a)]
    made: dict[Any, fx.Node] = dict(zip(parts.find_nodes(op="placeholder"), operands, strict=True))
    origin = origin_of(node)
    with node.graph.inserting_before(node):
        for part in parts.nodes:
            if part.op == "call_function":
                made[part] = node.graph.node_copy(part, made.__getitem__)
                made[part].meta = {**origin, "val": part.meta["val"]}
    results: Any = parts.output_node().args[0]
    if isinstance(node.meta["val"], tuple | list):
        for item in [*node.users]:
            assert item.target is operator.getitem
            _replace(item, made[results[item.args[1]]], _Result(call, item.args[1]))  # type: ignore[arg-type]
        node.graph.erase_node(node)
    else:
        _replace(node, made[results[0]], _Result(call, None))


def _named(value: Any) -> Any:
    return _Name(value.name) if isinstance(value, fx.Node) else value


def _replace(node: fx.Node, by: fx.Node, result: _Result | None = None) -> None:
    """Puts a node in the place of another one, whose name it gets."""
    node.replace_all_uses_with(by)
    node.graph.erase_node(node)
    by.name = node.name
    if result is not None:
        by.meta[_CALL] = result


def outline_calls(graph: fx.Graph) -> None:
    """Puts back each inlined call whose arguments the graph has, unless something inside it is used elsewhere."""
    groups: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and _CALL in node.meta:
            groups.setdefault(id(node.meta[_CALL].call), []).append(node)
    places = {node: k for k, node in enumerate(graph.nodes)}
    named = {node.name: node for node in graph.nodes}
    for results in reversed(groups.values()):  # the arguments of a call may be results of an earlier one
        call = results[0].meta[_CALL].call
        operands = [named.get(v.text) for v in tree_leaves((call.args, call.kwargs)) if isinstance(v, _Name)]
        if all(n is not None and places.get(n, 0) < places[results[0]] for n in operands):
            inside = _inside(results, {n for n in operands if n is not None})
            if inside is not None:
                _outline(graph, call, results, inside, named)


def _inside(results: Sequence[fx.Node], operands: Collection[fx.Node]) -> list[fx.Node] | None:
    """The nodes from operands to results; None if the results do not come from the operands alone, or if something else
    uses a node among them, other than a result.
    """
    inside: dict[fx.Node, None] = {}
    waiting = [*results]
    while waiting:
        node = waiting.pop()
        if node in inside or node in operands or _is_number(node):
            continue
        if node.op != "call_function":
            return None
        inside[node] = None
        waiting += node.all_input_nodes
    for node in inside:
        if node not in results and not _is_cheap(node, operands) and not all(user in inside for user in node.users):
            return None
    return [*inside]


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), int | float | bool | Symbolic)


def _is_cheap(node: fx.Node, operands: Collection[fx.Node]) -> bool:
    """True for constants and conversions of operands, which equal ones of other calls have been merged with."""
    inputs = node.all_input_nodes
    return not inputs or (node.target is aten._to_copy.default and all(n in operands for n in inputs))


def _outline(
    graph: fx.Graph,
    call: _Call,
    results: Sequence[fx.Node],
    inside: Sequence[fx.Node],
    named: dict[str, fx.Node],
) -> None:
    args, kwargs = tree_map(lambda v: named[v.text] if isinstance(v, _Name) else v, (call.args, call.kwargs))
    items = [(node, node.meta[_CALL].item) for node in results]
    with graph.inserting_before(results[0]):
        new = graph.call_function(call.target, args, kwargs)
        new.meta = dict(call.meta)
        made = [new if item is None else graph.call_function(operator.getitem, (new, item)) for _, item in items]
    for node, (old, item) in zip(made, items, strict=True):
        if item is not None:
            node.meta = {**old.meta, "val": call.meta["val"][item]}
            node.meta.pop(_CALL)
        _replace(old, node)
        named[node.name] = node
    for node in inside:  # from the results on
        if node not in results and not node.users:
            graph.erase_node(node)
