"""What PyTorch's fake kernels promise wrongly: statistics of normalisations on CPU, attention's random state on GPUs,
numbers of equal elements, a reshape to no dimensions.

Where parameters are float32 and the input is a 16-bit float, ATen keeps statistics in float32; the fake kernels say
16-bit, and float32 on GPUs of running ones that are 16-bit. A program compiled to that promise rounds what its
gradients are made of. Memory-efficient attention keeps the state of its random numbers on the host; the fake kernel
says on the device. Places and counts of distinct elements are int64, sums of weights float; those of PyTorch 2.11 are
said to be of the elements' dtype, and where dimension -1 is asked for, results to have more dimensions than the
operand; and of _unique it counts the distinct ones of zeros. A tensor of as many elements as only the run tells is said
to keep its dimension where it is reshaped to have none, as AOTAutograd does with ``x[mask].item()``. Gradients of
softmax have the dtype of the gradient that comes in; the fake kernels say the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from keel.torch_adapter.kernels import ABSENT
from keel.torch_adapter.layouts import fault_of, laid_out
from keel.torch_adapter.operators import makes_sizes
from keel.torch_adapter.recorder import fake_mode_of
from keel.torch_adapter.symbols import expression
from keel.types import leaves

aten = torch.ops.aten
_SMALL = (torch.float16, torch.bfloat16)

Dtype = Callable[[Sequence[Any]], torch.dtype | None]
"""The dtype of a result, by the values of the call's arguments; None for what was promised."""


def _statistics(*parameters: int) -> Dtype:
    """float32 if the first parameter that is given is, else the input's dtype."""

    def dtype(args: Sequence[Any]) -> torch.dtype | None:
        if args[0].dtype not in _SMALL:
            return None
        first = next((args[i] for i in parameters if i < len(args) and isinstance(args[i], torch.Tensor)), args[0])
        return torch.float32 if first.dtype == torch.float32 else None

    return dtype


def _like(position: int) -> Dtype:
    """That of an argument; of the input if it is not given."""
    return lambda args: (args[position] if isinstance(args[position], torch.Tensor) else args[0]).dtype


def _of_powers(args: Sequence[Any]) -> torch.dtype | None:
    """That of a product with the exponents' dtype, if the operand has whole numbers and they have 16 bits."""
    x, exponents = args[:2]
    if x.is_floating_point() or x.is_complex() or exponents.dtype not in _SMALL:
        return None
    return torch.result_type(x, exponents)


def _wide(args: Sequence[Any]) -> torch.dtype | None:
    """float64 of float64."""
    return torch.float64 if args[0].dtype == torch.float64 else None


def _on_cpu(args: Sequence[Any]) -> bool:
    return bool(args[0].device.type == "cpu")


_BATCH = _statistics(1, 2, 3, 4)
_RULES: Mapping[Callable[..., Any], Mapping[int, Dtype]] = MappingProxyType(
    {
        aten.native_layer_norm.default: dict.fromkeys((1, 2), _statistics(2, 3)),
        aten.native_group_norm.default: dict.fromkeys((1, 2), _statistics(1, 2)),
        aten.native_group_norm_backward.default: {0: _like(1), 1: _like(4), 2: _like(4)},
        aten._native_batch_norm_legit_functional.default: {1: _BATCH, 2: _BATCH},
        aten._native_batch_norm_legit_no_training.default: {1: _BATCH, 2: _BATCH},
        aten._native_batch_norm_legit.no_stats: dict.fromkeys((1, 2), _statistics(1, 2)),
        aten._batch_norm_with_update_functional.default: {1: _BATCH, 2: _BATCH},
        aten._batch_norm_no_update.default: {1: _BATCH, 2: _BATCH},
        aten._log_softmax_backward_data.default: {0: _like(0)},
        aten._softmax_backward_data.default: {0: _like(0)},
        aten._scaled_dot_product_flash_attention_for_cpu.default: {1: _wide},
    }
)
"""By operator and number of the result, on a CPU."""
_EVERYWHERE: Mapping[Callable[..., Any], Mapping[int, Dtype]] = MappingProxyType(
    {
        aten._weight_norm_interface.default: {1: lambda args: torch.float32 if args[0].dtype in _SMALL else None},
        aten._native_batch_norm_legit_functional.default: {3: _like(3), 4: _like(4)},
        aten._batch_norm_with_update_functional.default: {4: _like(3), 5: _like(4)},
        aten.ldexp.Tensor: {0: _of_powers},
    }
)
"""The same on every device."""

