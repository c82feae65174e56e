"""Activation functions and their gradients. Each agrees with eager at NaN and where the function has a corner.

The formulas are those of ATen's native/cpu/Activation.cpp, in float32 for 16-bit floats. Gradients whose formula there
loses digits use another. If its vectorized code treats NaN and infinity differently from its scalar code, the formulas
follow the scalar code (which CUDA shares).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from keel.loops.builder import Builder, Operand, Rule, Value

from .rule_arguments import bounds, literal, not_lowerable, out_dtype, promote, store

aten = torch.ops.aten

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


def of_one(body: Callable[..., Value]) -> Rule:
    """A rule that calls ``body(b, x, *parameters)`` with the operand in the dtype of arithmetic."""

    def rule(b: Builder, x: Operand, *args: Any, **kwargs: Any) -> Value:
        return store(b, body(b, promote(b, x, out_dtype(b)), *args, **kwargs))

    return rule


def of_two(body: Callable[..., Value]) -> Rule:
    """A rule that calls ``body(b, x, y, *parameters)`` with a gradient and the tensor that it is taken at, in the
    schema's order.
    """

    def rule(b: Builder, x: Operand, y: Operand, *args: Any, **kwargs: Any) -> Value:
        dtype = out_dtype(b)
        return store(b, body(b, promote(b, x, dtype), promote(b, y, dtype), *args, **kwargs))

    return rule


def sigmoid(b: Builder, x: Value) -> Value:
    return b.apply("sigmoid", x)


# -- rectifiers --------------------------------------------------------------------------------------


def relu(b: Builder, x: Operand) -> Value:
    value = promote(b, x, out_dtype(b))
    return store(b, b.apply("maximum", value, 0))


def threshold(b: Builder, x: Operand, at: Any, value: Any) -> Value:
    """x where x > at or x is NaN, else value."""
    dtype = out_dtype(b)
    v = promote(b, x, dtype)
    return store(b, b.where(v <= literal(b, at, dtype), literal(b, value, dtype), v))


def threshold_backward(b: Builder, grad: Operand, x: Operand, at: Any) -> Value:
    dtype = out_dtype(b)
    return store(b, b.where(promote(b, x, dtype) <= literal(b, at, dtype), 0, promote(b, grad, dtype)))


def hardtanh(b: Builder, x: Operand, low: float = -1.0, high: float = 1.0) -> Value:
    dtype = out_dtype(b)
    value = promote(b, x, dtype)
    for scalar, bound in bounds(b, low, high, dtype):
        value = b.apply(scalar, value, literal(b, bound, dtype))
    return store(b, value)


def hardtanh_backward(b: Builder, grad: Value, x: Value, low: float, high: float) -> Value:
    return b.where((x <= low) | (x >= high), 0.0, grad)


def leaky_relu(b: Builder, x: Value, slope: float = 0.01) -> Value:
    return b.where(x > 0.0, x, x * slope)


def leaky_relu_backward(b: Builder, grad: Value, x: Value, slope: float, is_result: bool) -> Value:
    return b.where(x > 0.0, grad, grad * slope)


def prelu(b: Builder, x: Value, weight: Value) -> Value:
    return b.where(x > 0.0, x, weight * x)


def prelu_backward(b: Builder, grad: Operand, x: Operand, weight: Operand) -> tuple[Value, Value]:
    dtype = out_dtype(b)
    g, v, w = (promote(b, t, dtype) for t in (grad, x, weight))
    positive = v > 0.0
    return store(b, b.where(positive, g, w * g)), store(b, b.where(positive, 0.0, v * g), 1)


def elu(b: Builder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    below = b.apply("expm1", x * input_scale) * (alpha * scale)
    return b.where(x < 0.0, below, x * scale)


def elu_backward(
    b: Builder, grad: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value
) -> Value:
    down, up = alpha * scale, scale
    slope = x + down if is_result else down * b.apply("exp", x * input_scale)
    below = grad * input_scale * slope
    return b.where(x <= 0.0, below, grad * up)


def elu_backward_rule(
    b: Builder, grad: Operand, alpha: float, scale: float, input_scale: float, is_result: bool, x: Operand
) -> Value:
    dtype = out_dtype(b)
    return store(
        b, elu_backward(b, promote(b, grad, dtype), alpha, scale, input_scale, is_result, promote(b, x, dtype))
    )


def hardshrink(b: Builder, x: Value, lambd: float = 0.5) -> Value:
    return b.where((x >= -lambd) & (x <= lambd), 0.0, x)


def hardshrink_backward(b: Builder, grad: Value, x: Value, lambd: float) -> Value:
    return b.where((x >= -lambd) & (x <= lambd), 0.0, grad)


def softshrink(b: Builder, x: Value, lambd: float = 0.5) -> Value:
    """Between the corners the result is 0 * x, so that NaN stays NaN."""
    return b.where(x > lambd, x - lambd, b.where(x < -lambd, x + lambd, x * 0.0))


# -- piecewise polynomials ---------------------------------------------------------------------------


def _ramp(b: Builder, x: Value) -> Value:
    return b.apply("minimum", b.apply("maximum", x + 3.0, 0.0), 6.0)


def hardsigmoid(b: Builder, x: Value) -> Value:
    return _ramp(b, x) / 6.0


def hardsigmoid_backward(b: Builder, grad: Value, x: Value) -> Value:
    return b.where((x > -3.0) & (x < 3.0), grad * (1 / 6), 0.0)


def hardswish(b: Builder, x: Value) -> Value:
    return x * _ramp(b, x) / 6.0


def hardswish_backward(b: Builder, grad: Value, x: Value) -> Value:
    return b.where(x <= -3.0, 0.0, b.where(x < 3.0, grad * (x / 3.0 + 0.5), grad))


# -- smooth ------------------------------------------------------------------------------------------


def sigmoid_backward(b: Builder, grad: Value, y: Value) -> Value:
    return grad * ((1.0 - y) * y)


def tanh_backward(b: Builder, grad: Value, y: Value) -> Value:
    return grad * b.apply("fma", -y, y, b.const(1, y.dtype))


def silu(b: Builder, x: Value) -> Value:
    return x * b.apply("sigmoid", x)  # exp(-x) would overflow before the result is 0


def both_sides(b: Builder, x: Value) -> tuple[Value, Value]:
    """Returns sigmoid(x) and sigmoid(-x), from one exponential. 1 - sigmoid(x) would lose digits of the second."""
    e = b.apply("exp", -b.apply("abs", x))
    large = 1.0 / (1.0 + e)
    small, below = e * large, x < 0.0
    return b.where(below, small, large), b.where(below, large, small)


def gated_slope(b: Builder, grad: Value, x: Value, slope: Value) -> Value:
    """The gradient of y * sigmoid(x), where ``slope`` is y times the derivative of x by y."""
    share, rest = both_sides(b, x)
    return grad * (share * b.apply("fma", slope, rest, b.const(1, x.dtype)))


def silu_backward(b: Builder, grad: Value, x: Value) -> Value:
    return gated_slope(b, grad, x, x)


def softplus(b: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    scaled = x * beta
    return b.where(scaled > threshold, x, b.apply("log1p", b.apply("exp", scaled)) / beta)


def softplus_backward(b: Builder, grad: Value, x: Value, beta: float, threshold: float) -> Value:
    scaled = x * beta
    return b.where(scaled > threshold, grad, grad * sigmoid(b, scaled))


def log_sigmoid(b: Builder, x: Value) -> Value:
    """min(x, 0) - log(1 + e^-|x|)"""
    return b.apply("minimum", x, 0.0) - b.apply("log1p", b.apply("exp", -b.apply("abs", x)))


def mish(b: Builder, x: Value) -> Value:
    return x * b.apply("tanh", b.apply("log1p", b.apply("exp", x)))


def mish_backward(b: Builder, grad: Value, x: Value) -> Value:
    """grad * (t + x * sigmoid(x) * (1 - t^2)) with t = tanh(log(1 + e^x)), in powers of e^-|x|: for w = e^x it is t = w
    (w + 2) / d and sigmoid(x) * (1 - t^2) = 4 w (w + 1) / d^2 with d = w^2 + 2 w + 2, in which no terms cancel.
    """
    e, below = b.apply("exp", -b.apply("abs", x)), x < 0.0
    low = e * (e + 2.0)
    high = 1.0 + 2.0 * e
    d = b.where(below, low + 2.0, high + 2.0 * (e * e))  # for x >= 0 both are divided by w^2
    rest = 4.0 * (e * (1.0 + e)) * b.where(below, 1.0, e)
    return grad * (b.apply("fma", x, rest / d, b.where(below, low, high)) / d)


def gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        inner = SQRT_2_OVER_PI * (x + CUBIC * (x * x * x))
        return 0.5 * x * (1.0 + b.apply("tanh", inner))
    return 0.5 * x * (1.0 + b.apply("erf", x * SQRT_HALF))


def gelu_backward(b: Builder, grad: Value, x: Value, approximate: str = "none") -> Value:
    if approximate == "tanh":
        square = x * x  # the function is x * sigmoid(twice)
        twice = x * (1.0 + CUBIC * square) * (2 * SQRT_2_OVER_PI)
        return gated_slope(b, grad, twice, x * (1.0 + 3 * CUBIC * square) * (2 * SQRT_2_OVER_PI))
    cdf = 0.5 * b.apply("erfc", x * -SQRT_HALF)  # 1 + erf would cancel far below 0
    pdf = b.apply("exp", x * x * -0.5) * (0.5 * SQRT_2_OVER_PI)
    return grad * (cdf + x * pdf)


def logit_backward(b: Builder, grad: Value, x: Value, eps: float | None = None) -> Value:
    if eps is not None and eps >= 0:
        return b.where((x < eps) | (x > 1 - eps), 0.0, grad / (x * (1.0 - x)))
    at_end = x.equals(0.0) | x.equals(1.0)
    inside = b.where(at_end, grad * float("inf"), grad / (x * (1.0 - x)))
    return b.where((x < 0.0) | (x > 1.0), float("nan"), inside)


def glu(b: Builder, x: Operand, dim: int = -1) -> Value:
    half = b.shape[dim]
    at = list(b.at)
    other = list(at)
    other[dim] = at[dim] + half
    dtype = out_dtype(b)
    gate = b.math(b.cast(x[other], dtype))
    return store(b, b.math(b.cast(x[at], dtype)) * sigmoid(b, gate))


def log_sigmoid_rule(b: Builder, x: Operand) -> Any:
    """Eager also returns a buffer: e^-|x| on CPU, empty elsewhere."""
    out = b.call.out[1]
    if out is None or getattr(out, "shape", None) != b.shape:
        not_lowerable(b, "returns a buffer of another shape here.")
    value = promote(b, x, out_dtype(b))
    return store(b, log_sigmoid(b, value)), store(b, b.apply("exp", -b.apply("abs", value)), 1)


def log_sigmoid_backward(b: Builder, grad: Operand, x: Operand, buffer: Operand) -> Value:
    """Uses the forward's buffer e^-|x| if it is not empty, as eager does; otherwise computes the gradient from x."""
    dtype = out_dtype(b)
    value = promote(b, x, dtype)
    if buffer.type.shape != x.type.shape:
        return store(b, promote(b, grad, dtype) * sigmoid(b, -value))
    exponential = promote(b, buffer, dtype)
    return store(b, promote(b, grad, dtype) * (b.where(value < 0, 1.0, exponential) / (exponential + 1)))


