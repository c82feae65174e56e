"""Oracles of random members: the support of each draw, the distribution of all, no dependence between adjacent draws.

Each draw is taken to a number between 0 and 1 by its distribution function (the probability integral transform; of a
discrete one with a jitter over the jump: Smith, Journal of Forecasting 4, 1985), and all together are held to the
uniform distribution by the test of Kolmogorov and Smirnov. The ranks of adjacent draws must not be correlated. How many
lie in the tails, and how many integers of a wide range are even, is binomially distributed. A test fails for p below
``LEVEL`` over the number of results judged: a right generator fails once in 10^9 cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ..by_member import ByMember
from .distribution_laws import DISTRIBUTIONS, Law, Named, as_numpy, uniform
from .tracked_tensor import overflow, ulp

LEVEL = 1e-9
Array = np.ndarray[Any, np.dtype[np.float64]]


Check = Callable[[Named, Sequence[Any], float], str]
"""What is wrong with the results for these arguments, at a level; nothing if they are right."""
check: ByMember[Check] = ByMember()
"""The checks of members whose results do not follow one of ``DISTRIBUTIONS``, element by element."""
draws: ByMember[Callable[[Named], bool]] = ByMember()
"""Of members that draw in some calls only: whether they do in this one."""


def is_drawn(name: str, named: Named) -> bool:
    """Whether a random member draws when it is called with these arguments."""
    in_this_call = draws.declared.get(name)
    return in_this_call is None or in_this_call(named)


def violation(name: str, named: Named, results: Sequence[Any], calls: int) -> str:
    """What of a random member's promises is broken, in a sentence; nothing if they are kept."""
    level = LEVEL / max(calls, 1)
    if (checked := check.declared.get(name)) is not None:
        return checked(named, results, level)
    drawn = DISTRIBUTIONS.declared.get(name)
    if drawn is None or not results[0].numel():
        return ""
    if results[0].is_complex():
        parts = torch.view_as_real(results[0])
        scale = math.sqrt(0.5) if drawn.halved else 1.0
        return distributed(parts / scale, drawn.law(named), level, half_open=drawn.half_open)
    return distributed(results[0], drawn.law(named), level, half_open=drawn.half_open, positive=drawn.positive)


def distributed(x: Tensor, law: Law, level: float, *, half_open: bool = False, positive: bool = False) -> str:
    """Whether the elements of ``x`` may be draws of ``law``."""
    (of, discrete), values = law, as_numpy(x)
    with np.errstate(all="ignore"):
        low, high = np.broadcast_arrays(*of.support(), values)[:2] if values.ndim else of.support()
        if _coarse(x.dtype):  # whose bounds are rounded, as draws are
            low, high = (torch.as_tensor(np.asarray(b).copy()).to(x.dtype).double().numpy() for b in (low, high))
        lost = np.isnan(of.cdf(np.where(np.isnan(values), 0.0, values)))  # parameters of no distribution
        outside = ~lost & ~((values >= low) & (values <= high))
        outside |= ~np.isfinite(values) & ~lost & ~_beyond(x, of)
        outside |= (values <= low) & ~lost if positive else False
        outside |= (values >= high) & np.isfinite(high) if half_open and not _coarse(x.dtype) else False
        if discrete:
            outside |= ((values != np.floor(values)) | (np.asarray(of.pmf(values)) == 0)) & ~lost
    if np.any(outside):
        at = tuple(int(i) for i in np.argwhere(outside)[0])
        return f"Draw {list(at)} is {values[at]!r}, which the distribution does not give."
    if sentence := _constant(x, of, discrete, level) or ("" if discrete else _repeated(x, level)):
        return sentence
    retained = ~lost.reshape(-1)
    if _coarse(x.dtype):
        low_, high_ = _cdf_bounds(x, of)
        return _interval_uniformity(low_[retained], high_[retained], level, float(torch.finfo(x.dtype).eps))
    uniform = _transformed(values, of, discrete)[retained]
    parity = _even(x.reshape(-1)[torch.as_tensor(retained)], low, high, level) if discrete else ""
    return parity or _uniformly(uniform, level) or _tailed(uniform, level) or _dependent(uniform, level)


