"""Functionalizes branches, loops and regions that write to their operands: the new contents become further results.

AOTAutograd leaves such a call as ``auto_functionalized_v2(cond, ...)``, a call on copies: its graphs end in a ``copy_``
to each input that they write. Here the graphs return these contents instead, so that they are functional, and the call
becomes an ordinary ``cond``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

aten, higher = torch.ops.aten, torch.ops.higher_order


def without_writes(gm: fx.GraphModule) -> None:
    """Changes ``gm`` and the graphs that its higher-order operators take."""
    for module in reversed([m for m in gm.modules() if isinstance(m, fx.GraphModule)]):  # inner graphs first
        nodes = [
            n
            for n in module.graph.find_nodes(op="call_function", target=higher.auto_functionalized_v2)
            if n.args[0] in _OPERANDS
        ]
        for node in nodes:
            _rewrite(module, node)
        if nodes:
            for node in module.graph.find_nodes(op="get_attr"):
                if not node.users:
                    module.graph.erase_node(node)
            module.recompile()


_OPERANDS: Mapping[Any, int] = {higher.cond: 3, higher.invoke_subgraph: 2, higher.while_loop: 2}
"""The number of arguments before the operands, for each higher-order operator."""


@dataclass(frozen=True)
class _Written:
    """An operand that is written: the base with that number, or a view of it."""

    base: int
    view: tuple[Any, ...] = ()
    """The arguments of ``slice`` (dim, start, end), or of ``as_strided`` (size, stride, offset)."""
    strided: bool = False

    def of(self, base: fx.Node) -> fx.Node:
        """Reads the operand from the contents of its base."""
        if not self.view:
            return base
        return _emit(base.graph, aten.as_strided.default if self.strided else aten.slice.Tensor, base, *self.view)

    def into(self, base: fx.Node, contents: fx.Node) -> fx.Node:
        """Returns the base with the operand's contents written into it."""
        if not self.view:
            return contents
        scatter = aten.as_strided_scatter.default if self.strided else aten.slice_scatter.default
        return _emit(base.graph, scatter, base, contents, *self.view)


def _written(kwargs: Mapping[str, Any], name: str) -> _Written | None:
    """Reads PyTorch's keyword arguments about the argument ``name``; None if it is not written."""

    def read(*fields: str) -> tuple[Any, ...]:
        return tuple(kwargs[f"_{name}_{field}"] for field in fields)

    if kwargs.get(f"_{name}_base_index") is None:
        return None
    base = kwargs[f"_{name}_base_index"]
    if f"_{name}_storage_offset" in kwargs:
        return _Written(base, read("size", "stride", "storage_offset"), strided=True)
    return _Written(base, read("slice_dim", "slice_start", "slice_end") if f"_{name}_slice_dim" in kwargs else ())


def _rewrite(gm: fx.GraphModule, node: fx.Node) -> None:
    target: Any = node.args[0]
    spec: Any = node.kwargs["_op_schema"]
    bases: list[Any] = list(node.kwargs["_all_bases"])  # type: ignore[arg-type]
    names = [each.name for each in pytree.tree_unflatten([], getattr(gm, spec.target)).schema.arguments]
    written = {name: write for name in names if (write := _written(node.kwargs, name)) is not None}
    results = node.meta["val"][: len(node.meta["val"]) - len(bases)]
    first = _OPERANDS[target]
    with gm.graph.inserting_before(node):
        args: list[Any] = [
            written[name].of(bases[written[name].base]) if name in written else node.kwargs[name] for name in names
        ]
        writes = [i for i, name in enumerate(names[first:]) if name in written]
        if target is higher.while_loop:
            called = _loop(gm, args, writes, len(results))
        else:
            bodies = [_giving(gm, a, writes) if _is_graph(gm, a) else a for a in args[:first]]
            called = [*bodies, *([tuple(args[first:])] if target is higher.cond else args[first:])]
        call = gm.graph.call_function(target, tuple(called))
        operands = [args[first + i] for i in writes]
        call.meta = {**node.meta, "val": (*results, *(n.meta["val"] for n in operands))}
        for i, name in enumerate(written):
            contents = _emit(gm.graph, operator.getitem, call, len(results) + i)
            bases[written[name].base] = written[name].into(bases[written[name].base], contents)
    for part in list(node.users):
        index: Any = part.args[1]
        if index < len(results):
            part.replace_input_with(node, call)
        else:
            part.replace_all_uses_with(bases[index - len(results)])
            gm.graph.erase_node(part)
    gm.graph.erase_node(node)


def _loop(gm: fx.GraphModule, args: Sequence[Any], writes: Sequence[int], carried: int) -> list[Any]:
    """The arguments of a loop that carries the tensors it writes from iteration to iteration, behind its own carried
    values.
    """
    operands = args[2:]
    order = [*range(carried), *writes, *(i for i in range(carried, len(operands)) if i not in writes)]
    ordered = [operands[i] for i in order]
    split = carried + len(writes)
    return [
        _giving(gm, args[0], (), order),
        _giving(gm, args[1], writes, order),
        tuple(ordered[:split]),
        tuple(ordered[split:]),
    ]


def _is_graph(gm: fx.GraphModule, value: Any) -> bool:
    return (
        isinstance(value, fx.Node)
        and value.op == "get_attr"
        and isinstance(getattr(gm, str(value.target), None), fx.GraphModule)
    )


def _giving(gm: fx.GraphModule, node: fx.Node, writes: Sequence[int], order: Sequence[int] | None = None) -> fx.Node:
    """A copy of the graph of a ``get_attr`` node. It returns the contents of the inputs with the numbers ``writes`` as
    its last results, and has its inputs in the given ``order``.
    """
    name = "_".join([str(node.target), "giving", *map(str, writes)])
    body: Any = getattr(gm, str(node.target))
    if not hasattr(gm, name):
        gm.add_submodule(name, fx.GraphModule(body, _functional(body.graph, writes, order)))
    return gm.graph.get_attr(name)


def _functional(body: fx.Graph, writes: Sequence[int], order: Sequence[int] | None) -> fx.Graph:
    graph = fx.Graph()
    inputs = body.find_nodes(op="placeholder")
    made: dict[Any, fx.Node] = {}
    for i in order or range(len(inputs)):
        made[inputs[i]] = graph.node_copy(inputs[i])
    contents: dict[Any, Any] = {}
    for node in body.nodes:
        if node.target is aten.copy_.default and node.args[0] in inputs:
            contents[node.args[0]] = made[node] = made[node.args[1]]
        elif node.op not in ("placeholder", "output"):
            made[node] = graph.node_copy(node, made.__getitem__)
    assert set(contents) <= {inputs[i] for i in writes}, "A write would be lost."
    # A result must not share memory with an input or with another result.
    after = [
        _emit(graph, aten.copy.default, made[n], contents[n])
        if n in contents
        else _emit(graph, aten.clone.default, made[n])
        for n in (inputs[i] for i in writes)
    ]
    results = fx.node.map_arg(body.output_node().args[0], made.__getitem__)
    graph.output((*results, *after) if isinstance(results, tuple | list) else results)
    return graph


def _emit(graph: fx.Graph, op: Callable[..., Any], *args: Any) -> fx.Node:
    node = graph.call_function(op, args)
    node.meta["val"] = op(*fx.node.map_arg(args, lambda n: n.meta["val"]))
    return node
