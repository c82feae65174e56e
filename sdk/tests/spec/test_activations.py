"""Activations: decompositions give what eager gives, and the gradients are those of the functions."""

from __future__ import annotations

import pytest
import torch

from keel.spec import MEMBERS, Sample, decomposition_of
from keel.spec.ops.activations import family
from keel.spec.samples import drawn

from .pointwise import closed, distance, faithful

aten = torch.ops.aten
SAMPLED = [name for name, op in family.members.items() if op.samples is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_decompositions(name: str) -> None:
    def judged(sample: Sample) -> bool:
        x = sample.args[0]
        if x.dtype == torch.float64 and name in IMPRECISE:
            return x.numel() == 0
        if sample.kwargs.get("approximate") == "tanh" and name == "gelu_backward":
            return x.numel() == 0  # of which float64 too cancels: tested below
        if name == "mish_backward" and x.dtype == torch.float32:
            return x.numel() == 0  # near its root the digits are luck: tested below
        return name not in ("silu", "gelu", "mish") or bool(x.isfinite().all())  # which give NaN or 0 at infinity

    faithful(MEMBERS[name], judged=judged)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_decompositions_end_in_primitives(name: str) -> None:
    untraceable = name in ("hardshrink_backward", "softshrink_backward")  # by PyTorch, with symbols
    closed(MEMBERS[name], symbolic=(False,) if untraceable else (False, True))


IMPRECISE = {
    "hardsigmoid_backward": "Eager's 1/6 is a float32 in float64 too.",
    "gelu_backward": "Eager's 1 - tanh^2 cancels in float64 too.",
}
PAIRS = [
    ("gelu", "gelu_backward", ()),
    ("silu", "silu_backward", ()),
    ("mish", "mish_backward", ()),
    ("softplus", "softplus_backward", (2.0, 5.0)),
    ("hardswish", "hardswish_backward", ()),
    ("hardsigmoid", "hardsigmoid_backward", ()),
    ("hardtanh", "hardtanh_backward", (-1.0, 1.5)),
    ("hardshrink", "hardshrink_backward", (0.7,)),
    ("softshrink", "softshrink_backward", (0.7,)),
]


@pytest.mark.parametrize(("name", "gradient", "more"), PAIRS)
def test_gradients_are_those_of_the_decomposed_function(name: str, gradient: str, more: tuple[float, ...]) -> None:
    forward = MEMBERS[name].targets[0]
    x = torch.linspace(-5, 5, 41, dtype=torch.float64) + 0.01
    x.requires_grad_()
    decomposition_of(forward)(x, *more).sum().backward()
    got = decomposition_of(MEMBERS[gradient].targets[0])(torch.ones_like(x), x.detach(), *more)
    torch.testing.assert_close(got, x.grad, rtol=1e-12, atol=1e-12)


def test_gradient_of_approximate_gelu() -> None:
    x = torch.linspace(-5, 5, 41, dtype=torch.float64, requires_grad=True)
    torch.nn.functional.gelu(x, approximate="tanh").sum().backward()
    got = decomposition_of(aten.gelu_backward.default)(torch.ones_like(x), x.detach(), approximate="tanh")
    torch.testing.assert_close(got, x.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradient_of_approximate_gelu_is_as_near_as_eagers(dtype: torch.dtype) -> None:
    x, grad = drawn(dtype, 4000, low=-9, high=9), drawn(dtype, 4000, seed=1)
    y = x.double()
    factor, cubic = (2 / torch.pi) ** 0.5, 0.044715
    share = torch.sigmoid(2 * factor * (y + cubic * y**3))
    rest = torch.sigmoid(-2 * factor * (y + cubic * y**3))
    want = grad.double() * share * (1 + y * rest * 2 * factor * (1 + 3 * cubic * y * y))
    op = aten.gelu_backward.default
    eager, ours = (f(grad, x, approximate="tanh") for f in (op, decomposition_of(op)))
    assert distance(ours, want).max() <= max(2 * distance(eager, want).max(), 1)
    assert distance(ours, want).median() <= 1


def test_gradient_of_mish_is_as_near_as_eagers() -> None:
    """In ulps of the gradient and of what a rounding of x makes of it, as it is nearly 0 at -1.19."""
    op = aten.mish_backward.default
    x = torch.linspace(-80, 30, 40_001)
    grad, nudged = torch.ones_like(x), x.double() * (1 + 1e-6)
    want = op(grad.double(), x.double())
    room = torch.finfo(torch.float32).eps * (want.abs() + (op(grad.double(), nudged) - want).abs() / 1e-6)
    eager, ours = (((f(grad, x).double() - want).abs() / room).max() for f in (op, decomposition_of(op)))
    assert ours <= 4 and ours <= 2 * eager, f"{ours:.1f} ulps against {eager:.1f}"


def test_gelu_backward_keeps_small_slopes() -> None:
    x = torch.tensor([-6.0, -9.0, -12.0])
    got = decomposition_of(aten.gelu_backward.default)(torch.ones(3), x)
    y = x.double()
    cdf, pdf = torch.special.erfc(-y * 0.5**0.5) / 2, torch.exp(-y * y / 2) / (2 * torch.pi) ** 0.5
    torch.testing.assert_close(got.double(), cdf + y * pdf, rtol=3e-5, atol=0)


@pytest.mark.parametrize("training", [True, False])
def test_rrelu(training: bool) -> None:
    x, noise = torch.randn(500), torch.rand(500)
    op = aten.rrelu_with_noise_functional.default
    out, slopes = decomposition_of(op)(x, noise, 0.1, 0.3, training)
    if training:
        assert ((slopes >= 0.1) & (slopes <= 0.3))[x <= 0].all() and (slopes[x > 0] == 1).all()
        assert torch.equal(out, torch.where(x > 0, x, x * slopes)) and slopes[x <= 0].std() > 0.04
    else:
        want = op(x, noise, 0.1, 0.3, training)
        assert torch.equal(out, want[0]) and torch.equal(slopes, want[1])
