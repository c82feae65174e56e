"""Movement and indexed writes in terms of primitives give what eager gives."""

from __future__ import annotations

import pytest
import torch

from .decomposed import holds

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
M = torch.arange(12.0).reshape(3, 4)
IMAGE = torch.arange(40.0).reshape(1, 2, 4, 5)
I2 = torch.tensor([0, 2])


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.roll.default, (X, [2], [1])),
        (aten.roll.default, (M, [5])),
        (aten.rot90.default, (M, 1, [0, 1])),
        (aten.rot90.default, (M, -2, [1, 0])),
        (aten.tril.default, (X, 1)),
        (aten.triu.default, (X, -1)),
        (aten.block_diag.default, ([M, torch.ones(2), torch.tensor(3.0)],)),
        (aten.diag_embed.default, (M, 1)),
        (aten.diag_embed.default, (M, -1, 0, 1)),
        (aten.stack.default, ([M, M], 1)),
        (aten.stack.default, ([M, M], -1)),
        (aten.select_backward.default, (M, [3, 5, 4], 1, 2)),
        (aten.slice_backward.default, (X, [3, 9, 5], 1, 1, 9, 2)),
        (aten.diagonal_backward.default, (rand(3), [3, 4], 1, 0, 1)),
        (aten.unfold_backward.default, (rand(3, 3, 2), [3, 4], 1, 2, 1)),
        (aten.unfold_backward.default, (rand(1, 3, 2), [3, 4], 1, 2, 1)),
        (aten.reflection_pad1d.default, (M, [2, 1])),
        (aten.reflection_pad2d.default, (IMAGE, [1, 2, 3, 0])),
        (aten.reflection_pad3d.default, (IMAGE, [1, 2, 1, 0, 1, 0])),
        (aten.reflection_pad1d_backward.default, (rand(3, 7), M, [2, 1])),
        (aten.reflection_pad2d_backward.default, (rand(1, 2, 7, 8), IMAGE, [1, 2, 3, 0])),
        (aten.replication_pad1d.default, (M, [2, 1])),
        (aten.replication_pad2d.default, (IMAGE, [1, 2, 3, 0])),
        (aten.replication_pad1d_backward.default, (rand(3, 7), M, [2, 1])),
        (aten.replication_pad1d_backward.default, (rand(3, 2), M, [-1, -1])),
        (aten.replication_pad2d_backward.default, (rand(1, 2, 7, 8), IMAGE, [1, 2, 3, 0])),
        (aten.replication_pad3d_backward.default, (rand(2, 1, 4, 7, 8), rand(2, 1, 2, 4, 5), [1, 2, 3, 0, 1, 1])),
        (aten.index_add.default, (M, 0, I2, rand(2, 4))),
        (aten.index_add.default, (M, 1, I2[[0, 0, 1]], rand(3, 3))),
        (aten.index_copy.default, (M, 0, I2, rand(2, 4))),
        (aten.index_fill.int_Scalar, (M, 1, I2, 7.5)),
        (aten.index_fill.int_Tensor, (M, 1, I2, torch.tensor(7.5))),
        (aten.masked_fill.Scalar, (M, M > 4, -1)),
        (aten.masked_fill.Tensor, (M, M[0] > 4, torch.tensor(-1.0))),
        (aten.take.default, (M, torch.tensor([[0, -1], [5, 3]]))),
        (aten.isin.Tensor_Tensor, (M, torch.tensor([1.0, 5.0]))),
        (aten.isin.Tensor_Scalar, (M, 3)),
        (aten.isin.Scalar_Tensor, (3, M)),
        (aten.renorm.default, (M, 2.0, 0, 5.0)),
        (aten.renorm.default, (X, 1.0, -1, 50.0)),
        (aten.nansum.default, (torch.tensor([[1.0, float("nan")], [2.0, 3.0]]), [1])),
        (aten.logsumexp.default, (rand(3, 4) * 9, [1])),
        (aten.std_mean.correction, (rand(3, 7), [1])),
        (aten.embedding_dense_backward.default, (rand(2, 3, 4), torch.tensor([[1, 0, 1], [4, 2, 1]]), 6, 2, True)),
    ],
    ids=lambda v: str(v) if not isinstance(v, tuple) else "",
)
def test_movement_and_writes(op, args) -> None:
    holds(op, *args)


@pytest.mark.slow
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(reduce: str, include_self: bool) -> None:
    at = torch.tensor([0, 2, 0])
    holds(aten.index_reduce.default, M, 0, at, rand(3, 4), reduce, include_self=include_self)
    holds(aten.index_reduce.default, M, 1, at, rand(3, 3), reduce, include_self=include_self)
    holds(
        aten.index_reduce.default, M.long(), 1, at, rand(3, 3).mul(9).sub(5).long(), reduce, include_self=include_self
    )
    holds(
        aten.index_reduce.default,
        torch.tensor(2.0),
        0,
        torch.tensor([0]),
        torch.tensor(3.0),
        reduce,
        include_self=include_self,
    )


@pytest.mark.parametrize("reduce", ["add", "multiply"])
@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_scatter_with_a_reduction(reduce: str) -> None:
    at = torch.tensor([[0, 2, 0, 1]])
    holds(aten.scatter.reduce, M, 0, at, rand(1, 4), reduce=reduce)
    holds(aten.scatter.value_reduce, M, 0, at, 2.5, reduce=reduce)
    holds(aten.scatter.reduce, M, 1, at, rand(1, 5), reduce=reduce)


def test_masked_scatter_backward() -> None:
    mask = torch.tensor([True, False, True, True])
    holds(aten.masked_scatter_backward.default, M, mask.expand(3, 4), [11])
    holds(aten.masked_scatter_backward.default, M, M > 3, [4, 2])
    holds(aten.masked_scatter_backward.default, M, M > 99, [3])
