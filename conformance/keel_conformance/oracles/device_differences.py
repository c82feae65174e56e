"""What the operator set has otherwise on a device that is not the host, where all is judged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from keel.opset import GELU_BY_TANH, decomposition_of

from ..devices import HOST

aten = torch.ops.aten
SAVED: Mapping[str, Collection[int]] = {"embedding_bag": (1, 2, 3), "embedding_bag_forward_only": (1, 2, 3)}
"""By member, results that nothing but its own gradient on the same device reads."""
BY_TANH = frozenset({"addmm_activation", "transformer_encoder_layer"})
"""Members whose gelu is by tanh on some devices, and by erf elsewhere (addmm_activation.C3)."""


def backward_only_results(member: str, device: str) -> Collection[int]:
    """The results of which only the type is known there."""
    return SAVED.get(member, ()) if device != HOST else ()


def device_decomposition(member: str, device: str) -> AbstractContextManager[Any]:
    """Within it the member's decomposition is that of the device."""
    return _Tanh() if device in GELU_BY_TANH and member in BY_TANH else nullcontext()


def kernel(op: Callable[..., Any], member: str, device: str) -> Callable[..., Any]:
    """What computes as PyTorch's kernel does there."""
    result = decomposition_of(op) if device in GELU_BY_TANH and member in BY_TANH else None
    if result is None:
        return op

    def computed(*args: Any, **kwargs: Any) -> Any:
        with device_decomposition(member, device):
            return result(*args, **kwargs)

    return computed


class _Tanh(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        return func(*args, **(keywords | {"approximate": "tanh"} if func is aten.gelu.default else keywords))
