"""The types of a captured graph are corrected where PyTorch's meta kernels are known to promise wrong ones.

A tensor of as many elements as only the run tells is also said to keep its dimension where it is reshaped to have none,
as AOTAutograd does with ``x[mask].item()``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from keel.torch_adapter.meta_bugs.table import fix_results, has_bug
from keel.torch_adapter.operators import makes_sizes
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.sympy_expressions import expression
from keel.types import leaves

aten = torch.ops.aten
_REDRAWN = (torch.ops.higher_order.run_and_save_rng_state, torch.ops.higher_order.run_with_rng_state)
_RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)


def apply_fixes(gm: fx.GraphModule) -> None:
    """Sets promised types to those that ATen gives, in place, and those that follow from them."""
    mode: Any = fake_mode_of(gm)
    _of_redrawn(gm, mode)
    changed = _without_dimensions(gm, mode)
    for node in gm.graph.nodes:
        follows = (
            node.op == "call_function" and not changed.isdisjoint(node.all_input_nodes) and not makes_sizes(node.target)
        )  # which would get new symbols
        if not follows and not has_bug(node.target):
            continue
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _value)
        value = node.meta["val"]
        if follows:
            value, args = _again(node, args, kwargs, mode)
        with mode:
            fixed = fix_results(node.target, args, kwargs, value)
        if _types(fixed) != _types(node.meta["val"]):
            node.meta["val"] = fixed
            changed.add(node)


def _of_redrawn(gm: fx.GraphModule, mode: Any) -> None:
    """Gives types to draws that are repeated in the backward graph, which AOTAutograd's partitioner leaves without."""
    for node in gm.graph.nodes:
        if "val" in node.meta or node.target not in _REDRAWN:
            continue
        arguments = list(fx.node.map_aggregate(node.args, _value))
        saves = node.target is _REDRAWN[0]
        op, *args = arguments if saves else arguments[1:]
        with mode:
            drawn = op(*args, **fx.node.map_aggregate(node.kwargs, _value))
        states: list[Any] = [u for u in node.users if u.args[1:] == (0,)] if saves else [node.args[0]]
        for each in states:
            each.meta["val"] = _state(drawn, each.meta["val"], mode)
        node.meta["val"] = (next((n.meta["val"] for n in states), None), drawn) if saves else drawn


def _state(drawn: Any, value: Any, mode: Any) -> Any:
    """The random state of the device of ``drawn``, for which the partitioner takes the host's.  Where PyTorch does not
    know the device it is that of its module and then the host's, from which a device draws whose kernels fall back.
    """
    device = next(v.device for v in leaves(drawn) if isinstance(v, torch.Tensor))
    if device.type in ("cpu", "cuda") or not hasattr(module := torch.get_device_module(device), "get_rng_state"):
        return value
    with unset_fake_temporarily():
        state = torch.cat([module.get_rng_state(device), torch.get_rng_state()])
    return mode.from_tensor(state, static_shapes=True)


def _without_dimensions(gm: fx.GraphModule, mode: Any) -> set[fx.Node]:
    """Has what is reshaped to no dimensions have none, and says which calls that changes."""
    reshaped = (n for op in _RESHAPES for n in gm.graph.find_nodes(op="call_function", target=op))
    changed = {n for n in reshaped if not n.args[1] and n.meta["val"].dim()}
    for node in changed:
        x = _value(node.args[0])
        with mode:
            node.meta["val"] = x.as_strided([], [], x.storage_offset())
    return changed


def _again(node: fx.Node, args: Any, kwargs: Any, mode: Any) -> tuple[Any, Any]:
    """What a call gives for corrected arguments, and these.  A view that their layout does not allow was a reshape's,
    which copies then.
    """
    assert callable(node.target)
    try:
        with mode:
            return node.target(*args, **kwargs), args
    except (RuntimeError, ValueError):
        x = node.args[0]
        if node.target is not aten.view.default or not isinstance(x, fx.Node):
            raise
    with node.graph.inserting_before(node), mode:
        copy = node.graph.call_function(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
        copy.meta = {**x.meta, "val": aten.clone.default(args[0], memory_format=torch.contiguous_format)}
        node.args = (copy, *node.args[1:])
        args = (copy.meta["val"], *args[1:])
        return node.target(*args, **kwargs), args


def _value(arg: Any) -> Any:
    return arg.meta["val"] if isinstance(arg, fx.Node) else arg


def _types(value: Any) -> list[Any]:
    several = value if isinstance(value, tuple | list) else [value]
    return [
        (v.dtype, v.device, *map(expression, (*v.shape, *v.stride()))) if isinstance(v, torch.Tensor) else None
        for v in several
    ]
