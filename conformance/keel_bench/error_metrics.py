"""How far a step's tensors are from float64, and how far they may be.

The error of a tensor is normwise: ``|x - r| / |r|`` in the Euclidean norm, r being the float64 reference. Single
elements of a gradient may cancel to nearly nothing, and their relative error says nothing about the computation; the
norm does not cancel. Errors of several draws (other weights, other inputs) are combined as a root mean square: one draw
of a scalar such as a loss is a lottery.

A compiler may be ``TIMES`` as far off as eager PyTorch. Where eager is nearly exact (it accumulates batch statistics in
double precision on a CPU), twice its error would be less than one rounding of the result, which no computation in the
tensor's own dtype can be held to. So eager's error counts as at least ``FLOOR_ULPS`` ulp of the tensor's norm.

Eager's kernels sum in another order where images lie channels-last, and for some models their errors are twice as large
then.  Compilers choose layouts, so a tensor that is over its budget is judged by the larger of the two errors.

Running means are measured against the spread of the data they are means of, not against themselves: behind another
normalization the mean is exactly zero in exact arithmetic, and its relative error is noise over noise.

Near a kink (a ReLU whose argument rounds to the other side) the exact gradient itself jumps by more than any such
budget, if parameters and what modules return move as little as rounding moves them (``motion``); eager's jumps so too.
Draws at which one of them is far beyond eager's usual error are judged apart: there a tensor may be ``TIMES`` as far
off as the exact result moves or as eager is; the other draws must be within the budget by themselves.  A tensor that is
off in most draws is wrong even so, if kinks do not explain it (``unexplained``).

A tensor of which eager has no digit right, such as the gradient of a bias before a batch norm, is zero in exact
arithmetic.  What eager leaves of it is rounding, and so is what a compiler leaves: the ratio of two samples of the same
noise.  Such a tensor may be ``NOISE`` times as far off as another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

TIMES = 2.0
FLOOR_ULPS = 1.0
NOISE = 4.0
"""How far one sample of a noise may be beyond another.  The ratio of the root mean squares of twelve draws each is
beyond 4.15 once in 100,000 tensors (F-distribution with 12 and 12 degrees of freedom), and the zoo has as many.
"""

Left = Mapping[str, Tensor]


@dataclass(frozen=True)
class Comparison:
    """One tensor in one draw: squared error norms of compiler and eager, squared scale, and whether classes agree.

    ``squared_motion`` is how far the exact result is known to move, and ``unexplained`` what kinks do not explain of
    the error, as a multiple of what they may leave; 0 where that was not asked.
    """

    squared_error: float
    squared_eager: float
    squared_scale: float
    ulp: float
    same_classes: bool
    squared_motion: float = 0.0
    unexplained: float = 0.0

    @property
    def squared_floor(self) -> float:
        """The error that every result may have."""
        return (FLOOR_ULPS * self.ulp) ** 2 * self.squared_scale

    @property
    def squared_least(self) -> float:
        """What counts as eager's error."""
        return max(self.squared_eager, self.squared_floor)

    @property
    def squared_jump(self) -> float:
        """How far the exact result is known to move."""
        return max(self.squared_eager, self.squared_motion)

    def relative(self, square: float) -> float:
        """A squared error as a part of the squared scale."""
        return square / self.squared_scale if self.squared_scale else math.inf if square else 0.0


def compare(left: Left, eager: Left, reference: Left) -> dict[str, Comparison]:
    """Every tensor of ``reference`` compared. Raises KeyError if the compiled or the eager step did not leave one."""
    return {
        name: _compare(left[name], eager[name], exact, _scale(name, reference)) for name, exact in reference.items()
    }


def _compare(x: Tensor, eager: Tensor, exact: Tensor, scale: Tensor) -> Comparison:
    if x.shape != exact.shape or x.dtype != eager.dtype:
        return Comparison(math.inf, 0.0, 0.0, 0.0, False)
    errors = [t.double() - exact for t in (x, eager)]
    error, of_eager, size = (float(t.square().sum()) for t in (*errors, scale))
    if all(map(math.isfinite, (error, of_eager, size))):
        return Comparison(error, of_eager, size, torch.finfo(x.dtype).eps, same_classes=True)
    finite = x.isfinite() & eager.isfinite() & exact.isfinite()  # rare: an element is infinite, or not a number
    error, of_eager, size = (float(t[finite].square().sum()) for t in (*errors, scale))
    return Comparison(error, of_eager, size, torch.finfo(x.dtype).eps, same_classes(x, eager))


