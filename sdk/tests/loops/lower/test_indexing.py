"""Gathers give what eager gives, in every arrangement of index tensors."""

from __future__ import annotations

import pytest
import torch

from .calls import check, check_symbolic, lowered

aten = torch.ops.aten
X = torch.arange(120.0).reshape(4, 5, 6)
R, J, K = torch.tensor([2, 0, -1]), torch.tensor([[1], [3], [-4]]), torch.tensor(3)


@pytest.mark.parametrize(
    "indices",
    [
        [R],
        [None, R],
        [None, None, R],
        [R, R],
        [R, J],
        [R, None, R],
        [J, None, R],
        [None, R, J],
        [None, J, K],
        [K],
        [K, None, R],
        [R, J, K],
        [R[:0]],
        [None, J[:, :0]],
        [R.int(), J],
    ],
    ids=lambda v: "-".join("x" if i is None else str(list(i.shape)) for i in v),
)
def test_index(indices: list[torch.Tensor | None]) -> None:
    check(aten.index.Tensor, X, indices)
    check(aten._unsafe_index.Tensor, X.bfloat16(), indices)


def test_a_mask_as_index_is_refused() -> None:
    assert "selects by a mask" in str(lowered(aten.index.Tensor, X, [torch.tensor([True, False, True, False])]))


def test_gather() -> None:
    index = torch.tensor([[[0, 4, 2]], [[1, 1, 3]]])
    check(aten.gather.default, X, 1, index)
    check(aten.gather.default, X.to(torch.int8), -2, index)
    check(aten.gather.default, X[0, 0], 0, torch.tensor(5))
    check(aten.gather.default, X[0, 0, 0], 0, torch.tensor([0]))
    check(aten.gather.default, X[0, 0, 0], 0, torch.tensor(0))
    check(aten.gather.default, X, 2, index[:0])
    check(aten.gather.default, torch.arange(8).expand(3, 8), 1, torch.tensor([[7, 0], [1, 1]]))


def test_rows() -> None:
    check(aten.index_select.default, X, 1, torch.tensor([4, 0, 0]))
    check(aten.index_select.default, X, -1, torch.tensor(2))
    check(aten.index_select.default, X[0, 0, 0], 0, torch.tensor([0]))
    check(aten.embedding.default, X[0], torch.tensor([[0, 4], [2, 2]]))
    check(aten.embedding.default, X[0].bfloat16(), torch.tensor(3), 3, False, False)
    check(aten.embedding.default, X[0], torch.tensor([1, 2], dtype=torch.int32), 0)
    check(aten.take.default, X, torch.tensor([[0, -1], [119, 60]]))


def test_masked_index() -> None:
    mask = torch.tensor([True, False, True])
    check(aten._unsafe_masked_index.default, X[0, 0], mask, [torch.tensor([1, 0, 3])], 7.0)


def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [
            x[i],
            x[:, i],
            aten.gather(x, 1, i.unsqueeze(0).expand(3, i.shape[0])),
            aten.embedding(x, i),
            aten.index_select(x, 1, i),
            aten.index.Tensor(x, [i.unsqueeze(1), i.unsqueeze(0)]),
            aten.take(x, i),
        ]

    assert len(check_symbolic(f, torch.randn(5, 7), torch.tensor([1, 0, 3]))) >= 7


def test_nothing_is_taken_from_nothing() -> None:
    nowhere = torch.zeros(2, 0, dtype=torch.int64)
    check(aten.gather.default, torch.randn(5), 0, nowhere)
    check(aten.take.default, torch.randn(0), nowhere)
    check(aten.take.default, torch.randn(3, 0, dtype=torch.float16), nowhere)
