"""What PyTorch's fake kernels promise wrongly: the statistics of normalisations, where attention's random state lies.

Where parameters are float32 and the input is a 16-bit float, ATen keeps statistics in float32 on CPU; the fake kernels
say 16-bit. A program compiled to that promise rounds what its gradients are made of. Memory-efficient attention gives
the state of its random numbers on the host; the fake kernel says on the device.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten
_SMALL = (torch.float16, torch.bfloat16)

_STATISTICS: Mapping[Callable[..., Any], tuple[tuple[int, ...], tuple[int, ...]]] = MappingProxyType({
    aten.native_layer_norm.default: ((1, 2), (2, 3)),
    aten.native_group_norm.default: ((1, 2), (1, 2)),
    aten._native_batch_norm_legit_functional.default: ((1, 2), (1, 2, 3, 4)),
    aten._native_batch_norm_legit_no_training.default: ((1, 2), (1, 2, 3, 4)),
    aten._native_batch_norm_legit.no_stats: ((1, 2), (1, 2)),
    aten._batch_norm_with_update_functional.default: ((1, 2), (1, 2, 3, 4)),
    aten._batch_norm_no_update.default: ((1, 2), (1, 2, 3, 4)),
})
"""By operator: which results are statistics, and which arguments decide on their dtype (the first that is given)."""

_ON_HOST: Mapping[Callable[..., Any], tuple[int, ...]] = MappingProxyType({
    aten._scaled_dot_product_efficient_attention.default: (2, 3),
})
"""By operator: which results lie on the host."""

_PASSED_ON = frozenset({aten.detach.default, aten.alias.default, aten.view.default})


def correct(gm: fx.GraphModule) -> None:
    """Sets the promised types of such results to those that ATen gives, in place."""
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if (rule := _STATISTICS.get(node.target)) is not None and _are_float32(node, rule[1]):
            _promise(node, rule[0], _float32)
        if (results := _ON_HOST.get(node.target)) is not None:
            _promise(node, results, _on_host)


def _promise(node: fx.Node, results: Sequence[int], better: Callable[[Any], Any]) -> None:
    node.meta["val"] = tuple(better(v) if i in results else v for i, v in enumerate(node.meta["val"]))
    for user in node.users:
        if user.target is operator.getitem and user.args[1] in results:
            _pass_on(user, better)


def _are_float32(node: fx.Node, parameters: Sequence[int]) -> bool:
    x = _value(node.args[0])
    given = (_value(node.args[i]) for i in parameters if i < len(node.args))
    first = next((p for p in given if isinstance(p, torch.Tensor)), None)
    return x.device.type == "cpu" and x.dtype in _SMALL and first is not None and bool(first.dtype == torch.float32)


def _value(arg: Any) -> Any:
    return arg.meta["val"] if isinstance(arg, fx.Node) else arg


def _pass_on(node: fx.Node, better: Callable[[Any], Any]) -> None:
    """Corrects ``node`` and those of its users that only hand its value on."""
    node.meta["val"] = better(node.meta["val"])
    for user in node.users:
        if user.target in _PASSED_ON:
            _pass_on(user, better)


def _float32(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in _SMALL:
        return value
    with value.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(value.shape, value.stride(), dtype=torch.float32, device=value.device)


def _on_host(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with value.fake_mode:  # type: ignore[attr-defined]
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
