"""Distances and their gradients: eager's or better, gradients those of the forward."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

from .decomposed import holds

pytestmark = pytest.mark.slow

aten = torch.ops.aten
NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 3), (4, 3)),
        ((2, 5, 3), (4, 3)),
        ((2, 1, 5, 3), (3, 4, 3)),
        ((5, 0), (4, 0)),
        ((30, 3), (31, 3)),
        ((0, 3), (4, 3)),
    ],
    ids=str,
)
def test_cdist(p: float, shapes) -> None:
    a, b = (torch.randn(s) for s in shapes)
    holds(aten._cdist_forward.default, a, b, p, 2)  # 2: eager takes differences, too


@pytest.mark.parametrize("p", NORMS)
def test_cdist_backward(p: float) -> None:
    a, b = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    b[:, 1] = a[:, 2]  # a distance of 0
    b[:, 2, 0] = a[:, 3, 0]  # a component that does not differ
    dist = aten._cdist_forward(a, b, p, None)
    holds(aten._cdist_backward.default, torch.randn(2, 5, 4), a, b, p, dist)


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 4, 5), (3, 2, 5)),
        ((3, 4, 5), (1, 2, 5)),
        ((1, 4, 5), (0, 2, 5)),
        ((1, 4, 5), (3, 0, 5)),
        ((1, 4, 0), (3, 2, 0)),
    ],
    ids=str,
)
def test_cdist_backward_of_broadcast_batches(shapes) -> None:
    a, b = (torch.randn(s) for s in shapes)
    dist = aten._cdist_forward(a, b, 2.0, None)
    holds(aten._cdist_backward.default, torch.randn_like(dist), a, b, 2.0, dist)


@pytest.mark.parametrize("p", NORMS)
def test_pdist_and_backward(p: float) -> None:
    x = torch.randn(6, 3)
    x[4] = x[1]
    holds(aten._pdist_forward.default, x, p)
    holds(aten._pdist_backward.default, torch.randn(15), x, p, aten._pdist_forward(x, p))


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_the_pair_is_consistent(p: float) -> None:
    a, b = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(5, 3, dtype=torch.float64)
    out = decomposition_of(aten._cdist_forward.default)(a, b, p, None)
    grad = torch.randn_like(out)
    (want,) = torch.autograd.grad(out, a, grad)
    got = decomposition_of(aten._cdist_backward.default)(grad, a.detach(), b, p, out.detach())
    torch.testing.assert_close(got, want)


def test_close_rows_do_not_cancel() -> None:
    a = torch.randn(40, 8) + 100
    b = a + 1e-3
    ours = decomposition_of(aten._cdist_forward.default)(a, b, 2.0, None).diagonal()
    exact = (a.double() - b.double()).square().sum(-1).sqrt()
    torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=0)
