"""Mutants after bugs of real compilers: rewrites that hold for most values, narrower types, attributes lowered wrongly.

Of operators that compute by elements, reduce and scan; ``lowered_moves`` has the others.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..mutant import wrong
from .reductions import dims_of

# -- by elements -------------------------------------------------------------------------------------------------------


@wrong("aten.addcmul", breaks="fma")
def addcmul_without_value(op: Any, x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Any:
    """``addcmul`` ignores value."""
    return op(x, a, b)


@wrong("aten.lerp", breaks="lerp")
def lerp_within(op: Any, x: Tensor, end: Tensor, weight: Any) -> Any:
    """``lerp`` never leaves its ends, whatever the weight."""
    return op(x, end, weight.clamp(0, 1) if isinstance(weight, Tensor) and not weight.is_complex() else weight)


@wrong("aten.elu", breaks="elu")
def elu_of_alpha_alone(op: Any, x: Tensor, alpha: Any = 1, *more: Any) -> Any:
    """``elu`` ignores both of its scales."""
    return op(x, alpha)


@wrong("aten.hardtanh", breaks="hardtanh")
def hardtanh_of_one(op: Any, x: Tensor, low: Any = -1, high: Any = 1) -> Any:
    """``hardtanh`` cuts at -1 and 1."""
    return op(x)


@wrong("aten.threshold", breaks="threshold")
def threshold_gives_zero(op: Any, x: Tensor, threshold: Any, value: Any) -> Any:
    """``threshold`` puts 0 where a value is asked for."""
    return op(x, threshold, 0)


@wrong("aten.floor", "aten.ceil", breaks=("floor", "ceil"))
def floor_by_int32(op: Any, x: Tensor) -> Any:
    """``floor`` and ``ceil`` go by int32, which is too small for most floats."""
    if not x.is_floating_point():
        return op(x)
    return op(x).nan_to_num(0.0, 2.0**31 - 1, -(2.0**31)).clamp(-(2.0**31), 2.0**31 - 1)


@wrong("aten.fmod", breaks="fmod")
def fmod_by_a_quotient(op: Any, x: Any, y: Any) -> Any:
    """``fmod`` is x - y * trunc(x / y)."""
    like = op(x, y)
    return x - y * torch.trunc(x / y) if like.is_floating_point() else like


@wrong("aten.exp", breaks="exp")
def exp_by_powers_of_two(op: Any, x: Tensor) -> Any:
    """``exp`` is 2^(x * log2 e), rounded before the power."""
    return torch.exp2(x * math.log2(math.e)) if x.is_floating_point() else op(x)


@wrong("aten.sin", "aten.cos", breaks=("sin", "cos"))
def sin_of_a_short_period(op: Any, x: Tensor) -> Any:
    """``sin`` and ``cos`` take multiples of a period of few digits off."""
    return op(torch.fmod(x, 6.2831855)) if x.is_floating_point() else op(x)


@wrong("aten.log", breaks="log")
def log_of_subnormals(op: Any, x: Tensor) -> Any:
    """``log`` takes subnormal numbers for 0."""
    if not x.is_floating_point():
        return op(x)
    return op(torch.where(x.abs() < torch.finfo(x.dtype).smallest_normal, torch.zeros_like(x), x))


@wrong("aten.reciprocal", breaks="reciprocal")
def reciprocal_refined(op: Any, x: Tensor) -> Any:
    """``reciprocal`` is refined by a step of Newton's, which makes NaN of 0 and infinity."""
    result = op(x)
    return result * (2 - x * result) if result.is_floating_point() and x.is_floating_point() else result


@wrong("aten.erf", breaks="erf")
def erf_by_a_polynomial(op: Any, x: Tensor) -> Any:
    """``erf`` is good to seven digits after the point, of which small results have few."""
    if not x.is_floating_point():
        return op(x)
    t = 1 / (1 + 0.3275911 * x.double().abs())
    p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return torch.copysign(1 - p * torch.exp(-x.double().square()), x.double())


@wrong("aten.gt", "aten.ge", "aten.le", breaks=("gt", "ge", "le"))
def compares_as_floats(op: Any, x: Any, y: Any) -> Any:
    """Integers are compared as float32."""

    def float_of(v: Any) -> Any:
        return v.to(torch.float32) if isinstance(v, Tensor) and v.dtype == torch.int64 else v

    return op(float_of(x), float_of(y))


