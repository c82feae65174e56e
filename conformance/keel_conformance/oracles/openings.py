"""Elements of a result that clauses leave open: what an integer cannot hold, division by 0."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .tracked import inexact

Named = Mapping[str, Any]
Opening = Callable[[Named, Sequence[Any]], Sequence[Tensor | None]]
LIMITED = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""Floats without infinities: what is beyond the largest may become that or NaN."""

ROUNDED_TWICE = (torch.float16, torch.bfloat16)


def opened(name: str, named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """For each result of a member the elements that may be anything; None where none may."""
    of = OPEN.get(name)
    return [None] * len(eager) if of is None else of(named, eager)


def _converted(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """convert.C5: what the integer cannot hold, NaN and infinities; convert.C3: what is beyond the largest float8."""
    x, out = next(named[n] for n in ("self", "a") if n in named), eager[0]
    if not inexact(x.dtype) or out.dtype == torch.bool:
        return [None]
    value = (x.real if x.is_complex() else x).double()
    if out.dtype in LIMITED:
        return [value.isfinite() & (value.abs() > torch.finfo(out.dtype).max) | value.isinf()]
    if inexact(out.dtype):
        return [_nearer(value, out) if x.dtype == torch.float64 and out.dtype in ROUNDED_TWICE else None]
    facts = torch.iinfo(out.dtype)
    whole = value.trunc()
    top = float(facts.max) if facts.bits < 64 else 2.0 ** (63 if facts.min < 0 else 64)
    inside = (whole >= float(facts.min)) & ((whole <= top) if facts.bits < 64 else (whole < top))
    return [~inside]


def _nearer(value: Tensor, out: Tensor) -> Tensor:
    """convert.C1 asks for the nearest; where eager PyTorch, which rounds to float32 first, misses it, it does not say
    what is right.
    """
    wide = out.double()
    other = torch.nextafter(out, torch.where(value > wide, torch.inf, -torch.inf).to(out.dtype)).double()
    return wide.isfinite() & other.isfinite() & ((value - other).abs() < (value - wide).abs())


def _divided(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """An integer divided by 0 is an error or any value; the least integer over -1 is that integer or an error.

    A remainder of finite floats is a number, but PyTorch's vectors give NaN where the quotient is far beyond an integer
    (and its scalar code the number): eager PyTorch does not say there what is right.
    """
    x, y = (torch.as_tensor(named[n]) for n in ("self", "other"))
    if inexact(eager[0].dtype):
        return [eager[0].isnan() & x.isfinite() & y.isfinite() & (y != 0)]
    least = torch.iinfo(eager[0].dtype).min if eager[0].dtype != torch.bool else 0
    return [((y == 0) | ((y == -1) & (x == least) & (least < 0))).broadcast_to(eager[0].shape)]


def _searched(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """searchsorted.C4: what a sequence gives that is not sorted or has NaN is not specified."""
    rows = named.get("sorted_sequence", named.get("boundaries"))
    if named.get("sorter") is not None:
        rows = rows.gather(-1, named["sorter"].long())
    if rows.shape[-1] == 0:
        return [None]
    bad = (rows[..., 1:] < rows[..., :-1]).any(-1) | (rows != rows).any(-1)
    if rows.dim() > 1:
        bad = bad[..., None]
    return [bad.broadcast_to(eager[0].shape)]


def _split(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """frexp.C2: the exponent of what is not finite is not specified."""
    return [None, ~named["self"].isfinite()]


def _below(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """ldl_factor.C4: what LD holds above the diagonal is not specified."""
    upper = torch.ones(eager[0].shape[-2:], dtype=torch.bool).triu(1).broadcast_to(eager[0].shape)
    return [upper, *[None] * (len(eager) - 1)]


def _beside(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
    """logit_backward.C3: with eps, what NaN gives is not specified."""
    return [None if named.get("eps") is None else named["self"].isnan().broadcast_to(eager[0].shape)]


def _moved(*means: int) -> Opening:
    """A mean of infinities of one sign is one of them, or NaN where it is moved from one element to the next."""
    def moved(named: Named, eager: Sequence[Any]) -> Sequence[Tensor | None]:
        return [out.isinf() if k in means else None for k, out in enumerate(eager)]
    return moved


OPEN: Mapping[str, Opening] = {
    "convert": _converted, "div": _divided, "remainder": _divided, "fmod": _divided, "floor_divide": _divided,
    "searchsorted": _searched, "bucketize": _searched, "frexp": _split, "ldl_factor": _below,
    "logit_backward": _beside, "var_mean": _moved(1), "layer_norm": _moved(1), "group_norm": _moved(1),
    "batch_norm_functional": _moved(1, 3), "batch_norm_no_stats": _moved(1), "batch_norm_with_update": _moved(1, 4),
}
