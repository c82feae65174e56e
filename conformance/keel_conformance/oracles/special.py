"""Rules of special functions whose budget is a multiple of eager PyTorch's own error: Bessel functions, polynomials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .compare import TIMES
from .error_rules import INF, CallContext, ErrorBound, NoRule, uncertain
from .pointwise import STEP, call_with, distance
from .tracked_tensor import error_of, inexact, plain_of, ulp, unit, wide, wide_dtype

POINTS = 8
"""Places on each side at which an oscillating function is looked at within an error."""


def by_eager(call: CallContext) -> Sequence[ErrorBound]:
    """Each element may be as far off, in units of a mixed forward and backward error (ulp(f) + u |x f'(x)|, Higham
    2002, section 1.5), as ``TIMES`` the element at which eager PyTorch is worst; one unit at least.

    What an operand's error brings is the farthest of ``POINTS`` places on each side, twice, for between two places a
    function that is smooth on that scale moves by no more than from one to the next.
    """
    out = call.outs[0]
    if uncertain(call.args, call.kwargs) or not inexact(out.dtype) or out.dtype.is_complex:
        raise NoRule("Only of known floats.")
    names = [n for n, v in call.named.items() if isinstance(v, (Tensor, int, float)) and not isinstance(v, bool)]
    values: dict[str, Any] = {n: _value(call.named[n], out.dtype) for n in names}
    value = call_with(call, values)[0]
    units = ulp(value, out.dtype)
    for n in names:
        if isinstance(values[n], Tensor):
            chords = [distance(call_with(call, {**values, n: values[n] * (1 + s * STEP)})[0], value) for s in (1, -1)]
            units = units + (unit(out.dtype) * torch.maximum(*chords) / STEP).nan_to_num(0.0, 0.0)
    return [ErrorBound(value, _moved(call, values, value) + _rounding(call, value, units))]


def _value(x: Any, over: torch.dtype) -> Any:
    """Integers are converted to the dtype computed in first."""
    if isinstance(x, Tensor) and not inexact(x.dtype):
        return plain_of(x).to(over).to(wide_dtype(over))
    return wide(x) if isinstance(x, Tensor) else x


def _rounding(call: CallContext, value: Tensor, units: Tensor) -> Tensor:
    """On the operands as eager has them, which are the exact ones only where there is no error."""
    own, best = call.outs[0].double(), value if call.exact else call.again(_plainly)[0]
    off = (own - best).abs() / units
    off = off[off.isfinite()]
    worst = max(float(off.max()) if off.numel() else 0.0, 1.0)
    classes = value.isfinite() & ~own.isfinite()  # eager overflows on the way, and so may others
    return torch.where(classes, INF, torch.where(value.isfinite(), TIMES * worst * units, 0.0))


def _plainly(x: Any) -> Any:
    plain = plain_of(x)
    return plain.to(wide_dtype(plain.dtype)) if isinstance(plain, Tensor) else plain


def _moved(call: CallContext, values: Mapping[str, Any], value: Tensor) -> Tensor:
    total = torch.zeros(value.shape, dtype=torch.float64)
    for n, v in values.items():
        gap = error_of(call.named[n])
        if gap is None:
            continue
        for k in range(1, POINTS + 1):
            for sign in (1.0, -1.0):
                there = call_with(call, {**values, n: v + sign * gap.nan_to_num(0.0, 0.0) * (k / POINTS)})[0]
                total = torch.maximum(total, distance(there, value))
        total = torch.where(gap.isinf(), INF, total)
    return 2 * total
