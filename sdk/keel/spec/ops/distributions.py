"""Distributions in terms of uniform, normal and integer draws, and dropout.

An overload with a generator is made of the same draws where the generator is None, and has no decomposition otherwise:
a graph cannot hold a generator. Where a backend takes the operator whole, its own way of drawing stands.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log1p, pi
from typing import Any

import torch

from keel.spec.clause import About, Clause, Stated
from keel.spec.op import Family, Requires
from keel.spec.ops.operands import floating_dtype
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import EVERY_DEVICE, Library

aten = torch.ops.aten
family = Family("distributions", profile="random")

Tensor = torch.Tensor
_TAGS = frozenset({"random"})
_NO_BITS = (
    "The distribution is promised, not the bits: where it is written out it draws other numbers from a seed "
    "than where it stays whole."
)


def distribution(*overloads: Any, clauses: Stated, **more: Any) -> Callable[..., Any]:
    """Declares the decomposition below it, which draws only where no generator is given."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            generators = [a for a in (*args, kwargs.pop("generator", None)) if isinstance(a, torch.Generator)]
            return NotImplemented if generators else function(*args, **kwargs)

        draw.__name__, draw.__doc__ = function.__name__, function.__doc__
        return family(*overloads, clauses=(*clauses, _NO_BITS), tags=_TAGS, **more)(draw)

    return declare


def _working(dtype: torch.dtype) -> torch.dtype:
    """The dtype that draws for ``dtype`` are made in."""
    if not dtype.is_floating_point:
        return torch.get_default_dtype()
    return dtype if dtype.itemsize >= 4 else torch.float32


def _uniform(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return aten.rand.default(list(like.shape), dtype=dtype or _working(like.dtype), device=like.device)


def _normal(size: list[Any], dtype: torch.dtype, device: torch.device | None) -> Tensor:
    return aten.randn.default(size, dtype=dtype, device=device)


# -- of a given range -------------------------------------------------------------------------------------------------


@distribution(
    "uniform",
    name="uniform_between",
    clauses=(
        "Numbers from the lower bound to the upper, all equally probable; the upper may not be drawn.",
        "The operand gives sizes, dtype and strides; its values are not read.",
    ),
    libraries=EVERY_DEVICE,
)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, **bounds: float) -> Tensor:
    """Numbers between two bounds."""
    low, high = bounds.get("from", low), bounds.get("to", high)
    drawn = (_uniform(x) * (high - low) + low).to(x.dtype)
    lowest = aten.full.default([], low, dtype=x.dtype, device=x.device)
    return aten.where.self(aten.ge.Scalar(drawn, high), lowest, drawn)


_LIKE = "The operand gives sizes, device and, where none is asked for, the dtype; its values are not read."


