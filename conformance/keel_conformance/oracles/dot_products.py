"""Rules of sums and of sums of products, in whatever order: matrix products, convolutions, reductions, scatters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from ..pytree import tree_leaves
from . import movement
from .error_rules import (
    INF,
    CallContext,
    ErrorBound,
    NoRule,
    Rule,
    coarser,
    magnitudes,
    ones,
    rounded,
    uncertain,
    unknown,
    upper,
)
from .tracked_tensor import (
    BITS,
    Tracked,
    error_of,
    errors,
    gamma,
    inexact,
    overflow,
    plain_of,
    sums_in,
    tracked,
    unit,
    wide,
)

rule: ByMember[Rule] = ByMember()
Terms = Callable[[CallContext], tuple[Any, ...]]
FLUSHED = (torch.float32, torch.complex64)
"""What is added to one place by several at once may be taken for 0 below the normal numbers of these (scatter_add.C4):
PTX's ``atom.add.f32`` does so on global memory (PTX ISA, section on ``atom``).
"""
PRODUCTS = frozenset({"contraction", "convolution"})
"""Tags of members that multiply matrices or convolve."""
SEARCH_RADIUS = 4
"""An element that may land this many places off is looked for there, beyond that anywhere."""


def _counted(call: CallContext) -> tuple[Any, ...]:
    """How many terms each element of each result sums: the operator itself, on ones."""
    return tuple(map(_real, call.again(ones)))


def _real(x: Any) -> Any:
    """Magnitudes and counts, of which a call that computes in complex numbers makes complex ones."""
    return x.real if _float(x) and x.is_complex() else x


def sums(call: CallContext, terms: Terms = _counted) -> Sequence[ErrorBound]:
    """Each element is a sum of n products of elements of the arguments; any order, with or without FMA.

    |computed - exact| <= gamma(n + 1) * sum |x| |y| (Higham 2002, section 3.1, eq. 3.5 for the inner product and 4.4
    for any order of summation: n - 1 additions and one rounding per product) plus n subnormals for products that
    underflow (n normal numbers, if subnormals are flushed), u being that of what sums are accumulated in; this is
    TOSA's dot-product bound with KS = n. Errors of arguments enter as sum (|x| + ex)(|y| + ey) - sum |x| |y|. The sum
    of magnitudes is the operator on magnitudes, in float64. Results are then rounded once, to half an ulp. A sum that
    may overflow in some order is unspecified, even if one term is infinite: the partial sum before that term may be the
    other infinity.

    Sums of integers whose magnitudes add up to no more than 2^p are exact in any order: no partial sum needs more than
    the p bits of the result.
    """
    if uncertain(call.args, call.kwargs):
        return [unknown(o) for o in call.outs]
    call = cut(floated(call))
    values, mags, counts = call.widely(), _sizes(call.again(magnitudes)), terms(call)
    grown = mags if call.exact else _sizes(call.again(upper))
    integral = call.exact and terms is _counted and _integral(call)
    return [_sum(call, *row, integral) for row in zip(call.outs, values, mags, counts, grown, strict=True)]


def _sizes(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sums of magnitudes are negative where an average is taken by a negative divisor."""
    return tuple(x.abs() if isinstance(x, Tensor) else x for x in results)


def _integral(call: CallContext) -> bool:
    """Whether all elements are integers."""
    floats = [wide(x) for x in tree_leaves((call.args, call.kwargs)) if _float(x)]
    return all(
        bool((x == x.round()).all())
        if not x.is_complex()
        else bool((torch.view_as_real(x) == torch.view_as_real(x).round()).all())
        for x in floats
    )


