"""Products with a matrix that was packed before: oneDNN's of 16-bit floats, and MKL's of float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

_ONEDNN, _MKL = ("_linear_pointwise", "_reorder_linear_weight"), ("_mkl_linear", "_mkl_reorder_linear_weight")
FEWEST, MOST = 8, 512
"""Between these numbers of rows MKL's packed form is faster: by 5 to 25 % for 16 to 200 rows. It is less exact for one
row, and takes the same time for 1,000."""


def packs_linear_dtype(dtype: torch.dtype) -> bool:
    """True if oneDNN multiplies ``dtype``, a 16-bit float, on this processor, this PyTorch has these functions, and the
    user has not switched oneDNN off.
    """
    onednn = torch.ops.mkldnn
    if not torch._C._get_mkldnn_enabled() or not all(hasattr(onednn, name) for name in _ONEDNN):
        return False
    match dtype:
        case torch.bfloat16:
            return bool(onednn._is_mkldnn_bf16_supported())
        case torch.float16:
            return bool(onednn._is_mkldnn_fp16_supported())
    return False


def packs_linear_for_speed(dtype: torch.dtype) -> bool:
    """True for float32 if this PyTorch has MKL's functions."""
    built = torch.backends.mkl.is_available() and torch._C._get_mkldnn_enabled()
    return dtype == torch.float32 and built and all(hasattr(torch.ops.mkl, name) for name in _MKL)


@dataclass(frozen=True)
class _OfMkl:
    """A matrix of shape [N, K], and MKL's form of it for products with ``count`` rows; None if that is not faster."""

    weight: torch.Tensor
    packed: torch.Tensor | None
    count: int


def pack_linear(weight: torch.Tensor, rows: Sequence[int], rest: Sequence[Any]) -> Any:
    """Returns ``weight``, a matrix of shape [K, N], in the form that is fastest for matrices of the sizes ``rows``.

    Only ``packed_linear`` takes it.
    """
    turned, count = weight.t().contiguous(), rows[0]
    if weight.dtype != torch.float32:
        return torch.ops.mkldnn._reorder_linear_weight(turned, max(1, count))
    packs = FEWEST <= count <= MOST
    return _OfMkl(turned, torch.ops.mkl._mkl_reorder_linear_weight(turned, count) if packs else None, count)


def packed_linear(
    rows: torch.Tensor,
    weight: Any,
    bias: torch.Tensor | None,
    rest: Sequence[Any],
    other: torch.Tensor | None,
    then: str | None,
) -> torch.Tensor:
    """``rows`` [M, K] times the packed matrix, plus ``bias`` [N]; then plus ``other`` [M, N], or ``then`` applied."""
    result: torch.Tensor
    if isinstance(weight, _OfMkl):
        if weight.packed is None or len(rows) != weight.count:
            result = torch.nn.functional.linear(rows, weight.weight, bias)
        else:
            result = torch.ops.mkl._mkl_linear(rows, weight.packed, weight.weight, bias, weight.count)
        return result if other is None else result.add_(other)
    run = torch.ops.mkldnn._linear_pointwise
    if other is None:
        result = run.default(rows, weight, bias, then or "none", [], "")
    else:
        result = run.binary(rows, other, weight, bias, "add")
    return result
