"""oneDNN's products of 16-bit floats with a matrix that was packed before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_POINTWISE, _PACK = "_linear_pointwise", "_reorder_linear_weight"


def packs_linear_dtype(dtype: torch.dtype) -> bool:
    """True if oneDNN multiplies ``dtype``, a 16-bit float, on this processor, this PyTorch has these functions, and the
    user has not switched oneDNN off.
    """
    onednn = torch.ops.mkldnn
    if not torch._C._get_mkldnn_enabled() or not hasattr(onednn, _POINTWISE) or not hasattr(onednn, _PACK):
        return False
    match dtype:
        case torch.bfloat16:
            return bool(onednn._is_mkldnn_bf16_supported())
        case torch.float16:
            return bool(onednn._is_mkldnn_fp16_supported())
    return False


def pack_linear(weight: torch.Tensor, rows: Sequence[int], rest: Sequence[Any]) -> torch.Tensor:
    """Returns ``weight``, a matrix of shape [K, N], in the layout that is fastest for matrices of the sizes ``rows``.

    It is a tensor of a layout of oneDNN's own, which only ``packed_linear`` takes.
    """
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous(), max(1, rows[0]))
    return packed


def packed_linear(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rest: Sequence[Any],
    other: torch.Tensor | None,
    then: str | None,
) -> torch.Tensor:
    """``rows`` [M, K] times the packed matrix, plus ``bias`` [N]; then plus ``other`` [M, N], or ``then`` applied."""
    run = torch.ops.mkldnn._linear_pointwise
    result: torch.Tensor
    if other is None:
        result = run.default(rows, weight, bias, then or "none", [], "")
    else:
        result = run.binary(rows, other, weight, bias, "add")
    return result