def _beyond(x: Tensor, of: Any) -> Any:
    """Where a draw is infinite because the distribution reaches beyond what the dtype holds."""
    reach = overflow(x.dtype) if x.dtype.is_floating_point else math.inf
    far = np.where(as_numpy(x) > 0, of.sf(reach), of.cdf(-reach))
    return np.isinf(as_numpy(x)) & (far > LEVEL)


def _constant(x: Tensor, of: Any, discrete: bool, level: float) -> str:
    """Draws that are all the same number: each but the first has the chance of what is rounded to it, or below it where
    that is the smallest normal, at which some generators of positive numbers stop.
    """
    values = x.double()
    if x.numel() < 2 or not bool((values == values.reshape(-1)[0]).all()):
        return ""
    number = float(values.reshape(-1)[0])
    with np.errstate(all="ignore"):
        if discrete:
            chance = of.pmf(as_numpy(x))
        else:
            step = ulp(values, x.dtype).numpy()
            ends = bool(np.all(np.asarray(of.support()[0]) >= 0)) and number <= 2 * torch.finfo(x.dtype).smallest_normal
            chance = (
                of.cdf(as_numpy(x) + step) - (0.0 if ends else of.cdf(as_numpy(x) - step)) + torch.finfo(x.dtype).eps
            )
        p = float(np.prod(np.nan_to_num(np.asarray(chance, dtype=float).reshape(-1)[1:], nan=1.0)))
    return f"All {x.numel()} draws are {number!r}: p = {p:.2g}." if p < level else ""


FINE = 20
"""Bits of what continuous distributions are drawn from, at the least: uniform numbers have 24 of them."""


def _repeated(x: Tensor, level: float) -> str:
    """Pairs of equal draws of a continuous distribution: of n draws from 2^24 numbers about n^2 / 2^25, Poisson
    distributed (the birthday problem). Numbers that others follow from, as normal ones, may be as coarse as 2^20.
    """
    n = x.numel()
    if _coarse(x.dtype) or n < 2:
        return ""
    values, counts = x.reshape(-1).unique(return_counts=True)
    counts = counts[values.isfinite() & (values.abs() > torch.finfo(x.dtype).smallest_normal * 2)].double()
    pairs = float((counts * (counts - 1) / 2).sum())
    p = float(stats.poisson.sf(pairs - 1, n * (n - 1) / 2 ** (FINE + 1))) if pairs else 1.0
    return "" if p >= level else f"Of {n} draws {pairs:.0f} pairs are equal: p = {p:.2g}."


def _coarse(dtype: torch.dtype) -> bool:
    """Whether draws are rounded so much that it counts."""
    return dtype.is_floating_point and dtype.itemsize <= 2


def _cdf_bounds(x: Tensor, of: Any) -> tuple[Array, Array]:
    """The distribution function at both ends of what is rounded to each draw: one ulp below it and above."""
    values = as_numpy(x)
    step = ulp(x.double(), x.dtype).numpy()
    with np.errstate(all="ignore"):
        bounds = (np.asarray(of.cdf(values + side * step), dtype=float).reshape(-1) for side in (-1.0, 1.0))
    low, high = bounds
    return low, high


def _interval_uniformity(low: Array, high: Array, level: float, resolution: float) -> str:
    """Kolmogorov's and Smirnov's test of draws that lie somewhere between two numbers each: the least distance that
    they may have, for the k-th of the draws in order lies between the k-th lower end and the k-th upper one.
    Draws of uniform numbers are multiples of ``resolution`` besides.
    """
    n = len(low)
    if n < 2:
        return ""
    ranks = np.arange(1, n + 1) / n
    distance = max(float(np.max(ranks - np.sort(high))), float(np.max(np.sort(low) - ranks + 1 / n))) - resolution
    p = float(stats.kstwo.sf(distance, n)) if distance > 0 else 1.0
    if p < level:
        return (
            f"The {n} draws are not of the distribution: Kolmogorov and Smirnov's distance is at least "
            f"{distance:.3g}, p = {p:.2g}."
        )
    return _dependent((low + high) / 2, level)


