"""A tensor as a computation of its dtype has it, with the exact value beside it and how far the two may be apart.

Nothing here knows an operator: what each does to value and error is a rule (``rules.py`` says what one is).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from keel.opset import Freedoms

from ..pytree import tree_leaves

BITS: Mapping[torch.dtype, int] = {
    torch.float64: 53,
    torch.float32: 24,
    torch.float16: 11,
    torch.bfloat16: 8,
    torch.complex128: 53,
    torch.complex64: 24,
    torch.complex32: 11,
    torch.float8_e4m3fn: 4,
    torch.float8_e4m3fnuz: 4,
    torch.float8_e5m2: 3,
    torch.float8_e5m2fnuz: 3,
}
"""Bits of the significand, the hidden one too."""

Evaluate = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


class Tracked(Freedoms, torch.Tensor):
    """A tensor whose operators also compute in float64 and bound the error.

    ``plain`` is the tensor itself, as eager PyTorch has it. ``value`` is the exact result up to rounding of float64
    (None: ``plain`` is exact), ``error`` bounds how far any right computation in the dtype of ``plain`` is from it, in
    float64 (None: it is ``plain``, to the bit; infinity: nothing is known of the element). Of integers and bools
    ``error`` is 0 or infinity.
    """

    plain: Tensor
    value: Tensor | None
    error: Tensor | None
    lost: Tensor | None
    overflowed: Tensor | None
    evaluate: Evaluate

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub has a plain function
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        first = next(t for t in tree_leaves((args, kwargs)) if isinstance(t, Tracked) and hasattr(t, "plain"))
        return first.evaluate(func, args, kwargs or {})

    def may_be_off(self, share: float, least: float) -> Tensor:
        """``share`` of what lies within the error, and ``least``; of what is sure to be 0, nothing."""
        value, before = wide(self), errors(self)
        reach = value.abs().nan_to_num(0.0, 0.0, 0.0) + before.nan_to_num(0.0, 0.0, 0.0)
        more = torch.where(reach > 0, share * reach + least, 0.0)
        return tracked(plain_of(self), self.evaluate, value, before + more)

    def may_be(self, other: Tensor) -> Tensor:
        """As far off as the other value, and as far as that one is."""
        value = wide(self)
        gap = (wide(other) - value).abs().nan_to_num(0.0, 0.0, 0.0) + errors(other)
        return tracked(plain_of(self), self.evaluate, value, torch.maximum(errors(self), gap))


def tracked(plain: Tensor, evaluate: Evaluate, value: Tensor | None = None, error: Tensor | None = None) -> Tracked:
    """``plain`` with its value and error; ``evaluate`` is what its operators do."""
    made = plain.as_subclass(Tracked)
    made.plain, made.value, made.error, made.lost, made.overflowed = plain, value, error, None, None
    made.evaluate = evaluate
    return made


def plain_of(x: Any) -> Any:
    """What eager PyTorch computes with."""
    return x.plain if isinstance(x, Tracked) and hasattr(x, "plain") else x


def inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a dtype is judged in: float64 and complex128; integers in themselves."""
    return torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else dtype


def wide(x: Tensor) -> Tensor:
    """The exact value, in float64 or complex128; integers and bools as they are."""
    if isinstance(x, Tracked) and getattr(x, "value", None) is not None:
        return x.value  # type: ignore[return-value]
    plain = plain_of(x)
    return plain.to(wide_dtype(plain.dtype))  # type: ignore[no-any-return]


def error_of(x: Any) -> Tensor | None:
    """None if ``x`` is exact; infinity where it may have overflowed."""
    if not isinstance(x, Tracked) or not hasattr(x, "plain"):
        return None
    if x.lost is None:
        return x.error
    return torch.where(x.lost, float("inf"), 0.0 if x.error is None else x.error)


def lost_of(x: Any) -> Tensor | None:
    """Where ``x`` may have overflowed to the infinity of its sign, and where in a wider dtype it would not have."""
    return getattr(x, "lost", None) if isinstance(x, Tracked) else None


def errors(x: Tensor) -> Tensor:
    """The error as a tensor, zeros where ``x`` is exact."""
    error = error_of(x)
    return torch.zeros(x.shape, dtype=torch.float64) if error is None else error


def ulp(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of adjacent numbers of ``dtype`` at the magnitude of ``x`` (float64 or complex128), in float64.

    2 ** (e - p) for 2 ** (e - 1) <= |x| < 2 ** e and p bits of significand, at least the smallest subnormal; that also
    for 0 (Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed., section 2.3.2, Goldberg's ulp).
    """
    facts = torch.finfo(dtype)
    size = x.abs().nan_to_num(0.0, 0.0, 0.0)
    exponent = torch.where(size == 0, -1074, torch.frexp(size)[1].to(torch.int64)) - BITS[dtype]
    normal = exponent.clamp(min=-1022)
    return (_power(normal) * _power((exponent - normal).clamp(min=-1022))).clamp(min=facts.smallest_normal * facts.eps)


def _power(exponent: Tensor) -> Tensor:
    """2 to the power of integers from -1022 to 1023, to the bit."""
    return ((exponent + 1023) << 52).view(torch.float64)


def unit(dtype: torch.dtype) -> float:
    """The unit roundoff u: a rounded result is off by a factor of 1 + d, |d| <= u."""
    return 2.0 ** -BITS[dtype]


def sums_in(dtype: torch.dtype, promised: bool = True) -> torch.dtype:
    """What sums of ``dtype`` are accumulated in at the least: float32 for floats of 16 bits and fewer if that is
    promised.
    """
    if not promised:
        return dtype
    if dtype.itemsize <= 2 and dtype.is_floating_point:
        return torch.float32
    return torch.complex64 if dtype == torch.complex32 else dtype


def overflow(dtype: torch.dtype) -> float:
    """From here on a number rounds to infinity."""
    facts = torch.finfo(dtype)
    return float(facts.max) if BITS[dtype] == 53 else float(facts.max) * (1.0 + unit(dtype) / 2)


def gamma(n: Tensor | float, u: float) -> Any:
    """n u / (1 - n u): what n roundings of unit roundoff u amount to (Higham, Accuracy and Stability of Numerical
    Algorithms, 2nd ed., Lemma 3.1). Infinity where n u reaches 1.
    """
    product = torch.as_tensor(n, dtype=torch.float64) * u
    return torch.where(product < 1, product / (1 - product), torch.full_like(product, float("inf")))
