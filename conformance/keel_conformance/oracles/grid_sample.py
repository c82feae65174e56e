"""Error bounds of grid sampling: PyTorch computes the weights of cubic convolution less accurately than the
decomposition.

The decomposition has them as products whose factors do not cancel. PyTorch's kernels compute sums of powers, so a
weight is off by some units roundoff however small it is (see ``resampled``, which bounds weights in the same way).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .resampled import KERNELS
from .tracked_tensor import Tracked, error_of, errors, sums_in, tracked, unit, wide

SAMPLERS = frozenset({"grid_sampler", "grid_sampler_backward"})
CUBIC, TAPS = 2, 16
STEEPEST = 4.0
"""The error of a slope of cubic weights is at most this factor times the error of a weight. The terms of a slope add up
to 30 at most (at distance 2, with a = -0.75) and are rounded three times.
"""


def loosened(named: Mapping[str, Any], results: Any) -> Any:
    """``results``, the results of such a call, with those errors on top: a product of two weights, each below 1, is off
    by twice what a weight is.
    """
    if named["interpolation_mode"] != CUBIC:
        return results
    x, gradient = named["input"], named.get("grad_output")
    off = 2 * KERNELS.declared["upsample_cubic"].loose * unit(sums_in(x.dtype))
    most = _sizes(x).flatten(2).amax(2)  # [N, C]
    if gradient is None:
        return _looser(results, off * TAPS * most[:, :, None, None])
    dx, dgrid = results
    gradient_sizes = _sizes(gradient)
    sizes = torch.tensor([float(n) for n in reversed(x.shape[2:])], dtype=torch.float64) / 2
    felt = (gradient_sizes * most[:, :, None, None]).sum(1)[..., None] * sizes
    return _looser(dx, off * gradient_sizes.sum((2, 3))[:, :, None, None]), _looser(dgrid, off * STEEPEST * TAPS * felt)


def _sizes(x: Tensor) -> Tensor:
    return (wide(x).abs() + errors(x)).nan_to_num(0.0, 0.0, 0.0)


def _looser(x: Any, more: Tensor) -> Any:
    if not isinstance(x, Tracked) or error_of(x) is None or not x.numel():
        return x
    return tracked(x.plain, x.evaluate, x.value, torch.where(wide(x).isfinite(), errors(x) + more, errors(x)))