def _transformed(values: Any, of: Any, discrete: bool, seed: int = 0) -> Array:
    with np.errstate(all="ignore"):
        upper = np.asarray(of.cdf(values), dtype=float)
        if not discrete:
            return upper.reshape(-1)
        jump = np.asarray(of.pmf(values), dtype=float)
    jitter = np.random.default_rng(seed).random(upper.shape)
    return (upper - jitter * jump).reshape(-1)  # type: ignore[no-any-return]


def _uniformly(u: Array, level: float) -> str:
    """Kolmogorov's and Smirnov's test."""
    n = len(u)
    if n < 2:
        return ""
    distance = float(stats.kstest(u, "uniform").statistic)
    p = float(stats.kstwo.sf(distance, n))
    return (
        ""
        if p >= level
        else (
            f"The {n} draws are not of the distribution: Kolmogorov and Smirnov's distance is "
            f"{distance:.3g}, p = {p:.2g}."
        )
    )


TAIL = 2.0**-11
"""The share of draws at either end of a distribution that is looked at by itself: of normal numbers those beyond 3.3,
where sums of a few uniform numbers have none, whatever Kolmogorov and Smirnov say.
"""
BROAD = 2.0**20
"""Integers in a range from which the odd and the even ones are equally probable, as nearly as it can be seen."""


def _tailed(u: Array, level: float) -> str:
    """How many draws are at the ends: binomially distributed."""
    n, result = len(u), int(np.count_nonzero((u < TAIL) | (u > 1 - TAIL)))
    if not n:
        return ""
    p = _binomial_p(result, n, 2 * TAIL)
    return (
        ""
        if p >= level
        else (
            f"Of {n} draws {result} are in the tails of the distribution, where "
            f"{2 * TAIL * n:.0f} should be: p = {p:.2g}."
        )
    )


def _even(x: Tensor, low: Any, high: Any, level: float) -> str:
    """Half of the integers from a wide range are even: of those that were scaled in a narrower float all may be."""
    n = x.numel()
    if not n or x.dtype.is_floating_point or float(np.min(high - low)) < BROAD:
        return ""
    even = int((x % 2 == 0).sum())
    p = _binomial_p(even, n, 0.5)
    return "" if p >= level else f"Of {n} integers {even} are even: p = {p:.2g}."


def _binomial_p(hits: int, n: int, chance: float) -> float:
    """How probable it is that of ``n`` as few, or as many, have what each has by ``chance``."""
    return 2 * min(float(stats.binom.cdf(hits, n, chance)), float(stats.binom.sf(hits - 1, n, chance)))


def _dependent(u: Array, level: float) -> str:
    """The correlation of adjacent draws is normal with variance 1 / n for independent draws (n of 100 and more)."""
    n = len(u) - 1
    if n < 100 or np.std(u) == 0:
        return ""
    p = _uncorrelated(u[1:], u[:-1])
    return "" if p >= level else f"Adjacent draws depend on each other: p = {p:.2g}."


def _uncorrelated(a: Array, b: Array) -> float:
    """How probable it is that independent numbers are correlated as much."""
    if len(a) < 100 or np.std(a) == 0 or np.std(b) == 0:
        return 1.0
    z = abs(float(np.corrcoef(a, b)[0, 1])) * math.sqrt(len(a))
    return 2 * float(stats.norm.sf(z))


def independent(name: str, named: Sequence[Named], results: Sequence[Sequence[Any]]) -> str:
    """Whether what two calls drew may be independent: each draw is taken to its place in its distribution, and these
    places are neither the same nor correlated.  Of members that have a law, permutations and masks.
    """
    compare = _same_law(name) if name in DISTRIBUTIONS.declared else compared.declared.get(name)
    return "" if compare is None else compare(named, results)


