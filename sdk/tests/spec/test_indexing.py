"""Reads and writes at indices: composites agree with eager, and the clauses hold of eager."""
from __future__ import annotations

import pytest
import torch

from .decomposed import holds

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
M = torch.arange(12.0).reshape(3, 4)
EDGES = torch.tensor([1.0, 2.0, 2.0, 5.0])


@pytest.mark.parametrize(("op", "args"), [
    (aten.index_select.default, (M, 1, torch.tensor([3, 0, 0]))), (aten.index_select.default, (M, 0, torch.tensor(2))),
    (aten.index_select.default, (M.t(), -1, torch.tensor([1], dtype=torch.int32))),
    (aten.index_select.default, (torch.tensor(3.0), 0, torch.tensor([0]))),
    (aten.embedding.default, (M, torch.tensor([[0, 2, 2]]))), (aten.embedding.default, (M, torch.tensor(1), 1)),
    (aten.searchsorted.Scalar, (EDGES, 2.0)), (aten.bucketize.Tensor, (M, EDGES)),
    (aten.bucketize.Scalar, (2.0, EDGES)),
], ids=lambda v: str(v) if not isinstance(v, tuple) else "")
def test_composites(op, args) -> None:
    holds(op, *args)


def test_searching_from_the_right() -> None:
    holds(aten.bucketize.Tensor, M, EDGES, right=True, out_int32=True)
    holds(aten.searchsorted.Scalar, EDGES, 2.0, side="right")
    assert aten.searchsorted(EDGES, torch.tensor([NAN, INF, -INF, 2.0])).tolist() == [4, 4, 0, 1]


def test_means_of_integers_round_down() -> None:
    got = aten.scatter_reduce(torch.tensor([5, 1]), 0, torch.tensor([0, 0]), torch.tensor([-4, -3]), "mean")
    assert got.tolist() == [-1, 1]


def test_sorting_puts_nan_last_and_keeps_ties() -> None:
    x = torch.tensor([1.0, NAN, -0.0, 0.0, -INF, NAN])
    assert aten.sort(x, stable=True)[1].tolist() == [4, 2, 3, 0, 1, 5]
    assert aten.sort(x, stable=True, descending=True)[1].tolist() == [1, 5, 0, 2, 3, 4]


def test_rows_that_are_missing_are_filled() -> None:
    got = aten.nonzero_static(torch.tensor([[NAN, -0.0], [0.0, 3.0]]), size=3, fill_value=-7)
    assert got.tolist() == [[0, 0], [1, 1], [-7, -7]]