_REDRAWN = (torch.ops.higher_order.run_and_save_rng_state, torch.ops.higher_order.run_with_rng_state)
_ON_HOST: Mapping[Callable[..., Any], tuple[int, ...]] = MappingProxyType(
    {
        aten._scaled_dot_product_efficient_attention.default: (2, 3),
    }
)
"""By operator: the results that lie on the host."""


def _distinct(position: int | None, said: Any, args: Sequence[Any]) -> Any:
    """The distinct elements, or slices along the dimension that the argument at ``position`` says, the place of each
    among them, and how often each occurs.
    """
    values, places, counts = said
    x: torch.Tensor = args[0]
    if position is not None and len(args) > position and args[position] == -1 and x.dim():
        size = values.shape[x.dim() - 1]
        values = x.new_empty([*x.shape[:-1], size])
        counts = counts.new_empty([0 if expression(counts.shape[0]) == 0 else size])
    return values, _as(places, torch.int64), _as(counts, torch.int64)


def _of_zeros(said: Any, args: Sequence[Any]) -> Any:
    """The distinct elements, as many as only the run tells, and the place of each element among them."""
    values, places = said
    x: Any = args[0]
    if isinstance(values.shape[0], int) and x.dim():
        env: Any = x.fake_mode.shape_env
        with env.ignore_fresh_unbacked_symbols():
            values = x.new_empty([env.create_unbacked_symint()])
    return values, places


def _counted(said: Any, args: Sequence[Any]) -> Any:
    """How often each integer occurs, or the sum of its weights."""
    if len(args) < 2 or args[1] is None:
        return said
    return _as(said, torch.float32 if args[1].dtype == torch.float32 else torch.float64)


def _bags(said: Any, args: Sequence[Any], op: Callable[..., Any] = aten._embedding_bag.default) -> Any:
    """Which bag each index is in is not kept where rows are summed by the fast kernel, which takes bfloat16 as
    float16.
    """
    rows = args[0]
    if rows.dtype != torch.bfloat16 or not _on_cpu(args):
        return said
    return said[0], op(_as(rows, torch.float16), *args[1:])[1], *said[2:]


def _kept(said: Any, args: Sequence[Any]) -> Any:
    """The mask of a dropout of no elements has their dtype on the host."""
    empty = _on_cpu(args) and any(expression(n) == 0 for n in args[0].shape)
    return (said[0], _as(said[1], args[0].dtype)) if empty else said


def _forward_bags(said: Any, args: Sequence[Any]) -> Any:
    """As above; with include_last_offset the counts and rows of the sum are as many as the offsets on a CPU, those of
    others as the bags.
    """
    if not _on_cpu(args):
        return said
    out, bag, counts, rows = _bags(said, args, aten._embedding_bag_forward_only.default)
    offsets, mode = args[2], args[4] if len(args) > 4 else 0
    if len(args) > 7 and args[7]:
        counts = offsets.new_empty([offsets.shape[0] if mode == 0 else out.shape[0]])
        rows = rows if mode == 2 else offsets.new_empty(counts.shape)
    return out, bag, counts, rows


_COUNTS: Mapping[Callable[..., Any], Callable[[Any, Sequence[Any]], Any]] = MappingProxyType(
    {
        aten._unique.default: _of_zeros,
        aten._unique2.default: partial(_distinct, None),
        aten.unique_consecutive.default: partial(_distinct, 3),
        aten.unique_dim.default: partial(_distinct, 1),
        aten.unique_dim_consecutive.default: partial(_distinct, 1),
        aten.bincount.default: _counted,
        aten.native_dropout.default: _kept,
        aten._embedding_bag.default: _bags,
        aten._embedding_bag_forward_only.default: _forward_bags,
    }
)
"""By operator: the results, from what was promised and the values of the call's arguments."""

