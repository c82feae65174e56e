"""Operators for which PyTorch has no meta kernel, or one that fails for calls that eager runs.

Other functions are asked instead, so that they can be recorded with symbolic sizes.  Nothing is registered: only the
recorder asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._meta_registrations  # what is registered there is not lacking

from keel.torch_adapter.meta_bugs.record import ALL, MetaBug

aten = torch.ops.aten


def _geqrf(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    *batch, m, n = x.shape
    return x.new_empty([*batch, n, m]).transpose(-2, -1), x.new_empty([*batch, torch.sym_min(m, n)])


def _contiguous(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """A result of the first operand's type in one block; how a transform's lies in memory, ``fft_strides`` knows."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _slices(x: torch.Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return aten.unique_consecutive.default(x, return_inverse, return_counts, dim)


def _normalized(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    """The fourth result is what cuDNN keeps."""
    results = aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, True, momentum, eps)
    return (*results[:3], x.new_empty([0], dtype=torch.uint8), *results[3:])


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
    result: torch.Tensor = aten.linalg_vector_norm.default(
        x, ord, [d % max(x.dim(), 1) for d in dim] if dim else dim, *rest, **named
    )
    return result


def _by_tensors(op: Callable[..., Any]) -> Callable[..., Any]:
    def lists(xs: Any, ys: Any, zs: Any, scalars: torch.Tensor) -> list[torch.Tensor]:
        return [op(x, y, z) for x, y, z in zip(xs, ys, zs, strict=True)]

    return lists


def _bug(sentence: str, meta: Callable[..., Any], *ops: Callable[..., Any]) -> MetaBug:
    return MetaBug(ops, ALL, sentence, meta, kind="instead")


MISSING: tuple[MetaBug, ...] = (
    MetaBug((aten.geqrf.default,), ALL, "There is no meta kernel.", _geqrf, kind="missing"),
    MetaBug(
        (aten.binomial.default, aten._standard_gamma.default),
        ALL,
        "There is no meta kernel.",
        _contiguous,
        kind="missing",
    ),
    _bug("In 2.11 it raises where dimensions are not sorted.", _contiguous, aten._fft_c2c.default),
    _bug("It makes a view, which only a contiguous operand has.", _contiguous, aten.native_channel_shuffle.default),
    _bug("It is decomposed, with other sizes for a single example.", _loss, aten.multi_margin_loss.default),
    _bug(
        "It is decomposed, with other sizes for a single example, and other numbers.",
        _marked_loss,
        aten.multilabel_margin_loss_forward.default,
    ),
    _bug(
        "There is no meta kernel, and the kernel is registered as composite.",
        _slices,
        aten.unique_dim_consecutive.default,
    ),
    _bug("It takes no call without a weight or a bias.", _normalized, aten._batch_norm_with_update_functional.default),
    _bug("It takes no call without a weight or a bias.", _inferred, aten._batch_norm_no_update.default),
    _bug("In 2.11 it keeps a dimension of one element named from the end.", _norm, aten.linalg_vector_norm.default),
    _bug("It wants the scalars' values.", _by_tensors(aten.addcmul.default), aten._foreach_addcmul.Tensor),
    _bug("It wants the scalars' values.", _by_tensors(aten.addcdiv.default), aten._foreach_addcdiv.Tensor),
)
