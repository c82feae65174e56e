"""Judges a result against its error budget.

The budget of an element is ``LIMIT`` times its spread: how far legal evaluations lie apart there. Integers and bools
are exact, unless a decision could be either. A few elements may be farther off, if as many are in a run with noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from keel.error_budgets.double_precision import eps, is_rounded, tiny, wide
from keel.error_budgets.memory_order import memory_order
from keel.error_budgets.node_runs import Expected
from keel.error_budgets.spread import BLOCK, distance, spread

LIMIT = 8.0
"""The budget is this many times the spread."""
HIDDEN = 8
"""One element in this many whose decision could be either is not shown by the runs with noise."""
BINS = 24
"""The number of bins of a histogram of errors in units in the last place: 0, up to 1, 2, 4, and so on."""
SAMPLE = 1 << 16
"""The most elements that a histogram counts. They are taken from a larger result at equal distances."""


@dataclass(frozen=True)
class Judgment:
    """How far a result is off.

    ``ratio`` is the largest error as a multiple of its budget. ``error``, ``budget`` and ``eager`` (the error of eager
    PyTorch) are those at ``index``, and ``value`` and ``exact`` the values there. ``norm`` and ``eager_norm`` are the
    errors of the whole result, relative to its size. ``ulps`` and ``eager_ulps`` count up to ``SAMPLE`` elements by
    their errors.
    ``not_judged`` says why a result is not judged; it is empty for one that is. ``defect`` is a sentence about a result
    that is over its budget.
    """

    ratio: float = 0.0
    error: float = 0.0
    budget: float = 0.0
    eager: float = 0.0
    index: tuple[int, ...] = ()
    value: Any = None
    exact: Any = None
    wrong: int = 0
    count: int = 0
    norm: float = 0.0
    eager_norm: float = 0.0
    ulps: tuple[int, ...] = ()
    eager_ulps: tuple[int, ...] = ()
    not_judged: str = ""
    defect: str = ""

    @property
    def is_over(self) -> bool:
        """True if the result is over its budget."""
        return bool(self.defect)


@torch.no_grad()
def judge(got: Any, expected: Expected) -> Judgment:
    """Judges what a backend computed."""
    if expected.is_resized:
        return Judgment(not_judged="Its size depends on decisions that rounding may change.")
    if not isinstance(got, Tensor) or not isinstance(expected.eager, Tensor):
        return _judge_number(got, expected)
    eager, exact = expected.eager, expected.exact
    got = got.to(eager.device)
    noisy = list(expected.noisy)
    if got.shape != exact.shape:
        return Judgment(ratio=math.inf, defect=f"It has the sizes {list(got.shape)}, not {list(exact.shape)}.")
    if not got.numel():
        return Judgment()
    if not is_rounded(eager):
        return _judge_exact(got, eager, exact, noisy)
    order = memory_order(exact)
    got, eager, exact, *noisy = (x.permute(order) for x in (got, eager, exact, *noisy))
    return _judge_rounded(got, eager, exact, noisy, order)


@dataclass(frozen=True)
class Budget:
    """The reference of a result, and how far each element may be off: infinitely far where any value is right."""

    reference: Tensor
    bound: Tensor


@torch.no_grad()
def budget_of(expected: Expected) -> Budget:
    """The budget of a result that is a tensor, element by element. Elements that are not finite are right if they equal
    the reference.
    """
    eager, exact, noisy = expected.eager, expected.exact, list(expected.noisy)
    if not is_rounded(eager):
        unsure = _differs((eager, *noisy), exact)
        zero = torch.zeros(exact.shape, dtype=torch.float64, device=exact.device)
        return Budget(exact, zero.masked_fill(unsure, math.inf))
    bound = LIMIT * spread(exact, [eager, *noisy], eager.dtype)
    unsure = torch.zeros_like(exact, dtype=torch.bool)
    for other in (eager, *noisy):
        unsure |= other.isfinite() != exact.isfinite()
    bound = torch.where(exact.isfinite(), bound, 0.0).masked_fill(unsure, math.inf)
    return Budget(exact, bound)


def judge_several(got: Any, expected: Expected) -> Judgment:
    """Judges the results of a call with several results: the worst judgment among them."""
    if not isinstance(expected.eager, list | tuple):
        return judge(got, expected)
    each = [
        judge(g, replace(expected, eager=e, exact=x, noisy=tuple(n[k] for n in expected.noisy)))
        for k, (g, e, x) in enumerate(zip(got, expected.eager, expected.exact, strict=True))
        if e is not None
    ]
    return max(each, key=lambda j: (j.is_over, j.ratio), default=Judgment())


def _judge_number(got: Any, expected: Expected) -> Judgment:
    right = [expected.eager, expected.exact, *expected.noisy]
    if got in right or (isinstance(got, float) and got != got):
        return Judgment(value=got, exact=expected.exact, count=1)
    if isinstance(got, float) and any(isinstance(x, float) and math.isclose(got, x, rel_tol=1e-3) for x in right):
        return Judgment(value=got, exact=expected.exact, count=1)
    return Judgment(
        ratio=math.inf, value=got, exact=expected.exact, wrong=1, count=1, defect=f"It is {got}, not {expected.exact}."
    )


def _judge_exact(got: Tensor, eager: Tensor, exact: Tensor, noisy: Sequence[Tensor]) -> Judgment:
    """Integers and bools. An element that differs between legal evaluations may be anything. The runs with noise do not
    show each of these elements, so some others may be off.
    """
    unsure = _differs((eager, *noisy), exact)
    off = (got != exact) & ~unsure
    wrong = int(off.sum())
    hidden = int(((eager != exact) & ~_differs(noisy, exact)).sum())
    if wrong <= max(int(unsure.sum()) // HIDDEN, 2 * hidden):
        return Judgment(count=got.numel())
    at = _first(off)
    value, right = got[at].item(), exact[at].item()
    sentence = f"{_where(at)} is {value}, not {right}. {_elements(wrong, got.numel())}"
    error = abs(float(value) - float(right))
    return Judgment(math.inf, error, 0.0, 0.0, at, value, right, wrong, got.numel(), defect=sentence)


def _judge_rounded(
    got: Tensor, eager: Tensor, exact: Tensor, noisy: Sequence[Tensor], order: Sequence[int]
) -> Judgment:
    """Floats. The tensors have their dimensions in ``order``."""
    dtype, count = eager.dtype, got.numel()
    scale = spread(exact, [eager, *noisy], dtype)
    flat = [x.reshape(-1) for x in (got, exact, scale, eager, *noisy)]
    blocks = zip(*(x.split(BLOCK) for x in flat), strict=True)
    errors = [_errors(got, exact, scale, others, dtype) for got, exact, scale, *others in blocks]
    largest, places, overs, *squares = (torch.stack(column) for column in zip(*errors, strict=True))
    block = int(largest.argmax())
    place = torch.tensor(block * BLOCK + int(places[block]))
    at = tuple(int(i) for i in torch.unravel_index(place, exact.shape)) if exact.dim() else ()
    norm, eager_norm, size = (float(x.sum().sqrt()) for x in squares)
    index = tuple(at[order.index(d)] for d in range(exact.dim()))
    samples = [x[:: -(-count // SAMPLE)] for x in flat]
    ratio, wrong = float(largest[block]) / LIMIT, int(overs.sum())
    judgment = Judgment(
        ratio=ratio,
        error=float((wide(got[at]) - exact[at]).abs()),
        budget=LIMIT * float(scale[at]),
        eager=float(distance(eager[at], exact[at])),
        index=index,
        value=got[at].item(),
        exact=exact[at].item(),
        count=count,
        norm=norm / (size or 1.0),
        eager_norm=eager_norm / (size or 1.0),
        ulps=histogram(distance(samples[0], samples[1]), samples[1], dtype),
        eager_ulps=histogram(distance(samples[3], samples[1]), samples[1], dtype),
    )
    if not wrong or wrong <= 2 * _outliers(exact, eager, noisy):
        return replace(judgment, ratio=min(ratio, 1.0) if wrong else ratio)
    what = f"{_where(index)} is {_shown(got[at], dtype)}, not {_shown(exact[at], dtype)}"
    limits = f"off by {judgment.error:.2g} where {judgment.budget:.2g} is allowed"
    sentence = f"{what}: {limits}, and eager PyTorch is off by {judgment.eager:.2g}. {_elements(wrong, count)}"
    return replace(judgment, wrong=wrong, defect=sentence)


def _errors(
    got: Tensor, exact: Tensor, scale: Tensor, others: Sequence[Tensor], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The largest error of some elements as a multiple of its spread, its place, the number of elements over their
    budgets, and the sums of squares of the errors, of those of eager PyTorch, and of the exact values. The first of the
    others is eager PyTorch's.
    """
    ratios = _ratios(wide(got), exact, others, scale, dtype)
    largest = ratios.max(0)
    sizes = distance(got, exact), distance(others[0], exact), exact.abs().nan_to_num_(0.0, 0.0, 0.0)
    return largest.values, largest.indices, (ratios > LIMIT).sum(), *(x.square_().sum() for x in sizes)


