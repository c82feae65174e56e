"""Activation functions and their gradients: PyTorch's decompositions where they are sound, ours where not.

At a corner eager's vectorized and scalar code differ in what NaN becomes; gradients at NaN are not specified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import FLOATS, REALS
from keel.spec.numerics import Numerics
from keel.spec.op import Family, Sample, Samples
from keel.spec.ops.operands import common_dtype, in_math, like
from keel.spec.samples import drawn, layouts, specials, unary

aten = torch.ops.aten
family = Family("activations")

Tensor = torch.Tensor
_NAN = Clause("NaN gives NaN.", About.NONFINITE)
_AT_NAN = Clause("At NaN the gradient is not specified.", About.NONFINITE | About.UNSPECIFIED)
_TAGS = frozenset({"pointwise"})


# -- samples ------------------------------------------------------------------------------------------


def values(*more: tuple[Any, ...]) -> Samples:
    """Operands alone, then with each of ``more`` behind them."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        for sample in unary(dtype):
            yield from (Sample((*sample.args, *m)) for m in ((), *more))
        yield Sample((drawn(dtype, 400, seed=70, low=-20, high=20),))

    return samples


def gradients(*more: tuple[Any, ...]) -> Samples:
    """Gradients and what they are gradients at, with each of ``more`` behind them."""

    def samples(dtype: torch.dtype) -> Iterator[Sample]:
        points = specials(dtype)
        points = points[points.isfinite() & (points.abs() < 1e4)]
        pairs = [(drawn(dtype, len(points), seed=71), points)]
        pairs += [
            (drawn(dtype, *shape, seed=72), drawn(dtype, *shape, seed=73, low=-8, high=8))
            for shape in ((), (0,), (400,), (2, 3))
        ]
        pairs += [(drawn(dtype, *x.shape, seed=74), x) for x in layouts(dtype, 75)]
        yield from (Sample((*p, *m)) for p in pairs for m in more or ((),))

    return samples


def _forward(
    name: str,
    doc: str,
    *clauses: Clause | str,
    more: tuple[tuple[Any, ...], ...] = (),
    aten: str = "",
    dtypes: tuple[torch.dtype, ...] = FLOATS,
    samples: Samples | None = None,
    **facts: Any,
) -> None:
    family.composite(
        name,
        aten or name,
        doc=doc,
        clauses=clauses,
        samples=samples or values(*more),
        dtypes=dtypes,
        tags=_TAGS,
        **facts,
    )


def _backward(
    name: str,
    doc: str,
    *clauses: Clause | str,
    more: tuple[tuple[Any, ...], ...] = (),
    samples: Samples | None = None,
    **facts: Any,
) -> None:
    _forward(name, doc, *clauses, samples=samples or gradients(*more), **facts)


# -- rectifiers ---------------------------------------------------------------------------------------

_forward(
    "relu",
    "max(x, 0).",
    _NAN,
    Clause("-0 may give 0 of either sign.", About.ZERO),
    dtypes=REALS,
    numerics=Numerics(free_zero_sign=True),
)
_forward("relu6", "min(max(x, 0), 6).", _NAN, dtypes=REALS)
_forward(
    "threshold",
    "x where x > threshold, else value.",
    _NAN,
    more=((1.0, 7.0),),
    dtypes=REALS,
    samples=lambda dtype: (Sample((*s.args, 1, 7)) for s in unary(dtype)),
)
_backward(
    "threshold_backward",
    "The gradient of threshold: grad where x > threshold, else 0.",
    "At the threshold it is 0.",
    Clause("At NaN it is grad.", About.NONFINITE),
    more=((0.5,),),
)
_forward("hardtanh", "x between min_val and max_val.", _NAN, more=((-0.5, 2.5),))
_backward(
    "hardtanh_backward",
    "The gradient of hardtanh: grad within the bounds, else 0.",
    "At a bound it is 0.",
    _AT_NAN,
    more=((-1.0, 1.5),),
)
_forward("leaky_relu", "x above 0, x * negative_slope below.", _NAN, more=((0.3,),))
_backward(
    "leaky_relu_backward",
    "The gradient of leaky_relu.",
    "At 0 it is grad * negative_slope.",
    _AT_NAN,
    more=((0.3, False),),
)
_forward("prelu", "x above 0, x * weight below.", _NAN, aten="_prelu_kernel", samples=gradients(), broadcasts=False)
_backward(
    "prelu_backward",
    "The gradients of prelu with respect to x and to weight, element by element.",
    "At 0 they are grad * weight and grad * x.",
    aten="_prelu_kernel_backward",
    samples=lambda dtype: (
        Sample((*s.args, s.args[0].flip(0) if s.args[0].dim() else s.args[0])) for s in gradients()(dtype)
    ),
    broadcasts=False,
)
_forward(
    "elu",
    "scale * x above 0, scale * alpha * (exp(input_scale * x) - 1) below.",
    _NAN,
    "Below 0 it does not cancel.",
    more=((0.7, 1.1, 0.9),),
)
_forward("celu", "x above 0, alpha * (exp(x / alpha) - 1) below.", _NAN, more=((0.7,),))
_forward("selu", "elu with the alpha and scale that keep mean 0 and variance 1.", _NAN)
_backward(
    "elu_backward",
    "The gradient of elu, from its result if is_result, else from x.",
    _AT_NAN,
    samples=lambda dtype: (
        Sample((s.args[0], 1.3, 1.1, 0.9, result, s.args[1])) for s in gradients()(dtype) for result in (False, True)
    ),
)
_forward("hardshrink", "x outside [-lambd, lambd], else 0.", _NAN, more=((1.5,),))
_forward("softshrink", "x moved towards 0 by lambd; 0 within [-lambd, lambd].", _NAN, more=((1.5,),))