@distribution(
    "rand_like",
    "rand_like.generator",
    clauses=("Numbers between 0 and 1 as rand draws them.", _LIKE),
    libraries=(Library(("rand_like",)),),
)
def rand_like(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Uniform numbers of the sizes of a tensor."""
    return aten.rand.default(list(x.shape), dtype=dtype or x.dtype, device=device or x.device)


@distribution(
    "randn_like",
    "randn_like.generator",
    clauses=("Normal numbers as randn draws them.", _LIKE),
    libraries=(Library(("randn_like",)),),
)
def randn_like(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Normal numbers of the sizes of a tensor."""
    return aten.randn.default(list(x.shape), dtype=dtype or x.dtype, device=device or x.device)


@distribution(
    "randint",
    "randint.generator",
    name="randint_from_0",
    clauses=(Clause("Integers from 0 on and less than high, all equally probable.", About.INTEGER),),
    libraries=(Library(("randint",)),),
)
def randint(high: Any, size: list[Any], *, dtype: Any = torch.int64, device: Any = None, **_: Any) -> Tensor:
    """Integers from 0 on."""
    return aten.randint.low(0, high, size, dtype=dtype, device=device)


@distribution(
    "randint_like",
    "randint_like.generator",
    clauses=(
        Clause("Integers from 0 on and less than high, all equally probable.", About.INTEGER),
        _LIKE,
    ),
    libraries=(Library(("randint_like",)),),
)
def randint_like(x: Tensor, high: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Integers of the sizes of a tensor."""
    return aten.randint.low(0, high, list(x.shape), dtype=dtype or x.dtype, device=device or x.device)


@distribution(
    "randint_like.Tensor",
    "randint_like.Tensor_generator",
    name="randint_like_tensor",
    clauses=(
        Clause("Integers from 0 on and less than the one element of high, which the host reads.", About.INTEGER),
        _LIKE,
    ),
)
def randint_like_tensor(x: Tensor, high: Tensor, *, dtype: torch.dtype | None = None, **others: Any) -> Tensor:
    """Integers of the sizes of a tensor, below a number in a tensor."""
    return aten.randint.low(
        0,
        aten._local_scalar_dense.default(high),
        list(x.shape),
        dtype=dtype or x.dtype,
        device=others.get("device") or x.device,
    )


@distribution(
    "randint_like.low_dtype",
    "randint_like.low_generator_dtype",
    name="randint_like_between",
    clauses=(
        Clause("Integers from low on and less than high, all equally probable.", About.INTEGER),
        _LIKE,
    ),
    libraries=(Library(("randint_like.low_dtype",)),),
)
def randint_like_between(
    x: Tensor, low: Any, high: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """Integers of the sizes of a tensor."""
    return aten.randint.low(low, high, list(x.shape), dtype=dtype or x.dtype, device=device or x.device)


def _integers(dtype: torch.dtype) -> int:
    """The number after the last integer up to which the dtype holds all."""
    if dtype == torch.bool:
        return 2
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps) + 1
    return min(torch.iinfo(dtype).max, 2**63 - 2) + 1


@distribution(
    "random",
    "random.to",
    "random.from",
    name="random_integers",
    clauses=(
        Clause("Integers from the lower bound on and less than the upper, all equally probable.", About.INTEGER),
        "The lower bound defaults to 0, the upper to all that the dtype holds exactly, counted from 0.",
        "The operand gives sizes, dtype and strides; its values are not read.",
    ),
    forms={
        "aten.random.from": lambda x, *bounds, generator=None, **named: (
            NotImplemented if generator is not None else _between(x, *bounds, **named)
        )
    },
)
def random_integers(x: Tensor, to: Any = None) -> Tensor:
    """Integers in a tensor's own dtype."""
    return _between(x, 0, to)


def _between(x: Tensor, *bounds: Any, **named: Any) -> Tensor:
    low, high = (*bounds, *[named[n] for n in ("from", "to") if n in named], None)[:2]
    end = _integers(x.dtype) if high is None else high
    return aten.randint.low(low, end, list(x.shape), dtype=torch.int64, device=x.device).to(x.dtype)


# -- normal and what is made of it ------------------------------------------------------------------------------------


@distribution(
    "normal_functional",
    clauses=(
        "Normal numbers of the mean and the standard deviation given.",
        "The operand gives sizes, dtype and strides; its values are not read.",
    ),
    libraries=EVERY_DEVICE,
)
def normal_functional(x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal numbers of the sizes of a tensor."""
    return (_normal(list(x.shape), x.dtype if x.is_complex() else _working(x.dtype), x.device) * std + mean).to(x.dtype)


@distribution(
    "normal.Tensor_Tensor",
    "normal.Tensor_float",
    "normal.float_Tensor",
    name="normal_around",
    clauses=(
        Clause(
            "Normal numbers, each of the mean and the standard deviation at its place; both are broadcast.",
            About.BROADCAST,
        ),
    ),
    libraries=EVERY_DEVICE,
)
def normal_around(mean: Any, std: Any = 1.0) -> Tensor:
    """Normal numbers around means."""
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    size = list(torch.broadcast_shapes(*(t.shape for t in tensors)))
    return (_normal(size, accurate(tensors[0]).dtype, tensors[0].device) * std + mean).to(tensors[0].dtype)


@distribution(
    "normal.float_float",
    name="normal_of_size",
    clauses=(
        "Normal numbers of the mean and the standard deviation given.",
        "The dtype is dtype, or the default float.",
    ),
)
def normal_of_size(
    mean: float, std: float, size: list[Any], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """Normal numbers of given sizes."""
    result_dtype = dtype or torch.get_default_dtype()
    drawn = _normal(size, result_dtype if result_dtype.is_complex else _working(result_dtype), device)
    return (drawn * std + mean).to(result_dtype)


_OPERAND = "The operand gives sizes, dtype and strides; its values are not read."


@distribution(
    "log_normal", clauses=("e to the power of normal numbers of the mean and the standard deviation given.", _OPERAND)
)
def log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    """Numbers whose logarithm is normal."""
    return aten.exp.default(_normal(list(x.shape), _working(x.dtype), x.device) * std + mean).to(x.dtype)


# -- inverted distribution functions ----------------------------------------------------------------------------------


@distribution(
    "exponential",
    clauses=(
        "Numbers of density lambd * exp(-lambd x), for x greater than 0.",
        Clause("Neither 0 nor an infinity is drawn.", About.NONFINITE),
        _OPERAND,
    ),
    libraries=EVERY_DEVICE,
)
def exponential(x: Tensor, lambd: float = 1.0) -> Tensor:
    """Waiting times between independent events of rate lambd."""
    return (_waiting(x, _working(x.dtype)) / lambd).to(x.dtype)


def _waiting(like: Tensor, dtype: torch.dtype) -> Tensor:
    """Exponential numbers: half an epsilon stands for the 0 that a uniform 0 would give."""
    drawn = aten.neg.default(aten.log1p.default(aten.neg.default(_uniform(like, dtype))))
    least = aten.full.default([], torch.finfo(dtype).eps / 2, dtype=dtype, device=like.device)
    return aten.maximum.default(drawn, least)


@distribution("cauchy", clauses=("Numbers of density sigma / (pi (sigma^2 + (x - median)^2)).", _OPERAND))
def cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Numbers of the Cauchy distribution."""
    return (aten.tan.default((_uniform(x) - 0.5) * pi) * sigma + median).to(x.dtype)


@distribution(
    "geometric",
    clauses=(
        "The number of trials of probability p up to and including the first success: 1 or more.",
        "A probability of 0 or 1 is an error.",
        _OPERAND,
    ),
    requires=(Requires("probability", "p is between 0 and 1.", lambda args: 0 < args["p"] < 1),),
)
def geometric(x: Tensor, p: float) -> Tensor:
    """Counts of trials."""
    counts = aten.ceil.default(_waiting(x, _working(x.dtype)) / -log1p(-p))
    return aten.maximum.default(counts, aten.full.default([], 1.0, dtype=counts.dtype, device=x.device)).to(x.dtype)


# -- choices ----------------------------------------------------------------------------------------------------------

_BERNOULLI = (
    "Each element is 1 with its probability and 0 otherwise.",
    "Probabilities are met to within 2^-24; 0 and 1 exactly.",
)


@distribution("bernoulli", clauses=(*_BERNOULLI, "The elements are the probabilities."), libraries=EVERY_DEVICE)
def bernoulli(x: Tensor) -> Tensor:
    """Zeros and ones by the probabilities given."""
    return aten.lt.Tensor(_uniform(x), x).to(x.dtype)


@distribution(
    "bernoulli.p", "bernoulli.Tensor", name="bernoulli_like", clauses=(*_BERNOULLI, _OPERAND), libraries=EVERY_DEVICE
)
def bernoulli_like(x: Tensor, p: Any = 0.5) -> Tensor:
    """Zeros and ones by one probability, or by those of a tensor that is broadcast."""
    if not isinstance(p, Tensor):
        return aten.lt.Scalar(_uniform(x), p).to(x.dtype)
    return aten.lt.Tensor(_uniform(x, _working(p.dtype)), p).to(x.dtype)


@distribution(
    "multinomial",
    clauses=(
        "Each row of weights gives num_samples indices, each drawn in proportion to its weight.",
        "Without replacement no index is drawn twice; weights of 0 are drawn when nothing else is left.",
        Clause(
            "With replacement an index of weight 0 is never drawn, provided that a weight is positive.",
            parameters=("replacement",),
        ),
        Clause(
            "Weights that are negative, not finite or all 0 are an error or give indices that are not specified.",
            About.NONFINITE,
        ),
    ),
    libraries=EVERY_DEVICE,
)
def multinomial(weights: Tensor, num_samples: Any, replacement: bool = False) -> Tensor:
    """Indices drawn by weight."""
    w = accurate(weights)
    if not replacement:
        return aten.topk.default(w / _waiting(w, w.dtype), num_samples, -1)[1]
    sums = aten.cumsum.default(w, -1)
    # The last of the shares is exactly 1, and no uniform number is.
    shares = sums / aten.slice.Tensor(sums, -1, -1)
    drawn = aten.rand.default([*w.shape[:-1], num_samples], dtype=w.dtype, device=w.device)
    return aten.searchsorted.Tensor(shares, drawn, right=True)


@distribution(
    "_sample_dirichlet",
    clauses=("Each row along the last dimension holds gamma numbers of those shape parameters, divided by their sum.",),
)
def sample_dirichlet(alpha: Tensor, generator: None = None) -> Tensor:
    """Numbers of the Dirichlet distribution."""
    drawn = accurate(aten._standard_gamma.default(alpha))
    return (drawn / aten.sum.dim_IntList(drawn, [-1], True)).to(alpha.dtype)


# -- dropout ----------------------------------------------------------------------------------------------------------


@family(
    "native_dropout",
    clauses=(
        "In training each element is kept with probability 1 - p, independently, and then divided by it; the mask says "
        "which are kept.",
        Clause("Dropped elements are x * 0, so NaN and infinity become NaN.", About.NONFINITE),
        "Otherwise the result is the input, and the mask is true everywhere.",
        "On CPU the mask is what bernoulli draws from the same seed.",
    ),
    tags=_TAGS,
)
def native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """The result and the mask."""
    if x.device.type == "cpu" and any(isinstance(n, int) and n == 0 for n in x.shape):
        return aten.clone.default(x), aten.clone.default(x)  # PyTorch's empty mask is not bool there
    if train is False:
        return aten.clone.default(x), aten.full_like.default(x, True, dtype=torch.bool)
    keep = 1.0 - p
    mask = aten.bernoulli.p(aten.full_like.default(x, False, dtype=torch.bool), keep)
    value = accurate(x)
    out = value * mask.to(value.dtype) * (1.0 / keep if keep else 0.0)
    return out.to(x.dtype), mask


@family(
    "native_dropout_backward",
    clauses=(
        "The gradient is grad * mask * scale, where mask is that of the forward and scale is 1 / (1 - p), or "
        "0 for p of 1.",
        "It has the gradient's dtype, or the default float dtype if that is not a float.",
    ),
)
def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient with respect to what was dropped from."""
    value = accurate(grad)
    return (value * (mask.to(value.dtype) * scale)).to(floating_dtype(grad))