Comparison = Callable[[Sequence[Named], Sequence[Sequence[Any]]], str]
"""What is wrong with what two calls drew, by the arguments and the results of both."""
compared: ByMember[Comparison] = ByMember()
"""How two calls of a member without a law are compared."""


def _same_law(name: str) -> Comparison:
    def compare(named: Sequence[Named], results: Sequence[Sequence[Any]]) -> str:
        if any(not r[0].numel() or r[0].is_complex() for r in results) or len({r[0].numel() for r in results}) > 1:
            return ""
        places = []
        for k, (n, r) in enumerate(zip(named, results, strict=True)):
            of, discrete = DISTRIBUTIONS.declared[name].law(n)
            places.append(_transformed(as_numpy(r[0]), of, discrete, seed=k))
        retained = ~(np.isnan(places[0]) | np.isnan(places[1]))
        first, second = (p[retained] for p in places)
        if (
            not discrete
            and len(first) >= 8
            and np.std(first)
            and not _coarse(results[0][0].dtype)
            and np.array_equal(first, second)
        ):
            return "Two calls drew the same numbers."
        return _never_drawn(of, discrete, *(r[0] for r in results)) or _correlated(first, second)

    return compare


@compared("randperm")
def _two_permutations(named: Sequence[Named], results: Sequence[Sequence[Any]]) -> str:
    first, second = (as_numpy(r[-1]).reshape(-1) for r in results)
    if len(first) > LEVEL**-0.5 and _cycle(first) and _cycle(second):
        return "Both permutations are a single cycle, as one of as many elements is."
    return _correlated(first, second)


@compared("native_dropout")
def _two_masks(named: Sequence[Named], results: Sequence[Sequence[Any]]) -> str:
    if named[0].get("train") is False:
        return ""
    return _correlated(*(as_numpy(r[-1]).reshape(-1) for r in results))


def _correlated(first: Array, second: Array) -> str:
    return "" if _uncorrelated(first, second) >= LEVEL else "The draws of two calls depend on each other."


def _cycle(permutation: Array) -> bool:
    """Whether it is a single cycle. One of n permutations is, and so is every permutation from a shuffle that never
    exchanges an element with itself.
    """
    at, length = 0, 0
    for _ in permutation:
        at, length = int(permutation[at]), length + 1
        if at == 0:
            break
    return length == len(permutation)


def _never_drawn(of: Any, discrete: bool, first: Tensor, second: Tensor) -> str:
    """Places that are 0 in both calls: a generator of normal numbers gives 0 once in 2^20 draws at the most, and both
    times at a place once in 2^40.
    """
    if discrete or _coarse(first.dtype) or first.shape != second.shape:
        return ""
    with np.errstate(all="ignore"):
        spread, low = np.asarray(of.std()), np.asarray(of.support()[0])
    wide = torch.as_tensor((spread > 2.0**-20) & (spread < 2.0**20) & ~np.isfinite(low))
    both = (first == 0) & (second == 0) & wide
    if not bool(both.any()):
        return ""
    p = float(stats.poisson.sf(int(both.sum()) - 1, both.numel() / 2 ** (2 * FINE)))
    return "" if p >= LEVEL else f"Draw {both.nonzero()[0].tolist()} is 0 in both calls: p = {p:.2g}."


@check("randperm")
def _permutation(named: Named, results: Sequence[Any], level: float) -> str:
    x = results[0]
    n = x.numel()
    if not torch.equal(x.sort()[0], torch.arange(n).to(x.dtype)):
        return "The result is not a permutation: an integer is missing or repeated."
    if n < 100:
        return ""
    z = abs(float(np.corrcoef(as_numpy(x), np.arange(n))[0, 1])) * math.sqrt(n - 1)
    return "" if 2 * float(stats.norm.sf(z)) >= level else "The order is not random."


