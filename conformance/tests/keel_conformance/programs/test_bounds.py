"""The bound of rounded programs: legal evaluations keep it, and it is tight enough to see a wrong digit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from keel_conformance.programs.compare_facts import disturbed_by, worst_of
from keel_conformance.programs.monte_carlo import Noise
from keel_conformance.programs.observation import Observation

F = torch.nn.functional
UNIT = torch.finfo(torch.float32).eps / 2


def softmax(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x @ w, -1).sum(0).log()


def legal(x: Tensor, w: Tensor, order: Tensor) -> Tensor:
    """The same, written out, sums in another order."""
    y = sum(x[:, k, None] * w[k] for k in order)
    e = (y - y.amax(-1, keepdim=True)).exp()
    return (e / e.flip(-1).cumsum(-1)[..., -1:]).flip(0).sum(0).log()


def observed(value: Tensor) -> Observation:
    return Observation((("result values", "contract.graphs.C1", value),))


def ratio(value: Tensor, x: Tensor, w: Tensor) -> float:
    def wide() -> Observation:
        return observed(softmax(x.double(), w.double()))

    runs = [wide(), *disturbed_by(lambda k: Noise(k, UNIT), 8, wide)]
    return worst_of(observed(value), observed(softmax(x, w)), runs)[0]


@pytest.mark.parametrize("seed", range(20))
def test_legal_evaluations_are_within(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, w = torch.randn(6, 40, generator=draw), torch.randn(40, 9, generator=draw)
    assert ratio(legal(x, w, torch.randperm(40, generator=draw)), x, w) < 1
    assert ratio(softmax(x.double(), w.double()).float(), x, w) < 1


def test_a_wrong_digit_is_seen() -> None:
    draw = torch.Generator().manual_seed(0)
    x, w = torch.randn(6, 40, generator=draw), torch.randn(40, 9, generator=draw)
    right = softmax(x, w)
    assert ratio(right * (1 + 1e-3), x, w) > 1
    assert ratio(softmax(x.bfloat16().float(), w), x, w) > 1
    right[3] = torch.nan
    assert ratio(right, x, w) == torch.inf


def test_gradients_are_disturbed_too() -> None:
    x = torch.linspace(0.1, 2, 7, dtype=torch.float64, requires_grad=True)
    found = []
    for k in range(3):
        with Noise(k, UNIT):
            (grad,) = torch.autograd.grad((x.exp() * x).sum(), [x])
        found.append(grad)
    assert not torch.equal(found[0], found[1]) and torch.allclose(found[0], found[2], rtol=1e-5)


def test_running_statistics_are_updated_and_disturbed() -> None:
    x = torch.randn(64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = x.mean(0)
    for k in range(3):
        mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
        with Noise(k, UNIT):
            torch.nn.functional.batch_norm(x, mean, var, training=True, momentum=1.0)
        assert 0 < (mean - exact).abs().max() < 1e-6


Q, K, V = (torch.randn(2, 3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(3))
MASK = torch.tensor([[True] * 5, [True, False] * 2 + [True], [False] * 5, [False] * 4 + [True], [True] * 5])


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.softmax(Q, -1),
        lambda: F.softmax(Q, 1),
        lambda: Q.softmax(0),
        lambda: torch.softmax(Q, 2, None),
        lambda: torch.softmax(Q.masked_fill(~MASK[:, :4], -torch.inf), -2),
        lambda: F.softmax(Q, 1, dtype=torch.float32),
        lambda: F.linear(Q, K[0, 0], V[0, 0, :, 0]),
        lambda: F.linear(Q, K[0, 0]),
        lambda: F.softmax(input=Q, dim=1),
        lambda: F.scaled_dot_product_attention(Q, K, V),
        lambda: F.scaled_dot_product_attention(Q, K[:, :, :3], V[:, :, :3]),
        lambda: F.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=0.3),
        lambda: F.scaled_dot_product_attention(Q, K, V, MASK),
        lambda: F.scaled_dot_product_attention(Q, K, V, Q[..., :1]),
        lambda: F.scaled_dot_product_attention(Q, K[:, :1], V[:, :1], enable_gqa=True),
    ],
)
def test_what_is_written_out_is_the_same(call: Callable[[], Tensor]) -> None:
    with Noise(0, 0.0):
        found = call()
    torch.testing.assert_close(found, call(), equal_nan=True)


def test_a_gradient_that_is_all_rounding_is_held_to_no_less() -> None:
    """A bias of attention's keys adds the same to all scores of a query: its gradient is 0, but for rounding."""

    def gradient(dtype: torch.dtype) -> Tensor:
        x, w, bias, v, to = (t.to(dtype) for t in parts)
        bias.requires_grad_()
        keys = F.linear(x, w, bias).view(2, 16, 4, 16).transpose(1, 2)
        return torch.autograd.grad(F.scaled_dot_product_attention(v, keys, v), [bias], to)[0]

    def wide() -> Observation:
        return observed(gradient(torch.float64))

    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        parts = [torch.randn(s, generator=draw) for s in ((2, 16, 64), (64, 64), (64,), (2, 4, 16, 16), (2, 4, 16, 16))]
        own = observed(gradient(torch.float32))
        runs = [wide(), *disturbed_by(lambda k: Noise(k, UNIT), 8, wide)]
        assert runs[0].facts[0][2].abs().max() < 1e-12 and worst_of(own, own, runs)[0] < 0.5