def statistics(call: CallContext, got: Tensor) -> str:
    """What is wrong with all errors of a result together: they are biased, or too large in the mean square.

    TOSA's two tests of a dot product over T results (reference model, verify_dot_product.cc): errors in units of
    u * sum |x| |y| add up to 2 sqrt(KS T) at the most, and their squares to 0.4 KS T. Rounded sums of random numbers
    are far inside; truncated ones, and partial sums of fewer bits, are not. Of float32, where the reference is better.
    """
    if not call.exact or len(call.outs) != 1 or got.dtype != torch.float32 or got.numel() < LEAST:
        return ""
    call = floated(call)
    value, mag, n = call.widely()[0], call.again(magnitudes)[0], _counted(call)[0]
    there = (mag > 0) & value.isfinite() & got.isfinite()
    if torch.float32 in call.arithmetic.flushes_subnormals:  # which is more than rounding
        there &= mag * unit(torch.float32) > n * torch.finfo(torch.float32).smallest_normal
    off = ((got.double() - value) / (mag * unit(torch.float32)))[there]
    count = float(n[there].sum())
    bias, square = abs(float(off.sum())), float(off.square().sum())
    if bias > 2 * count**0.5:
        return f"The errors are biased: they add up to {bias:.3g} half ulps, where {2 * count**0.5:.3g} are allowed."
    if square > 0.4 * count:
        return f"The errors' squares add up to {square:.3g}, where {0.4 * count:.3g} is allowed."
    return ""


LEAST = 64
"""Fewer results than this say nothing in the mean."""


def _sum(call: CallContext, out: Any, value: Any, mag: Any, n: Any, grown: Any, integral: bool) -> ErrorBound:
    if not isinstance(out, Tensor):
        return ErrorBound(None, None)
    if not inexact(out.dtype):
        return ErrorBound(None, None) if call.exact else unknown(out)
    over = accumulated(call, out.dtype)
    u, facts = unit(over) * (4 if out.dtype.is_complex else 1), torch.finfo(over)
    moved = (
        torch.zeros(mag.shape, dtype=torch.float64)
        if call.exact
        else ((grown - mag).nan_to_num(INF, INF).clamp(min=0) + gamma(n + 2, 2.0**-53) * grown.nan_to_num(INF, INF))
    )
    flushed = over in FLUSHED and call.member is not None and "nondeterministic_bitwise" in call.member.tags
    flushed |= over.to_real() in call.arithmetic.flushes_subnormals
    least = torch.where(mag > 0, n * facts.smallest_normal * (1.0 if flushed else facts.eps), 0.0)
    error = gamma(n + 1, u) * (mag + moved) + moved + least
    if over in (torch.float64, torch.complex128):
        error = error + gamma(n + 1, u) * mag + least  # the reference is as far off
    sure = value.isnan() & (overflow(over) < overflow(torch.float64))  # by an operand
    error = torch.where((mag + moved >= overflow(over)) & ~sure, INF, error.nan_to_num(INF, INF))
    if call.member is not None and call.member.numerics.one_term_exact:
        error = torch.where(n == 1, moved, error)  # one term is its sum
    if integral:  # every partial sum is an integer that the dtype holds
        error = torch.where(mag <= 2.0 ** BITS[out.dtype], 0.0, error)
    error = torch.where(~value.isfinite() & (mag + moved < overflow(over)) & moved.isfinite(), 0.0, error)
    narrow = coarser(out.dtype, call.coarse)
    if narrow == over:
        return ErrorBound(value, error)
    rounds = error > 0 if narrow == out.dtype else (error > 0) | (value.to(narrow).double() != value)
    return ErrorBound(value, rounded(value, error, narrow, 0.5).where(rounds, error))


def accumulated(call: CallContext, dtype: torch.dtype) -> torch.dtype:
    """What sums are accumulated in: float32 or better where a clause says so and the arithmetic does not say otherwise,
    else the dtype itself.
    """
    if dtype in call.arithmetic.sums:
        return dtype
    return sums_in(dtype, call.member is not None and call.member.in_float32)


@rule("convolution")
def convolved(call: CallContext) -> Sequence[ErrorBound]:
    """As ``sums``. Of 16-bit floats, the sum may be rounded once more before bias is added (convolution.C5), which is
    half an ulp of what there is without it. Where a weight that is not finite may meet padding, or the room between the
    elements of a transposed one, it may be NaN or nothing (convolution.C4).
    """
    (result,), out = sums(call), call.outs[0]
    if result.error is None:
        return [result]
    x, weight, bias, *rest = call.args
    error, wild = result.error, ~wide(weight).isfinite()
    if bias is not None and out.dtype != accumulated(call, out.dtype):
        plain = sums(replace(call, args=[x, weight, None, *rest]))[0]
        assert plain.value is not None
        more = unit(out.dtype) * plain.value.abs().nan_to_num(0.0, 0.0, 0.0)
        error = torch.where(error > 0, error + more, error)
    if bool(wild.any()):
        met = call.op(torch.ones(x.shape, dtype=torch.float64), wild.double(), None, *rest)
        by_group = wild.reshape(call.named["groups"], -1, *wild.shape[1:]).flatten(3)
        of_filter = by_group.sum((1, 3)) if call.named["transposed"] else by_group.sum((2, 3))
        error = torch.where(met < of_filter.reshape(1, -1, *[1] * (met.dim() - 2)) - 0.5, INF, error)
    return [replace(result, error=error)]


