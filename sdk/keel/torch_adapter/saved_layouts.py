"""Saves tensors for backward in channels-last layout if both the forward and the backward graph work in it.

Only the two graphs see the layout of a saved tensor. The conversions are part of the graphs: forward converts what it
saves, and backward converts back. A backend that keeps the value channels-last anyway skips both conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._prims_common import make_channels_last_strides_for

from keel.torch_adapter.node_origin import origin_of

Images = Callable[[fx.GraphModule], Collection[fx.Node]]
"""Returns the row-major values of a forward graph that its backend prefers channels-last."""


def no_images(forward: fx.GraphModule) -> Collection[fx.Node]:
    """Returns nothing, so that every value is saved in its own layout."""
    return ()


def lay_out_saved(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int, images: Images) -> None:
    """Converts the saved values of ``forward`` that are in ``images``, and converts them back in ``backward``."""
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    placeholders = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    first = next(n for n in backward.graph.nodes if n.op != "placeholder")
    preferred = images(forward)
    for i in range(num_fwd_outputs, len(results)):
        node = results[i]
        if node in preferred and node.op == "call_function" and (placeholder := placeholders.get(node.name)):
            results[i] = _converted(node, output)
            _convert_back(placeholder, first)
    if results != list(output.args[0]):  # type: ignore[arg-type]
        output.args = (tuple(results),)
        forward.recompile()
        backward.recompile()


def _converted(node: fx.Node, before: fx.Node) -> fx.Node:
    like = _channels_last(node.meta["val"])
    return _clone(node, before, like, torch.channels_last if like.dim() == 4 else torch.channels_last_3d)


def _convert_back(placeholder: fx.Node, before: fx.Node) -> None:
    like = placeholder.meta["val"]
    placeholder.meta = {**placeholder.meta, "val": _channels_last(like)}
    copy = _clone(placeholder, before, like, torch.contiguous_format)
    placeholder.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)


def _clone(node: fx.Node, before: fx.Node, like: torch.Tensor, to: torch.memory_format) -> fx.Node:
    with node.graph.inserting_before(before):
        copy = node.graph.call_function(torch.ops.aten.clone.default, (node,), {"memory_format": to})
    copy.meta = origin_of(node) | {"val": like}
    return copy


def _channels_last(value: Any) -> torch.Tensor:
    """A fake tensor like ``value`` with the strides of channels-last, computed without guards on its sizes."""
    strides = make_channels_last_strides_for(value.shape)
    with value.fake_mode:
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