def _outside(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    dtype = common_dtype(grad, x)
    g, value = in_math(dtype, grad, x)
    inside = aten.bitwise_and.Tensor(aten.ge.Scalar(value, -lambd), aten.le.Scalar(value, lambd))
    return aten.where.self(inside, like(0.0, g), g).to(dtype)


@family(
    "hardshrink_backward",
    clauses=("At the bounds it is 0.", _AT_NAN),
    samples=gradients((0.5,), (1.5,)),
    dtypes=FLOATS,
    tags=_TAGS,
)
def hardshrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    """The gradient of hardshrink: grad outside [-lambd, lambd], else 0."""
    return _outside(grad, x, lambd)


@family(
    "softshrink_backward",
    clauses=("At the bounds it is 0.", _AT_NAN),
    samples=gradients((0.5,), (1.5,)),
    dtypes=FLOATS,
    tags=_TAGS,
)
def softshrink_backward(grad: Tensor, x: Tensor, lambd: float) -> Tensor:
    """The gradient of softshrink: grad outside [-lambd, lambd], else 0."""
    return _outside(grad, x, lambd)


# -- piecewise polynomials ----------------------------------------------------------------------------

_forward("hardsigmoid", "min(max(x + 3, 0), 6) / 6.", _NAN)
_backward("hardsigmoid_backward", "The gradient of hardsigmoid: grad / 6 within (-3, 3), else 0.", _AT_NAN)
_forward("hardswish", "x * hardsigmoid(x).", _NAN)
_backward("hardswish_backward", "The gradient of hardswish.", "Up to -3 it is 0, from 3 on grad.", _AT_NAN)


# -- smooth -------------------------------------------------------------------------------------------

_forward("silu", "x * sigmoid(x).", _NAN, Clause("-inf gives NaN or -0.", About.NONFINITE | About.ZERO))


@family(
    "silu_backward",
    clauses=("It does not cancel where sigmoid(x) is near 1.", _AT_NAN),
    samples=gradients(),
    dtypes=FLOATS,
    tags=_TAGS,
)
def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of silu: grad * s * (1 + x * (1 - s)) with s = sigmoid(x)."""
    dtype = common_dtype(grad, x)
    g, value = in_math(dtype, grad, x)
    share = aten.sigmoid.default(value)
    rest = aten.where.self(aten.lt.Scalar(value, 0), 1 - share, aten.sigmoid.default(aten.neg.default(value)))
    return (g * (share * aten.addcmul.default(like(1.0, value), value, rest))).to(dtype)


_forward("softplus", "log(1 + exp(beta x)) / beta; x where beta x > threshold.", _NAN, more=((2.0, 5.0), (0.1, 20.0)))
_backward(
    "softplus_backward",
    "The gradient of softplus: grad * sigmoid(beta x); grad where beta x > threshold.",
    _AT_NAN,
    more=((2.0, 5.0), (1.0, 20.0)),
)
_forward("mish", "x * tanh(log(1 + exp(x))).", _NAN)


@family("mish_backward", clauses=(_AT_NAN,), samples=gradients(), dtypes=FLOATS, tags=_TAGS)
def mish_backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of mish: grad * (t + x * sigmoid(x) * (1 - t^2)) with t = tanh(log(1 + exp(x)))."""
    dtype = common_dtype(grad, x)
    g, value = in_math(dtype, grad, x)
    # In powers of exp(-|x|) nothing overflows, and t is not rounded twice.
    w, below = aten.exp.default(-aten.abs.default(value)), aten.lt.Scalar(value, 0)
    low, high = w * (w + 2), 1 + 2 * w
    d = aten.where.self(below, low + 2, high + 2 * (w * w))
    rest = 4 * (w * (1 + w)) * aten.where.self(below, like(1.0, w), w)
    slope = aten.addcmul.default(aten.where.self(below, low, high), value, rest / d) / d
    return (g * slope).to(dtype)


_forward(
    "log_sigmoid",
    "log(sigmoid(x)), and a buffer that its gradient may use.",
    _NAN,
    "Far below 0 it is x.",
    "The buffer is exp(-|x|) on CPU, and empty elsewhere.",
    aten="log_sigmoid_forward",
)
_backward(
    "log_sigmoid_backward",
    "The gradient of log_sigmoid: grad * sigmoid(-x).",
    _AT_NAN,
    samples=lambda dtype: (Sample((*s.args, aten.log_sigmoid_forward(s.args[1])[1])) for s in gradients()(dtype)),
)
_forward(
    "gelu",
    'x * the normal distribution function of x, or its approximation by "tanh".',
    _NAN,
    Clause("-inf gives NaN or -0.", About.NONFINITE | About.ZERO),
    samples=lambda dtype: (Sample(s.args, {"approximate": a}) for s in values()(dtype) for a in ("none", "tanh")),
    numerics=Numerics(interval=(-9.0, 9.0)),
)


def _with_approximation(dtype: torch.dtype) -> Iterator[Sample]:
    yield from (Sample(s.args, {"approximate": a}) for s in gradients()(dtype) for a in ("none", "tanh"))


@family(
    "gelu_backward",
    clauses=(
        "It is grad * (P + x p) with the normal distribution function P and density p of x.",
        Clause(
            'With approximate="tanh" it is the derivative of that formula, not of the exact one.',
            parameters=("approximate",),
        ),
        _AT_NAN,
    ),
    samples=_with_approximation,
    dtypes=FLOATS,
    tags=_TAGS,
)
def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of gelu."""
    dtype = common_dtype(grad, x)
    g, value = in_math(dtype, grad, x)
    if approximate == "tanh":
        factor, cubic = math.sqrt(2 / math.pi), 0.044715
        square = value * value
        twice = value * (1 + square * cubic) * (2 * factor)  # x * sigmoid(twice) is the function
        slope = value * ((1 + square * (3 * cubic)) * (2 * factor))
        rest = aten.sigmoid.default(aten.neg.default(twice))
        inner = aten.addcmul.default(like(1.0, value), slope, rest)
        return (g * (aten.sigmoid.default(twice) * inner)).to(dtype)
    share = aten.erfc.default(value * -math.sqrt(0.5)) * 0.5
    density = aten.exp.default(value * value * -0.5) * (1 / math.sqrt(2 * math.pi))
    return (g * (share + value * density)).to(dtype)


# -- gates --------------------------------------------------------------------------------------------


def _halves(dtype: torch.dtype) -> Iterator[Sample]:
    for shape, dims in (((4, 6), (0, 1, -1)), ((2, 0), (1,)), ((3, 2, 4), (2, 0 - 2))):
        yield from (Sample((drawn(dtype, *shape, seed=80), dim)) for dim in dims)
    yield Sample((drawn(dtype, 6, 4, seed=81).t(), 1))


def _gates(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _halves(dtype):
        x, dim = sample.args
        yield Sample((torch.ones_like(x.narrow(dim, 0, x.shape[dim] // 2)) * 0.7, x, dim))


_forward(
    "glu",
    "The first half along dim times the sigmoid of the second.",
    Clause("dim has an even size.", parameters=("dim",)),
    samples=_halves,
    broadcasts=False,
)
_backward("glu_backward", "The gradient of glu.", "It has the sizes of x.", samples=_gates, broadcasts=False)


# -- random slopes ------------------------------------------------------------------------------------


def _noisy(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in gradients()(dtype):
        grad, x = sample.args
        noise = drawn(dtype, *x.shape, seed=90, low=0.1, high=0.3)
        yield from (Sample((grad, x, noise, 0.1, 0.3, training, False)) for training in (True, False))


_backward(
    "rrelu_backward",
    "The gradient of rrelu.",
    "In training it is grad * noise.",
    "Otherwise it is that of leaky_relu with the slope (lower + upper) / 2.",
    _AT_NAN,
    aten="rrelu_with_noise_backward",
    samples=_noisy,
)


@family(
    "rrelu_with_noise_functional",
    name="rrelu",
    clauses=(
        "In training, elements above 0 stay and others are multiplied by a slope drawn evenly between lower and upper, "
        "each by its own; the noise is the slope, or 1 above 0.",
        "Otherwise it is leaky_relu with the slope (lower + upper) / 2, and the noise is what is given.",
        "The draws are not those of eager, which draws only for elements that are not above 0.",
    ),
    tags=frozenset({"pointwise", "random"}),
    row_major=True,
)
def rrelu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Tensor, Tensor]:
    """Leaky rectifier with random slopes, and these."""
    if not training:
        return aten.leaky_relu.default(x, (lower + upper) / 2), aten.clone.default(noise)
    below = aten.le.Scalar(x, 0)
    slope = aten.uniform.default(x, lower, upper, generator=generator)
    slope = aten.where.self(below, slope, like(1.0, slope))
    return aten.where.self(below, x * slope, x), slope
