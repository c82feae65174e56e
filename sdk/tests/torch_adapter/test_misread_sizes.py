"""Sizes that PyTorch records as pointers are put back, and a pointer that nothing explains is an error."""

from __future__ import annotations

import pytest
import torch

import keel
from keel.errors import KeelError

POINTER = -6917529027171012208
"""A tagged pointer as PyTorch 2.11 recorded it on CUDA; a CPU's rms_norm takes another path, so tests write it."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpp", "eager"])
@pytest.mark.parametrize("leading", [0, 1])
def test_rms_norm_has_the_sizes_of_its_operand(backend: str, leading: int) -> None:
    def misread(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._fused_rms_norm.default(x, [POINTER] * w.dim(), w, 1e-5)[0]

    compiled = keel.compile(misread, backends=[backend], dynamic=True)
    for size in (5, 7):
        x, w = torch.randn(3, 4, size, requires_grad=True), torch.randn((4, size)[leading:], requires_grad=True)
        found, expected = compiled(x, w), torch.rms_norm(x, w.shape, w, 1e-5)
        torch.testing.assert_close(found, expected)
        gradients = (torch.autograd.grad(y.square().sum(), (x, w)) for y in (found, expected))
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_of_rms_norm_have_the_sizes_of_its_operand() -> None:
    fn = torch.ops.aten._fused_rms_norm_backward.default

    def misread(g: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return fn(g, x, [POINTER], rstd, w, [True, True])

    compiled = keel.compile(misread, backends=["cpp"], dynamic=True)
    for size in (5, 7):
        x, w, g = torch.randn(3, size, requires_grad=True), torch.randn(size, requires_grad=True), torch.randn(3, size)
        rstd = x.detach().square().mean(-1, keepdim=True).add(1e-5).rsqrt()
        expected = torch.autograd.grad(torch.rms_norm(x, (size,), w, 1e-5), (x, w), g)
        with torch.no_grad():
            for a, b in zip(compiled(g, x, rstd, w), expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_another_pointer_is_an_error() -> None:
    def misread(x: torch.Tensor) -> torch.Tensor:
        return x.roll([POINTER], [0])

    with pytest.raises(KeelError, match=r"a pointer in place of a symbolic size of aten.roll(?s:.)*x.roll"):
        keel.compile(misread, backends=["cpp"], dynamic=True)(torch.randn(5, 7))
