"""Rules of resampling: what is weighted is known from sizes, and moves little where a place is computed a little off.

The decomposition rounds places down before it weighs, and of a place next to an element error analysis cannot tell to
which side. The weights do not jump there, so they are bounded here as functions of the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..by_member import ByMember
from .error_rules import INF, CallContext, ErrorBound, NoRule, Rule, rounded
from .tracked_tensor import error_of, gamma, unit, wide

STEPS = 8
"""Roundings between sizes and a place: the ratio, of a scale given as a number, the product, the halves."""
Window = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Kernel:
    """``weight`` of an element by its distance from the place, 0 beyond ``reach``; how ``steep`` it is at the most, and
    of how many units roundoff a computed weight is off. With ``smooth`` it is stretched where there are fewer results
    than elements, and weights are divided by their sum; without it places are kept within, or elements outside are the
    outermost (``outer``).
    """

    weight: Window
    reach: float
    steep: float
    loose: float
    smooth: bool = False
    outer: bool = False


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _keys(a: float) -> Window:
    """Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981."""

    def weight(x: Tensor) -> Tensor:
        x = x.abs()
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
        return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))

    return weight


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0.0)


KERNELS: ByMember[Kernel] = ByMember()
declare = KERNELS.declare
declare("upsample_linear", Kernel(_triangle, 1.0, 1.0, 4.0))
declare("upsample_cubic", Kernel(_keys(-0.75), 2.0, 1.5, 32.0, outer=True))
declare("upsample_linear_aa", Kernel(_triangle, 1.0, 1.0, 8.0, smooth=True))
declare("upsample_cubic_aa", Kernel(_keys(-0.5), 2.0, 1.5, 32.0, smooth=True))
declare("upsample_lanczos_aa", Kernel(_lanczos, 3.0, 1.5, 64.0, smooth=True))


def resampled(call: CallContext) -> Sequence[ErrorBound]:
    """Along one dimension after another a matrix of weights times the elements; of a gradient that matrix transposed.

    With weights W off by dW and elements by ex, sum (|W| + dW)(|x| + ex) - sum |W| |x|, and gamma(n) of the first sum
    for its roundings, n being the terms of all dimensions and two for each weight (Higham 2002, eq. 3.5).
    """
    assert call.member is not None
    back, out, named = call.member.name.endswith("_backward"), call.outs[0], call.named
    x = named["grad_output" if back else "input" if "input" in named else "self"]
    if not out.is_floating_point() or not bool(wide(x).isfinite().all()):
        raise NoRule("Only of finite floats.")
    sizes, outs = (list(named["input_size"]) if back else list(x.shape))[2:], list(named["output_size"])
    scales = [named.get(n) for n in (("scales",) if len(sizes) == 1 else ("scales_d", "scales_h", "scales_w"))][
        -len(sizes) :
    ]
    align, over = bool(named["align_corners"]), torch.float64 if out.dtype == torch.float64 else torch.float32
    value, error = wide(x), error_of(x)
    most, terms = value.abs() + (0.0 if error is None else error), 0.0
    mags = value.abs()
    kernel = KERNELS.declared[call.member.name.removesuffix("_backward")]
    for d, (n, o, scale) in enumerate(zip(sizes, outs, scales, strict=True), 2):
        weights, off = _matrix(kernel, int(n), int(o), align, scale, unit(over))
        if back:
            weights, off = weights.T, off.T
        value, mags = _along(weights, value, d), _along(weights.abs(), mags, d)
        most = _along(weights.abs() + off, most, d)
        terms += float((off > 0).sum(-1).max()) + 2 if off.numel() else 2.0
    error = (most - mags).clamp(min=0) + gamma(terms, unit(over)) * most + gamma(terms, 2.0**-53) * most
    least = terms * torch.finfo(over).smallest_normal * torch.finfo(over).eps
    error = torch.where(most > 0, error + least, 0.0)
    error = torch.where(most >= torch.finfo(over).max, INF, error.nan_to_num(INF, INF))
    ulps = 0.5 if out.dtype != over else 0.0
    return [ErrorBound(value, rounded(value, error, out.dtype, ulps) if ulps else error)]


def _along(weights: Tensor, x: Tensor, dim: int) -> Tensor:
    return (weights @ x.movedim(dim, -2)).movedim(-2, dim) if x.dim() > 1 else weights @ x


def _matrix(kernel: Kernel, n: int, o: int, align: bool, scale: float | None, u: float) -> tuple[Tensor, Tensor]:
    """The weights [outs, size] in float64, and how far computed ones may be off."""
    ratio = ((n - 1) / (o - 1) if o > 1 else 0.0) if align else 1 / scale if scale else n / o
    places = torch.arange(o, dtype=torch.float64)
    off = STEPS * max(u, 2.0**-52) * ((places + 1) * ratio + 1)
    spots = torch.arange(n, dtype=torch.float64)
    if kernel.smooth:
        stretch = max(ratio, 1.0)
        far = (spots + 0.5 - ((places + 0.5) * ratio)[:, None]) / stretch
        weights, slack = _weighed(kernel, far, (off / stretch + STEPS * u * kernel.reach)[:, None], u)
        total, loose = weights.sum(1, keepdim=True), slack.sum(1, keepdim=True)
        room = (total.abs() - loose).clamp(min=0)
        weights = weights / torch.where(total == 0, 1.0, total)
        return weights, (slack + weights.abs() * loose) / room + 2 * u * (weights != 0)
    at = places * ratio if align else (places + 0.5) * ratio - 0.5
    if not kernel.outer:
        at = at.clamp(0, n - 1)
        return _weighed(kernel, at[:, None] - spots, off[:, None], u)
    steps = torch.arange(-4, n + 4, dtype=torch.float64)
    retained = torch.nn.functional.one_hot(steps.clamp(0, n - 1).long(), n).double()
    weights, slack = _weighed(kernel, at.clamp(-2, n + 1)[:, None] - steps, off[:, None], u)
    return weights @ retained, slack @ retained


def _weighed(kernel: Kernel, far: Tensor, off: Tensor, u: float) -> tuple[Tensor, Tensor]:
    near = far.abs() < kernel.reach + off
    return kernel.weight(far), torch.where(near, kernel.steep * off + kernel.loose * u, 0.0)


RULES: Mapping[str, Rule] = {f"{name}{back}": resampled for name in KERNELS.declared for back in ("", "_backward")}
