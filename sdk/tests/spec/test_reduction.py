"""Reductions: the composites agree with eager, and the clauses hold of eager."""

from __future__ import annotations

import pytest
import torch

from .agreement import agree
from .decomposed import holds

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("x", [X, X.bfloat16(), X.double(), torch.zeros(2, 0), torch.tensor(2.0)], ids=str)
def test_mean(x: torch.Tensor) -> None:
    holds(aten.mean.default, x)
    holds(aten.mean.dim, x, [-1] if x.dim() else [], True)
    agree(aten.mean.dim, x, None, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.prod.default, (X,)),
        (aten.max.default, (X,)),
        (aten.min.default, (X,)),
        (aten.all.default, (X > -9,)),
        (aten.all.dim, (X > 0, 1, True)),
        (aten.all.dims, (X > 0, [0, 2])),
        (aten.all.dims, (X > 0, [])),
        (aten.all.default, (torch.tensor([3, 0], dtype=torch.uint8),)),
        (aten.all.default, (torch.tensor([NAN, INF]),)),
        (aten.all.default, (torch.zeros(0),)),
        (aten.aminmax.default, (X,)),
        (aten.count_nonzero.default, (X,)),
        (aten.count_nonzero.dim_IntList, (torch.tensor([[NAN, -0.0], [1.0, 0.0]]), [1])),
        (aten.trace.default, (X[0],)),
        (aten.trace.default, (torch.arange(6).reshape(2, 3),)),
        (aten.std_mean.correction, (X, [1])),
    ],
    ids=lambda v: str(v) if not isinstance(v, tuple) else "",
)
def test_composites(op, args) -> None:
    holds(op, *args)


def test_aminmax_along_a_dimension() -> None:
    holds(aten.aminmax.default, X, dim=-1, keepdim=True)


def test_extremes_and_nan() -> None:
    x = torch.tensor([1.0, NAN, 3.0, NAN])
    assert (aten.argmax(x), aten.argmin(x)) == (1, 1) and aten.amax(x).isnan() and aten.max(x, 0)[1] == 1
    y = torch.tensor([2.0, 3.0, 3.0, 1.0, 1.0])
    assert (aten.argmax(y), aten.argmin(y), aten.max(y, 0)[1], aten.min(y, 0)[1]) == (1, 3, 1, 3)
    assert aten.argmax(torch.tensor([[0, 1], [1, 0]])) == 1


def test_no_elements() -> None:
    nothing = torch.zeros(2, 0)
    assert aten.sum(nothing) == 0 and aten.prod(nothing, 1).tolist() == [1, 1] and not aten.any(nothing)


def test_integers_wrap_around() -> None:
    assert aten.sum(torch.tensor([2**63 - 1, 1])) == -(2**63)
    assert aten.sum(torch.tensor([200, 100], dtype=torch.uint8), dtype=torch.uint8) == 44
    assert aten.sum(torch.tensor([200, 100], dtype=torch.uint8)) == 300


def test_any_takes_no_dimensions_literally() -> None:
    x = torch.tensor([[1, 0]])
    assert aten.any(x, []).tolist() == [[True, False]] and aten.any(x, None).tolist() is True
    assert aten.any(torch.tensor([NAN])) and not aten.any(torch.tensor([-0.0]))
    assert aten.any(torch.tensor([3], dtype=torch.uint8)).item() == 1


def test_bits_are_xored_as_64() -> None:
    assert aten.hash_tensor(torch.tensor([1.0])).item() == 0x3FF0000000000000
    assert aten.hash_tensor(torch.tensor([-2], dtype=torch.int8)).item() == 0xFFFFFFFFFFFFFFFE
    assert aten.hash_tensor(torch.tensor([1.5, 1.5])).item() == 0


def test_running_extremes() -> None:
    values, index = aten.cummax(torch.tensor([1.0, 3.0, 3.0, NAN, 5.0, NAN]), 0)
    assert index.tolist() == [0, 1, 2, 3, 3, 5] and values[3:].isnan().all()


def test_running_logarithms() -> None:
    got = aten.logcumsumexp(torch.tensor([-INF, -INF, 0.0, 1000.0, INF, 1.0, NAN]), 0)
    assert got[:5].tolist() == [-INF, -INF, 0.0, 1000.0, INF] and got[5] == INF and got[6].isnan()
