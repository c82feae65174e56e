"""Variance and what is made of it, in two passes: the mean first, then the squared deviations from it.

One pass over sums of squares cancels; two passes read the row twice while it is in cache. The second corrects for the
rounding of the mean (the corrected two-pass algorithm of Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.numerics import Numerics
from keel.spec.op import Family
from keel.spec.unspecified import infinite

aten = torch.ops.aten
family = Family("statistics")

SMALL = (torch.float16, torch.bfloat16)


def accurate(x: torch.Tensor) -> torch.Tensor:
    """``x`` in the dtype that it is summed in: float32 for 16-bit floats."""
    return x.to(torch.float32) if x.dtype in SMALL else x


def all_dims(x: torch.Tensor, dims: list[int] | None) -> list[int]:
    """The canonical dims: none given means all."""
    return [d % max(x.dim(), 1) for d in dims] if dims else list(range(x.dim()))


def _moments(x: torch.Tensor, dims: list[int] | None, correction: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(variance, mean) of a tensor in its accurate dtype, dims kept. The variance of complex numbers is that of their
    real parts and that of their imaginary ones together.
    """
    over = all_dims(x, dims)
    if x.is_complex():
        parts = aten.view_as_real.default(x if x.dim() else aten.reshape.default(x, [1]))
        spread = aten.sum.dim_IntList(_moments(parts, over or [0], correction)[0], [-1])
        return spread if x.dim() else aten.reshape.default(spread, []), aten.mean.dim(x, over, True)
    count = prod([x.shape[d] for d in over]) if x.dim() else 1
    mean = aten.sum.dim_IntList(x, over, True) / count
    centered = x - mean
    drift = aten.sum.dim_IntList(centered, over, True)  # 0 but for the rounding of the mean
    squares = aten.sum.dim_IntList(centered * centered, over, True) - drift * drift / count
    freedom = count - (1 if correction is None else correction)
    if isinstance(freedom, int | float):
        freedom = max(freedom, 0)
    return squares / freedom, mean


def _dropped(x: torch.Tensor, dims: list[int] | None, keepdim: bool, result: torch.Tensor) -> torch.Tensor:
    return result if keepdim or not x.dim() else aten.squeeze.dims(result, all_dims(x, dims))


IN_FLOAT32 = Clause("16-bit floats are computed in float32 or better, and rounded once.", About.HALF | About.FLOAT32)
_UPDATES = Numerics(updated_mean=True)
_CLAUSES = (
    "The variance is the sum of squared deviations from the mean, divided by (count - correction).",
    Clause(
        "The variance is NaN where count <= correction and the sum is 0, inf where the sum is positive.",
        About.NONFINITE,
    ),
    Clause("NaN or inf among the elements gives NaN.", About.NONFINITE),
    IN_FLOAT32,
)


@family(aten.var_mean.correction, clauses=_CLAUSES, numerics=_UPDATES, unspecified=infinite(1))
def var_mean(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean over ``dim``."""
    var, mean = _moments(accurate(x), dim, correction)
    return (_dropped(x, dim, keepdim, var).to(x.dtype.to_real()), _dropped(x, dim, keepdim, mean).to(x.dtype))


@family(aten.var.correction, clauses=_CLAUSES, numerics=_UPDATES)
def var(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    """Variance over ``dim``."""
    return _dropped(x, dim, keepdim, _moments(accurate(x), dim, correction)[0]).to(x.dtype.to_real())


@family(
    aten.std.correction,
    clauses=("The standard deviation is the square root of the variance.", IN_FLOAT32),
    numerics=_UPDATES,
)
def std(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    """Standard deviation over ``dim``."""
    result = aten.sqrt.default(_moments(accurate(x), dim, correction)[0])
    return _dropped(x, dim, keepdim, result).to(x.dtype.to_real())
