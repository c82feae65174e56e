"""Rules of error analysis for choices between values, and for conversions and copies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..by_member import ByMember
from .error_rules import INF, CallContext, ErrorBound, Rule
from .pointwise import distance, operand
from .tracked_tensor import (
    Tracked,
    error_of,
    errors,
    inexact,
    lost_of,
    overflow,
    plain_of,
    wide,
    wide_dtype,
)

rule: ByMember[Rule] = ByMember()


@rule("where")
def where(call: CallContext) -> Sequence[ErrorBound]:
    """One of two: the error is that of the chosen one; of an unknown choice, that of both and of their distance."""
    condition, a, b = (call.named[n] for n in ("condition", "self", "other"))
    out = call.outs[0]
    if not inexact(out.dtype):
        gap, other = (torch.zeros((), dtype=torch.float64) if error_of(x) is None else errors(x) for x in (a, b))
        known: Tensor = torch.where(plain_of(condition) != 0, gap, other)
        if error_of(condition) is not None:
            known = torch.where(errors(condition) > 0, INF, known)
        return [ErrorBound(None, known.broadcast_to(out.shape))]
    (va, ea), (vb, eb) = (operand(x, out.dtype) for x in (a, b))
    va, vb = (torch.as_tensor(v, dtype=wide_dtype(out.dtype)) for v in (va, vb))
    ea, eb = (torch.zeros((), dtype=torch.float64) if e is None else e for e in (ea, eb))
    chosen = plain_of(condition) != 0
    value, error = torch.where(chosen, va, vb), torch.where(chosen, ea, eb)
    if error_of(condition) is not None:
        either = torch.maximum(distance(va, vb) + torch.maximum(ea, eb), error)
        error = torch.where(errors(condition) > 0, either, error)
    return [ErrorBound(value, error)]


@rule("convert")
def convert(call: CallContext) -> Sequence[ErrorBound]:
    """To a narrower float: half an ulp more (round to nearest). To an integer: between what both ends of the error
    give. To a bool: known if it is the same at both. A conversion may be left out where the next one goes back, so the
    value stays the wide one.
    """
    x, out = next(a for a in call.args if isinstance(a, Tensor)), call.outs[0]
    error = error_of(x)
    if not inexact(x.dtype):
        if not inexact(out.dtype):
            return [ErrorBound(None, error)]
        value = plain_of(x).to(wide_dtype(out.dtype))
        return [
            ErrorBound(value, error, 0.5 if bool((plain_of(x).to(out.dtype).to(value.dtype) != value).any()) else 0.0)
        ]
    value = wide(x)
    if inexact(out.dtype):
        back = value.to(out.dtype).to(
            value.dtype if value.is_complex() == out.dtype.is_complex else wide_dtype(out.dtype)
        )
        value = value.to(wide_dtype(out.dtype)) if not (value.is_complex() and not out.dtype.is_complex) else value.real
        raw = x.error if isinstance(x, Tracked) else None
        if (lost := lost_of(x)) is not None and not value.is_complex():
            known = ~lost | (value.abs() >= overflow(out.dtype))
            error = torch.where(known, 0.0 if raw is None else raw, INF)
        same = bool(((back == value) | (value.isnan() & back.isnan())).all()) and error is None
        return [ErrorBound(value, error, 0.0 if same else 0.5)]
    if error is None:
        return [ErrorBound(None, None)]
    value = value.real if value.is_complex() else value
    ends = [(value + s * error) for s in (-1.0, 1.0)]
    if out.dtype == torch.bool:
        known = (ends[0] > 0) | (ends[1] < 0) | (error == 0)
        return [ErrorBound(None, torch.where(known & error.isfinite(), 0.0, INF))]
    facts = torch.iinfo(out.dtype)
    fits = (ends[0] > facts.min - 1.0) & (ends[1] < facts.max + 1.0) & error.isfinite()
    gap = torch.maximum(*(distance(e.trunc(), plain_of(x).double().trunc()) for e in ends))
    return [ErrorBound(None, torch.where(fits, gap, INF))]


@rule("device_put")
def copied(call: CallContext) -> Sequence[ErrorBound]:
    """The same numbers elsewhere."""
    return [ErrorBound(wide(call.args[0]), error_of(call.args[0]))]
