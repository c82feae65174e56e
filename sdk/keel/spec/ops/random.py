"""Random operators in terms of one random source, so that a compiled program draws what eager draws from a seed."""
from __future__ import annotations

import torch

from keel.spec.op import Family
from keel.spec.ops.statistics import accurate

aten = torch.ops.aten
family = Family("random")


@family(aten.native_dropout.default, clauses=(
    "In training each element is kept with probability 1 - p, independently, and then divided by it; the mask says "
    "which are kept.",
    "Dropped elements are x * 0, so NaN and infinity become NaN.",
    "Otherwise the result is the input, and the mask is true everywhere.",
    "On CPU the mask is what bernoulli draws from the same seed.",
))
def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The result and the mask."""
    if train is False:
        return aten.clone.default(x), aten.full_like.default(x, True, dtype=torch.bool)
    keep = 1.0 - p
    mask = aten.bernoulli.p(aten.full_like.default(x, False, dtype=torch.bool), keep)
    value = accurate(x)
    out = value * mask.to(value.dtype) * (1.0 / keep if keep else 0.0)
    return out.to(x.dtype), mask