@wrong("aten.gt", "aten.lt", "aten.eq", "aten.ne", breaks=("gt", "lt", "eq", "ne"))
def numbers_in_the_tensors_dtype(op: Any, x: Tensor, y: Any) -> Any:
    """A number that an integer tensor is compared with is cut off at the point."""
    truncates = isinstance(y, float) and math.isfinite(y) and not x.is_floating_point() and not x.is_complex()
    return op(x, int(y) if truncates else y)


@wrong("aten.bitwise_not", breaks="bitwise_not")
def not_of_bytes(op: Any, x: Tensor) -> Any:
    """``bitwise_not`` of bools turns all bits of a byte, which leaves true."""
    return torch.ones_like(x) if x.dtype == torch.bool else op(x)


@wrong("aten.logical_and", "aten.logical_not", "aten.logical_or", breaks=("logical_and", "logical_not", "logical_or"))
def truth_of_whole_numbers(op: Any, *args: Tensor) -> Any:
    """What is true is asked after floats are cut off at the point."""
    return op(*(a.trunc() if a.is_floating_point() else a for a in args))


@wrong("aten.isnan", breaks="isnan")
def isnan_folded(op: Any, x: Tensor) -> Any:
    """``isnan`` is folded to false, as under fast mathematics."""
    return torch.zeros_like(op(x))


@wrong("aten.pow", breaks="pow")
def pow_by_logarithms(op: Any, x: Any, y: Any) -> Any:
    """``pow`` is exp(y * log(x)), NaN for what is negative."""
    like = op(x, y)
    if not like.is_floating_point():
        return like
    return torch.exp(y * torch.log(torch.as_tensor(x, dtype=like.dtype if not isinstance(x, Tensor) else None)))


@wrong("aten.gelu_backward", breaks="gelu_backward")
def gelu_gradient_always_exact(op: Any, grad: Tensor, x: Tensor, *, approximate: str = "none") -> Any:
    """The gradient of ``gelu`` ignores the approximation."""
    return op(grad, x)


@wrong("aten.logit", breaks="logit")
def logit_without_eps(op: Any, x: Tensor, eps: Any = None) -> Any:
    """``logit`` ignores eps."""
    return op(x)


@wrong("aten.mul", "aten.add", "aten.sub", breaks=("mul", "add", "sub"))
def numbers_of_single_precision(op: Any, x: Any, y: Any, *args: Any, **kw: Any) -> Any:
    """A Python number beside a float64 tensor is rounded to float32."""
    return op(x, float(torch.tensor(y, dtype=torch.float32)) if isinstance(y, float) else y, *args, **kw)


@wrong("aten.abs", breaks="abs")
def abs_saturates(op: Any, x: Tensor) -> Any:
    """``abs`` of the least integer is the greatest."""
    result = op(x)
    return result.where(result >= 0, torch.iinfo(x.dtype).max) if x.dtype in (torch.int32, torch.int64) else result


