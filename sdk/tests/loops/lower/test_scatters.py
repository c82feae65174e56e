"""Scatters write what eager writes."""

from __future__ import annotations

import torch

from .calls import check, check_symbolic, lowered

aten = torch.ops.aten
X = torch.arange(20.0).reshape(4, 5)
INDEX = torch.tensor([[0, 2, 1], [3, 3, 0]])
SOURCE = torch.tensor([[10.0, 20.0, 30.0, 1.0], [40.0, 50.0, 60.0, 1.0], [7.0, 8.0, 9.0, 1.0]])


def test_scatter() -> None:
    check(aten.scatter.src, X, 0, torch.tensor([[0, 2, 1], [3, 1, 0]]), SOURCE)
    check(aten.scatter.value, X, 0, INDEX, 7.5)
    check(aten.scatter.value, X.bfloat16(), 1, INDEX, 7.5)
    check(aten.scatter.src, X[0], 0, torch.tensor(3), torch.tensor(9.0))
    check(aten.scatter.value, torch.tensor(1.0), 0, torch.tensor(0), 4)
    check(aten.scatter.reduce, X, 0, INDEX, SOURCE, reduce="multiply")
    check(aten.scatter.value_reduce, X, 0, INDEX, 2.0, reduce="add")


def test_scatter_add() -> None:
    check(aten.scatter_add.default, X, 0, INDEX, SOURCE)
    check(aten.scatter_add.default, X, -1, INDEX, SOURCE)
    check(aten.scatter_add.default, X.long(), 1, INDEX, SOURCE.long())
    check(aten.scatter_add.default, X, 0, INDEX[:0], SOURCE)
    for reduce in ("sum", "prod", "amax", "amin"):
        check(aten.scatter_reduce.two, X, 0, INDEX, SOURCE, reduce)
    assert "more than one pass" in str(lowered(aten.scatter_reduce.two, X, 0, INDEX, SOURCE, "mean"))
    assert "ignores the old" in str(lowered(aten.scatter_reduce.two, X, 0, INDEX, SOURCE, "sum", include_self=False))


def test_index_put() -> None:
    i, j = torch.tensor([1, -1, 1]), torch.tensor([0, 2, 0])
    for accumulate in (False, True):
        check(aten.index_put.default, X, [i, j], torch.tensor([5.0, 6.0, 5.0]), accumulate)
        check(aten.index_put.default, X, [i], torch.tensor(2.0), accumulate)
        check(aten.index_put.default, X, [None, j], torch.tensor([[3.0]]), accumulate)
        check(aten.index_put.default, X, [i.unsqueeze(1), j], torch.ones(3), accumulate)
        check(
            aten.index_put.default,
            X.reshape(4, 5, 1).expand(4, 5, 2),
            [i, None, torch.tensor(1)],
            torch.ones(5),
            accumulate,
        )
        check(aten._unsafe_index_put.default, X.bfloat16(), [i], torch.ones(5).bfloat16(), accumulate)
    assert "selects by a mask" in str(lowered(aten.index_put.default, X, [X > 3], torch.ones(16)))
    assert "selects by a mask" in str(lowered(aten.index_put.default, X, [X > 3], torch.tensor(0.0), True))
    assert "combines bools" in str(lowered(aten.index_put.default, X > 3, [i], torch.tensor(True), True))


def test_one_number_under_a_mask() -> None:
    x, rows, columns = X.reshape(2, 2, 5), torch.tensor([True, False]), torch.tensor([True, False, True, True, False])
    check(aten.index_put.default, X, [X > 3], torch.tensor(0.0))
    check(aten.index_put.default, X.bfloat16(), [X > 3], torch.tensor([[2.5]]).bfloat16())
    check(aten.index_put.default, X > 9, [X > 3], torch.tensor(False))
    check(aten.index_put.default, x, [rows], torch.tensor([3.0]))
    check(aten.index_put.default, x, [x[..., 0] > 5], torch.tensor(-1.0))
    check(aten.index_put.default, x, [None, None, columns], torch.tensor(7.0))
    check(aten.index_put.default, x, [None, x[0] > 2], torch.tensor(7.0))
    check(aten.index_put.default, x, [torch.tensor(True)], torch.tensor(7.0))
    check(aten.index_put.default, X.t(), [X.t() > 3], torch.tensor(7.0))
    check_symbolic(lambda x, value: aten.index_put(x, [x > 3], value), X, torch.tensor(0.0))


def test_rows() -> None:
    i = torch.tensor([2, 0, 2])
    check(aten.index_add.default, X, 0, i, torch.ones(3, 5))
    check(aten.index_add.default, X, 0, i, torch.ones(3, 5), alpha=2.5)
    check(aten.index_add.default, X.long(), 1, i, torch.ones(4, 3).long(), alpha=3)
    check(aten.index_copy.default, X, 0, torch.tensor([3, 1]), torch.ones(2, 5))
    check(aten.index_fill.int_Scalar, X, 1, i, 9)
    check(aten.index_fill.int_Tensor, X, 0, i, torch.tensor(9.0))


def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        rows = i.unsqueeze(1).expand(i.shape[0], x.shape[1])
        return [
            aten.scatter_add(x, 0, rows, x[:3]),
            aten.index_put(x, [i], x[:3], True),
            aten.index_add(x, 0, i, x[:3]),
            aten.scatter(x, 0, rows, 1.0),
        ]

    assert len(check_symbolic(f, torch.randn(6, 7), torch.tensor([1, 0, 4]))) >= 4
