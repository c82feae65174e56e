"""Scales learned, chosen, per token and per group give what eager gives."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # which registers quantized_decomposed

from keel.spec import decomposition_of

from .decomposed import traces

pytestmark = pytest.mark.slow

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def exactly(op: torch._ops.OpOverload, *args: object, **tolerance: float) -> None:
    want, got = op(*args), decomposition_of(op)(*args)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for w, g in pairs:
        torch.testing.assert_close(g, w, **(tolerance or {"rtol": 0, "atol": 0}))
    traces(op, *args)


def test_per_token() -> None:
    x, scales = torch.randn(4, 8) * 30, torch.rand(4, 1) + 0.1
    points = torch.randint(-5, 5, (4, 1), dtype=torch.int32)
    exactly(decomposed.quantize_per_token.default, x, scales, points, -128, 127, torch.int8)
    steps = torch.randint(-128, 127, (4, 8), dtype=torch.int8)
    exactly(
        decomposed.dequantize_per_token.default,
        steps,
        scales.double(),
        points.long(),
        -128,
        127,
        torch.int8,
        torch.float32,
    )


@pytest.mark.parametrize("size", [4, 128])
def test_per_group(size: int) -> None:
    x, groups = torch.randn(3, 8) * 30, 8 // min(size, 8)
    scales, points = torch.rand(3, groups) + 0.1, torch.randint(-5, 5, (3, groups), dtype=torch.int32)
    exactly(decomposed.quantize_per_channel_group.default, x, scales, points, -8, 7, torch.int8, size)
    steps = torch.randint(-8, 7, (3, 8), dtype=torch.int8)
    for given in (points, None):
        exactly(
            decomposed.dequantize_per_channel_group.default,
            steps,
            scales,
            given,
            -8,
            7,
            torch.int8,
            size,
            torch.float32,
        )


@pytest.mark.parametrize("shift", [-3.0, 0.0, 5.0])
def test_choosing_scales(shift: float) -> None:
    x = torch.randn(4, 8) + shift
    exactly(decomposed.choose_qparams.tensor, x, -128, 127, 1e-6, torch.int8)
    exactly(decomposed.choose_qparams_symmetric.tensor, x, 0, 255, 1e-6, torch.uint8)
    exactly(decomposed.choose_qparams_symmetric.tensor, x, -127, 127, 1e-6, torch.int8)
    exactly(decomposed.choose_qparams_per_token_asymmetric.default, x, torch.int8)


@pytest.mark.parametrize("point", [-3.5, 0.0, 2.5, 300.0])
@pytest.mark.parametrize("bounds", [(0, 255), (-8, 7)])
def test_learned_scales(point: float, bounds: tuple[int, int]) -> None:
    x, grad = torch.randn(4, 6) * 20, torch.randn(4, 6)
    given = (torch.tensor([0.3]), torch.tensor([point]), *bounds, 0.7)
    exactly(aten._fake_quantize_learnable_per_tensor_affine.default, x, *given)
    exactly(aten._fake_quantize_learnable_per_tensor_affine_backward.default, grad, x, *given, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_learned_scales_per_channel(axis: int) -> None:
    x, grad, n = torch.randn(4, 6) * 20, torch.randn(4, 6), (4, 6)[axis]
    given = (torch.rand(n) + 0.2, torch.arange(n) - 1.5, axis, -8, 7, 0.7)
    exactly(aten._fake_quantize_learnable_per_channel_affine.default, x, *given)
    exactly(aten._fake_quantize_learnable_per_channel_affine_backward.default, grad, x, *given, rtol=2e-6, atol=2e-5)
