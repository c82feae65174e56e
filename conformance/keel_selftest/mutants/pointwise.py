"""Mutants of operators that compute element by element: special values, rounding, promotion, attributes, addresses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong

# -- attributes --------------------------------------------------------------------------------------------------------


@wrong("aten.add", breaks="add")
def add_without_alpha(op: Any, *args: Any, alpha: Any = 1) -> Any:
    """``add`` ignores alpha."""
    return op(*args)


@wrong("aten.sub", breaks="sub")
def sub_swapped(op: Any, *args: Any, alpha: Any = 1) -> Any:
    """``sub`` takes its first operand from the second."""
    return -op(*args, alpha=alpha)


@wrong("aten.gelu", breaks="gelu")
def gelu_always_exact(op: Any, x: Tensor, *, approximate: str = "none") -> Any:
    """``gelu`` ignores which approximation is asked for."""
    return op(x)


@wrong("aten.leaky_relu", breaks="leaky_relu")
def leaky_relu_of_default_slope(op: Any, x: Tensor, *slope: Any) -> Any:
    """``leaky_relu`` ignores its slope."""
    return op(x)


@wrong("aten.softplus", breaks="softplus")
def softplus_without_beta(op: Any, x: Tensor, *more: Any) -> Any:
    """``softplus`` ignores beta and the threshold."""
    return op(x)


@wrong("aten.div", breaks="div")
def div_floor_truncates(op: Any, *args: Any, rounding_mode: str | None = None) -> Any:
    """``div`` that is to round down rounds toward zero."""
    if rounding_mode is None:
        return op(*args)
    return op(*args, rounding_mode="trunc" if rounding_mode == "floor" else rounding_mode)


@wrong("aten.nan_to_num", breaks="nan_to_num")
def nan_to_num_keeps_infinity(op: Any, x: Tensor, nan: Any = None, *more: Any, **kw: Any) -> Any:
    """``nan_to_num`` replaces NaN and leaves infinities."""
    return torch.where(x.isnan(), 0.0 if nan is None else nan, x) if x.is_floating_point() else op(x, nan)


# -- special values ----------------------------------------------------------------------------------------------------


@wrong("aten.maximum", breaks="maximum")
def maximum_drops_nan(op: Any, x: Tensor, y: Tensor) -> Any:
    """``maximum`` gives the other operand where one is NaN."""
    return torch.fmax(x, y)


@wrong("aten.minimum", breaks="minimum")
def minimum_by_comparison(op: Any, x: Tensor, y: Tensor) -> Any:
    """``minimum`` is ``x < y ? x : y``, which gives y where x is NaN."""
    return torch.where(x < y, x, y)


@wrong("aten.relu", breaks="relu")
def relu_of_nan_is_zero(op: Any, x: Tensor) -> Any:
    """``relu`` is ``x > 0 ? x : 0``."""
    return torch.where(x > 0, x, torch.zeros_like(x))


@wrong("aten.neg", breaks="neg")
def neg_from_zero(op: Any, x: Tensor) -> Any:
    """``neg`` is ``0 - x``, which loses the sign of zero."""
    return 0 - x


@wrong("aten.abs", breaks="abs")
def abs_of_minus_zero(op: Any, x: Tensor) -> Any:
    """``abs`` is ``x < 0 ? -x : x``, which leaves -0."""
    return op(x) if x.is_complex() or x.dtype == torch.bool else torch.where(x < 0, -x, x)


@wrong("aten.copysign", breaks="copysign")
def copysign_by_comparison(op: Any, x: Tensor, y: Any) -> Any:
    """``copysign`` asks whether y < 0, which -0 is not."""
    return torch.where(torch.as_tensor(y) < 0, -x.abs(), x.abs())


@wrong("aten.clamp", "aten.clamp_min", "aten.clamp_max", breaks=("clamp", "clamp_min", "clamp_max"))
def clamp_drops_nan(op: Any, x: Tensor, *bounds: Any, **kw: Any) -> Any:
    """``clamp`` puts NaN at a bound."""
    bound = next((b for b in (*bounds, *kw.values()) if b is not None), None)
    return op(torch.where(x.isnan(), bound, x) if x.is_floating_point() and bound is not None else x, *bounds, **kw)


@wrong("aten.eq", breaks="eq")
def eq_of_nan(op: Any, x: Tensor, y: Any) -> Any:
    """``eq`` holds NaN for equal to NaN."""
    return op(x, y) | (torch.ne(x, x) & torch.ne(torch.as_tensor(y), torch.as_tensor(y)))


@wrong("aten.lt", breaks="lt")
def lt_by_difference(op: Any, x: Tensor, y: Any) -> Any:
    """``lt`` asks whether x - y is negative, which overflows and wraps."""
    return op(x, y) if x.dtype == torch.bool else (x - y) < 0


@wrong("aten.isinf", breaks="isinf")
def isinf_of_one_sign(op: Any, x: Tensor) -> Any:
    """``isinf`` misses the negative infinity."""
    return op(x) if x.is_complex() else x == math.inf


@wrong("aten.sigmoid", breaks="sigmoid")
def sigmoid_overflows(op: Any, x: Tensor) -> Any:
    """``sigmoid`` is e^x / (1 + e^x), NaN where e^x is infinite."""
    return torch.exp(x) / (1 + torch.exp(x))


@wrong("aten.logaddexp", breaks="logaddexp")
def logaddexp_naive(op: Any, x: Tensor, y: Tensor) -> Any:
    """``logaddexp`` does not take the greater operand out of the exponentials."""
    return torch.log(torch.exp(x) + torch.exp(y))


@wrong("aten.xlogy", breaks="xlogy")
def xlogy_of_zeros(op: Any, x: Any, y: Any) -> Any:
    """``xlogy`` is x * log(y), NaN where both are 0."""
    return x * torch.log(torch.as_tensor(y))


@wrong("aten.atan2", breaks="atan2")
def atan2_of_a_quotient(op: Any, y: Tensor, x: Tensor) -> Any:
    """``atan2`` is atan(y / x), which knows two quadrants."""
    return torch.atan(y / x)


@wrong("aten.where", breaks="where")
def where_by_products(op: Any, condition: Tensor, x: Any, y: Any) -> Any:
    """``where`` is c * x + (1 - c) * y, so that what is not chosen may be seen."""
    like = op(condition, x, y)
    chosen = condition.to(like.dtype)
    return like if like.dtype == torch.bool else chosen * x + (1 - chosen) * y


# -- rounding ----------------------------------------------------------------------------------------------------------


@wrong("aten.round", breaks="round")
def round_half_up(op: Any, x: Tensor, **kw: Any) -> Any:
    """``round`` takes halves up and not to even."""
    return torch.floor(x + 0.5) if x.is_floating_point() and not kw else op(x, **kw)


@wrong("aten.log1p", breaks="log1p")
def log1p_cancels(op: Any, x: Tensor) -> Any:
    """``log1p`` is log(1 + x)."""
    return torch.log(1 + x)


@wrong("aten.expm1", breaks="expm1")
def expm1_cancels(op: Any, x: Tensor) -> Any:
    """``expm1`` is e^x - 1."""
    return torch.exp(x) - 1


@wrong("aten.tanh", breaks="tanh")
def tanh_cancels(op: Any, x: Tensor) -> Any:
    """``tanh`` is 1 - 2 / (1 + e^2x), without digits near 0."""
    return 1 - 2 / (1 + torch.exp(2 * x))


@wrong("aten.rsqrt", breaks="rsqrt")
def rsqrt_of_few_digits(op: Any, x: Tensor) -> Any:
    """``rsqrt`` is an estimate of 12 bits."""
    exact = op(x)
    if exact.dtype != torch.float32:
        return exact
    return (exact.contiguous().view(torch.int32) & ~0xFFF).view(torch.float32)


@wrong("aten.exp", breaks="exp")
def exp_flushes(op: Any, x: Tensor) -> Any:
    """``exp`` gives 0 for results that are subnormal."""
    result = op(x)
    if not result.is_floating_point():
        return result
    return torch.where(result.abs() < torch.finfo(result.dtype).smallest_normal, torch.zeros_like(result), result)


@wrong("aten.hypot", breaks="hypot")
def hypot_overflows(op: Any, x: Tensor, y: Tensor) -> Any:
    """``hypot`` squares without scaling."""
    return torch.sqrt(x * x + y * y)


@wrong("aten.div", breaks="div")
def div_by_a_reciprocal(op: Any, x: Any, y: Any, **kw: Any) -> Any:
    """``div`` multiplies by a rounded reciprocal that is of bfloat16."""
    exact = op(x, y, **kw)
    if kw or not exact.is_floating_point():
        return exact
    return x * torch.reciprocal(torch.as_tensor(y).to(torch.bfloat16)).to(exact.dtype)


# -- dtypes ------------------------------------------------------------------------------------------------------------


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def cast_rounds(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of floats to integers rounds and does not truncate."""
    to = kw.get("dtype") or (args[0] if args else None)
    to_integer = isinstance(to, torch.dtype) and not (to.is_floating_point or to.is_complex or to == torch.bool)
    return op(x.round() if to_integer and x.is_floating_point() else x, *args, **kw)


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def cast_to_bool_truncates(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of floats to bool goes by integers, so that 0.5 is false."""
    to = kw.get("dtype") or (args[0] if args else None)
    return op(x.trunc() if to == torch.bool and x.is_floating_point() else x, *args, **kw)


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def cast_to_bf16_truncates(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of float32 to bfloat16 cuts bits off and does not round."""
    to = kw.get("dtype") or (args[0] if args else None)
    if to != torch.bfloat16 or x.dtype != torch.float32:
        return op(x, *args, **kw)
    return (x.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


@wrong("aten.add", breaks="add", as_is=True)
def add_promotes_to_the_first(op: Any, x: Any, *args: Any, **kw: Any) -> Any:
    """``add`` gives its first operand's dtype where they differ."""
    result = op(x, *args, **kw)
    return result.to(x.dtype) if isinstance(x, Tensor) else result


@wrong("aten.mul", breaks="mul")
def mul_saturates(op: Any, x: Any, y: Any) -> Any:
    """``mul`` of integers of 32 bits saturates and does not wrap."""
    result = op(x, y)
    if result.dtype != torch.int32:
        return result
    info = torch.iinfo(result.dtype)
    return torch.as_tensor(x).to(torch.int64).mul(torch.as_tensor(y).to(torch.int64)).clamp(info.min, info.max)


@wrong("aten.remainder", breaks="remainder")
def remainder_of_the_dividend(op: Any, *args: Any) -> Any:
    """``remainder`` has the sign of the dividend."""
    return torch.fmod(*args) if isinstance(args[0], Tensor) else op(*args)


@wrong("aten.floor_divide", breaks="floor_divide")
def floor_divide_truncates(op: Any, x: Tensor, y: Any) -> Any:
    """``floor_divide`` rounds toward zero."""
    return torch.div(x, y, rounding_mode="trunc")


@wrong("aten.bitwise_right_shift", "aten.__rshift__", breaks="shift_right")
def shift_right_logical(op: Any, x: Any, y: Any) -> Any:
    """``shift_right`` of signed integers shifts zeros in."""
    result = op(x, y)
    bits = 8 * result.element_size()
    if not isinstance(x, Tensor) or not result.dtype.is_signed:
        return result
    mask = torch.where(torch.as_tensor(y) == 0, -1, (1 << (bits - torch.as_tensor(y).long()).clamp(max=62)) - 1)
    return result & mask.to(result.dtype)


@wrong("aten.pow", breaks="pow")
def pow_of_integers_by_floats(op: Any, x: Any, y: Any) -> Any:
    """``pow`` of integers goes by float32."""
    result = op(x, y)
    if result.is_floating_point() or result.is_complex():
        return result
    parts = [v.to(torch.float32) if isinstance(v, Tensor) else v for v in (x, y)]
    return torch.pow(*parts)


# -- addresses ---------------------------------------------------------------------------------------------------------


@wrong("aten.mul", breaks="mul")
def mul_without_tail(op: Any, x: Any, y: Any) -> Any:
    """``mul`` leaves what comes after the last whole vector of 8 as it is in the first operand."""
    result = op(x, y)
    if not isinstance(x, Tensor) or result.numel() < 8 or result.numel() % 8 == 0:
        return result
    flat, tail = result.contiguous().view(-1), result.numel() // 8 * 8
    flat[tail:] = x.expand(result.shape).reshape(-1)[tail:].to(flat.dtype)
    return flat.view(result.shape)


@wrong("aten.sub", breaks="sub")
def sub_without_offset(op: Any, x: Any, *more: Any, **kw: Any) -> Any:
    """``sub`` reads its first operand from the start of the memory that it lies in."""
    first = x.as_strided(x.shape, x.stride(), 0) if isinstance(x, Tensor) else x
    return op(first, *more, **kw)


@wrong("aten.exp", breaks="exp")
def exp_of_row_major(op: Any, x: Tensor) -> Any:
    """``exp`` reads a transposed operand as if it were row-major."""
    dense = x.dim() >= 2 and x.numel() > 1 and not x.is_contiguous() and 0 not in x.stride()
    lies = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    return op(x.as_strided((x.numel(),), (1,)).view(x.shape) if dense and lies == x.numel() else x)


@wrong("aten.div", breaks="div")
def div_of_unexpanded(op: Any, x: Any, y: Any, **kw: Any) -> Any:
    """``div`` divides by the first row of a divisor that is a column."""
    column = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dim() >= 2 and y.dim() == x.dim()
    if not column or y.shape[-1] != 1 or x.shape[-1] == 1 or not y.numel():
        return op(x, y, **kw)
    return op(x, y.reshape(-1)[:1], **kw)


@wrong("aten.add", breaks="add")
def add_stops_at_65536(op: Any, *args: Any, **kw: Any) -> Any:
    """``add`` of more than 65,536 elements leaves zeros beyond them."""
    result = op(*args, **kw)
    if result.numel() <= 65536:
        return result
    flat = result.contiguous().view(-1)
    flat[65536:] = 0
    return flat.view(result.shape)


@wrong("aten.sqrt", breaks="sqrt")
def sqrt_through_half(op: Any, x: Tensor) -> Any:
    """``sqrt`` computes in float16."""
    return op(x.to(torch.float16)) if x.is_floating_point() else op(x)


@wrong("aten.add", "aten.mul", "aten.sub", breaks=("add", "mul", "sub"))
def ones_in_the_middle(op: Any, x: Any, y: Any, *args: Any, **kw: Any) -> Any:
    """The first matrix of an operand with a size of one between others serves for all."""
    between = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dim() == y.dim() == 3 and y.shape[1] == 1
    if not between or x.shape[1] == 1 or not 1 < y.shape[0] == x.shape[0]:
        return op(x, y, *args, **kw)
    return op(x, y[:1].expand(y.shape), *args, **kw)


@wrong("aten.mul", breaks="mul")
def rows_for_columns(op: Any, x: Any, y: Any, *args: Any) -> Any:
    """A vector is lined up with the first dimension of a matrix where it has its size."""
    fits = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dim() == 2 and y.shape == x.shape[:1]
    return op(x, y[:, None] if fits and x.shape[0] == x.shape[1] else y, *args)


@wrong("aten.add", breaks="add")
def small_sums_saturate(op: Any, x: Any, y: Any, *args: Any, **kw: Any) -> Any:
    """Sums of uint8 stop at 255."""
    result = op(x, y, *args, **kw)
    if result.dtype != torch.uint8 or not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return result
    return (x.int() + kw.get("alpha", 1) * y.int()).clamp(0, 255)
