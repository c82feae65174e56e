"""Graphs and calls with known sizes: copies in which symbols have values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.graph.calls import call_of, type_of
from keel.graph.decompose import never_overlaps
from keel.symbols import evaluate, free_symbols
from keel.torch_adapter import Fakes, Symbolic, fake_mode_of_value, origin_of
from keel.types import Call, SymType, TensorType, leaves

Sizes = Mapping[str, int]


def size_symbols(call: Call) -> set[str]:
    """The symbols in the arguments of a call."""
    symbols = {s for t in call.tensors for s in t.symbols}
    numbers = [v.expr for v in leaves((*call.args, *call.kwargs.values())) if isinstance(v, SymType)]
    return symbols | {str(s) for n in numbers for s in free_symbols(n)}


def call_with_sizes(call: Call, sizes: Sizes) -> Call | None:
    """The call with known sizes; None if a size of its results depends on data. Raises what ``evaluate`` raises."""
    if any(not sizes.keys() >= set(t.symbols) for t in call.out if isinstance(t, TensorType)):
        return None

    def inner(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(inner, value))
        if isinstance(value, TensorType):
            return type_with_sizes(value, sizes)
        return evaluate(value.expr, sizes, value.kind) if isinstance(value, SymType) else value

    out = tuple(type_with_sizes(t, sizes) if isinstance(t, TensorType) else t for t in call.out)
    return Call(call.op, inner(tuple(call.args)), {k: inner(v) for k, v in call.kwargs.items()}, out)


def type_with_sizes(type: TensorType, sizes: Sizes) -> TensorType:
    """The type with known sizes and strides. Raises what ``evaluate`` raises."""
    shape, strides = (tuple(int(evaluate(d, sizes)) for d in dims) for dims in (type.shape, type.strides))
    return replace(type, shape=shape, strides=strides)


def graph_with_sizes(gm: fx.GraphModule, sizes: Sizes) -> tuple[fx.GraphModule, list[Call]]:
    """A copy of a part's graph in which symbols have values, and its calls. Its placeholders are the tensors among
    those of ``gm``. Raises KeelError[bad-graph] if a size depends on data.
    """
    graph, copies, fakes = fx.Graph(), dict[fx.Node, Any](), Fakes({})
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0], copies.__getitem__))
        elif isinstance(value, Symbolic | int | float):
            copies[node] = _number(value, sizes)
        elif node.op == "get_attr":
            raise KeelError("bad-graph", f"%{node.name} is a graph of its own, which is not copied.")
        else:
            copies[node] = copy = graph.create_node(node.op, node.target, name=node.name)
            copy.args = fx.map_arg(node.args, copies.__getitem__) if node.op == "call_function" else node.args
            copy.kwargs = fx.map_arg(node.kwargs, copies.__getitem__)
            copy.meta = {**origin_of(node), "val": _value(value, sizes, fakes)}
    result = fx.GraphModule({}, graph)
    return result, [call for node in graph.nodes if (call := call_of(node)) is not None]


def fits_its_types(gm: fx.GraphModule) -> bool:
    """True if a graph of ``graph_with_sizes`` can have these sizes: no two elements of an input share memory, but those
    along a stride of 0, and the results of each call have the shapes that the graph promises. A slice up to ``n`` of
    ``m`` elements has a smaller result if ``n`` is larger than ``m``.
    """
    values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    return all(map(never_overlaps, values)) and all(
        _has_promised_shapes(node) for node in gm.graph.nodes if node.op == "call_function"
    )


def _has_promised_shapes(node: fx.Node) -> bool:
    promised = node.meta["val"]
    args, kwargs = fx.node.map_aggregate(
        (node.args, node.kwargs), lambda a: a.meta["val"] if isinstance(a, fx.Node) else a
    )
    try:
        with fake_mode_of_value(promised) or nullcontext():
            results = node.target(*args, **kwargs)  # type: ignore[operator]
    except Exception:  # fake kernels raise exceptions of any kind for sizes that do not fit each other
        return False
    return [getattr(v, "shape", None) for v in leaves(results)] == [getattr(v, "shape", None) for v in leaves(promised)]


def _number(value: Any, sizes: Sizes) -> Any:
    number = type_of(value)
    assert isinstance(number, SymType)
    try:
        return evaluate(number.expr, sizes, number.kind)
    except KeyError:
        raise KeelError("bad-graph", f"{number} depends on data, so it is not known before the graph runs.") from None


def _value(value: Any, sizes: Sizes, fakes: Fakes) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_value(v, sizes, fakes) for v in value)
    if not isinstance(value, torch.Tensor):
        return value
    known = type_of(value)
    assert isinstance(known, TensorType)
    try:
        static = type_with_sizes(known, sizes)
    except KeyError:
        raise KeelError("bad-graph", f"A size of {known} depends on data.") from None
    return fakes.tensor(static.dtype, static.shape, static.strides, 0, static.device)