_RESHAPES = (aten.reshape.default, aten.view.default, aten._unsafe_view.default)
_TARGETS = frozenset([*_RULES, *_EVERYWHERE, *_ON_HOST, *_COUNTS, *ABSENT])


def correct(gm: fx.GraphModule) -> None:
    """Sets promised types to those that ATen gives, in place, and those that follow from them."""
    mode: Any = fake_mode_of(gm)
    _of_redrawn(gm, mode)
    changed = _without_dimensions(gm, mode)
    for node in gm.graph.nodes:
        follows = (
            node.op == "call_function" and not changed.isdisjoint(node.all_input_nodes) and not makes_sizes(node.target)
        )  # which would get new symbols
        if not follows and node.target not in _TARGETS and fault_of(node.target) is None:
            continue
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _value)
        said = node.meta["val"]
        if follows:
            said, args = _again(node, args, kwargs, mode)
        given = _corrected(said, _rules_of(node.target, args), args, mode)
        given = _on_host(given, _ON_HOST.get(node.target, ()), mode)
        if (count := _COUNTS.get(node.target)) is not None:
            with mode:
                given = count(given, args)
        with mode:
            given = laid_out(node.target, args, kwargs, given)
        if _types(given) != _types(node.meta["val"]):
            node.meta["val"] = given
            changed.add(node)


def _of_redrawn(gm: fx.GraphModule, mode: Any) -> None:
    """Gives types to draws that are repeated in the backward graph, which AOTAutograd's partitioner leaves without."""
    for node in gm.graph.nodes:
        if "val" in node.meta or node.target not in _REDRAWN:
            continue
        taken = list(fx.node.map_aggregate(node.args, _value))
        saves = node.target is _REDRAWN[0]
        op, *args = taken if saves else taken[1:]
        with mode:
            drawn = op(*args, **fx.node.map_aggregate(node.kwargs, _value))
        states: list[Any] = [u for u in node.users if u.args[1:] == (0,)] if saves else [node.args[0]]
        for each in states:
            each.meta["val"] = _state(drawn, each.meta["val"], mode)
        node.meta["val"] = (next((n.meta["val"] for n in states), None), drawn) if saves else drawn


def _state(drawn: Any, said: Any, mode: Any) -> Any:
    """The random state of the device of ``drawn``, for which the partitioner takes the host's.  Where PyTorch does not
    know the device it is that of its module and then the host's, from which a device draws whose kernels fall back.
    """
    device = next(v.device for v in leaves(drawn) if isinstance(v, torch.Tensor))
    if device.type in ("cpu", "cuda") or not hasattr(module := torch.get_device_module(device), "get_rng_state"):
        return said
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


def _rules_of(op: Any, args: Sequence[Any]) -> Mapping[int, Dtype]:
    everywhere = _EVERYWHERE.get(op, {})
    return {**_RULES[op], **everywhere} if op in _RULES and _on_cpu(args) else everywhere


def _corrected(said: Any, rules: Mapping[int, Dtype], args: Sequence[Any], mode: Any) -> Any:
    if not rules:
        return said
    with mode:
        if not isinstance(said, tuple | list):
            return _as(said, rules[0](args))
        return tuple(_as(v, rules[i](args)) if i in rules else v for i, v in enumerate(said))


def _as(value: Any, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, torch.Tensor) or dtype is None or value.dtype == dtype:
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)


def _on_host(said: Any, results: Sequence[int], mode: Any) -> Any:
    if not results:
        return said
    with mode:
        return tuple(
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="cpu") if i in results else v
            for i, v in enumerate(said)
        )


def _types(value: Any) -> list[Any]:
    several = value if isinstance(value, tuple | list) else [value]
    return [
        (v.dtype, v.device, *map(expression, (*v.shape, *v.stride()))) if isinstance(v, torch.Tensor) else None
        for v in several
    ]
