"""Elements for reductions, scans and sorts: in each row that is reduced other special values, or other true ones."""

from __future__ import annotations

from math import prod

import torch

from ..values import EXACT_BITS, SeededValues, fill, with_outliers

FEW = "few"
"""The class of values of which all but one are the same, at a place that float32 has no number for."""
RISING = "rising"
"""The class of values that rise along each row, so far that exp of the difference between its ends overflows: the
largest stand in the last of the blocks that a kernel divides a row into.
"""
EVERY, NO, LONE, BUT_ONE = range(4)
"""Kinds of rows, by which elements of theirs are true."""


def filled(
    kind: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    dim: int,
    over: int,
    draw: SeededValues,
    products: bool,
    even: bool,
    truth: tuple[int, int] | None,
) -> torch.Tensor:
    n = prod(shape)
    if kind == "exact" and products and (dtype.is_floating_point or dtype.is_complex):
        return _powers(dtype, n, over, draw).reshape(shape)
    if kind == "random" and not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
        x = with_outliers(draw, dtype, n).reshape(shape)  # integers wrap, in any order
    else:
        x = fill(draw, kind, dtype, n, terms=over).reshape(shape)
    scarce = truth is not None and dtype != torch.bool and kind != "specials"
    mixed = kind == "random" and dtype.is_floating_point and not even
    special = not dtype.is_complex and (mixed or kind == "specials" or (kind, dtype) == ("random", torch.bool))
    if not n or draw.bare or not (scarce or special):
        return x
    if over == n:  # of all elements there is one result
        x, shape, dim = x.reshape(-1), (n,), 0
    rows = x.movedim(dim, -1)
    single = truth or (LONE, BUT_ONE)
    if scarce:  # zeros where bools are false
        if mixed:  # and NaN is true
            rows = torch.where(_turns(rows, draw, 3) == 1, torch.nan, rows)
        rows = torch.where(
            _true_rows(torch.ones_like(rows, dtype=torch.bool), single, draw), rows, torch.zeros_like(rows)
        )
    elif dtype == torch.bool:
        rows = _true_rows(rows, single, draw)
    elif mixed:
        other = fill(draw, "specials", dtype, n).reshape(rows.shape)
        rows = torch.where(_turns(rows, draw, 4) >= 2, _rows(other, draw), rows)
    elif dtype.is_floating_point:
        rows = _rows(rows, draw)
    return rows.movedim(-1, dim).contiguous()


def rising(dtype: torch.dtype, shape: tuple[int, ...], dim: int, draw: SeededValues) -> torch.Tensor:
    """Numbers from -120 to 120, in order along the dimension."""
    return draw.uniform(prod(shape), -120.0, 120.0).reshape(shape).sort(dim).values.to(dtype)


def counted(kind: str, dtype: torch.dtype, n: int, least: bool, draw: SeededValues) -> torch.Tensor:
    """Ones; or zeros and, at one of the last odd places, a one, the other way round where the ``least`` is looked
    for.
    """
    x = torch.ones(n, dtype=dtype)
    if kind == FEW:
        x = x if least else torch.zeros_like(x)
        x[n - 2 - 2 * (draw.call % 2)] = 0 if least else 1
    return x


def _turns(rows: torch.Tensor, draw: SeededValues, kinds: int) -> torch.Tensor:
    """The kind of each row, out of ``kinds``; it differs from call to call."""
    count = rows.numel() // rows.shape[-1]
    return ((torch.arange(count) + (count == 1) + 3 * draw.call) % kinds).reshape(*rows.shape[:-1], 1)


def _rows(x: torch.Tensor, draw: SeededValues) -> torch.Tensor:
    """Special values, not all in each of the rows that are reduced, where one would hide the others: all of them; no
    NaN; small ones; small ones and NaN, without zeros; nothing but one infinity; one among zeros.
    """
    which, rows = _turns(x, draw, 6), x.numel() // x.shape[-1]
    plain = draw.uniform(x.numel(), -4.0, 4.0).to(x.dtype).reshape(x.shape)
    small = (which == 2) | (which == 3)
    x = torch.where(((which == 1) | (which == 2)) & x.isnan(), plain, x)
    x = torch.where(small & (x.abs() > 1000), plain, x)
    x = torch.where((which == 3) & (x == 0), plain, x)
    x = torch.where((which == 3) & (torch.arange(x.shape[-1]) == int(draw.integers(1, 0, x.shape[-1]))), torch.nan, x)
    few = torch.tensor([torch.nan, -torch.inf, torch.finfo(x.dtype).smallest_normal, torch.nan], dtype=torch.float64)
    lone = few[draw.integers(rows, 0, len(few))].reshape(which.shape).to(x.dtype)
    place = torch.arange(x.shape[-1]) == draw.integers(rows, 0, x.shape[-1]).reshape(which.shape)
    x = torch.where(which == 5, torch.where(place, lone, torch.zeros_like(x)), x)
    return torch.where(which == 4, torch.inf if draw.call % 2 == 0 else -torch.inf, x)


def _true_rows(x: torch.Tensor, single: tuple[int, int], draw: SeededValues) -> torch.Tensor:
    """Rows in which all are true, none, one, all but one, some; a ``single`` row is one of two kinds in turn."""
    which, n = _turns(x, draw, 5), x.shape[-1]
    which = which if len(which) > 1 else torch.full_like(which, single[draw.call % 2])
    one = torch.arange(n) == int(draw.integers(1, 0, n))
    x = torch.where(which == EVERY, True, torch.where(which == NO, False, x))
    return torch.where(which == LONE, one, torch.where(which == BUT_ONE, ~one, x))


def _powers(dtype: torch.dtype, n: int, over: int, draw: SeededValues) -> torch.Tensor:
    """1 and -1, and so few twos that no product of ``over`` leaves the powers of two that fit."""
    signs = draw.integers(n, 0, 2) * 2 - 1
    twos = draw.uniform(n) < min(1.0, 0.5 * (EXACT_BITS[dtype] - 2) / max(4 * over, 1))
    return torch.where(twos, 2 * signs, signs).to(dtype)
