"""Limits of PyTorch's kernels on a device: calls that disagree with the operator set are refused or corrected.

The declaration of an operator says how its kernels differ (``Op.kernel_on``, ``Library``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from keel.plugin import Refusal
from keel.spec import Op, bind
from keel.types import Call, TensorType

HALVES = (torch.float16, torch.bfloat16)
Limit = Callable[[Call], Refusal | None]
"""Returns why a kernel cannot be used for a call, or None if it can."""


def in_float32(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``run`` to compute 16-bit floats in float32, for a kernel that keeps partial sums in the dtype of its
    arguments. Each result is rounded once.
    """

    def wide(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        floats = [a.dtype for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        to = dtype if dtype is not None or not floats else floats[0]
        if to not in HALVES:
            return run(*args, **kwargs) if dtype is None else run(*args, dtype=dtype, **kwargs)

        def widened(a: Any) -> Any:
            is_widened = isinstance(a, Tensor) and (dtype is not None or a.is_floating_point())
            return a.to(to).float() if is_widened else a

        def rounded(a: Any) -> Any:
            return a.to(to) if isinstance(a, Tensor) and a.dtype == torch.float32 else a

        results = run(*map(widened, args), **kwargs)
        return tuple(map(rounded, results)) if isinstance(results, tuple) else rounded(results)

    return wide


def without_padding(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the ``run`` of an embedding bag whose kernel multiplies ignored rows, as zeros, by their weights."""

    def settled(
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        sparse: bool = False,
        per_sample_weights: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int = -1,
    ) -> Any:
        if per_sample_weights is not None and padding_idx >= 0:
            per_sample_weights = per_sample_weights.masked_fill(indices == padding_idx, 0)
        return run(
            weight,
            indices,
            offsets,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )

    return settled


def without_strided_pixels(run: Callable[..., Any], channels: int) -> Callable[..., Any]:
    """Wraps the ``run`` of a convolution's gradients so that it does not take strides for weights of one pixel with
    fewer than ``channels`` channels.

    The pixels that these meet are copied first, and have no stride then.
    """

    def settled(
        grad: Tensor,
        x: Tensor,
        weight: Tensor,
        bias_sizes: list[int] | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
        mask: list[bool],
    ) -> Any:
        rest = (dilation, transposed, output_padding, groups)
        few = weight.shape[1] < channels and all(n == 1 for n in weight.shape[2:])
        of_weight = mask[1] or mask[2]  # oneDNN makes these two together
        if transposed or not (few and of_weight) or any(padding) or all(n == 1 for n in stride):
            return run(grad, x, weight, bias_sizes, stride, padding, *rest, mask)
        met = x[:, :, *(slice(None, None, n) for n in stride * (x.ndim - 2 if len(stride) == 1 else 1))].contiguous()
        of_image, *others = run(grad, met, weight, bias_sizes, [1] * len(stride), padding, *rest, [False, *mask[1:]])
        if mask[0]:
            of_image, *_ = run(grad, x, weight, bias_sizes, stride, padding, *rest, [True, False, False])
        return of_image, *others

    return settled


def _dtype(call: Call) -> torch.dtype | None:
    return next((t.dtype for t in call.out if isinstance(t, TensorType)), None)


def limit_of(op: Op, device: str) -> Limit | None:
    """The function that refuses calls on a device; None if all calls are taken."""
    refuses = op.kernel_on(device).refuses
    if refuses is None:
        return None

    def limit(call: Call) -> Refusal | None:
        sentence = refuses(bind(call), _dtype(call))
        return None if sentence is None else Refusal(sentence)

    return limit


def corrected(op: Op, device: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of a device, corrected to agree with the operator set."""
    if channels := max((x.strided_channels for x in op.libraries if x.device == device), default=0):
        return without_strided_pixels(run, channels)
    kernel = op.kernel_on(device)
    run = in_float32(run) if kernel.narrow_sums else run
    return without_padding(run) if kernel.weighs_padding else run
