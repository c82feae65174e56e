"""Reads and writes at indices: composites agree with eager, and the clauses hold of eager."""

from __future__ import annotations

import pytest
import torch

from keel.spec import OPSET, decomposition_of
from keel.spec.bind import bound
from keel.spec.opset import MEMBERS
from keel.types import TensorType

from .decomposed import holds

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
M = torch.arange(12.0).reshape(3, 4)
EDGES = torch.tensor([1.0, 2.0, 2.0, 5.0])


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.index_select.default, (M, 1, torch.tensor([3, 0, 0]))),
        (aten.index_select.default, (M, 0, torch.tensor(2))),
        (aten.index_select.default, (M.t(), -1, torch.tensor([1], dtype=torch.int32))),
        (aten.index_select.default, (torch.tensor(3.0), 0, torch.tensor([0]))),
        (aten.embedding.default, (M, torch.tensor([[0, 2, 2]]))),
        (aten.embedding.default, (M, torch.tensor(1), 1)),
        (aten.searchsorted.Scalar, (EDGES, 2.0)),
        (aten.bucketize.Tensor, (M, EDGES)),
        (aten.bucketize.Scalar, (2.0, EDGES)),
    ],
    ids=lambda v: str(v) if not isinstance(v, tuple) else "",
)
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


@pytest.mark.parametrize("member", [m for m in MEMBERS.values() if m.places], ids=lambda m: m.name)
def test_what_is_read_at_places_that_are_data_is_a_parameter_of_every_overload(member) -> None:
    for op in member.targets:
        names = {a.name for a in op._schema.arguments}
        assert member.places.of is None or member.places.of in names
        assert OPSET[op] is member


def test_counts_of_places_are_sizes() -> None:
    t, at = TensorType.dense(torch.float32, (9, 4)), TensorType.dense(torch.int64, (5,))
    bags = bound(aten._embedding_bag.default, (t, at, at), {})
    assert list(OPSET[aten._embedding_bag.default].places.count.of(bags)) == [5, 4]
    renormed = bound(aten.embedding_renorm.default, (t, at, 1.0, 2.0), {})
    assert list(OPSET[aten.embedding_renorm.default].places.count.of(renormed)) == [5, 4]
    filled = bound(aten.index_fill.int_Scalar, (t, 1, at, 0.0), {})
    assert sorted(OPSET[aten.index_fill.int_Scalar].places.count.of(filled)) == [5, 9]
    gone = bound(aten._embedding_bag_dense_backward.default, (t, at, at, at, at, 7, False, 0, None), {})
    assert list(OPSET[aten._embedding_bag_dense_backward.default].places.count.of(gone)) == [5, 4]


@pytest.mark.parametrize("number", [0.3, -6.5, 2, 7.0])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_a_number_is_looked_for_as_what_a_sum_with_it_is(number, dtype) -> None:
    """Not cut off to an integer first."""
    x = torch.tensor([-7, -6, -6, 0, 0, 1, 2, 2, 7]).to(dtype)
    for right in (False, True):
        assert torch.equal(
            decomposition_of(aten.searchsorted.Scalar)(x, number, right=right),
            aten.searchsorted.Scalar(x, number, right=right),
        )
        assert torch.equal(
            decomposition_of(aten.bucketize.Scalar)(number, x, right=right),
            aten.bucketize.Scalar(number, x, right=right),
        )