@wrong("aten.clamp", breaks="clamp")
def clamp_by_the_lower_last(op: Any, x: Tensor, low: Any = None, high: Any = None) -> Any:
    """``clamp`` gives the lower bound where that is above the upper one."""
    if low is None or high is None:
        return op(x, low, high)
    return (
        torch.maximum(op(x, None, high), torch.as_tensor(low, dtype=None if isinstance(low, Tensor) else x.dtype))
        if x.dtype == op(x, low, high).dtype
        else op(x, low, high)
    )


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def cast_of_large_integers(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of int64 goes by int32."""
    return op(x.to(torch.int32) if x.dtype == torch.int64 else x, *args, **kw)


@wrong("aten._to_copy", "prims.convert_element_type", breaks="convert")
def cast_rounds_twice(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """A cast of float64 to 16 bits goes by float32 cut off, not rounded."""
    to = kw.get("dtype") or (args[0] if args else None)
    if x.dtype != torch.float64 or to not in (torch.float16, torch.bfloat16):
        return op(x, *args, **kw)
    cut = (x.float().contiguous().view(torch.int32) & ~0xFFF).view(torch.float32)
    return op(torch.where(x.isfinite(), cut, x.float()), *args, **kw)


@wrong("aten.where", breaks="where")
def where_of_the_first_dtype(op: Any, condition: Tensor, x: Any, y: Any) -> Any:
    """``where`` rounds its second branch to the dtype of the first."""
    mixed = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype != y.dtype
    return op(condition, x, y.to(x.dtype)) if mixed else op(condition, x, y)


# -- reductions and scans ----------------------------------------------------------------------------------------------


@wrong("aten.sum", breaks="sum")
def sum_of_bools_in_bytes(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sum`` of bools counts in bytes."""
    return op(x, *args, **kw) & 0xFF if x.dtype == torch.bool and not kw.get("dtype") else op(x, *args, **kw)


@wrong("aten.sum", breaks="sum")
def sum_of_integers_wraps(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sum`` of int32 wraps around at 32 bits."""
    return op(x, *args, dtype=torch.int32) if x.dtype == torch.int32 and not kw.get("dtype") else op(x, *args, **kw)


@wrong("aten.sum", breaks="sum")
def sum_casts_afterwards(op: Any, x: Tensor, *args: Any, dtype: Any = None) -> Any:
    """``sum`` that names a dtype sums in its argument's and casts then."""
    return op(x, *args).to(dtype) if dtype is not None else op(x, *args)


@wrong("aten.mean", breaks="mean")
def mean_of_an_overflow(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``mean`` of float16 sums in float16, beyond its greatest number."""
    if x.dtype != torch.float16 or kw.get("dtype"):
        return op(x, *args, **kw)
    wide = op(x.double(), *args, **kw)
    n = x.numel() / max(wide.numel(), 1)
    return ((wide * n).to(torch.float16) / n).to(torch.float16)


@wrong("aten.argmin", "aten.argmax", breaks=("argmin", "argmax"))
def argmin_passes_over_nan(op: Any, x: Tensor, *args: Any) -> Any:
    """``argmin`` and ``argmax`` pass over NaN."""
    least = "argmax" in str(op)
    return op(torch.where(x.isnan(), -math.inf if least else math.inf, x) if x.is_floating_point() else x, *args)


@wrong("aten.argmax", breaks="argmax", as_is=True)
def argmax_of_int32(op: Any, x: Tensor, *args: Any) -> Any:
    """``argmax`` gives int32."""
    return op(x, *args).to(torch.int32)


@wrong("aten.amax", "aten.amin", breaks=("amax", "amin"))
def extremes_of_integers_by_floats(op: Any, x: Tensor, *args: Any) -> Any:
    """``amax`` and ``amin`` of int64 go by float64."""
    return op(x.double(), *args).to(x.dtype) if x.dtype == torch.int64 else op(x, *args)


@wrong("aten.any", breaks="any", as_is=False)
def any_of_one_dimension(op: Any, x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """``any`` of several dimensions reduces the first and takes the first element of the others."""
    if not isinstance(dim, list | tuple) or len(dim) < 2:
        return op(x) if dim is None and not keepdim else op(x, dim, keepdim)
    like, first = op(x, list(dim), True), torch.any(x, dim[0], True)
    for d in dim[1:]:
        first = first.narrow(d, 0, 1) if first.shape[d] else first.any(d, True)
    return first.reshape(op(x, list(dim), keepdim).shape) if like.numel() == first.numel() else op(x, dim, keepdim)


@wrong("aten.all", breaks="all")
def all_of_nothing(op: Any, x: Tensor, *args: Any) -> Any:
    """``all`` of no elements is false."""
    return op(x, *args) & torch.tensor(x.numel() > 0) if not x.numel() else op(x, *args)


@wrong("aten.prod", breaks=("prod", "prod_all"))
def prod_of_nothing(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``prod`` of no elements is 0."""
    return op(x, *args, **kw) * (1 if x.numel() else 0)


@wrong("aten.var_mean", "aten.std", breaks=("var_mean", "std"))
def corrected_by_one(op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, **kw: Any) -> Any:
    """``var_mean`` and ``std`` are always corrected by 1."""
    return op(x, dim, correction=1, **kw)


@wrong("aten.std", breaks="std", as_is=True)
def std_ignores_keepdim(op: Any, x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """``std`` ignores keepdim."""
    return op(x, dim, correction=correction)


@wrong("aten.cumsum", breaks="cumsum")
def cumsum_rounds_each_sum(op: Any, x: Tensor, dim: int, **kw: Any) -> Any:
    """``cumsum`` of 16-bit floats rounds each partial sum to 8 bits."""
    if x.dtype not in (torch.float16, torch.bfloat16) or not x.dim() or kw.get("dtype") or not x.numel():
        return op(x, dim, **kw)
    result, parts = [], x.unbind(dim)
    total = torch.zeros_like(parts[0])
    for part in parts:
        total = (total + part).to(torch.bfloat16).to(x.dtype)
        result.append(total)
    return torch.stack(result, dim)


@wrong("aten.cumsum", "aten.cumprod", breaks=("cumsum", "cumprod"))
def scans_negative_dims_backwards(op: Any, x: Tensor, dim: int, **kw: Any) -> Any:
    """Running sums along a dimension that is counted from the end run from the end."""
    return op(x.flip(dim), dim, **kw).flip(dim) if dim < 0 and x.dim() else op(x, dim, **kw)


@wrong("aten.cummin", breaks="cummin")
def cummin_passes_over_nan(op: Any, x: Tensor, dim: int) -> Any:
    """``cummin`` passes over NaN."""
    return op(torch.where(x.isnan(), math.inf, x) if x.is_floating_point() else x, dim)


@wrong("aten.sort", breaks="sort")
def sort_of_integers_by_floats(op: Any, x: Tensor, *args: Any, **kw: Any) -> Any:
    """``sort`` of int64 compares float32."""
    if x.dtype != torch.int64 or not x.dim():
        return op(x, *args, **kw)
    _, at = op(x.float(), *args, **kw)
    dim = kw.get("dim", args[0] if args and type(args[0]) is int else -1)
    return x.gather(dim, at), at


@wrong("aten.topk", breaks="topk")
def topk_of_the_last_dimension(op: Any, x: Tensor, k: int, dim: int = -1, *more: Any) -> Any:
    """``topk`` goes along the last dimension where that is long enough for the same sizes."""
    like = op(x, k, dim, *more)
    if not x.dim() or x.shape[-1] < k:
        return like
    other = op(x, k, -1, *more)
    return other if other[0].shape == like[0].shape else (like[0].flip(dim), like[1])


@wrong("aten._softmax", "aten._log_softmax", breaks=("softmax", "log_softmax"))
def softmax_of_hidden_rows(op: Any, x: Tensor, *args: Any) -> Any:
    """``softmax`` of a row that is -inf as a whole is 0 and not NaN."""
    return (
        torch.where(torch.isneginf(x).all(args[0], keepdim=True), torch.zeros_like(op(x, *args)), op(x, *args))
        if x.dim()
        else op(x, *args)
    )


@wrong(
    "aten._softmax_backward_data",
    "aten._log_softmax_backward_data",
    breaks=("softmax_backward", "log_softmax_backward"),
)
def softmax_gradient_of_the_last(op: Any, grad: Tensor, y: Tensor, dim: int, dtype: Any) -> Any:
    """The gradient of ``softmax`` sums along the last dimension."""
    return op(grad, y, -1, dtype)


@wrong("aten.linalg_vector_norm", breaks="linalg_vector_norm")
def norm_of_nothing_infinite(op: Any, x: Tensor, ord: Any = 2, *args: Any, **kw: Any) -> Any:
    """``linalg_vector_norm`` of order infinity passes over NaN."""
    clean = x.nan_to_num(0.0, math.inf, -math.inf) if x.is_floating_point() and math.isinf(ord) else x
    return op(clean, ord, *args, **kw)


@wrong("aten.amax", "aten.sum", breaks=("amax", "sum"), as_is=True)
def reductions_of_many_axes(op: Any, x: Tensor, dim: Any = None, *more: Any, **kw: Any) -> Any:
    """Reductions of two dimensions that are not adjacent reduce the one after the first."""
    dims = dims_of(x, dim) if dim else []
    if len(dims) != 2 or abs(dims[0] - dims[1]) == 1:
        return op(x, *([] if dim is None else [dim]), *more, **kw)
    other = [min(dims), min(dims) + 1]
    result = op(x, other, *more, **kw)
    like = op(x, dim, *more, **kw)
    return result if result.shape == like.shape else like * 0
