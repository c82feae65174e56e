"""Which values of a forward graph had better be saved for backward channels-last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch
from torch import fx

from keel.graph.calls import type_of
from keel.loop_level import hints_of
from keel.plugin import Backend, LayoutPreference
from keel.schedule.layout import UNLIKE, lies_row_major
from keel.types import TensorType


def saved_images(gm: fx.GraphModule, backends: Sequence[Backend]) -> Set[fx.Node]:
    """Returns the row-major images of library calls that prefer channels-last, and the values that go with them.

    These are values of the same shape that are computed from an image, or beside one, or from which one is computed.
    If converting the weights of all these calls costs more than the layout saves, it returns nothing.
    """
    images: set[fx.Node] = set()
    hint, gain = hints_of(gm), 0.0

    def size(node: Any) -> int:
        type = _type(node)
        return 0 if type is None else hint(type.numel) * type.dtype.itemsize

    for node in gm.graph.nodes:
        preference = _preference(node, backends)
        if preference is not None and preference.is_about(node.args):
            used = [n for n in (*(node.args[k] for k in preference.arguments), node) if _type(n) is not None]
            gain += preference.passes * sum(map(size, used))
            gain -= UNLIKE * sum(size(node.args[k]) for k in preference.converted)
            images.update(used)
    return _of_their_shapes(gm, images) if gain > 0 else frozenset()


def _type(node: Any) -> TensorType | None:
    """Returns the type of a tensor that is row-major, if channels-last is another layout."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    type = type_of(value) if isinstance(value, torch.Tensor) else None
    return type if isinstance(type, TensorType) and lies_row_major(type) else None


def _preference(node: fx.Node, backends: Sequence[Backend]) -> LayoutPreference | None:
    """Returns what the first backend that may take the call prefers; None if its data do not tell."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return None
    for backend in backends:
        if backend.target is None:
            return None
        extern = backend.target.externs.get(str(node.target))
        if extern is not None and value.device.type == backend.device:
            return extern.layout if extern.layout and value.dtype in extern.layout.dtypes else None
    return None


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
