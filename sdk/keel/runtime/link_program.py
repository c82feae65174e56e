"""What a compiled graph does around its parts, as data: which values it gets, computes from sizes, and returns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from keel.graph.calls import is_call
from keel.torch_adapter import has_negative_bit


@dataclass(frozen=True, slots=True)
class Value:
    """The value of the node ``name``."""

    name: str


@dataclass(frozen=True)
class SizeCall:
    """Arithmetic on sizes that a result needs: the value ``name`` is ``function(*args, **kwargs)``. There is a
    ``Value`` for each node among the arguments.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkProgram:
    """A compiled graph without its parts. Values are named by their nodes.

    ``inputs`` are passed in each call, and ``constants`` once. Tensors in ``lazy`` may have a conjugate or a negative
    bit. ``results`` has a ``Value`` for each node among the results.
    """

    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    lazy: frozenset[str]
    sizes: tuple[SizeCall, ...]
    results: tuple[Any, ...]


def link_program(gm: fx.GraphModule, constants: Collection[str]) -> LinkProgram:
    """The link program of a graph, of whose placeholders ``constants`` are bound once."""
    placeholders = [n.name for n in gm.graph.find_nodes(op="placeholder")]
    results: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    sizes = _sizes(r for r in results if isinstance(r, fx.Node))
    return LinkProgram(
        inputs=tuple(name for name in placeholders if name not in constants),
        constants=tuple(name for name in placeholders if name in constants),
        lazy=frozenset(_lazy(gm).difference(constants)),
        sizes=tuple(SizeCall(n.name, n.target, _values(n.args), _values(n.kwargs)) for n in sizes),  # type: ignore[arg-type]
        results=_values(tuple(results)),
    )


def _values(argument: Any) -> Any:
    """The argument with a ``Value`` for each node."""
    match argument:
        case fx.Node():
            return Value(argument.name)
        case list() | tuple():
            return (list if isinstance(argument, list) else tuple)(map(_values, argument))
        case dict():
            return {key: _values(value) for key, value in argument.items()}
    return argument


def _lazy(gm: fx.GraphModule) -> set[str]:
    """The nodes whose tensors may have a conjugate or negative bit: complex ones, their real or imaginary parts, and
    inputs.
    """
    values = {n.name: v for n in gm.graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor)}
    mixed = any(v.dtype.is_complex for v in values.values())
    return {
        name
        for name, v in values.items()
        if (mixed and (v.dtype.is_complex or v.dtype.is_floating_point)) or has_negative_bit(v)
    }


def _sizes(results: Iterable[fx.Node]) -> list[fx.Node]:
    """The arithmetic on sizes that is needed for results, in order."""
    sizes: dict[fx.Node, None] = {}

    def visit(node: fx.Node) -> None:
        if node in sizes or not is_size(node):
            return
        for a in node.all_input_nodes:
            visit(a)
        sizes[node] = None

    for r in results:
        visit(r)
    return list(sizes)


def is_size(node: fx.Node) -> bool:
    """True if a node computes a number from numbers or from a tensor's sizes, which needs no backend."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and not is_call(node)
        and isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)
    )
