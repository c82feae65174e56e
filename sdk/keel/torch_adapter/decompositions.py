"""Looks up PyTorch's own decompositions, unchanged. Those that were measured to be wrong or unusable are excluded, each
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
import torch._prims as prims
from torch._decomp import decomposition_table
from torch._ops import OpOverload

Decomposition = Callable[..., Any]

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "aten._scaled_dot_product_flash_attention_for_cpu.default": "It returns attention weights where the "
        "schema promises logsumexp, so gradients are wrong.",
        "aten.soft_margin_loss_backward.default": "sigmoid(z) - 1 cancels: 8 to 14 % error at z of 14.",
        "aten.addcmul.default": "Without a fused multiply-add the sum cancels: 400 times eager's error.",
        "aten.cumsum.default": "It is quadratic, and loses digits near zero crossings.",
        "aten.cumprod.default": "It is quadratic, and loses digits.",
        "aten.ldexp.Tensor": "x * 2**n overflows where the result does not.",
        "aten._ctc_loss.default": "Eager's gradient is not the derivative of the definition.",
        "aten._ctc_loss.Tensor": "Eager's gradient is not the derivative of the definition.",
        "aten._linalg_det.default": "What it saves for its backward depends on the layout of the input.",
        "aten._linalg_slogdet.default": "What it saves for its backward depends on the layout of the input.",
        "aten.full.default": "It is written in terms of fill, and fill in terms of full.",
        "aten.empty_like.default": "Memory is not a value.",
        "aten.empty_strided.default": "Memory is not a value.",
        "aten.lift_fresh.default": "It marks a constant, and aliases it.",
    }
)


def decomposition_of(op: Callable[..., Any]) -> Decomposition | None:
    """PyTorch's decomposition of an overload, a function of the same arguments. None if it does not exist or is
    excluded. It may use in-place operators and prims; ``record`` turns it into functional ATen.
    """
    if not isinstance(op, OpOverload) or str(op) in LEFT_OUT:
        return None
    if (decomposition := decomposition_table.get(op)) is not None:
        return decomposition
    if op._can_decompose():
        return op.decompose
    return prims_in_aten().get(op) if op.namespace == "prims" else None


@cache
def prims_in_aten() -> Mapping[Callable[..., Any], Decomposition]:
    """Maps prims to functions of ATen operators. PyTorch's own decomposition of a conversion writes to memory."""
    known = (p for p in vars(prims).values() if hasattr(p, "impl_aten"))
    return MappingProxyType(
        {
            **{p if isinstance(p, OpOverload) else p.default: p.impl_aten for p in known},
            torch.ops.prims.convert_element_type.default: _converted,
        }
    )


def _converted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    converted: torch.Tensor = torch.ops.aten._to_copy.default(x, dtype=dtype)
    return converted
