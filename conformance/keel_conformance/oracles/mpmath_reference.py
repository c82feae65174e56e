"""References for float64: functions evaluated with 40 digits by mpmath and rounded once, to the nearest float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import torch
from torch import Tensor

from ..by_member import ByMember

DIGITS = 40
MOST = 512
"""Of tensors of more values the reference is eager PyTorch's float64, whose own budget then counts twice."""

FUNCTIONS: ByMember[Callable[[Any], Any]] = ByMember()
declare = FUNCTIONS.declare
declare("exp", mpmath.exp)
declare("exp2", lambda x: mpmath.power(2, x))
declare("expm1", mpmath.expm1)
declare("log", mpmath.log)
declare("log2", lambda x: mpmath.log(x, 2))
declare("log10", mpmath.log10)
declare("log1p", mpmath.log1p)
declare("sin", mpmath.sin)
declare("cos", mpmath.cos)
declare("tan", mpmath.tan)
declare("asin", mpmath.asin)
declare("acos", mpmath.acos)
declare("atan", mpmath.atan)
declare("sinh", mpmath.sinh)
declare("cosh", mpmath.cosh)
declare("tanh", mpmath.tanh)
declare("asinh", mpmath.asinh)
declare("acosh", mpmath.acosh)
declare("atanh", mpmath.atanh)
declare("erf", mpmath.erf)
declare("sqrt", mpmath.sqrt)
declare("rsqrt", lambda x: 1 / mpmath.sqrt(x))
declare("sigmoid", lambda x: 1 / (1 + mpmath.exp(-x)))
declare("reciprocal", lambda x: 1 / x)
declare("erfc", mpmath.erfc)
declare("digamma", mpmath.digamma)
LOSSY: ByMember[Callable[[Tensor], Tensor]] = ByMember()
"""Where eager PyTorch's own float64 loses most digits: beside poles, by its tangent of pi x. There mpmath judges
tensors of any size.
"""
LOSSY.declare("digamma", lambda x: (x < 0) & ((x - x.round()).abs() < 1e-3))
REACH = 1e6
"""Beyond this a sine needs more digits than are kept, and an exponential has left the range."""


def precise(name: str, x: Tensor, value: Tensor) -> Tensor | None:
    """``value``, the function of ``x`` in float64, with each finite element correctly rounded; None where mpmath has
    not the function, or where there are too many values: but for elements where eager's are ``LOSSY``.

    Elements that are not finite, or of operands that are 0 or beyond ``REACH``, stay: what clauses say of them is not
    rounded. So do zeros that round to zero, of whose sign mpmath knows nothing; others are PyTorch's, which loses some
    that are subnormal.
    """
    of = FUNCTIONS.declared.get(name)
    if of is None or value.dtype != torch.float64 or x.dtype != torch.float64:
        return None
    if x.numel() > MOST and x[x.isfinite()].unique().numel() > MOST:
        if (loses := LOSSY.declared.get(name)) is None or not (lossy := loses(x)).any():
            return None
        better = precise(name, x[lossy], value[lossy])
        return None if better is None else value.masked_scatter(lossy, better)
    pairs = list(zip(x.flatten().tolist(), value.flatten().tolist(), strict=True))
    inputs = {a for a, b in pairs if _rounds(a, b)}
    with mpmath.workdps(DIGITS):
        best = {a: of(mpmath.mpf(a)) for a in inputs}
    results = [_rounded(best[a], b) if _rounds(a, b) else b for a, b in pairs]
    return torch.tensor(results, dtype=torch.float64).reshape(value.shape)


def _rounds(x: float, value: float) -> bool:
    return math.isfinite(value) and math.isfinite(x) and x != 0.0 and abs(x) <= REACH


def _rounded(best: Any, value: float) -> float:
    if not isinstance(best, mpmath.mpf) or (value == 0.0 and float(best) == 0.0):
        return value
    return float(best)
