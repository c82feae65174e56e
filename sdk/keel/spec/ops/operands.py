"""How elementwise decompositions read operands: the promoted dtype, that of arithmetic, numbers as tensors."""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.dtype_groups import HALVES
from keel.spec.rules import promote
from keel.types import TensorType

aten = torch.ops.aten
Tensor = torch.Tensor


def common_dtype(*values: Any) -> torch.dtype:
    """The dtype that PyTorch promotes tensors and numbers to."""
    return promote([_stand_in(v) for v in values])


def _stand_in(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return TensorType.dense(value.dtype, (1,) * min(value.dim(), 1))
        case torch.SymBool():
            return True
        case torch.SymInt():
            return 1
        case torch.SymFloat():
            return 1.0
    return value


def floating_dtype(*values: Any) -> torch.dtype:
    """The promoted dtype, or the default float where that is an integer or bool."""
    dtype = common_dtype(*values)
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def math_dtype(dtype: torch.dtype) -> torch.dtype:
    """What arithmetic on ``dtype`` is done in: float32 for 16-bit floats."""
    return torch.float32 if dtype in HALVES else dtype


def in_math(dtype: torch.dtype, *values: Any) -> list[Tensor]:
    """Tensors and numbers in the dtype that arithmetic on ``dtype`` is done in."""
    device = next(v.device for v in values if isinstance(v, torch.Tensor))
    return [
        v.to(math_dtype(dtype)) if isinstance(v, torch.Tensor) else number(v, math_dtype(dtype), device) for v in values
    ]


def number(value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor without dimensions."""
    return aten.scalar_tensor.default(value, dtype=dtype, device=device)


def like(value: Any, x: Tensor) -> Tensor:
    """A number as a tensor without dimensions, of the dtype and on the device of ``x``."""
    return number(value, x.dtype, x.device)
