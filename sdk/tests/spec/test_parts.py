"""Parts, dropout and the remaining composites give what eager gives."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

from .agreement import agree

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.split.Tensor, (2, 1)),
        (aten.split.Tensor, (3, -1)),
        (aten.split.Tensor, (9, 0)),
        (aten.split_with_sizes.default, ([1, 0, 3], 1)),
        (aten.unbind.int, (2,)),
        (aten.unbind.int, (-2,)),
        (aten.unsafe_split.Tensor, (2, 1)),
        (aten.unsafe_split_with_sizes.default, ([4, 1], 2)),
        (aten.split_with_sizes_copy.default, ([2, 2], 1)),
        (aten.unbind_copy.int, (0,)),
    ],
    ids=str,
)
def test_parts(op: object, args: tuple) -> None:
    for x in (X, X.permute(0, 2, 1).contiguous().permute(0, 2, 1)):
        want, got = op(x, *args), decomposition_of(op)(x, *args)  # type: ignore[operator]
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert torch.equal(g, w)
            if not w.is_contiguous() and op.name().find("copy") < 0 and op.name().find("unsafe") < 0:  # type: ignore[attr-defined]
                assert (g.stride(), g.storage_offset()) == (w.stride(), w.storage_offset())


def test_as_strided_begins_where_the_operand_does_or_later() -> None:
    op = decomposition_of(aten.as_strided.default)
    for x, offset in ((X, 0), (X, 7), (X[1:], 20), (X[1:], 25)):
        assert torch.equal(op(x, [2, 3], [5, 2], offset), aten.as_strided(x, [2, 3], [5, 2], offset))
    assert op(X, [2, 3], [5, 2]) is NotImplemented  # a primitive already
    assert op(X[1:], [2, 3], [5, 2], 0) is NotImplemented  # memory before the operand
    assert op(X.permute(2, 0, 1), [2, 3], [5, 2], 3) is NotImplemented


@pytest.mark.parametrize(
    ("size", "stride", "offset"), [([3, 4], [7, 2], 5), ([60], [1], 0), ([4, 15], [15, 1], 0), ([2, 2], [1, 30], None)]
)
def test_as_strided_scatter(size: list[int], stride: list[int], offset: int | None) -> None:
    src = -torch.rand(size)
    got = decomposition_of(aten.as_strided_scatter.default)(X, src, size, stride, offset)
    assert torch.equal(got, aten.as_strided_scatter(X, src, size, stride, offset))


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("train", [True, None, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_dropout_draws_what_eager_draws(p: float, train: bool | None, dtype: torch.dtype) -> None:
    x = torch.randn(1000).to(dtype)
    torch.manual_seed(3)
    want = aten.native_dropout(x, p, train)
    torch.manual_seed(3)
    got = decomposition_of(aten.native_dropout.default)(x, p, train)
    assert torch.equal(got[1], want[1]) and got[1].dtype == torch.bool
    torch.testing.assert_close(got[0], want[0])


@pytest.mark.parametrize("factors", [{}, {"beta": 0, "alpha": 2}, {"beta": 0.5, "alpha": -1}], ids=str)
def test_addbmm(factors: dict) -> None:
    x, a, b = torch.randn(4, 5), torch.randn(3, 4, 6), torch.randn(3, 6, 5)
    agree(aten.addbmm.default, x, a, b, **factors)
    agree(aten.addbmm.default, x[0], a, b, **factors)


def test_put() -> None:
    for accumulate in (False, True):
        index, source = torch.tensor([[3, -1], [0, 17]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        agree(aten.put.default, X, index, source, accumulate)
        agree(aten.put.default, X.permute(2, 0, 1), index, source, accumulate)


def test_masked_scatter() -> None:
    mask = torch.rand(4, 5) > 0.5
    source = -torch.rand(70)
    agree(aten.masked_scatter.default, X, mask, source)
    agree(aten.masked_scatter.default, X[0], mask, source)
    agree(aten.masked_scatter.default, X, torch.zeros(5, dtype=torch.bool), source[:0])


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_soft_margin_loss_backward(reduction: int, dtype: torch.dtype) -> None:
    x, target = (torch.randn(4, 9) * 10).to(dtype), (torch.randint(0, 2, (4, 9)) * 2 - 1).to(dtype)
    grad = torch.randn(4, 9).to(dtype) if reduction == 0 else torch.tensor(1.5, dtype=dtype)
    agree(aten.soft_margin_loss_backward.default, grad, x, target, reduction)


def test_soft_margin_loss_backward_far_out() -> None:
    x = torch.tensor([200.0, -200.0])
    got = decomposition_of(aten.soft_margin_loss_backward.default)(torch.ones(2), x, torch.ones(2), 0)
    assert got.tolist() == [0.0, -1.0]  # where eager divides infinity by infinity
