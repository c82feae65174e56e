"""Segments and bags: eager's values, what is saved for the backward, and its gradients."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

from .agreement import agree
from .decomposed import holds

aten = torch.ops.aten
NAN = float("nan")


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.slow
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_segments_and_gradients(reduce: str, initial: float | None, axis: int) -> None:
    lengths = torch.tensor([2, 0, 1, 4]) if axis == 0 else torch.tensor([[2, 0, 1, 4], [0, 3, 3, 1], [7, 0, 0, 0]])
    data = torch.randn(7, 3) if axis == 0 else torch.randn(3, 7, 2)
    data[0, 0] = data[1, 0] = 9.0  # equal extremes
    offsets = torch.nn.functional.pad(lengths.cumsum(axis), (1, 0))
    for where in ({"lengths": lengths}, {"offsets": offsets}):
        holds(aten.segment_reduce.default, data, reduce, axis=axis, initial=initial, **where)
        out = aten.segment_reduce(data, reduce, axis=axis, initial=initial, **where)
        holds(
            aten._segment_reduce_backward.default,
            torch.randn_like(out),
            out,
            data,
            reduce,
            axis=axis,
            initial=initial,
            **where,
        )


@pytest.mark.parametrize(
    "row", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [NAN, 2.0, 3.0], [NAN, 0.0, 3.0], [1.0, 2.0, NAN]], ids=str
)
def test_products_with_zeros_and_nan(row: list[float]) -> None:
    data, lengths = torch.tensor(row), torch.tensor([3])
    out = aten.segment_reduce(data, "prod", lengths=lengths)
    agree(aten._segment_reduce_backward.default, torch.tensor([2.0]), out, data, "prod", lengths=lengths)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_a_nan_is_its_segments_extreme(reduce: str) -> None:
    data, lengths = torch.tensor([NAN, 2.0, 3.0, NAN]), torch.tensor([3, 1])
    for out in (aten.segment_reduce(data, reduce, lengths=lengths), torch.tensor([3.0, float("inf")])):
        agree(aten._segment_reduce_backward.default, torch.tensor([2.0, -1.0]), out, data, reduce, lengths=lengths)


W = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
INDICES = torch.tensor([0, 3, 2, 2, 6, 5, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding_idx", [-1, 2])
@pytest.mark.parametrize(("offsets", "last"), [([0, 2, 2, 5], False), ([0, 3, 7], True)])
@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_bag_and_gradients(dtype, mode, padding_idx, offsets, last, weighted) -> None:
    if weighted and mode:
        return
    w, offsets = W.to(dtype), torch.tensor(offsets)
    scale = torch.rand(7).to(dtype) if weighted else None
    given = (w, INDICES, offsets, False, mode, False, scale, last, padding_idx)
    # The saved values are compared to eager in the same dtype: what is saved depends on it.
    eager, ours = aten._embedding_bag(*given), decomposition_of(aten._embedding_bag.default)(*given)
    for e, o in zip(eager[1:], ours[1:], strict=True):
        if e.shape != o.shape:  # FakeTensor does not know that bfloat16 saves no bags
            assert dtype == torch.bfloat16 and not e.numel()
        else:
            assert e.dtype == o.dtype and torch.equal(e, o)
    torch.testing.assert_close(ours[0], eager[0])
    grad = torch.randn(eager[0].shape).to(dtype)
    back = [grad, INDICES, offsets, *eager[1:], 7, False, mode, False, scale, padding_idx]
    want = aten._embedding_bag_backward(*back)
    decomposition = decomposition_of(aten._embedding_bag_backward.default)
    torch.testing.assert_close(decomposition(*back), want)
    if mode != 2:
        back[7] = True  # eager on CPU divides by the frequency of another row where one is taken twice
        often = INDICES.bincount(minlength=7).clamp(min=1).unsqueeze(1)
        torch.testing.assert_close(decomposition(*back) * often, want)
    if mode == 0:
        back = (grad, w, INDICES, offsets, eager[1], mode, padding_idx)
        want = aten._embedding_bag_per_sample_weights_backward(
            grad,
            w,
            INDICES,
            offsets,
            decomposition_of(aten._embedding_bag.default)(w, INDICES, offsets, False, 1)[1],
            mode,
            padding_idx,
        )
        got = decomposition_of(aten._embedding_bag_per_sample_weights_backward.default)(*back)
        torch.testing.assert_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding_idx", [-1, 2])
def test_embedding_bag_without_gradients(mode, padding_idx, last) -> None:
    offsets = torch.tensor([0, 2, len(INDICES)] if last else [0, 2])
    args = (W.double(), INDICES, offsets, False, mode, False, None, last, padding_idx)
    holds(aten._embedding_bag_forward_only.default, *args)


@pytest.mark.parametrize("padding_idx", [-1, 0, 2])
@pytest.mark.parametrize("at", [0, 2, 3, 6])
def test_the_greatest_beside_nan_is_eagers(at, padding_idx) -> None:
    """Where a bag begins with it, within one, and where it does not count."""
    w = W.clone()
    w[at, 1], w[5, 2] = NAN, -float("inf")
    args = (w, INDICES, torch.tensor([0, 2, 2, 5]), False, 2, False, None, False, padding_idx)
    eager, ours = aten._embedding_bag(*args), decomposition_of(aten._embedding_bag.default)(*args)
    for e, o in zip(eager, ours, strict=True):
        torch.testing.assert_close(o, e, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
def test_embedding_bag_on_symbolic_sizes() -> None:
    for mode in (0, 1, 2):
        holds(aten._embedding_bag.default, W.double(), INDICES, torch.tensor([0, 2, 2, 5]), False, mode)
    holds(aten._embedding_bag.default, W.double(), INDICES[:0], torch.tensor([0, 0]), False, 1)


@pytest.mark.slow
def test_embedding_renorm() -> None:
    for p in (1.0, 2.0, float("inf")):
        holds(aten.embedding_renorm.default, W, torch.tensor([[1, 1], [5, 0]]), 1.0, p)
