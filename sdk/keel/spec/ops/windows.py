"""Windows of signals, and numbers at equal distances: made of whole numbers counted up."""

from __future__ import annotations

import math
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import HALVES
from keel.spec.op import Family

aten = torch.ops.aten
family = Family("windows")
Tensor = torch.Tensor

_TAGS = frozenset({"creation"})
_WINDOW = (
    "A window of length 1 is 1.",
    "periodic (the default) is the window of one element more without its last; else it is symmetric.",
    Clause("Elements are computed in float32 at least, and rounded once.", About.FLOAT32),
)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What is computed in."""
    return torch.float32 if dtype in HALVES else dtype


def _window(of: Any, length: int, periodic: bool, options: dict[str, Any]) -> Tensor:
    """``of(t, step)`` for t = 0, 1, 2 ..., ``step`` being 1 / (length - 1) of the symmetric window."""
    dtype, device = options.get("dtype") or torch.get_default_dtype(), options.get("device")
    if not dtype.is_floating_point:
        return NotImplemented
    if length <= 1:
        return aten.full.default([length], 1.0, dtype=dtype, device=device)
    counted = aten.arange.start_step(0, length, dtype=_wide(dtype), device=device)
    return of(counted, 1.0 / (length if periodic else length - 1)).to(dtype)


@family(
    "bartlett_window",
    "bartlett_window.periodic",
    clauses=(*_WINDOW, "With n elements, element k is 1 - |2 k / (n - 1) - 1|."),
    tags=_TAGS,
)
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle from 0 to 1 and back."""
    return _window(lambda t, step: 1 - aten.abs.default(t * (2 * step) - 1), window_length, periodic, options)


@family(
    "hann_window",
    "hann_window.periodic",
    clauses=(*_WINDOW, "With n elements, element k is (1 - cos(2 pi k / (n - 1))) / 2."),
    tags=_TAGS,
)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A cosine from 0 to 1 and back."""
    return _window(
        lambda t, step: 0.5 - 0.5 * aten.cos.default(t * (2 * math.pi * step)), window_length, periodic, options
    )


@family(
    "hamming_window",
    "hamming_window.periodic",
    "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta",
    clauses=(*_WINDOW, "With n elements, element k is alpha - beta * cos(2 pi k / (n - 1))."),
    tags=_TAGS,
)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any
) -> Tensor:
    """A cosine that does not quite reach 0 at the ends."""
    return _window(
        lambda t, step: alpha - beta * aten.cos.default(t * (2 * math.pi * step)), window_length, periodic, options
    )


@family(
    "blackman_window",
    "blackman_window.periodic",
    clauses=(*_WINDOW, "With n elements, element k is 0.42 - 0.5 cos(2 pi k / (n - 1)) + 0.08 cos(4 pi k / (n - 1))."),
    tags=_TAGS,
)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A sum of two cosines that is nearly flat at the ends."""

    def of(t: Tensor, step: float) -> Tensor:
        turn = t * (2 * math.pi * step)
        return 0.42 - 0.5 * aten.cos.default(turn) + 0.08 * aten.cos.default(turn * 2)

    return _window(of, window_length, periodic, options)


@family(
    "kaiser_window",
    "kaiser_window.periodic",
    "kaiser_window.beta",
    clauses=(*_WINDOW, "With n elements, element k is I0(beta sqrt(1 - (2 k / (n - 1) - 1)^2)) / I0(beta)."),
    tags=_TAGS,
)
def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """The window of a modified Bessel function, the narrower the larger beta is."""

    def of(t: Tensor, step: float) -> Tensor:
        x = t * (2 * step) - 1
        inside = aten.clamp_min.default(1 - x * x, 0.0)
        beta_tensor = aten.full.default([], beta, dtype=t.dtype, device=t.device)
        return aten.i0.default(beta * aten.sqrt.default(inside)) / aten.i0.default(beta_tensor)

    return _window(of, window_length, periodic, options)


@family(
    "range",
    "range.step",
    clauses=(
        "There are floor((end - start) / step) + 1 elements: end is one of them where a whole number of steps "
        "leads to it.",
        "The dtype is the default float unless it is given; for integers start, end and step are truncated.",
        Clause("Floats are start + k * step, computed in float32 at least.", About.FLOAT32),
    ),
    tags=_TAGS,
)
def range_inclusive(
    start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any
) -> Tensor:
    """Numbers at equal distances, the last included."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    wide = _wide(dtype) if dtype.is_floating_point else torch.int64
    if wide == torch.int64:
        start, end, step = int(start), int(end), int(step)
    count = math.floor((end - start) / step) + 1
    counted = aten.arange.start_step(0, count, dtype=wide, device=device)
    return (counted * step + start).to(dtype)
