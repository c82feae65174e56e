"""Drawn products of matrices and convolutions, with bounds on how far a right result may be from the exact one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
SUMMED_IN = {torch.float64: torch.float64}
"""The dtypes in which floats are summed; those that are not listed are summed in float32."""


@dataclass(frozen=True)
class Numbers:
    """Random numbers: a tensor of ``shape`` that lies row-major or channels-last, with its last dimensions swapped in
    memory, in every second element, or as one row that is expanded.
    """

    seed: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str

    def tensor(self) -> Tensor:
        shape = self.shape
        match self.layout:
            case "swapped":
                return self._of(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
            case "sliced":
                return self._of(*shape[:-1], 2 * shape[-1])[..., ::2]
            case "expanded":
                return self._of(1, *shape[1:]).expand(*shape)
            case "channels last" if len(shape) == 4:
                return self._of(*shape).to(memory_format=torch.channels_last)
        return self._of(*shape)

    def _of(self, *sizes: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        if self.dtype.is_floating_point:
            return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(self.dtype)
        info = torch.iinfo(self.dtype)
        low, high = max(info.min, -1000), min(info.max, 1000)
        return torch.randint(low, high, sizes, generator=generator, dtype=self.dtype)


@dataclass(frozen=True)
class Drawn:
    """A call of ``op``."""

    op: Callable[..., Any]
    drawn: tuple[Any, ...]

    @cached_property
    def args(self) -> tuple[Any, ...]:
        return tuple(a.tensor() if isinstance(a, Numbers) else a for a in self.drawn)

    def exact(self) -> list[Tensor]:
        """The results in float64, or, of integers, in int64."""
        return self._results([_wide(a) for a in self.args])

    def magnitudes(self) -> list[Tensor]:
        """The sums of the absolute values of the products."""
        return self._results([_wide(a).abs() if isinstance(a, Tensor) else a for a in self.args])

    def _results(self, args: Sequence[Any]) -> list[Tensor]:
        out = self.op(*args)
        return [t for t in (out if isinstance(out, tuple) else (out,)) if t is not None]


def _wide(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.double() if value.is_floating_point() else value.long()


def check(call: Drawn, got: Sequence[Tensor]) -> None:
    """Fails if a result is farther from the exact one than any order of the sum explains, with one rounding at the end.

    The bound is Higham's, "Accuracy and Stability of Numerical Algorithms", 2002, equation 3.5.
    """
    terms = max((t.numel() for t in call.args if isinstance(t, Tensor)), default=0) + 2
    for result, exact, magnitude in zip(got, call.exact(), call.magnitudes(), strict=True):
        assert (result.dtype, result.shape) == (call.args[0].dtype, exact.shape), call
        if not result.is_floating_point():
            assert torch.equal(result, exact.to(result.dtype)), call
            continue
        last, summed = (torch.finfo(d).eps for d in (result.dtype, SUMMED_IN.get(result.dtype, torch.float32)))
        bound = terms * summed * magnitude + last * exact.abs() + torch.finfo(result.dtype).smallest_normal
        assert ((result.double() - exact).abs() <= bound).all(), call


LAYOUTS = st.sampled_from(("row-major", "swapped", "sliced", "expanded"))
IMAGES = st.sampled_from(("row-major", "channels last", "sliced"))
SEEDS = st.integers(0, 2**16)


@st.composite
def products(draw: st.DrawFn) -> Drawn:
    """Products of two matrices or of two batches, any of whose sizes may be 0 or 1."""
    dtype = draw(st.sampled_from(FLOATS + INTEGERS))
    batch = draw(st.sampled_from(((), (0,), (1,), (3,))))
    n, k, m = (draw(st.sampled_from((0, 1, 2, 5, 17, 40))) for _ in range(3))
    x = Numbers(draw(SEEDS), dtype, (*batch, n, k), draw(LAYOUTS))
    y = Numbers(draw(SEEDS), dtype, (*batch, k, m), draw(LAYOUTS))
    return Drawn(aten.bmm.default if batch else aten.mm.default, (x, y))


@st.composite
def convolutions(draw: st.DrawFn) -> Drawn:
    """Convolutions of one to three dimensions, transposed ones too, with everything that they may be given."""
    dims = draw(st.integers(1, 3))
    dtype = draw(st.sampled_from(FLOATS))
    groups = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    ins, outs = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    stride, dilation = ([draw(st.integers(1, 3)) for _ in range(dims)] for _ in range(2))
    padding = [draw(st.integers(0, 2)) for _ in range(dims)]
    more = [draw(st.integers(0, max(s, d) - 1)) if transposed else 0 for s, d in zip(stride, dilation, strict=True)]
    least = [max(d * (k - 1) + 1 - 2 * p, 1) for d, k, p in zip(dilation, kernel, padding, strict=True)]
    if transposed:  # the result must have elements
        least = [
            1 + -(-max(2 * p - d * (k - 1), 0) // s)
            for p, d, k, s in zip(padding, dilation, kernel, stride, strict=True)
        ]
    sizes = [n + draw(st.integers(0, 4)) for n in least]
    image = Numbers(draw(SEEDS), dtype, (draw(st.integers(0, 2)), ins, *sizes), draw(IMAGES))
    channels = (ins, outs // groups) if transposed else (outs, ins // groups)
    weight = Numbers(draw(SEEDS), dtype, (*channels, *kernel), draw(IMAGES))
    bias = Numbers(draw(SEEDS), dtype, (outs,), "row-major") if draw(st.booleans()) else None
    return Drawn(aten.convolution.default, (image, weight, bias, stride, padding, dilation, transposed, more, groups))


@st.composite
def gradients(draw: st.DrawFn) -> Drawn:
    """Gradients of convolutions, all of them or some."""
    image, weight, _, *rest = draw(convolutions()).drawn
    out = aten.convolution.default(image.tensor(), weight.tensor(), None, *rest)
    mask = draw(st.sampled_from(((True, True, True), (True, False, True), (False, True, False), (True, True, False))))
    grad = Numbers(draw(SEEDS), image.dtype, tuple(out.shape), draw(IMAGES))
    return Drawn(aten.convolution_backward.default, (grad, image, weight, [out.shape[1]], *rest, [*mask]))
