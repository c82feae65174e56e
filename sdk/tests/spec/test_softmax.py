"""Softmax and its like: rows of every kind, gradients, weights with a norm of their own."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
INF, NAN = float("inf"), float("nan")
PAIRS = [
    (aten._softmax.default, aten._softmax_backward_data.default),
    (aten._log_softmax.default, aten._log_softmax_backward_data.default),
]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize(
    ("shape", "spread"), [((4, 9), 5), ((4, 9), 90), ((3, 4096), 1), ((2, 3, 5), 1), ((), 1)], ids=str
)
def test_rows(
    pair: tuple[torch._ops.OpOverload, torch._ops.OpOverload], dtype: torch.dtype, shape: tuple[int, ...], spread: float
) -> None:
    x = (torch.randn(shape) * spread).to(dtype)
    for dim in {-1, 0}:
        agree(pair[0], x, dim, False)
        out = pair[0](x, dim, False)
        agree(pair[1], torch.randn_like(out), out, dim, dtype)


@pytest.mark.parametrize("forward", [p[0] for p in PAIRS], ids=str)
def test_special_rows(forward: torch._ops.OpOverload) -> None:
    x = torch.randn(4, 9)
    x[0], x[1, 2], x[2, 3], x[3, 1:4] = -INF, INF, NAN, -INF
    agree(forward, x, 1, False)
    agree(forward, torch.randn(3, 0), 1, False)
    if forward is PAIRS[0][0]:
        agree(aten._safe_softmax.default, x, 1)
        assert not decomposition_of(aten._safe_softmax.default)(x, 1)[0].any()


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("dim", [0, 2])
def test_weight_norm(dtype: torch.dtype, dim: int) -> None:
    shape = [1, 1, 1]
    v = torch.randn(4, 5, 3).to(dtype)
    shape[dim] = v.shape[dim]
    g = (torch.rand(shape) + 0.5).to(dtype)
    agree(aten._weight_norm_interface.default, v, g, dim)
    if dtype == BF16:  # eager on CPU cannot take its own norms back
        return
    _, norm = aten._weight_norm_interface(v, g, dim)
    agree(aten._weight_norm_interface_backward.default, torch.randn_like(v), v, g, norm, dim)


def test_weight_norm_backward_is_the_gradient_in_bfloat16_too() -> None:
    v, g = torch.randn(4, 5, dtype=F64, requires_grad=True), torch.rand(4, 1, dtype=F64, requires_grad=True)
    grad = torch.randn(4, 5, dtype=F64)
    want = torch.autograd.grad(v * (g / v.norm(dim=1, keepdim=True)), (v, g), grad)
    norm = v.detach().norm(dim=1, keepdim=True).float()
    got = decomposition_of(aten._weight_norm_interface_backward.default)(
        grad.to(BF16), v.detach().to(BF16), g.detach().to(BF16), norm, 0
    )
    for found, w in zip(got, want, strict=True):
        torch.testing.assert_close(found.double(), w, rtol=3e-2, atol=3e-2)


def test_written_out_with_symbols_for_sizes() -> None:
    x = torch.randn(3, 4, 5).transpose(0, 1)
    for forward, backward in PAIRS:
        same_written_out(forward, x, 2, False)
        out = forward(x, 2, False)
        same_written_out(backward, torch.randn_like(out), out, 2, F32)
