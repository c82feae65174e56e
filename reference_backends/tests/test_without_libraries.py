"""Loop targets without externs: products of matrices and convolutions are loops, and models run on them alone."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import keel
import keel_cpp
import keel_interp
from keel import loop_backend
from keel.testing import compile_calls

from .drawn_contractions import Drawn, check, convolutions, gradients, products

INTERP, CPP = (loop_backend(replace(t, name="loops", externs={})) for t in (keel_interp.target, keel_cpp.target))
KINDS = {"products": products(), "convolutions": convolutions(), "gradients": gradients()}
QUIET = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def run(calls: list[Drawn], backend: keel.Backend) -> None:
    batch = compile_calls([(c.op, c.args, {}) for c in calls], backends=[backend], strict=True)
    for call, got, types in zip(calls, batch.run([(c.args, {}) for c in calls]), batch.results, strict=True):
        results = [(t, type) for t, type in zip(got, types, strict=True) if t is not None]
        assert all(t.stride() == type.strides for t, type in results)
        check(call, [t for t, _ in results])


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_calls_in_the_interpreter(kind: str) -> None:
    @settings(max_examples=60, **QUIET)
    @given(KINDS[kind])
    def holds(call: Drawn) -> None:
        run([call], INTERP)

    holds()


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_calls_in_cpp(kind: str) -> None:
    @settings(max_examples=3, **QUIET)
    @given(st.lists(KINDS[kind], min_size=20, max_size=20))
    def holds(calls: list[Drawn]) -> None:
        run(calls, CPP)

    holds()


# -- models -----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """A layer of a transformer: attention with heads, and two projections behind a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.heads, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(x)))


class UNet(nn.Module):
    """Convolutions down and up again: depthwise, dilated, grouped, strided and transposed, with a gate of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.wide = nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=2)
        self.gate, self.up = nn.Conv2d(12, 12, 1), nn.ConvTranspose2d(12, 8, 2, stride=2, groups=2)
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        whole = F.hardswish(self.norm(self.first(x)))
        half = F.silu(self.wide(F.max_pool2d(self.down(whole), 3, 1, 1)))
        half = half * self.gate(half.mean((2, 3), keepdim=True)).sigmoid()
        return self.last(torch.cat([whole, self.up(half)], 1))


class Recurrent(nn.Module):
    """An LSTM behind a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.gru, self.lstm = nn.GRUCell(8, 8), nn.LSTMCell(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        h = c = g = self.embed.weight.new_zeros(tokens.shape[0], 8)
        for x in self.embed(tokens).unbind(1):
            g = self.gru(x, g)
            h, c = self.lstm(g, (h, c))
        return h


MODELS = {
    "attention": (Attention, lambda n: torch.randn(n, 5, 16)),
    "unet": (UNet, lambda n: torch.randn(n, 3, 12, 12)),
    "recurrent": (Recurrent, lambda n: torch.randint(0, 20, (n, 3))),
}


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", MODELS)
def test_models_in_inference_and_training(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    make, drawn = MODELS[name]
    model = make()
    wide = copy.deepcopy(model).double()
    compiled = keel.compile(model, backends=[CPP], strict=True, fullgraph=True, dynamic=dynamic)
    for count in (2, 3) if dynamic else (2,):
        x = drawn(count)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), wide(_wide(x)).float(), rtol=1e-4, atol=1e-5)
        compiled(x).square().mean().backward()
        wide(_wide(x)).square().mean().backward()
        for (title, p), q in zip(model.named_parameters(), wide.parameters(), strict=True):
            assert p.grad is not None and q.grad is not None, title
            torch.testing.assert_close(p.grad, q.grad.float(), rtol=1e-3, atol=1e-5, msg=lambda m, t=title: f"{t}\n{m}")


def _wide(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x
