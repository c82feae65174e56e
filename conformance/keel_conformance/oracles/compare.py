"""One result against its reference, element by element: the worst error, how much of the bound it is, where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..results.histogram import spread
from .tracked_tensor import error_of, inexact, overflow, plain_of, ulp, wide, wide_dtype

MASKED = 0.01
"""A result of which more than this share may be anything is not judged (the research's section 2.1, C)."""
TIMES = 2.0
"""The budget of operators without one of their own, as a multiple of eager's error."""


@dataclass(frozen=True)
class Finding:
    """``sentence`` says what is wrong; empty if nothing is. ``figures`` are those of a Verdict. ``excused`` says that
    eager PyTorch is as wrong.
    """

    sentence: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    vacuous: bool = False
    excused: bool = False


def compare(
    got: Tensor, want: Tensor, eager: Sequence[Tensor] = (), *, zeros: bool = False, flushes: bool = False
) -> Finding:
    """``want`` is tracked, or exact. ``zeros`` says whether the sign of a zero counts where the result is exactly 0. If
    the arithmetic ``flushes`` subnormals, a zero is right where a result may be below the normal numbers.

    Where one of ``eager``'s results is beyond the bound too, an element at most ``TIMES`` as far off is excused.
    """
    if not got.numel():
        return Finding()
    value, error = wide(want), error_of(want)
    if not inexact(got.dtype):
        return _compare_exact(got, plain_of(want), error, eager)
    error = torch.zeros(got.shape, dtype=torch.float64) if error is None else error
    actual = _wide(got)
    if error_of(want) is None:
        value = _wide(value.to(got.dtype))
    right = _right(actual, value, error, got.dtype)
    if flushes:
        least = torch.finfo(got.dtype).smallest_normal
        right |= (actual == 0) & (value.abs() < least + torch.where(error.isfinite(), error, 0.0))
    signed = torch.zeros_like(right)
    if zeros and not got.is_complex():
        signed = (value == 0) & (error == 0) & (actual == 0) & (actual.signbit() != value.signbit())
        right &= ~signed
    excused = right.clone()
    for theirs in eager:
        excused |= _as_eager(actual, _wide(theirs), value) & ~signed
    return _figures(got, actual, value, error, right, bool(excused.all()))


def _as_eager(actual: Tensor, eager: Tensor, value: Tensor) -> Tensor:
    """No farther off than eager is twice, or the same, which an infinity has to be."""
    same, off = (actual == eager) | (actual.isnan() & eager.isnan()), (eager - value).abs()
    near = off.isfinite() & ((actual - value).abs() <= TIMES * off)
    if not actual.is_complex():
        same &= actual.isnan() | (actual.signbit() == eager.signbit())
        near &= value != 0
    return same | near


def _wide(x: Tensor) -> Tensor:
    return x.to(wide_dtype(x.dtype))


def _right(actual: Tensor, value: Tensor, error: Tensor, dtype: torch.dtype) -> Tensor:
    """Within the bound; of the same class where that is known; infinite only if what is within the bound may be."""
    same = (actual == value) | (_nan(actual) & _nan(value))
    near = (actual - value).abs() <= error
    over = actual.isinf() & value.isfinite() & (value.abs() + error >= overflow(dtype))
    if not actual.is_complex():
        over &= (actual > 0) == (value > 0)
        return same | near | over | error.isinf()
    free = ~value.isfinite() & ~actual.isfinite()  # how the parts of a complex infinity combine is free
    return same | near | over | free | error.isinf()


def _nan(x: Tensor) -> Tensor:
    return x.isnan()


def _compare_exact(got: Tensor, want: Tensor, error: Tensor | None, eager: Sequence[Tensor]) -> Finding:
    wrong = got != want
    masked = 0.0
    if error is not None:
        wrong &= (got.double() - want.double()).abs() > error
        masked = float(error.isinf().double().mean())
    if not wrong.any():
        return Finding("", {"masked": masked}, masked > MASKED)
    at = _first(wrong)
    sentence = f"{_where(at)} is {got[at].item()}, not {want[at].item()}; {_many(int(wrong.sum()), got.numel())}"
    return Finding(
        sentence,
        {"masked": masked, "index": list(at), "wrong": int(wrong.sum())},
        excused=not _differs_from_eager(got, eager, wrong),
    )


def _differs_from_eager(got: Tensor, eager: Sequence[Tensor], wrong: Tensor) -> bool:
    """Whether some element that is wrong is so in none of eager's results."""
    for theirs in eager:
        wrong = wrong & (got != theirs)
    return bool(wrong.any())


def _first(wrong: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in wrong.nonzero()[0])


def _figures(got: Tensor, actual: Tensor, value: Tensor, error: Tensor, right: Tensor, excused: bool) -> Finding:
    distance = torch.where(error.isinf() | ~value.isfinite(), 0.0, (actual - value).abs().nan_to_num(0.0, 0.0, 0.0))
    ulps = distance / ulp(value, got.dtype)
    ratio = torch.where(distance > 0, distance / error, 0.0)
    masked = float(error.isinf().double().mean())
    figures: dict[str, Any] = {"ulps": float(ulps.max()), "ratio": float(ratio.max()), "masked": masked}
    if bool(right.all()):
        figures["index"] = list(_at(ratio))
        return Finding("", figures, masked > MASKED)
    wrong = ~right
    severity = torch.where(wrong, ratio.nan_to_num(0.0, posinf=1e300) + 1, 0.0)
    at = _at(severity)
    figures |= {"index": list(at), "wrong": int(wrong.sum()), "histogram": spread(ulps, wrong & (distance == 0))}
    return Finding(_sentence(got, value, error, at, int(wrong.sum())), figures, excused=excused)


def _at(x: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(x.argmax(), x.shape)) if x.dim() else ()


def _sentence(got: Tensor, value: Tensor, error: Tensor, at: tuple[int, ...], wrong: int) -> str:
    many, where = _many(wrong, got.numel()), _where(at)
    is_, best, allowed = got[at].item(), value[at].item(), float(error[at])
    if is_ != is_ or best != best or is_ == best or abs(best) == float("inf") or abs(is_) == float("inf"):
        return f"{where} is {is_!r}, not {best!r}; {many}"
    off = abs(is_ - best)
    return f"{where} is {is_!r}, not {best!r}: off by {off:.3g} where {allowed:.3g} is allowed; {many}"


def _where(at: tuple[int, ...]) -> str:
    return f"At {at} it" if at else "It"


def _many(wrong: int, of: int) -> str:
    return f"{wrong} of {of} elements {'is' if wrong == 1 else 'are'} wrong."
