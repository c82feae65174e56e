"""Views read the right elements, are recognized as views, and keep their sizes symbolic."""

from __future__ import annotations

import pytest
import torch

from .calls import check, check_symbolic, lowered

aten = torch.ops.aten

X = torch.arange(120.0).reshape(4, 5, 6)
ONES = torch.arange(12.0).reshape(1, 3, 1, 4)
CASES = [
    (aten.view.default, X, [20, 6]),
    (aten.view.default, X, [-1]),
    (aten.view.default, X, [2, 2, 5, 3, 2]),
    (aten.view.default, X, [4, 5, 6, 1]),
    (aten.view.default, torch.tensor(3.0), [1, 1]),
    (aten.view.default, ONES[:1, 0, 0, :1], []),
    (aten.view.default, torch.zeros(0, 3), [3, 0]),
    (aten._unsafe_view.default, X, [5, 24]),
    (aten.view_copy.default, X, [8, 15]),
    (aten.expand.default, ONES, [2, 3, 5, 4]),
    (aten.expand.default, ONES, [7, -1, -1, 2, -1]),
    (aten.expand.default, torch.tensor(2.0), [3]),
    (aten.permute.default, X, [2, 0, 1]),
    (aten.permute.default, X, [-1, -3, -2]),
    (aten.permute.default, torch.tensor(1.0), []),
    (aten.transpose.int, X, 0, -1),
    (aten.transpose.int, torch.tensor(1.0), 0, -1),
    (aten.t.default, X[0]),
    (aten.t.default, X[0, 0]),
    (aten.unsqueeze.default, X, 0),
    (aten.unsqueeze.default, X, -1),
    (aten.unsqueeze.default, torch.tensor(1.0), 0),
    (aten.squeeze.default, ONES),
    (aten.squeeze.dim, ONES, 0),
    (aten.squeeze.dim, ONES, 1),
    (aten.squeeze.dim, ONES, -2),
    (aten.squeeze.dims, ONES, [0, 1, 2]),
    (aten.squeeze.dim, torch.tensor(1.0), 0),
    (aten.squeeze.default, torch.tensor(1.0)),
    (aten.slice.Tensor, X, 1, 1, 4),
    (aten.slice.Tensor, X, 2, -3, 9223372036854775807),
    (aten.slice.Tensor, X, -1, 0, 6, 4),
    (aten.slice.Tensor, X, 0, 9, 10),
    (aten.slice.Tensor, X, 0, -9, 2),
    (aten.slice.Tensor, X),
    (aten.slice.Tensor, X, 1, None, -1, 3),
    (aten.select.int, X, 1, 3),
    (aten.select.int, X, -1, -2),
    (aten.select.int, X[0, 0], 0, 5),
    (aten.diagonal.default, X),
    (aten.diagonal.default, X, 1, 0, 2),
    (aten.diagonal.default, X, -2, -1, 0),
    (aten.diagonal.default, X, 9),
    (aten.unfold.default, X, 1, 3, 2),
    (aten.unfold.default, X, -1, 6, 1),
    (aten.unfold.default, torch.tensor(5.0), 0, 1, 1),
    (aten.as_strided.default, X, [2, 3], [7, 2]),
    (aten.as_strided.default, X, [120], [1]),
    (aten.as_strided.default, X.permute(2, 0, 1), [6, 20], [20, 1]),
    (aten.as_strided.default, X, [4, 3], [0, 1]),
    (aten.alias.default, X),
    (aten.detach.default, X),
    (aten.clone.default, X),
    (aten.pixel_shuffle.default, torch.arange(96.0).reshape(2, 12, 2, 2), 2),
    (aten.pixel_unshuffle.default, torch.arange(48.0).reshape(3, 4, 4), 2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{list(c[1].shape)}-{c[2:]}")
def test_views(case: tuple) -> None:
    op, x, *args = case
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        assert check(op, x.to(dtype), *args).is_view or not x.numel()


def test_views_of_views() -> None:
    check(aten.view.default, X.permute(1, 0, 2).contiguous().permute(1, 0, 2)[:, :, :3][:, :1], [4, 3])
    check(aten.slice.Tensor, X.permute(2, 1, 0)[::2], 1, 1, 3)


@pytest.mark.slow
def test_views_of_symbolic_sizes() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        n, m, k = x.shape
        return [
            x.view(n * m, k),
            x.view(n, m * k).view(-1),
            x.view(n, m, 2, k // 2),
            x.permute(2, 0, 1),
            x.unsqueeze(1),
            x.expand(3, n, m, k),
            aten.slice.Tensor(x, 1, -2),
            aten.slice.Tensor(x, 2, 1, -1),
            aten.slice.Tensor(x, 0, -n, 9),
            aten.select.int(x, 0, -1),
            aten.select.int(x, 1, m - 1),
            aten.slice.Tensor(x, 1, m - 2),
            aten.diagonal(x, 1, 0, 2),
            x.unfold(1, 2, 2),
            x.transpose(0, 2).transpose(0, 2).reshape(-1, k),
        ]

    found = check_symbolic(f, torch.arange(7 * 5 * 6.0).reshape(7, 5, 6))
    assert len(found) > 14
    assert all(d.is_view for d in found)


def test_a_reshape_that_splits_evenly_needs_no_division() -> None:
    definition = check(aten.view.default, torch.zeros(4, 15), [4, 3, 5])
    assert "//" not in str(definition.steps[0]) and "%" not in str([str(i) for i in definition.steps[0].at])


def test_memory_that_a_type_does_not_tell_is_refused() -> None:
    assert "counts from the start of the storage" in str(lowered(aten.as_strided.default, X, [2], [1], 3))
    assert "has gaps or overlaps" in str(lowered(aten.as_strided.default, X[:, ::2], [2], [1]))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_moved(dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, dtype=dtype)
    assert check(aten.permute.default, x, [1, 0]).is_view
    check(aten.slice.Tensor, x.t(), 0, 1, 4, 2)
    check(aten.flip.default, x, [0])
    check(aten.cat.default, [x, x[:1]], 0)
    check(aten.constant_pad_nd.default, x, [1, 2, 0, 1])
    check(aten.where.self, x.real > 0, x, x[:, :1])
    check(aten.index_select.default, x, 1, torch.tensor([2, 0]))
    check(aten.clone.default, x)
    check(aten.zeros_like.default, x)
    check(aten.select_scatter.default, x, x[0], 0, 2)


def test_complex_numbers_are_not_computed_with() -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    assert (
        lowered(aten.ones_like.default, x)
        == "aten.ones_like.default makes the complex number 1; loops have none but 0."
    )
    assert (
        lowered(aten._to_copy.default, x.real, dtype=torch.complex64)
        == "aten._to_copy.default computes with complex numbers, which loops only move."
    )
    assert (
        lowered(aten.unfold_backward.default, x.reshape(3, 2, 2), [3, 4], 1, 2, 2)
        == "aten.unfold_backward.default folds complex numbers, which loops only move."
    )
    assert (
        lowered(aten.scatter_add.default, x, 0, torch.zeros(1, 4, dtype=torch.int64), x)
        == "aten.scatter_add.default computes with complex numbers, which loops only move."
    )
    assert lowered(aten.isnan.default, x) == "aten.isnan.default has no loop form on complex64."