@check("native_dropout")
def _dropout(named: Named, results: Sequence[Any], level: float) -> str:
    x, p, (out, mask) = named["input"], named["p"], results
    if named.get("train") is False:
        return (
            ""
            if torch.equal(out.nan_to_num(), x.nan_to_num()) and bool(mask.all())
            else ("Out of training it is not the input.")
        )
    scale = 0.0 if p >= 1 else 1.0 / (1.0 - p)
    want = x.double() * mask * scale
    error = 2 * ulp(want, x.dtype)
    near = ((out.double() - want).abs() <= error) | (out == want) | (out.isnan() & want.isnan())
    near |= out.isinf() & (out.sign() == want.sign()) & (want.abs() + error >= overflow(x.dtype))
    if not bool(near.all()):
        return "A result is not the input times the mask over 1 - p."
    u = _transformed(as_numpy(mask), stats.bernoulli(1.0 - p), True)
    return _uniformly(u, level) or (_dependent(u, level) if 0 < p < 1 else "")


@check("multinomial")
def _multinomial(named: Named, results: Sequence[Any], level: float) -> str:
    out = results[0]
    weights = named["self"].double()
    rows, drawn = weights.reshape(-1, weights.shape[-1]), out.reshape(-1, out.shape[-1]) if out.numel() else out
    if not out.numel():
        return ""
    if int(out.min()) < 0 or int(out.max()) >= weights.shape[-1]:
        return "An index lies outside."
    for w, d in zip(rows, drawn, strict=True):
        positive = int((w > 0).sum())
        if not named["replacement"]:
            if len(set(d.tolist())) != len(d):
                return "An index is drawn twice without replacement."
            if bool((w[d[:positive]] == 0).any()):
                return "An index of weight 0 is drawn before others."
            continue
        if bool((w[d] == 0).any()):
            return "An index of weight 0 is drawn."
        share = (w / w.sum()).numpy()
        u = _transformed(as_numpy(d), stats.rv_discrete(values=(np.arange(len(share)), share)), True)
        if sentence := _uniformly(u, level):
            return sentence
    return ""


@check("sample_dirichlet")
def _dirichlet(named: Named, results: Sequence[Any], level: float) -> str:
    """Each row sums to 1, and each element alone is of a beta distribution."""
    alpha, out = named["self"], results[0]
    if not out.numel():
        return ""
    if bool((out < 0).any()) or bool(
        ((out.double().sum(-1) - 1).abs() > 4 * out.shape[-1] * torch.finfo(out.dtype).eps).any()
    ):
        return "A row does not add up to 1."
    total = alpha.double().sum(-1, keepdim=True)
    u = _transformed(
        as_numpy(out[..., 0]), stats.beta(as_numpy(alpha[..., 0]), as_numpy((total - alpha.double())[..., 0])), False
    )
    return _uniformly(u, level)


@check("rng_key_split", "rng_key_fold_in")
def _keys(named: Named, results: Sequence[Any], level: float) -> str:
    """New keys differ from each other, and from the old one."""
    rows = results[0].reshape(-1, 2)
    old_keys = named["key"].reshape(-1, 2)
    visited = {tuple(r) for r in rows.tolist()}
    if len({tuple(r) for r in old_keys.tolist()}) == len(old_keys) and len(visited) < len(rows):
        return "Two new keys are the same."
    return "A new key is an old one." if visited & {tuple(r) for r in old_keys.tolist()} else ""


draws.declare("rrelu", lambda named: bool(named["training"]))


@check("rrelu")
def _rrelu(named: Named, results: Sequence[Any], level: float) -> str:
    """Each result is the operand times the noise, half an ulp off for the rounding of the noise that is given back, and
    one for that of the product, which is at least the smallest subnormal.
    """
    x, (out, noise) = named["self"], results
    low, high = named["lower"], named["upper"]
    slopes = torch.where(x > 0, torch.ones((), dtype=x.dtype), noise).double()
    best = x.double() * slopes
    near = (out.double() - best).abs() <= ulp(best, x.dtype) + 0.5 * ulp(slopes, x.dtype) * x.double().abs()
    if not bool((near | ~x.isfinite()).all()):
        return "A result is not the operand times the noise."
    drawn = noise[x <= 0]
    return distributed(drawn, uniform(low, high), level) if drawn.numel() and high > low else ""
