"""Products with a matrix that was packed before: oneDNN's of 16-bit floats, and MKL's of float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from keel.torch_adapter.onednn_dtypes import has_onednn

FEWEST, MOST = 8, 512
"""Between these numbers of rows MKL's packed form is faster: by 5 to 25 % for 16 to 200 rows. It is less exact for one
row, and takes the same time for 1,000."""


def packs_linear_dtype(dtype: torch.dtype) -> bool:
    """True if ``dtype`` is a 16-bit float of which oneDNN has packed products here (see ``has_onednn``)."""
    return dtype != torch.float32 and has_onednn(dtype, "_linear_pointwise", "_reorder_linear_weight")


def packs_linear_for_speed(dtype: torch.dtype) -> bool:
    """True for float32 if this PyTorch has MKL's functions, and the user has not switched oneDNN off."""
    if dtype != torch.float32 or not torch.backends.mkl.is_available() or not torch._C._get_mkldnn_enabled():
        return False
    return all(hasattr(torch.ops.mkl, name) for name in ("_mkl_linear", "_mkl_reorder_linear_weight"))


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
    """``rows`` [M, K] times the packed matrix, plus ``bias`` [N], plus ``other`` [M, N]. ``then`` has to be None."""
    assert then is None, "the declarations of products name no operator to apply"
    result: torch.Tensor
    if isinstance(weight, _OfMkl):
        if weight.packed is None or len(rows) != weight.count:
            result = torch.nn.functional.linear(rows, weight.weight, bias)
        else:
            result = torch.ops.mkl._mkl_linear(rows, weight.packed, weight.weight, bias, weight.count)
        return result if other is None else result.add_(other)
    run = torch.ops.mkldnn._linear_pointwise
    if other is None:
        result = run.default(rows, weight, bias, "none", [], "")
    else:
        result = run.binary(rows, other, weight, bias, "add")
    return result
