"""Resampling: every kind, every ratio, forward and backward, as eager does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import keel
from keel.spec import decomposition_of

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
NEAREST = ["upsample_nearest{}d", "_upsample_nearest_exact{}d"]
WEIGHTED = ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
SMOOTH = ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"]
RATIOS = [
    ([14, 12, 10], []),
    ([3, 4, 2], []),
    ([7, 13, 5], []),
    ([12, 11, 9], [1.8, 1.9, 1.8]),
    ([1, 1, 1], []),
    ([15, 13, 11], [2.05, 2.2, 2.3]),
]
DTYPES = [F32, F64, BF16]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def pair(name: str, rank: int | None = None) -> tuple[Any, Any, int]:
    """(forward, backward, dimensions)"""
    n = rank if rank is not None else int(next(c for c in name if c.isdigit()))
    name = name.format(n)
    return getattr(aten, name).default, getattr(aten, f"{name}_backward").default, n


def image(n: int) -> torch.Tensor:
    return torch.randn(2, 3, *(7, 6, 5)[:n])


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", NEAREST)
def test_nearest(name: str, n: int, ratio: tuple[list[int], list[float]]) -> None:
    forward, backward, _ = pair(name, n)
    x, outs, scales = image(n), ratio[0][:n], ratio[1][:n]
    for dtype in (*DTYPES, torch.uint8):
        value = x.to(dtype)
        assert torch.equal(decomposition_of(forward)(value, outs, *scales), forward(value, outs, *scales))
    for dtype in (F32, BF16):
        agree(backward, torch.randn(2, 3, *outs).to(dtype), outs, list(x.shape), *scales)


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("name", WEIGHTED + SMOOTH)
def test_weighted(name: str, align: bool, ratio: tuple[list[int], list[float]]) -> None:
    if not hasattr(aten, name):
        pytest.skip("This PyTorch has no such overload.")
    forward, backward, n = pair(name)
    x, outs, scales = image(n), ratio[0][:n], ratio[1][:n]
    for dtype in [F32, F64] if name in SMOOTH else DTYPES:  # eager on CPU has no 16-bit floats in the smooth ones
        agree(forward, x.to(dtype), outs, align, *scales)
        agree(backward, torch.randn(2, 3, *outs).to(dtype), outs, list(x.shape), align, *scales)


def test_a_scale_counts_where_the_size_doubles() -> None:
    """Eager on CPU ignores it in two dimensions and in every gradient, which then is not the gradient of the
    forward.
    """
    x = torch.arange(7.0).view(1, 1, 7)
    forward, backward, _ = pair("upsample_nearest{}d", 1)
    got = decomposition_of(forward)(x, [14], 2.05)
    assert torch.equal(got, forward(x, [14], 2.05)) and not torch.equal(got, forward(x, [14]))
    grad = torch.randn(1, 1, 14)
    torch.testing.assert_close((got * grad).sum(), (x * decomposition_of(backward)(grad, [14], [1, 1, 7], 2.05)).sum())


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d", *SMOOTH[:2]])
def test_bytes_are_within_one(name: str) -> None:
    """Of eager in float32: of bytes, it cuts cubic convolution to their range after each dimension."""
    forward, _, _ = pair(name)
    x = torch.randint(0, 256, (1, 3, 9, 8), dtype=torch.uint8)
    for outs in ([14, 20], [4, 3]):
        got, want = decomposition_of(forward)(x, outs, False), forward(x.float(), outs, False)
        assert got.dtype == torch.uint8 and (got.float() - want.clamp(0, 255)).abs().max() <= 1


def test_elements_that_do_not_count_are_not_read() -> None:
    """A smooth result is made of the elements under its window alone, whatever the others are."""
    x = torch.randn(1, 1, 8, 8)
    x[0, 0, 7, 7] = float("nan")
    for name in SMOOTH[:2]:
        forward, _, _ = pair(name)
        got, want = decomposition_of(forward)(x, [16, 16], False), forward(x, [16, 16], False)
        assert torch.equal(got.isnan(), want.isnan()) and not got[..., 0].isnan().any()


@pytest.mark.parametrize("name", SMOOTH[:2])
def test_smooth_weights_lose_no_digits_far_from_the_first_element(name: str) -> None:
    """The ratio's own rounding moves the last of 64 elements by 1e-6. Rounding the place of a result before it is
    subtracted doubles that.
    """
    forward, _, _ = pair(name)
    each = torch.eye(64).view(64, 1, 64, 1).expand(-1, -1, -1, 2).contiguous()
    compiled = keel.compile(lambda x: forward(x, [47, 2], True), backends=["cpp"])
    assert (compiled(each) - forward(each.double(), [47, 2], True)).abs().max() < 1.5e-6


def test_pixels_and_channels() -> None:
    agree(aten.pixel_shuffle.default, torch.randn(2, 8, 3, 4), 2)
    agree(aten.pixel_shuffle.default, torch.randn(9, 3, 4), 3)
    agree(aten.pixel_unshuffle.default, torch.randn(2, 2, 6, 4), 2)
    agree(aten.channel_shuffle.default, torch.randn(2, 6, 3, 4), 3)
    for op in (aten.pixel_shuffle.default, aten.pixel_unshuffle.default):
        same_written_out(op, torch.randn(2, 8, 6, 4), 2, symbolic=False)


@pytest.mark.slow
def test_written_out_with_promised_strides() -> None:
    """PyTorch writes the forwards out itself where sizes are symbols, so those are traced with known ones."""
    x = image(2).to(memory_format=torch.channels_last)
    for name in ("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", *SMOOTH[:1]):
        forward, backward, _ = pair(name)
        options = [] if "nearest" in name else [False]
        same_written_out(forward, x, [12, 11], *options, symbolic=name in SMOOTH)
        grad = torch.randn(2, 3, 12, 11)
        same_written_out(backward, grad, [12, 11], list(x.shape), *options)