def _ratios(actual: Tensor, exact: Tensor, others: Sequence[Tensor], scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The error of each element as a multiple of its spread. An element that is not finite is right if it is so in a
    legal evaluation, or beyond the largest number of the dtype.
    """
    ratios = (actual - exact).abs() / scale
    odd = ~actual.isfinite() | ~exact.isfinite()
    if not bool(odd.any()):
        return ratios
    right = torch.zeros_like(odd)
    for x in (exact, *others):
        right |= (actual == x) | (_is_nan(actual) & _is_nan(x)) | (~x.isfinite() & actual.is_complex())
        right |= actual.isfinite() & ~x.isfinite() & exact.isfinite()
    limit = torch.finfo(dtype).max / 2
    right |= actual.isinf() & exact.isfinite() & (exact.abs() + LIMIT * scale >= limit)
    right |= actual.isfinite() & (actual.abs() >= limit) & exact.isinf()
    finite = actual.isfinite() & exact.isfinite()
    return torch.where(finite, ratios, torch.where(right, 0.0, math.inf)).nan_to_num(math.inf, math.inf)


def _outliers(exact: Tensor, eager: Tensor, noisy: Sequence[Tensor]) -> int:
    """The number of elements in which eager PyTorch is over the budget by the runs with noise alone."""
    return int((_ratios(wide(eager), exact, noisy, spread(exact, noisy, eager.dtype), eager.dtype) > LIMIT).sum())


def _differs(others: Sequence[Tensor], exact: Tensor) -> Tensor:
    """True at elements in which some of the others differ from the exact value."""
    differs = torch.zeros_like(exact, dtype=torch.bool)
    for x in others:
        differs |= x != exact
    return differs


def _is_nan(x: Tensor) -> Tensor:
    return x.isnan()


def histogram(errors: Tensor, exact: Tensor, dtype: torch.dtype) -> tuple[int, ...]:
    """The number of elements by their errors in units in the last place: 0, up to 1, up to 2, up to 4, and so on."""
    unit = exact.abs() * eps(dtype) / 2 + tiny(dtype) * eps(dtype)
    bins = (errors / unit).log2().ceil().add(1).clamp(0, BINS - 1).nan_to_num(0.0, BINS - 1, 0.0)
    counts = torch.bincount(bins.to(torch.int64).flatten().cpu(), minlength=BINS)
    return tuple(int(n) for n in counts)


def _first(wrong: Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in wrong.nonzero()[0])


def _where(at: tuple[int, ...]) -> str:
    return f"Its element {list(at)}" if at else "It"


def _shown(x: Tensor, dtype: torch.dtype) -> str:
    value = x.item()
    return f"{value:.9g}" if isinstance(value, float) and dtype == torch.float32 else f"{value:.5g}"


def _elements(wrong: int, of: int) -> str:
    return f"{wrong} of {of} elements {'is' if wrong == 1 else 'are'} wrong."
