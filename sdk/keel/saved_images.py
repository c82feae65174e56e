"""Which values of a forward graph had better be saved for backward channels-last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch import fx

from keel.cost import Cost
from keel.cost.roofline import price
from keel.graph.calls import call_of, type_of
from keel.graph.size_hints import typical_sizes
from keel.loop_level import hints_of
from keel.plugin import Backend, LayoutPreference
from keel.schedule.layout import UNLIKE, lies_row_major
from keel.types import TensorType

CONVERSIONS = 2
"""The passes over an image that is saved in a layout which its call does not work in: to that layout, and back."""


def saved_images(gm: fx.GraphModule, backends: Sequence[Backend], *, by_cost: bool = False) -> Set[fx.Node]:
    """Returns the row-major images of library calls that prefer channels-last, and the values that go with them.

    These are values of the same shape that are computed from an image, or beside one, or from which one is computed.
    A call prefers what its likely owner prefers: the first backend that may take it or, ``by_cost``, the one that is
    fastest by its data sheet. If converting the weights of all these calls, and the images of calls whose owner prefers
    nothing, costs more than the layout saves, it returns nothing.
    """
    images: set[fx.Node] = set()
    hint, gain = hints_of(gm), 0.0
    native = [b for b in backends if not b.last_resort]
    sheets = {b.name: b.cost for b in native if b.cost is not None}
    by_cost = by_cost and len(sheets) == len(native)
    sizes = typical_sizes(gm.graph) if by_cost else {}

    def size(node: Any) -> int:
        type = _type(node)
        return 0 if type is None else hint(type.numel) * type.dtype.itemsize

    for node in gm.graph.nodes:
        able = [b for b in native if _may_take(b, node)]
        preferred = [p for b in able if (p := _preference(b, node)) is not None]
        if not preferred:
            continue
        owner = _fastest(node, able, sheets, sizes) if by_cost else able[0]
        preference = _preference(owner, node)
        own = preference or preferred[0]
        used = [n for n in (*(node.args[k] for k in own.arguments), node) if _type(n) is not None]
        if preference is None:
            gain -= CONVERSIONS * sum(map(size, used))
        else:
            gain += preference.passes * sum(map(size, used))
            gain -= UNLIKE * sum(size(node.args[k]) for k in preference.converted)
            images.update(used)
    return _of_their_shapes(gm, images) if gain > 0 else frozenset()


def _may_take(backend: Backend, node: fx.Node) -> bool:
    """False if the data of a backend tell that it does not take the call."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    if backend.device not in ("*", value.device.type):
        return False
    return backend.target is None or str(node.target) in backend.target.externs


def _preference(backend: Backend, node: fx.Node) -> LayoutPreference | None:
    """Returns the layout that a backend prefers for a call that it may take; None if its data do not tell."""
    layout = backend.target.externs[str(node.target)].layout if backend.target else None
    fits = layout is not None and node.meta["val"].dtype in layout.dtypes and layout.is_about(node.args)
    return layout if fits else None


def _fastest(
    node: fx.Node, backends: Sequence[Backend], sheets: Mapping[str, Cost], sizes: Mapping[str, int]
) -> Backend:
    """Returns the backend whose data sheet says the least time for a call."""
    call = call_of(node)
    assert call is not None
    return min(backends, key=lambda b: price(call, sheets[b.name], sizes).alone)


def _type(node: Any) -> TensorType | None:
    """Returns the type of a tensor that is row-major, if channels-last is another layout."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    type = type_of(value) if isinstance(value, torch.Tensor) else None
    return type if isinstance(type, TensorType) and lies_row_major(type) else None


def _of_their_shapes(gm: fx.GraphModule, images: set[fx.Node]) -> Set[fx.Node]:
    """Returns the images, and the values that are of the shape of a neighbor among them, however far away."""
    nodes = [n for n in gm.graph.nodes if _type(n) is not None]
    for order in (nodes, nodes[::-1], nodes):
        for node in order:
            shape = node.meta["val"].shape
            if node not in images and any(
                n in images and n.meta["val"].shape == shape for n in (*_operands(node), *_results(node))
            ):
                images.add(node)
    return images


def _operands(node: fx.Node) -> Iterator[fx.Node]:
    """Yields the operands of a node; of an item of several results, those of the call, and the other items."""
    for n in node.all_input_nodes:
        yield from [n] if isinstance(n.meta.get("val"), torch.Tensor) else (*n.all_input_nodes, *n.users)


def _results(node: fx.Node) -> Iterator[fx.Node]:
    for n in node.users:
        yield from [n] if isinstance(n.meta.get("val"), torch.Tensor) else n.users
