"""Elements of a result that may be anything: clauses leave them open, or PyTorch's kernels differ in them.

Each function takes arguments by parameter name and results, flat, and gives a mask for each result, or None where all
of it is specified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Masks = Sequence[Tensor | None]
Unspecified = Callable[[Mapping[str, Any], Sequence[Any]], Masks]
LIMITED = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""Floats without infinities: what is beyond the largest may become that or NaN."""
ROUNDED_TWICE = (torch.float16, torch.bfloat16)


def converted(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """convert.C5: what the integer cannot hold, NaN and infinities; convert.C3: what is beyond the largest float8."""
    x, out = next(args[n] for n in ("self", "a") if n in args), results[0]
    if not _inexact(x.dtype) or out.dtype == torch.bool:
        return [None]
    value = (x.real if x.is_complex() else x).double()
    if out.dtype in LIMITED:
        return [value.isfinite() & (value.abs() > torch.finfo(out.dtype).max) | value.isinf()]
    if _inexact(out.dtype):
        return [_nearer(value, out) if x.dtype == torch.float64 and out.dtype in ROUNDED_TWICE else None]
    facts = torch.iinfo(out.dtype)
    truncated = value.trunc()
    top = float(facts.max) if facts.bits < 64 else 2.0 ** (63 if facts.min < 0 else 64)
    inside = (truncated >= float(facts.min)) & ((truncated <= top) if facts.bits < 64 else (truncated < top))
    return [~inside]


def _inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _nearer(value: Tensor, out: Tensor) -> Tensor:
    """convert.C1 asks for the nearest; where eager PyTorch, which rounds to float32 first, misses it, it does not say
    what is right.
    """
    wide = out.double()
    other = torch.nextafter(out, torch.where(value > wide, torch.inf, -torch.inf).to(out.dtype)).double()
    return wide.isfinite() & other.isfinite() & ((value - other).abs() < (value - wide).abs())


def by_zero(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """An integer divided by 0 is an error or any value; the least integer over -1 is that integer or an error.

    A remainder of finite floats is a number, but PyTorch's vectors give NaN where the quotient is far beyond an integer
    (and its scalar code the number): eager PyTorch does not say there what is right.
    """
    x, y = (torch.as_tensor(args[n]) for n in ("self", "other"))
    if _inexact(results[0].dtype):
        return [results[0].isnan() & x.isfinite() & y.isfinite() & (y != 0)]
    least = torch.iinfo(results[0].dtype).min if results[0].dtype != torch.bool else 0
    return [((y == 0) | ((y == -1) & (x == least) & (least < 0))).broadcast_to(results[0].shape)]


def out_of_order(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """searchsorted.C4: what a sequence gives that is not sorted or has NaN is not specified."""
    rows = args.get("sorted_sequence", args.get("boundaries"))
    if args.get("sorter") is not None:
        rows = rows.gather(-1, args["sorter"].long())
    if rows.shape[-1] == 0:
        return [None]
    bad = (rows[..., 1:] < rows[..., :-1]).any(-1) | (rows != rows).any(-1)
    if rows.dim() > 1:
        bad = bad[..., None]
    return [bad.broadcast_to(results[0].shape)]


def exponent(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """frexp.C2: the exponent of what is not finite is not specified."""
    return [None, ~args["self"].isfinite()]


def above_diagonal(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """ldl_factor.C4: what LD holds above the diagonal is not specified."""
    upper = torch.ones(results[0].shape[-2:], dtype=torch.bool).triu(1).broadcast_to(results[0].shape)
    return [upper, *[None] * (len(results) - 1)]


def nan_between_bounds(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
    """logit_backward.C3: with eps, what NaN gives is not specified."""
    return [None if args.get("eps") is None else args["self"].isnan().broadcast_to(results[0].shape)]


def infinite(*means: int) -> Unspecified:
    """An infinite element of these results, which are means: a mean of infinities of one sign is one of them, or NaN
    where it is updated by one element after another.
    """

    def masks(args: Mapping[str, Any], results: Sequence[Any]) -> Masks:
        return [out.isinf() if k in means else None for k, out in enumerate(results)]

    return masks
