"""Kernels that several backends are tried on, as texts over sizes N, M and K, and what each must compute.

References take the buffers by name, flat, and return what the outputs must hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from keel.loops import Kernel, parse, verify

Values = Mapping[str, Tensor]

TEXTS = {
    "softmax": """
kernel softmax(in0: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = reduce max %0
    reduce r0 < M:
      %2 = load in0[M*i0 + r0]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    parallel r0 < M:
      %6 = load in0[M*i0 + r0]
      %7 = sub %6 %1
      %8 = exp %7
      %9 = div %8 %5
      store out0[M*i0 + r0] %9
""",
    "layer_norm": """
kernel layer_norm(in0: f32[N*M], in1: f32[M], in2: f32[M]) -> (out0: f32[N*M], out1: f32[N]):
  %0 = const 1e-05 : f32
  %1 = position M
  %2 = cast %1 : f32
  parallel i0 < N:
    reduce r0 < M:
      %3 = load in0[M*i0 + r0]
      %4 = reduce sum %3
    %5 = div %4 %2
    reduce r0 < M:
      %6 = load in0[M*i0 + r0]
      %7 = sub %6 %5
      %8 = mul %7 %7
      %9 = reduce sum %8
    %10 = div %9 %2
    %11 = add %10 %0
    %12 = rsqrt %11
    store out1[i0] %12
    parallel r0 < M:
      %13 = load in0[M*i0 + r0]
      %14 = sub %13 %5
      %15 = mul %14 %12
      %16 = load in1[r0]
      %17 = mul %15 %16
      %18 = load in2[r0]
      %19 = add %17 %18
      store out0[M*i0 + r0] %19
""",
    "column_sum": """
kernel column_sum(in0: f32[N*M]) -> (out0: f32[M]):
  parallel i0 < M:
    reduce r0 < N:
      %0 = load in0[M*r0 + i0]
      %1 = reduce sum %0
    store out0[i0] %1
""",
    "argmax": """
kernel argmax(in0: f32[N*M]) -> (out0: f32[N], out1: i64[N]):
  parallel i0 < N:
    reduce r0 < M:
      %0 = load in0[M*i0 + r0]
      %1 = position r0
      %2, %3 = reduce argmax %0 %1
    store out0[i0] %2
    store out1[i0] %3
""",
    "nested": """
kernel nested(in0: f32[N*M*K]) -> (out0: f32[N]):
  parallel i0 < N:
    reduce r0 < M:
      reduce q0 < K:
        %0 = load in0[K*M*i0 + K*r0 + q0]
        %1 = reduce sum %0
      %2 = mul %1 %1
      %3 = reduce max %2
    store out0[i0] %3
""",
}

_SIZES = ("N", "M", "K")


def sized(text: str, **sizes: int | None) -> Kernel:
    """The kernel of a text; a size given as None stays a symbol."""
    for size, value in sizes.items():
        if value is not None:
            text = re.sub(rf"\b{size}\b", str(value), text)
    if left := sizes_of(text):
        text = text.replace("):\n", f") where {', '.join(left)}:\n", 1)
    found = parse(text)
    verify(found)
    return found


def sizes_of(text: str) -> tuple[str, ...]:
    return tuple(s for s in _SIZES if re.search(rf"\b{s}\b", text))


def layer_norm(v: Values, N: int, M: int) -> Values:
    x = v["in0"].view(N, M).double()
    rstd = (x.var(1, correction=0) + 1e-5).rsqrt()
    y = (x - x.mean(1, keepdim=True)) * rstd[:, None]
    return {"out0": y * v["in1"] + v["in2"], "out1": rstd}


def argmax(v: Values, N: int, M: int) -> Values:
    x = v["in0"].view(N, M)
    return {"out0": x.amax(1), "out1": first_best(x.T)}


def first_best(x: Tensor) -> Tensor:
    """Where the largest of each column first stands; the first NaN if there is one."""
    best = x.amax(0)
    return torch.where(best.isnan(), x.isnan(), x == best).float().argmax(0)


def window(v: Values, N: int, M: int) -> Values:
    """Sums over 3 x 3 neighbors within the bounds."""
    ones = v["in0"].new_ones(1, 1, 3, 3)
    return {"out0": torch.nn.functional.conv2d(v["in0"].view(1, 1, N, M), ones, padding=1)}


def masked(v: Values, N: int, M: int) -> Values:
    """The sum of each row's lower triangle, stored there."""
    lower = torch.ones(N, M, dtype=torch.bool, device=v["in0"].device).tril()
    sums = v["in0"].view(N, M).where(lower, 0).sum(1, keepdim=True)
    return {"out0": sums.expand(N, M).where(lower, v["out0"].view(N, M))}


REFERENCES: Mapping[str, Callable[..., Values]] = {
    "softmax": lambda v, N, M: {"out0": v["in0"].view(N, M).softmax(1)},
    "layer_norm": layer_norm,
    "column_sum": lambda v, N, M: {"out0": v["in0"].view(N, M).sum(0)},
    "argmax": argmax,
    "nested": lambda v, N, M, K: {"out0": v["in0"].view(N, M, K).sum(2).square().amax(1)},
    "window": window,
    "masked": masked,
}
