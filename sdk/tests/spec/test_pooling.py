"""Pooling: sizes, values and places as eager has them, and gradients written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import decomposition_of
from keel.spec.rules_windows import fitting

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
NAN, INF = float("nan"), float("inf")
SIZES = {2: (7, 9), 3: (5, 7, 6)}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def op(name: str, n: int) -> Any:
    return getattr(aten, name.format(n)).default


def test_as_many_windows_as_eager_finds() -> None:
    for size in range(1, 12):
        for kernel in range(1, min(size, 4) + 1):
            for stride in range(1, 6):
                for padding in range(kernel // 2 + 1):
                    for ceil in (False, True):
                        out = aten.max_pool2d_with_indices(
                            torch.zeros(1, 1, size), [1, kernel], [1, stride], [0, padding], [1, 1], ceil
                        )[0]
                        assert fitting(size, kernel, padding, stride, 1, ceil) == out.shape[-1]


@pytest.mark.parametrize("n", [2, 3])
def test_gradients_of_maxima(n: int) -> None:
    x = torch.randn(2, 3, *SIZES[n])
    for given in (x, x[0]):
        for kernel, stride, padding, dilation, ceil in (
            ([2], [2], [0], [1], False),
            ([3], [2], [1], [1], True),
            ([2], [1], [1], [2], False),
        ):
            window = [v * n for v in (kernel, stride, padding, dilation)]
            out, indices = op("max_pool{}d_with_indices", n)(given, *window, ceil)
            grad = torch.randn_like(out)
            for dtype in (F32, BF16):
                agree(
                    op("max_pool{}d_with_indices_backward", n), grad.to(dtype), given.to(dtype), *window, ceil, indices
                )


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("outs", [(3, 4, 2), (7, 9, 3), (1, 1, 1), (9, 5, 8)], ids=str)
def test_adaptive(n: int, outs: tuple[int, ...]) -> None:
    """Windows overlap where sizes do not divide, and repeat elements where there are more of them."""
    sizes, x = list(outs[:n]), torch.randn(2, 3, *SIZES[n])
    for dtype in (F32, F64, *([BF16] if n == 2 else [])):
        value = x.to(dtype)
        average, maximum = op("_adaptive_avg_pool{}d", n), op("adaptive_max_pool{}d", n)
        agree(average, value, sizes)
        agree(maximum, value[0], sizes)
        agree(op("_adaptive_avg_pool{}d_backward", n), torch.randn(2, 3, *sizes).to(dtype), value)
        out, indices = maximum(value, sizes)
        assert torch.equal(decomposition_of(maximum)(value, sizes)[1], indices)
        agree(op("adaptive_max_pool{}d_backward", n), torch.randn_like(out), value, indices)


def test_windows_of_equal_size_are_averages() -> None:
    x = torch.randn(2, 3, 6, 8).to(BF16)
    for given in (x, torch.randn(3, 4, 6, 2).to(BF16)):
        got = decomposition_of(op("_adaptive_avg_pool{}d", 2 if given is x else 3))(
            given, [3, 4] if given is x else [2, 3, 1]
        )
        assert got.dtype == BF16 and not got.isnan().any()


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_special_values_stay_in_their_windows(special: float) -> None:
    x = torch.randn(1, 1, 7, 7)
    x[0, 0, 3, 3] = special
    agree(aten._adaptive_avg_pool2d.default, x, [3, 4])
    agree(aten.adaptive_max_pool2d.default, x, [3, 4])
    if special == -INF:
        x[0, 0, :3, :3] = special  # a window of nothing else has its first place
        got = decomposition_of(aten.adaptive_max_pool2d.default)(x, [3, 3])
        for mine, eager in zip(got, aten.adaptive_max_pool2d(x, [3, 3]), strict=True):
            assert torch.equal(mine, eager)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional(n: int) -> None:
    x = torch.randn(2, 3, *SIZES[n])
    for given in (x, x[0]):
        samples = torch.rand(2 if given is x else 1, 3, n)
        for outs in ([3] * n, [1] * n, [2, 4, 3][:n]):
            forward = op("fractional_max_pool{}d", n)
            got, eager = (f(given, [2] * n, outs, samples) for f in (decomposition_of(forward), forward))
            assert torch.equal(got[0], eager[0]) and torch.equal(got[1], eager[1])
            agree(op("fractional_max_pool{}d_backward", n), torch.randn_like(got[0]), given, [2] * n, outs, got[1])


@pytest.mark.parametrize("n", [2, 3])
def test_unpooling(n: int) -> None:
    x = torch.randn(2, 3, *SIZES[n])
    out, indices = op("max_pool{}d_with_indices", n)(x, [2] * n)
    rest = ([2] * n, [0] * n) if n == 3 else ()
    agree(op("max_unpool{}d", n), out, indices, list(SIZES[n]), *rest)


@pytest.mark.parametrize("lone", [False, True])
def test_columns(lone: bool) -> None:
    x, window = torch.randn(2, 3, 7, 8), ([3, 2], [2, 1], [1, 2], [2, 1])
    x = x[0] if lone else x
    columns = aten.im2col(x, *window)
    for dtype in (F32, BF16):
        agree(aten.im2col.default, x.to(dtype), *window)
        agree(aten.col2im.default, columns.to(dtype), [7, 8], *window)


@pytest.mark.slow
def test_written_out_with_symbols_for_sizes() -> None:
    x = torch.randn(2, 3, 7, 9).to(memory_format=torch.channels_last)
    out, indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    same_written_out(
        aten.max_pool2d_with_indices_backward.default,
        torch.randn_like(out),
        x,
        [3, 3],
        [2, 2],
        [1, 1],
        [1, 1],
        False,
        indices,
    )
    same_written_out(aten._adaptive_avg_pool2d.default, x, [3, 10])
    same_written_out(aten._adaptive_avg_pool2d_backward.default, torch.randn(2, 3, 3, 10), x)
    same_written_out(aten.adaptive_max_pool2d.default, x, [3, 10])
    same_written_out(aten.fractional_max_pool2d.default, x, [2, 2], [3, 4], torch.rand(2, 3, 2))
    same_written_out(aten.max_unpool2d.default, out.contiguous(), indices.contiguous(), [7, 9])
    same_written_out(
        aten.col2im.default, aten.im2col(x, [3, 2], [1, 1], [1, 0], [2, 1]), [7, 9], [3, 2], [1, 1], [1, 0], [2, 1]
    )
