"""Where no error analysis reaches: no further from float64 than twice as far as eager PyTorch, over the whole result.

This is the budget that the operator set itself states for such operators (``Budget.times``), not a derived bound. The
error is normwise, for eager's own error at one element says nothing of what another computation may have there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from .compare import TIMES, Finding
from .tracked_tensor import inexact, ulp, unit, wide_dtype

FRACTION_BITS = 13
"""Fractional bits, below the largest addend, that sums of products of float8 keep (see ``_cut_addends``)."""


def compare(
    got: Tensor,
    eager: Tensor,
    exact: Tensor | None,
    narrow: Tensor | None = None,
    times: float = TIMES,
    floor: float = 0.0,
) -> Finding:
    """``exact`` is eager's result in float64, None where float64 cannot run: then eager's own result is the reference.

    Of float64 eager's error is not known, for nothing better is: it is that of ``narrow``, its result in float32, as
    much smaller as float64 is finer. So it is of what is backward stable (Higham 2002, section 1.6).

    Eager's error counts as one ulp of each element at least, for it may be nearer by luck, and as ``floor``.
    """
    if not got.numel():
        return Finding()
    if not inexact(got.dtype):
        wrong = got != eager
        if exact is not None:
            wrong &= got != exact.to(got.dtype)
        return (
            Finding(f"{int(wrong.sum())} of {got.numel()} elements differ from eager's.", {"wrong": int(wrong.sum())})
            if wrong.any()
            else Finding()
        )
    actual, theirs = (x.to(wide_dtype(x.dtype)) for x in (got, eager))
    best = theirs if exact is None else exact.to(actual.dtype)
    if sentence := _classes(actual, theirs, best):
        return Finding(sentence)
    finite = actual.isfinite() & theirs.isfinite() & best.isfinite()
    off, own = (_norm((x - best)[finite]) for x in (actual, theirs))
    least = max(_norm(ulp(best[finite], got.dtype)), eager_error(best, narrow, finite), floor)
    allowed = times * max(own, least)
    ratio = off / allowed if allowed else (0.0 if off == 0.0 else math.inf)
    figures: dict[str, Any] = {"ratio": ratio}
    if ratio <= 1.0:
        return Finding("", figures)
    return Finding(
        f"The result is off by {off:.3g} in the norm, where {times:g} times eager's {max(own, least):.3g} is allowed.",
        figures,
    )


Named = Mapping[str, Any]
floor: ByMember[Callable[[Named], float]] = ByMember()
"""The error that a call of a member may have whatever eager's is, in the norm."""


def error_floor(member: str, named: Named) -> float:
    """The error that a call may have whatever eager's is, in the norm; 0 of most."""
    of_member = floor.declared.get(member)
    return 0.0 if of_member is None else of_member(named)


@floor("scaled_mm")
def _cut_addends(named: Named) -> float:
    """Matrix units cut the addends of a sum of products of float8 at 2^-13 of the largest (scaled_mm.C2; DeepSeek-V3
    technical report, arXiv:2412.19437, section 3.3.2, on NVIDIA's). n cuts of either sign amount to
    sqrt(n) 2^-13 times the largest addend or partial sum, which is no more than sum |a| |b| / sqrt(n) where addends are
    of one size and random signs: 2^-13 sum |a| |b| in all.
    """
    operands = [named.get(n) for n in ("self", "mat2", "scale_a", "scale_b")]
    if not all(isinstance(x, Tensor) for x in operands):
        return 0.0
    a, b, *scales = (x.double().abs() for x in operands if isinstance(x, Tensor))
    return 2.0**-FRACTION_BITS * _norm(a @ b) * math.prod(float(s.max()) for s in scales)


def eager_error(best: Tensor, narrow: Tensor | None, finite: Tensor) -> float:
    """Eager's error in float64, by that in float32."""
    if narrow is None:
        return 0.0
    there = finite & narrow.isfinite()
    return _norm((narrow.to(best.dtype) - best)[there]) * unit(torch.float64) / unit(torch.float32)


def _classes(actual: Tensor, eager: Tensor, exact: Tensor) -> str:
    """NaN and infinities stand where eager's or float64's do; how the parts of a complex infinity combine is free."""
    kinds = (
        (("not finite", lambda x: ~x.isfinite()),)
        if actual.is_complex()
        else (("NaN", torch.isnan), ("infinite", torch.isinf))
    )
    for what, of in kinds:
        a, b, c = of(actual), of(eager), of(exact)
        if bool(((a != b) & (a != c)).any()):
            return f"Other elements are {what} than in eager PyTorch and in float64."
    return ""


def _norm(x: Tensor) -> float:
    """In units of the largest, whose square may be beyond the range."""
    sizes = x.abs().double()
    most = float(sizes.max()) if sizes.numel() else 0.0
    return most * float((sizes / most).square().sum().sqrt()) if 0.0 < most < math.inf else most
