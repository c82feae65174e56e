"""Order statistics read off a sorted tensor are eager's."""

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


def distinct(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """No two elements are equal, so that indices are determined."""
    count = int(torch.Size(shape).numel())
    return torch.randperm(count, generator=torch.Generator().manual_seed(0)).reshape(shape).to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize(
    ("shape", "dim", "keepdim"),
    [((3, 5), 1, False), ((3, 6), -1, True), ((4, 3), 0, False), ((1,), 0, False), ((), 0, False)],
)
@pytest.mark.parametrize("op", [aten.median.dim, aten.nanmedian.dim], ids=str)
def test_medians(op, dtype, shape, dim, keepdim) -> None:
    holds(op, distinct(*shape, dtype=dtype), dim, keepdim)


@pytest.mark.slow
@pytest.mark.parametrize("op", [aten.median.dim, aten.nanmedian.dim], ids=str)
@pytest.mark.parametrize("row", [[1.0, NAN, 3.0, 2.0], [NAN, 0.0, 4.0, NAN, 2.0, 1.0], [NAN, 5.0]], ids=str)
def test_medians_of_nan(op, row) -> None:
    holds(op, torch.tensor([row, sorted(row)]), 1)


@pytest.mark.parametrize("op", [aten.median.default, aten.nanmedian.default], ids=str)
@pytest.mark.parametrize(
    "x",
    [
        distinct(3, 4),
        distinct(5),
        torch.tensor([NAN, 1.0, 2.0]),
        torch.zeros(0, 3),
        torch.tensor(2.0),
        torch.arange(6),
        torch.zeros(0, dtype=torch.int32),
    ],
    ids=str,
)
def test_medians_of_all(op, x) -> None:
    holds(op, x)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_kthvalue(k: int) -> None:
    holds(aten.kthvalue.default, distinct(3, 5), k)
    holds(aten.kthvalue.default, distinct(5, 3).t().contiguous().t(), k, 0, True)
    agree(aten.kthvalue.default, torch.tensor([1.0, NAN, 3.0, 0.0, 2.0]), k)
    holds(aten.kthvalue.default, torch.tensor(2.0), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_mode(dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 1, 3, 1, 2], [5, 4, 3, 2, 1], [7, 7, 7, 0, 0]], dtype=dtype)
    for dim, keepdim in ((1, False), (0, True), (-1, True)):
        want, where = aten.mode(x, dim, keepdim)
        values, index = decomposition_of(aten.mode.default)(x, dim, keepdim)
        assert torch.equal(values, want) and where.shape == index.shape
        held = index if keepdim else index.unsqueeze(dim)
        assert torch.equal(x.gather(dim, held), values if keepdim else values.unsqueeze(dim))
    holds(aten.mode.default, torch.tensor(3.0))
