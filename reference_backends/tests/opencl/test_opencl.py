"""The backend on models: in inference and training, in one part, with weights that stay on the device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import keel
from keel_opencl import backend, opencl_devices

pytestmark = [
    pytest.mark.skipif(opencl_devices.probe() is not None, reason=opencl_devices.probe() or ""),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


class Mixed(nn.Module):
    """A convolution, a normalization, attention, and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(10, 8), nn.Conv1d(8, 8, 3, padding=1)
        self.norm, self.heads, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.gelu(self.conv(self.embed(tokens).mT).mT)
        q, k, v = self.heads(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.out(x.amax(1))


def test_a_model_in_inference_and_training() -> None:
    model, tokens = Mixed(), torch.randint(0, 10, (2, 5))
    compiled = keel.compile(model, backends=[backend], strict=True, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(tokens), model(tokens))
        model.out.weight.mul_(2)  # on the device, too
        torch.testing.assert_close(compiled(tokens), model(tokens))
    wanted = torch.autograd.grad(model(tokens).square().sum(), list(model.parameters()))
    got = torch.autograd.grad(compiled(tokens).square().sum(), list(model.parameters()))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_sizes_change_and_indices_are_checked() -> None:
    def fn(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1)[at], x.half().sum(0).float()

    compiled = keel.compile(fn, backends=[backend], strict=True, fullgraph=True, dynamic=True)
    for rows in (3, 300):
        x = torch.randn(rows, 7)
        at = torch.randint(-rows, rows, (5,))
        torch.testing.assert_close(compiled(x, at), fn(x, at), rtol=2e-3, atol=1e-5)
    with pytest.raises(IndexError, match="index 300 is out of bounds"):
        compiled(x, torch.tensor([300]))
