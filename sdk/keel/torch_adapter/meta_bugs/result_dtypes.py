"""Results of other dtypes than PyTorch's meta kernels promise.

Where parameters are float32 and the input is a 16-bit float, ATen keeps statistics in float32; the meta kernels say
16-bit, and float32 on GPUs for running ones that are 16-bit.  A program compiled to that promise rounds what its
gradients are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from keel.torch_adapter.meta_bugs.record import ALL, MetaBug

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


def _of_small(args: Sequence[Any]) -> torch.dtype | None:
    return torch.float32 if args[0].dtype in _SMALL else None


def _bug(
    sentence: str, dtype: Dtype, results: tuple[int, ...], *ops: Callable[..., Any], device: str | None = None
) -> MetaBug:
    return MetaBug(ops, ALL, sentence, dtype, results, device, kind="dtype")


_STATISTICS = "16-bit statistics are promised; eager keeps them in float32 where the parameters are float32."
_RUNNING = "float32 is promised for running statistics that are 16-bit; eager keeps their dtype."
_PARAMETER = "The input's dtype is promised for the gradient of a parameter; eager gives the parameter's."
_SOFTMAX = "The dtype that is asked for is promised; eager gives that of the gradient that comes in."
DTYPES: tuple[MetaBug, ...] = (
    _bug(_STATISTICS, _statistics(2, 3), (1, 2), aten.native_layer_norm.default, device="cpu"),
    _bug(
        _STATISTICS,
        _statistics(1, 2),
        (1, 2),
        aten.native_group_norm.default,
        aten._native_batch_norm_legit.no_stats,
        device="cpu",
    ),
    _bug(
        _STATISTICS,
        _statistics(1, 2, 3, 4),
        (1, 2),
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
        aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
        device="cpu",
    ),
    _bug(_PARAMETER, _like(1), (0,), aten.native_group_norm_backward.default, device="cpu"),
    _bug(_PARAMETER, _like(4), (1, 2), aten.native_group_norm_backward.default, device="cpu"),
    _bug(
        _SOFTMAX,
        _like(0),
        (0,),
        aten._log_softmax_backward_data.default,
        aten._softmax_backward_data.default,
        device="cpu",
    ),
    _bug(
        "float32 is promised for the logarithms of sums; eager gives float64 for float64.",
        _wide,
        (1,),
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        device="cpu",
    ),
    _bug(
        "The dtype of the direction is promised for its norms; eager keeps 16-bit ones in float32.",
        _of_small,
        (1,),
        aten._weight_norm_interface.default,
    ),
    _bug(_RUNNING, _like(3), (3,), aten._native_batch_norm_legit_functional.default),
    _bug(_RUNNING, _like(4), (4,), aten._native_batch_norm_legit_functional.default),
    _bug(_RUNNING, _like(3), (4,), aten._batch_norm_with_update_functional.default),
    _bug(_RUNNING, _like(4), (5,), aten._batch_norm_with_update_functional.default),
    _bug(
        "Of whole numbers and 16-bit exponents another dtype is promised than eager's product has.",
        _of_powers,
        (0,),
        aten.ldexp.Tensor,
    ),
)
