"""The types of results of operators for which PyTorch has no meta kernel, or one that fails for calls that eager runs,
so that they can be recorded with symbolic sizes. Nothing is registered: only the recorder asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch._meta_registrations  # what is registered there is not lacking

aten = torch.ops.aten


def _geqrf(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    *batch, m, n = x.shape
    return x.new_empty([*batch, n, m]).transpose(-2, -1), x.new_empty([*batch, torch.sym_min(m, n)])  # type: ignore[no-untyped-call]


def _contiguous(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """A result of the first operand's type in one block; how a transform's lies in memory, ``layouts`` knows."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _slices(x: torch.Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return aten.unique_consecutive.default(x, return_inverse, return_counts, dim)


def _normalised(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """The fourth result is what cuDNN keeps."""
    found = aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, True, momentum, eps)
    return (*found[:3], x.new_empty([0], dtype=torch.uint8), *found[3:])


def _inferred(x: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    return (*aten._native_batch_norm_legit_no_training.default(x, *rest), x.new_empty([0], dtype=torch.uint8))


def _loss(
    x: torch.Tensor,
    target: torch.Tensor,
    p: Any = 1,
    margin: Any = 1,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    return x.new_empty(x.shape[:1] if reduction == 0 and x.dim() > 1 else [])


def _marked_loss(x: torch.Tensor, target: torch.Tensor, reduction: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _loss(x, target, reduction=reduction), torch.empty_like(target, dtype=x.dtype)


def _norm(x: torch.Tensor, ord: Any = 2, dim: Any = None, *rest: Any, **named: Any) -> torch.Tensor:
    found: torch.Tensor = aten.linalg_vector_norm.default(
        x, ord, [d % max(x.dim(), 1) for d in dim] if dim else dim, *rest, **named
    )
    return found


def _by_tensors(op: Callable[..., Any]) -> Callable[..., Any]:
    def lists(xs: Any, ys: Any, zs: Any, scalars: torch.Tensor) -> list[torch.Tensor]:
        return [op(x, y, z) for x, y, z in zip(xs, ys, zs, strict=True)]

    return lists


_OURS: Mapping[Any, Callable[..., Any]] = {
    aten.geqrf.default: _geqrf,
    aten.binomial.default: _contiguous,
    aten._standard_gamma.default: _contiguous,
}
_INSTEAD: Mapping[Any, Callable[..., Any]] = {
    aten._fft_c2c.default: _contiguous,  # raises in 2.11 where dimensions are not sorted
    aten.native_channel_shuffle.default: _contiguous,  # a view, which only a contiguous operand has
    aten.multi_margin_loss.default: _loss,  # taken apart, with other sizes for a single example
    aten.multilabel_margin_loss_forward.default: _marked_loss,  # the same, and other numbers
    aten.unique_dim_consecutive.default: _slices,  # none, and its kernel is said to be composite
    aten._batch_norm_with_update_functional.default: _normalised,  # takes no call without a weight or a bias
    aten._batch_norm_no_update.default: _inferred,
    aten.linalg_vector_norm.default: _norm,  # 2.11 keeps a dimension of one element named from the end
    aten._foreach_addcmul.Tensor: _by_tensors(aten.addcmul.default),  # wants the scalars' values
    aten._foreach_addcdiv.Tensor: _by_tensors(aten.addcdiv.default),
}
METAS: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        **{op: ours for op, ours in _OURS.items() if not op.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta)},
        **_INSTEAD,
    }
)
"""By operator: what to ask instead of its own."""
