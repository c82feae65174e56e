"""Decomposes a call completely, at known sizes, to estimate the work of a composite that stays whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from torch import fx

from keel.cost.work import is_free, value_of, work_of
from keel.graph.calls import call_of, is_call
from keel.spec import OPSET, decomposition_of
from keel.torch_adapter import NotRecorded, recorded
from keel.types import Call, SymType, TensorType

DEPTH = 8
"""The depth to which pieces are decomposed."""


def leaf_calls(call: Call, sizes: Mapping[str, int]) -> tuple[Call, ...]:
    """Returns the leaf calls of a composite. The result is empty for a call that is not a composite, that has a count
    of operations of its own (``addmm``), or that cannot be decomposed.

    Symbols have the values in ``sizes`` (see ``keel.cost.value_of``). No guards are added.
    """
    if not _composite(call) or is_free(call) or work_of(call, sizes).flops:
        return ()
    symbols = {s for t in (*call.tensors, *call.out) if isinstance(t, TensorType) for s in t.symbols}
    known = tuple(sorted((s, sizes[s]) for s in symbols if s in sizes))
    return _written_out(_KnownCall((call.key, known), call, sizes))


@dataclass(frozen=True)
class _KnownCall:
    key: Any
    call: Call = field(compare=False)
    sizes: Mapping[str, int] = field(compare=False)


@lru_cache(maxsize=4096)
def _written_out(known_call: _KnownCall) -> tuple[Call, ...]:
    return _ends(known_call.call, known_call.sizes, DEPTH) or ()


def _known(value: Any, sizes: Mapping[str, int]) -> Any:
    """An argument with numbers in place of its symbols, also of data-dependent ones."""
    match value:
        case TensorType():
            return TensorType(
                value.dtype,
                tuple(value_of(n, sizes) for n in value.shape),
                tuple(value_of(n, sizes) for n in value.strides),
                value.device,
            )
        case SymType() if value.kind == "int":
            return value_of(value.expr, sizes)
        case list() | tuple():
            return type(value)(_known(v, sizes) for v in value)
    return value


def _ends(call: Call, sizes: Mapping[str, int], depth: int) -> tuple[Call, ...] | None:
    """The pieces of a call; None if it is not decomposed."""
    decomposition = decomposition_of(call.op) if depth else None
    if decomposition is None:
        return None
    try:
        graph = recorded(decomposition, _known(call.args, sizes), {k: _known(v, sizes) for k, v in call.kwargs.items()})
    except NotRecorded:
        return None
    ends: list[Call] = []
    for node in _needed(graph):
        if (piece := call_of(node)) is not None:
            below = _ends(piece, sizes, depth - 1) if _composite(piece) else None
            ends += [piece] if below is None else below
    return tuple(ends)


def _needed(graph: fx.Graph) -> list[fx.Node]:
    """The calls that the results depend on."""
    live = set(graph.output_node().all_input_nodes)
    needed_nodes = []
    for node in reversed(graph.nodes):
        if node in live:
            live.update(node.all_input_nodes)
            if is_call(node):
                needed_nodes.append(node)
    return needed_nodes[::-1]


def _composite(call: Call) -> bool:
    member = OPSET.get(call.op)
    return member is not None and member.kind == "composite"
