"""What a forward graph saves for its backward, channels-last where that is how both work on it.

Nobody but the two graphs sees how such a value lies.  The layout is written into the graphs: the forward converts what
it saves, the backward converts back, and a backend that keeps the value channels-last anyway does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import fx

Images = Callable[[fx.GraphModule], Collection[fx.Node]]
"""Returns the row-major values of a forward graph that its backend rather has channels-last."""


def no_images(forward: fx.GraphModule) -> Collection[fx.Node]:
    """Returns none: everything is saved as it lies."""
    return ()


def lay_out_saved(forward: fx.GraphModule, backward: fx.GraphModule, num_fwd_outputs: int, images: Images) -> None:
    """Converts the ``images`` among what ``forward`` saves, and in ``backward`` each of them back."""
    output = forward.graph.output_node()
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    placeholders = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    wanted = images(forward)
    for i in range(num_fwd_outputs, len(results)):
        node = results[i]
        if node in wanted and node.op == "call_function" and (placeholder := placeholders.get(node.name)):
            results[i] = _converted(forward, output, node, _channels_last(node.meta["val"]))
            _convert_back(backward, placeholder)
    output.args = (tuple(results),)
    forward.recompile()
    backward.recompile()


def _converted(gm: fx.GraphModule, before: fx.Node, node: fx.Node, like: torch.Tensor) -> fx.Node:
    to = torch.channels_last if like.dim() == 4 else torch.channels_last_3d
    with gm.graph.inserting_before(before):
        return _clone(gm, node, like, to)


def _convert_back(gm: fx.GraphModule, placeholder: fx.Node) -> None:
    like = placeholder.meta["val"]
    placeholder.meta = {**placeholder.meta, "val": _channels_last(like)}
    last = gm.graph.find_nodes(op="placeholder")[-1]
    with gm.graph.inserting_after(last):
        copy = _clone(gm, placeholder, like, torch.contiguous_format)
    placeholder.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)


def _clone(gm: fx.GraphModule, node: fx.Node, like: torch.Tensor, to: torch.memory_format) -> fx.Node:
    copy = gm.graph.call_function(torch.ops.aten.clone.default, (node,), {"memory_format": to})
    copy.meta = {k: v for k, v in node.meta.items() if k in ("stack_trace", "nn_module_stack")} | {"val": like}
    return copy


def _channels_last(value: Any) -> torch.Tensor:
    """A fake tensor like ``value`` with the strides of channels-last, computed without guards on its sizes."""
    _, channels, *image = value.shape
    inner = list(accumulate(reversed([*image[1:], channels]), mul))  # of the dimensions of the image, last first
    strides = (image[0] * inner[-1], 1, *reversed(inner))
    with value.fake_mode:
        return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
