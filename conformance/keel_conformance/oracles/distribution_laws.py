"""The laws that random members draw by, as distributions of scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from ..by_member import ByMember

Named = Mapping[str, Any]
Law = tuple[Any, bool]
"""A frozen distribution of scipy, its parameters broadcast over the elements, and whether it is discrete."""


def as_numpy(x: Any) -> Any:
    return x.detach().double().numpy() if isinstance(x, Tensor) else x


def uniform(low: Any, high: Any) -> Law:
    low, high = as_numpy(low), as_numpy(high)
    return stats.uniform(low, np.asarray(high, dtype=float) - low), False


def _normal(mean: Any, std: Any) -> Law:
    return stats.norm(as_numpy(mean), as_numpy(std)), False


def _integers(low: int, high: int) -> Law:
    return stats.randint(low, high) if high <= 2**62 else WideIntegers(low, high), True


@dataclass(frozen=True)
class WideIntegers:
    """Integers from ``low`` to below ``high``, all equally probable, of which there are more than scipy's have room
    for. What it is asked for is what is asked of scipy's distributions here.
    """

    low: int
    high: int

    def support(self) -> tuple[float, float]:
        return float(self.low), float(self.high - 1)

    def cdf(self, x: Any) -> Any:
        return np.clip((np.asarray(x, dtype=float) - self.low + 1) / (self.high - self.low), 0.0, 1.0)

    def sf(self, x: Any) -> Any:
        return 1.0 - self.cdf(x)

    def pmf(self, x: Any) -> Any:
        x = np.asarray(x, dtype=float)
        return np.where((x >= self.low) & (x <= self.high - 1), 1.0 / (self.high - self.low), 0.0)


def _number(x: Any) -> int:
    return int(x.item()) if isinstance(x, Tensor) else int(x)


@dataclass(frozen=True)
class Distribution:
    """What a member draws by: a law for its arguments. ``half_open`` says that the upper bound may not be drawn,
    ``positive`` that the lower one, 0, may not; ``halved`` that of complex numbers each part has half the variance.
    """

    law: Callable[[Named], Law]
    half_open: bool = False
    positive: bool = False
    halved: bool = False


DISTRIBUTIONS: ByMember[Distribution] = ByMember()


def law(*members: str, **facts: bool) -> Callable[[Callable[[Named], Law]], Callable[[Named], Law]]:
    """Declares the law of members."""

    def declare(function: Callable[[Named], Law]) -> Callable[[Named], Law]:
        for name in members:
            DISTRIBUTIONS.declare(name, Distribution(function, **facts))
        return function

    return declare


@law("uniform", "rand_like", half_open=True)
def _unit(n: Named) -> Law:
    return uniform(0.0, 1.0)


@law("uniform_between", half_open=True)
def _between(n: Named) -> Law:
    return uniform(n["from"], n["to"])


@law("rng_uniform")
def _keyed_uniform(n: Named) -> Law:
    return uniform(n["low"], n["high"])


@law("normal", "randn_like", halved=True)
def _standard(n: Named) -> Law:
    return _normal(0.0, 1.0)


@law("rng_normal", "normal_functional", "normal_around", "normal_of_size")
def _around(n: Named) -> Law:
    return _normal(n["mean"], n["std"])


@law("randint", "randint_like_between")
def _between_integers(n: Named) -> Law:
    return _integers(n["low"], n["high"])


@law("randint_from_0", "randint_like", "randint_like_tensor")
def _below(n: Named) -> Law:
    return _integers(0, _number(n["high"]))


@law("random_integers")
def _random_integers(named: Named) -> Law:
    """aten::random: from a lower bound, to an upper one or to all that the dtype holds exactly."""
    dtype = named["self"].dtype
    most = (
        2 ** {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}[dtype] + 1
        if (dtype.is_floating_point)
        else torch.iinfo(dtype).max + 1
    )
    low = named.get("from") or 0
    high = named.get("to")
    return _integers(low, most if high is None else high)


@law("gamma", positive=True)
def _gamma(n: Named) -> Law:
    return stats.gamma(as_numpy(n["self"])), False


@law("exponential", positive=True)
def _exponential(n: Named) -> Law:
    return stats.expon(scale=1.0 / n["lambd"]), False


@law("poisson")
def _poisson(n: Named) -> Law:
    return stats.poisson(as_numpy(n["self"])), True


@law("binomial")
def _binomial(n: Named) -> Law:
    return stats.binom(as_numpy(n["count"]), as_numpy(n["prob"].broadcast_to(n["count"].shape))), True


@law("bernoulli")
def _bernoulli(n: Named) -> Law:
    return stats.bernoulli(as_numpy(n["self"])), True


@law("bernoulli_like")
def _bernoulli_like(n: Named) -> Law:
    return stats.bernoulli(as_numpy(n["p"])), True


@law("cauchy")
def _cauchy(n: Named) -> Law:
    return stats.cauchy(n["median"], n["sigma"]), False


@law("geometric")
def _geometric(n: Named) -> Law:
    return stats.geom(n["p"]), True


@law("log_normal")
def _log_normal(n: Named) -> Law:
    return stats.lognorm(n["std"], scale=math.exp(n["mean"])), False