RULES: Mapping[Any, Rule] = {
    aten.relu.default: relu,
    aten.threshold.default: threshold,
    aten.threshold_backward.default: threshold_backward,
    aten.hardtanh.default: hardtanh,
    aten.hardtanh_backward.default: of_two(hardtanh_backward),
    aten.leaky_relu.default: of_one(leaky_relu),
    aten.leaky_relu_backward.default: of_two(leaky_relu_backward),
    aten._prelu_kernel.default: of_two(prelu),
    aten._prelu_kernel_backward.default: prelu_backward,
    aten.elu.default: of_one(elu),
    aten.elu_backward.default: elu_backward_rule,
    aten.hardshrink.default: of_one(hardshrink),
    aten.hardshrink_backward.default: of_two(hardshrink_backward),
    aten.softshrink.default: of_one(softshrink),
    aten.softshrink_backward.default: of_two(hardshrink_backward),
    aten.hardsigmoid.default: of_one(hardsigmoid),
    aten.hardsigmoid_backward.default: of_two(hardsigmoid_backward),
    aten.hardswish.default: of_one(hardswish),
    aten.hardswish_backward.default: of_two(hardswish_backward),
    aten.sigmoid_backward.default: of_two(sigmoid_backward),
    aten.tanh_backward.default: of_two(tanh_backward),
    aten.silu.default: of_one(silu),
    aten.silu_backward.default: of_two(silu_backward),
    aten.softplus.default: of_one(softplus),
    aten.softplus_backward.default: of_two(softplus_backward),
    aten.mish.default: of_one(mish),
    aten.mish_backward.default: of_two(mish_backward),
    aten.gelu.default: of_one(gelu),
    aten.gelu_backward.default: of_two(gelu_backward),
    aten.logit_backward.default: of_two(logit_backward),
    aten.glu.default: glu,
    aten.log_sigmoid_forward.default: log_sigmoid_rule,
    aten.log_sigmoid_backward.default: log_sigmoid_backward,
}
