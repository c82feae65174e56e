"""How far a legal evaluation of a call may be off, by the declaration of its operator, as noise on float64 values.

A result that is computed element by element is off by its budget in units in the last place. A sum may be off by what
another order of summation, or operands cut to a declared format, would change. Noise of that size on the values of each
call shows how far the results of a graph may be off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from keel.error_budgets.double_precision import eps, is_rounded
from keel.error_budgets.memory_order import in_shape_order, memory_order
from keel.plugin import Arithmetic
from keel.spec import OPSET, Op
from keel.spec.numerics import Results

MANY = 65521
"""The number of random numbers that are drawn. Larger tensors use them again; it is prime, so that the rows of a matrix
do not all get the same.
"""
LANES = 16.0
"""A sum of n elements is assumed to be made of this many partial sums, as vector units make it, at least."""


@dataclass(frozen=True)
class Noise:
    """The relative noise on each result of a call, and on each of its operands."""

    result: float = 0.0
    operands: float = 0.0


NO_NOISE = Noise()


def noise_of(op: Any, operands: Sequence[Any], result: Any, arithmetic: Arithmetic) -> Noise:
    """The noise of a call with these operands, for a result of the dtype that eager PyTorch gives."""
    if not is_rounded(result):
        return NO_NOISE
    member = OPSET.get(op)
    unit = eps(result.dtype)
    if member is None:
        return Noise(2 * unit, unit)
    if member.numerics.converts:
        return Noise(unit)
    if member.numerics.results in (Results.MOVED, Results.CHOSEN, Results.UNINITIALIZED):
        return NO_NOISE
    ulps = [budget.ulps for budget in member.budget.values()]
    if ulps and None not in ulps:
        most = max(u for u in ulps if u is not None)
        if member.kind == "primitive" and most == 0:
            return NO_NOISE
        return Noise(max(most, 0.5) * unit)
    if member.kind == "composite" and "pointwise" in member.tags:
        return Noise(2 * unit, unit)
    return _sum_noise(member, operands, result, arithmetic)


def _sum_noise(member: Op, operands: Sequence[Any], result: Tensor, arithmetic: Arithmetic) -> Noise:
    """The noise of sums, and of what is not known better."""
    dtype = result.dtype
    unit = eps(dtype)
    if dtype.itemsize <= 2 and dtype not in arithmetic.sums:
        unit = eps(torch.float32)
    sizes = sorted((x.numel() for x in operands if is_rounded(x)), reverse=True)
    out = max(result.numel(), 1)
    terms = max(sizes[0] / out, sqrt(sizes[0] * sizes[1] / out) if len(sizes) > 1 else 0.0, 1.0) if sizes else 1.0
    growth = 1 + sqrt(terms) / LANES
    cut = arithmetic.operand_bits(dtype)
    operand = unit * growth if cut is None else max(unit * growth, 2.0 ** (1 - cut))
    return Noise(eps(dtype) + unit * growth, operand)


@lru_cache(maxsize=8)
def _drawn(device: str) -> Tensor:
    """Random numbers from -1 to 1, always the same, twice in a row. They are not PyTorch's global random numbers."""
    generator = torch.Generator("cpu").manual_seed(20)
    return (2 * torch.rand(MANY, dtype=torch.float64, generator=generator) - 1).repeat(2).to(device)


def random_like(x: Tensor, start: int) -> Tensor:
    """Numbers from -1 to 1 for the elements of ``x``: the drawn ones from ``start`` on, again and again."""
    numbers, count = _numbers(x, start), x.numel()
    return numbers.repeat(-(-count // MANY))[:count].view(x.shape)


def with_noise(x: Tensor, amount: float, start: int) -> Tensor:
    """``x`` with relative noise, in the same layout."""
    if not amount or not x.numel():
        return x
    numbers, order = _numbers(x, start), memory_order(x)
    flat = x.permute(order).reshape(-1)
    noisy = torch.empty_like(flat)
    even = flat.numel() // MANY * MANY
    # The numbers are broadcast, for a copy of them per element would take as long to read as x.
    for part, result in ((flat[:even].view(-1, MANY), noisy[:even].view(-1, MANY)), (flat[even:], noisy[even:])):
        torch.addcmul(part, part, numbers[: part.shape[-1]], value=amount, out=result)
    return in_shape_order(noisy.view([x.shape[d] for d in order]), order)


def _numbers(x: Tensor, start: int) -> Tensor:
    offset = start * 7919 % MANY
    return _drawn(str(x.device))[offset : offset + MANY]