def _scale(name: str, reference: Left) -> Tensor:
    if name.startswith("buffer ") and name.endswith("running_mean"):
        spread = reference[name.removesuffix("mean") + "var"].sqrt()
        return torch.maximum(spread, reference[name].abs())
    return reference[name]


def same_classes(x: Tensor, y: Tensor) -> bool:
    """True if NaN, +inf and -inf stand at the same elements of both."""
    return all(torch.equal(of(x), of(y)) for of in (torch.isnan, torch.isposinf, torch.isneginf))


@dataclass(frozen=True)
class Verdict:
    """One tensor over all draws: ``times`` is its error as a multiple of eager's; both are relative to its scale.

    ``noise`` is true where eager has no digit right.  ``kinks`` is the number of draws that are left out of these,
    being judged by how far the exact result moves, and ``jump`` the largest error among them as a multiple of that.
    ``unexplained`` is the median of the draws'.
    """

    name: str
    times: float
    error: float
    eager: float
    same_classes: bool
    noise: bool = False
    kinks: int = 0
    jump: float = 0.0
    unexplained: float = 0.0

    @property
    def farthest(self) -> float:
        """The largest of these multiples, each of which may be ``TIMES``; of noise, ``NOISE`` times that."""
        return max(self.times, self.jump, self.unexplained) / (NOISE if self.noise else 1)

    @property
    def holds(self) -> bool:
        return self.farthest <= TIMES and self.same_classes


def judge(draws: Sequence[Mapping[str, Comparison]]) -> list[Verdict]:
    """A verdict for each tensor, worst first."""
    verdicts = [_judge(name, [draw[name] for draw in draws]) for name in draws[0]]
    return sorted(verdicts, key=lambda v: (v.same_classes, v.holds, -v.times))


def _judge(name: str, draws: Sequence[Comparison]) -> Verdict:
    # A smooth function moves by about TIMES of eager's usual error; beside its own size that is, where a draw is large.
    # Beside a draw that cancels to little, everything moves far.
    usual = (2 * TIMES) ** 2 * statistics.median(d.squared_least for d in draws)
    usual_relative = (2 * TIMES) ** 2 * _usual_relative_square(draws)

    def jumps(d: Comparison) -> bool:
        return d.squared_jump > usual and d.relative(d.squared_jump) > usual_relative

    kinks, smooth = [d for d in draws if jumps(d)], [d for d in draws if not jumps(d)]
    scale, error, eager = (
        math.sqrt(sum(part))
        for part in (
            (d.squared_scale for d in smooth),
            (d.squared_error for d in smooth),
            (d.squared_eager for d in smooth),
        )
    )
    least = max(eager, FLOOR_ULPS * draws[0].ulp * scale)
    times = error / least if least else (0.0 if error == 0.0 else math.inf)
    jump = max((math.sqrt(d.squared_error / d.squared_jump) for d in kinks), default=0.0)
    return Verdict(
        name,
        times,
        error / scale if scale else error,
        eager / scale if scale else eager,
        all(d.same_classes for d in draws),
        eager > scale,
        len(kinks),
        jump,
        statistics.median(d.unexplained for d in draws),
    )


def _usual_relative_square(draws: Sequence[Comparison]) -> float:
    """The median of what counts as eager's error, beside the draw's scale, weighted by that: what cancels to nothing in
    most draws is as exact in the others as anything.
    """
    ordered = sorted((d.relative(d.squared_least), math.sqrt(d.squared_scale)) for d in draws)
    half = sum(scale for _, scale in ordered) / 2
    below = accumulate(scale for _, scale in ordered)
    return next(error for (error, _), scale in zip(ordered, below, strict=True) if scale >= half)
