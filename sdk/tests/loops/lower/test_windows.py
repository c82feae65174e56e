"""Pooling and nearest resampling give what eager gives: padding, ceil mode, uneven windows, ties and NaN."""

from __future__ import annotations

import pytest
import torch

from .calls import INF, NAN, check, check_symbolic, lowered

aten = torch.ops.aten
torch.manual_seed(0)
X = torch.randn(2, 3, 7, 9)
V = torch.randn(1, 2, 5, 4, 6)

POOLS = [
    ([2, 2],),
    ([3, 3], [2, 2], [1, 1]),
    ([3, 2], [1, 2]),
    ([3, 3], [2, 2], [1, 1], True),
    ([2, 3], [3, 2], [0, 1], True),
    ([3, 3], [2, 2], [1, 1], False, False),
    ([3, 3], [2, 2], [1, 1], True, False),
    ([2, 2], [2, 2], [0, 0], True),
    ([3, 3], [1, 1], [1, 1], False, True, 5),
    ([2],),
]


@pytest.mark.parametrize("args", POOLS, ids=str)
def test_averages(args: tuple) -> None:
    check(aten.avg_pool2d.default, X, *args)
    check(aten.avg_pool2d.default, X[0].bfloat16(), *args)
    kernel, stride, padding, ceil, include, override = (*args, *[[], [0, 0], False, True, None][len(args) - 1 :])
    out = aten.avg_pool2d.default(X, *args)
    check(aten.avg_pool2d_backward.default, torch.randn_like(out), X, kernel, stride, padding, ceil, include, override)


def test_averages_of_volumes() -> None:
    for args in (([2, 2, 2],), ([3, 2, 3], [2, 1, 2], [1, 1, 1], True, False)):
        out = check(aten.avg_pool3d.default, V, *args) and aten.avg_pool3d.default(V, *args)
        rest = (*args, *[[], [0, 0, 0], False, True][len(args) - 1 :])
        check(aten.avg_pool3d_backward.default, torch.randn_like(out), V, *rest, None)


@pytest.mark.parametrize("size", [[1, 1], [7, 9], [3, 3], [2, 5], [9, 13]], ids=str)
def test_adaptive_pools(size: list[int]) -> None:
    check(aten._adaptive_avg_pool2d.default, X, size)
    check(aten._adaptive_avg_pool2d.default, X[0], size)
    check(aten._adaptive_avg_pool2d_backward.default, torch.randn(2, 3, *size), X)
    check(aten.adaptive_max_pool2d.default, X, size)
    check(aten._adaptive_avg_pool3d.default, V, [2, *size])
    check(aten._adaptive_avg_pool3d_backward.default, torch.randn(1, 2, 2, *size), V)


@pytest.mark.parametrize(
    "args",
    [
        ([3, 3], [2, 2], [1, 1]),
        ([2, 2],),
        ([3, 2], [2, 1], [1, 1], [2, 1]),
        ([3, 3], [2, 2], [1, 1], [1, 1], True),
        ([2, 2], [2, 2], [0, 0], [1, 1], True),
    ],
    ids=str,
)
def test_maxima(args: tuple) -> None:
    check(aten.max_pool2d_with_indices.default, X, *args)
    check(aten.max_pool2d_with_indices.default, X[0].bfloat16(), *args)
    check(aten.max_pool2d_with_indices.default, torch.full((1, 1, 5, 5), -INF), *args)
    check(aten.max_pool2d_with_indices.default, torch.ones(1, 1, 6, 6), *args)
    check(aten.max_pool2d_with_indices.default, (X * 10).long(), *args)
    nan = X.clone()
    nan[0, 0, 2, 3] = NAN
    check(aten.max_pool2d_with_indices.default, nan, *args)


def test_maxima_of_volumes() -> None:
    check(aten.max_pool3d_with_indices.default, V, [2, 2, 3], [2, 1, 2], [1, 0, 1])


@pytest.mark.parametrize("size", [[14, 18], [21, 9], [10, 11], [3, 4], [7, 63], [28, 360]], ids=str)
def test_nearest(size: list[int]) -> None:
    check(aten.upsample_nearest2d.default, X, size)
    check(aten._upsample_nearest_exact2d.default, X, size)
    check(aten.upsample_nearest2d.default, X, size, size[0] / 7, size[1] / 9)
    check(aten.upsample_nearest1d.default, X[0], size[1:])
    check(aten.upsample_nearest3d.default, V, [10, 8, 7])
    grad = torch.randn(2, 3, *size)
    answer = lowered(aten.upsample_nearest2d_backward.default, grad, size, list(X.shape))
    if size[0] % 7 or size[1] % 9:
        assert answer == "aten.upsample_nearest2d_backward.default resamples by a ratio that is not an integer."
    else:
        check(aten.upsample_nearest2d_backward.default, grad, size, list(X.shape))


def test_nearest_where_rounding_moves_an_element() -> None:
    x = torch.arange(49.0).reshape(1, 1, 1, 49)
    check(aten.upsample_nearest2d.default, x, [49, 49 * 49])


@pytest.mark.slow
def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        n, m = x.shape[2:]
        return [
            aten.avg_pool2d(x, [3, 3], [2, 2], [1, 1], True, False),
            *aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]),
            aten._adaptive_avg_pool2d(x, [1, 1]),
            aten._adaptive_avg_pool2d(x, [2, 3]),
            aten._adaptive_avg_pool2d_backward(aten._adaptive_avg_pool2d(x, [2, 3]), x),
            aten._adaptive_avg_pool2d_backward(aten._adaptive_avg_pool2d(x, [1, 1]), x),
            aten.upsample_nearest2d(x, [2 * n, 4 * m]),
            aten.avg_pool2d_backward(aten.avg_pool2d(x, [2, 2]), x, [2, 2], [], [0, 0], False, True, None),
        ]

    assert len(check_symbolic(f, torch.randn(2, 3, 8, 10))) >= 9
