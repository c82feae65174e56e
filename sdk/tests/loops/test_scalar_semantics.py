"""What scalar operations of the loop IR compute, held to exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from keel.loops.scalar_semantics import evaluate_op

INF, NAN, MOST, LEAST = math.inf, math.nan, torch.finfo(torch.float64).max, 5e-324


def fused(x: float, y: float, z: float) -> float:
    """x * y + z, rounded once."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if 0 in (x, y) else 0.0
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return INF if exact > 0 else -INF


ANY = st.floats() | st.sampled_from([0.0, -0.0, MOST, -MOST, LEAST, -LEAST, 1 + 2.0**-52, INF, -INF, NAN])


@given(ANY, ANY, ANY)
@example(-0.5, 0.0, -0.0)  # -0
@example(2.5, MOST / 2, -MOST)  # the product alone overflows
@example(MOST, MOST, -INF)
@example(1 + 2.0**-52, 1 - 2.0**-52, -1.0)  # all but the last bits cancels
@example(LEAST, 0.5, LEAST)
def test_fma_is_rounded_once(x: float, y: float, z: float) -> None:
    args = tuple(torch.tensor([v], dtype=torch.float64) for v in (x, y, z))
    got, want = evaluate_op("fma", args, torch.float64).item(), fused(x, y, z)
    if math.isnan(want):
        assert math.isnan(got)
    elif math.isfinite(want) and want != got:  # one that needs more than 106 bits
        assert abs(got - want) <= math.ulp(want)
    else:
        assert got == want and (want != 0 or math.copysign(1, got) == math.copysign(1, want))