def cut(call: CallContext) -> CallContext:
    """The call with the errors of cutting operands of products to the format that the arithmetic multiplies: at most
    2^(1 - p) of each, for p bits of significand, whether they are rounded or truncated; nothing of one that has no more
    bits. What is added to products counts as an operand.
    """
    out, bits = call.outs[0], bits_of_operands(call)
    if bits is None:
        return call

    def off(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype != out.dtype:
            return x
        value = wide(x)
        significand = torch.frexp(value)[0] * 2.0**bits
        holds = (significand == significand.trunc()) | ~value.isfinite()
        lost = torch.where(holds, 0.0, value.abs() * 2.0 ** (1 - bits))
        evaluate = x.evaluate if isinstance(x, Tracked) else _never
        return tracked(plain_of(x), evaluate, value, errors(x) + lost) if bool(lost.any()) else x

    return replace(call, args=tuple(map(off, call.args)), kwargs={k: off(v) for k, v in call.kwargs.items()})


def bits_of_operands(call: CallContext) -> int | None:
    """The bits of significand to which operands of a product may be cut; None if they are not cut."""
    out, member = call.outs[0], call.member
    if not isinstance(out, Tensor) or member is None or member.tags.isdisjoint(PRODUCTS):
        return None
    return call.arithmetic.operand_bits(out.dtype)


def cut_statistics(call: CallContext, got: Tensor) -> str:
    """What is wrong with all errors of a sum of products of cut random operands together.

    Each product x y is off by at most c |x y|, c = 2 * 2^(1 - p). For n random terms the errors add up as their squares
    do, but for what all terms are off by in one direction, which is at most c times the result: errors' squares add up
    to no more than c^2 (sum (x y)^2 + result^2) over many results. The bound of ``sums`` is sqrt(n) times as large.
    """
    bits = bits_of_operands(call)
    if bits is None or not call.exact or len(call.outs) != 1 or got.numel() < LEAST:
        return ""
    value, squares = call.widely()[0], call.again(lambda x: magnitudes(x) ** 2 if _float(x) else magnitudes(x))[0]
    there = value.isfinite() & got.isfinite() & squares.isfinite()
    off = float((got.double() - value)[there].square().sum())
    most = (2 * 2.0 ** (1 - bits)) ** 2 * float((squares + value.square())[there].sum())
    return f"The errors' squares add up to {off:.3g}, where {most:.3g} is allowed." if off > most else ""


def _never(op: Any, args: Any, kwargs: Any) -> Any:
    raise NoRule(f"{op} is not followed.")


def floated(call: CallContext) -> CallContext:
    """Elements that are converted to another dtype before they are summed, as those."""
    x, out = call.args[0], call.outs[0]
    if call.named.get("dtype") is None and (inexact(x.dtype) or not inexact(out.dtype)):
        return call
    if not call.exact or x.dtype == out.dtype:
        return call
    return replace(call, args=[plain_of(x).to(out.dtype), *call.args[1:]])


@rule("avg_pool2d", "avg_pool3d", "avg_pool2d_backward", "avg_pool3d_backward")
def averaged(call: CallContext) -> Sequence[ErrorBound]:
    """As ``sums`` of as many terms for every element, which the operator on ones does not tell: those of a window, and
    a division.
    """
    size = call.named["kernel_size"]
    rank = 2 if len(size) == 2 else 3
    count = float(math.prod(list(size) * (rank if len(size) == 1 else 1)) + 2)
    return sums(
        call,
        lambda call: tuple(
            torch.full(o.shape, count, dtype=torch.float64) if isinstance(o, Tensor) else o for o in call.outs
        ),
    )


@rule("index_put")
def put(call: CallContext) -> Sequence[ErrorBound]:
    """index_put: sums where it accumulates, else data movement."""
    if call.named["accumulate"]:
        return sums(call)
    return movement.moved(call)


@rule("scatter_add")
def scattered(call: CallContext) -> Sequence[ErrorBound]:
    """scatter_add: a sum of the elements whose places are known. One that may land at several places, or anywhere along
    the dimension, moves each sum there by its magnitude at the most, and each sum has that many more terms.
    """
    x, index, src, dim = (call.named[n] for n in ("self", "index", "src", "dim"))
    out = call.outs[0]
    if not uncertain(index) or not inexact(out.dtype) or not x.dim() or uncertain(x, src):
        return sums(call)
    place, crop, gap = plain_of(index), tuple(slice(n) for n in index.shape), errors(index)
    loose, near, magnitudes = gap > 0, (gap > 0) & (gap <= SEARCH_RADIUS), upper(src)[crop]
    stray = torch.zeros(x.shape, dtype=torch.float64)
    rows = tuple(slice(None) if d == dim % x.dim() else part for d, part in enumerate(crop))
    stray[rows] = torch.where(loose & ~near, magnitudes, 0.0).sum(dim, keepdim=True).broadcast_to(stray[rows].shape)
    for off in range(-SEARCH_RADIUS, SEARCH_RADIUS + 1):
        there = place + off
        reached = near & (gap >= abs(off)) & (there >= 0) & (there < x.shape[dim])
        stray = stray.scatter_add(dim, torch.where(reached, there, 0), torch.where(reached, magnitudes, 0.0))
    most = upper(x).scatter_add(dim, place, torch.where(loose, 0.0, magnitudes)) + stray
    known = replace(call, args=[x, dim, place, _without(src, crop, loose)], kwargs={})
    (bound,) = sums(known)
    more = gamma(place.shape[dim] + 1, unit(accumulated(call, out.dtype)) * (4 if out.dtype.is_complex else 1)) * most
    if known.exact and _integral(call):
        more = torch.where(most <= 2.0 ** BITS[out.dtype], 0.0, more)
    return [replace(bound, error=stray + more + (0.0 if bound.error is None else bound.error))]


def _without(x: Tensor, crop: tuple[slice, ...], loose: Tensor) -> Tensor:
    """The part of a tensor with exact zeros at loose elements."""

    def masked(t: Tensor | None) -> Tensor | None:
        return None if t is None else torch.where(loose, torch.zeros((), dtype=t.dtype), t[crop])

    plain = masked(plain_of(x))
    assert plain is not None
    return tracked(plain, x.evaluate, masked(x.value), masked(error_of(x))) if isinstance(x, Tracked) else plain


@rule("prod", "cumprod")
def prod(call: CallContext) -> Sequence[ErrorBound]:
    """A product of n factors in any order is off by gamma(n) of itself (Higham 2002, Lemma 3.1), each factor's relative
    error on top; powers of two among them round nothing. Nothing is known where the factors beyond 1, or those below,
    alone leave the range.
    """
    if uncertain(call.args):
        return [unknown(o) for o in call.outs]
    call = floated(call)
    value, n, out = call.widely()[0], _factors(call), call.outs[0]
    if not inexact(out.dtype):
        return [ErrorBound(None, None) if call.exact else unknown(out)]
    over = accumulated(call, out.dtype)
    most = _real(call.again(lambda x: magnitudes(x).clamp(min=1) if _float(x) else magnitudes(x))[0])
    least = _real(call.again(lambda x: _small(magnitudes(x)) if _float(x) else magnitudes(x))[0])
    mag = _real(call.again(magnitudes)[0])
    grown = mag if call.exact else _real(call.again(upper)[0])
    moved = (grown - mag).clamp(min=0)
    factor = 4 if out.dtype.is_complex else 1
    error = gamma(n + 1, unit(over) * factor) * grown * (2 if over.itemsize >= 8 else 1) + moved
    wild = (most >= overflow(over)) | (least <= torch.finfo(over).smallest_normal)
    zero = (value == 0) & (most < overflow(over)) & call.exact
    special = ~value.isfinite() & ~wild & call.exact
    error = torch.where(wild & ~zero, INF, torch.where(zero | special, 0.0, error))
    return [ErrorBound(value, error.nan_to_num(INF, INF), 0.5 if coarser(out.dtype, call.coarse) != over else 0.0)]


def _float(x: Any) -> bool:
    return isinstance(x, Tensor) and inexact(x.dtype)


def _small(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, x).clamp(max=1)


def _factors(call: CallContext) -> Tensor:
    """How many factors each element has that may round a product: the binary logarithm of the operator on twos, and on
    ones for the powers of two among exact factors, by which products are exact; too many for that count as all.
    """
    sure = call.exact and not call.outs[0].dtype.is_complex

    def twos(x: Any) -> Any:
        result = 2 * ones(x) if _float(x) else ones(x)
        return torch.where(torch.frexp(magnitudes(x))[0] == 0.5, 1.0, result) if sure and _float(x) else result

    counted = _real(call.again(twos)[0])
    return torch.where(counted.isfinite(), counted.log2(), (twos(call.args[0]) == 2).double().sum())


@rule("scatter_reduce")
def reduced(call: CallContext) -> Sequence[ErrorBound]:
    """scatter_reduce, as the reduction that its argument names. A mean is a sum, off by as much, divided and rounded
    once more; the number of elements is summed beside it in the same dtype, which is exact while it holds that number.
    """
    x, dim, index, src, how, own = (call.named[n] for n in ("self", "dim", "index", "src", "reduce", "include_self"))
    if how == "prod":
        return prod(call)
    if how in ("amax", "amin"):
        return movement.ordered(call)
    total = replace(call, args=[x, dim, index, src, "sum"], kwargs={"include_self": own})
    (result,) = sums(total)
    if how == "sum" or result.value is None:
        return [result]
    count, over = _counted(total)[0].clamp(min=1), accumulated(call, call.outs[0].dtype)
    assert result.error is not None
    error = torch.where(count > 2.0 ** BITS[over], INF, result.error / count)
    return [ErrorBound(result.value / count, error, 4.0 if over.is_complex else 0.5)]


@rule("logcumsumexp")
def logcumsumexp(call: CallContext) -> Sequence[ErrorBound]:
    """log of a sum of n exponentials. The sum of positive numbers is off by gamma(n) of itself in any order, each
    exponential by 4 ulps and by the rounding of its argument's difference from the running maximum, at most
    2 u (|x| + |result|); the logarithm turns relative into absolute errors.
    """
    x, out = call.args[0], call.outs[0]
    if out.dtype.is_complex:
        raise NoRule("The error of a complex logcumsumexp is not analyzed.")
    dim = call.args[1] if len(call.args) > 1 else call.kwargs["dim"]
    value, u = call.widely()[0], unit(sums_in(out.dtype))
    if not out.numel():
        return [ErrorBound(value, None)]
    n = torch.ones(out.shape, dtype=torch.float64).cumsum(dim)
    finite = wide(x).abs().nan_to_num(0.0, 0.0, 0.0)
    reach = finite.cummax(dim)[0] + value.abs().nan_to_num(0.0, 0.0, 0.0)
    moved = errors(x).cummax(dim)[0]
    error = gamma(n * 10, u) + 4 * n * u * reach + moved
    error = torch.where(value.isfinite() | (moved > 0), error, 0.0)
    return [ErrorBound(value, error, 1.0)]


@rule("fft_c2c", "fft_r2c", "fft_c2r")
def fourier(call: CallContext) -> Sequence[ErrorBound]:
    """Each element is a sum of the n elements of its row times roots of unity: gamma(n + 4) * sum |x| in whatever way
    it is computed; fast transforms are far better (Higham 2002, Theorem 24.2).
    """
    x, out = call.args[0], call.outs[0]
    dims = call.named["dim"]
    rows = magnitudes(x)
    n = 1
    for d in dims:
        n *= max(x.shape[d], int(call.named.get("last_dim_size") or 0))
    total = rows.sum(dims, keepdim=True) if dims else rows
    moved = errors(x).sum(dims, keepdim=True) if dims else errors(x)
    value = call.widely()[0]
    of_ones = call.op(*[torch.ones(x.shape, dtype=wide(x).dtype) if a is x else a for a in call.args], **call.kwargs)
    scale = of_ones.abs().max() / max(n, 1) if of_ones.numel() else 1.0
    u = unit(out.dtype)
    error = (gamma(8.0 * (n + 4), u) * 2 * total * 2 + 2 * moved) * scale
    finite = wide(x).isfinite()
    row_finite = finite.all() if not dims else torch.stack([finite.flatten().all()])[0]
    error = error.broadcast_to(out.shape) if row_finite else torch.full(out.shape, INF, dtype=torch.float64)
    return [ErrorBound(value, error)]
