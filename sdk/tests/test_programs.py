"""The line on programs that are more than plain operators: effects, control flow, custom operators, several results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.effects import _get_effect
from torch.utils.checkpoint import checkpoint

import keel
from keel import Backend

from .line import LITTLE, takes, whole

# Dynamo looks at the gradient of every tensor that it is given.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
R = torch.randn
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}


@torch.library.custom_op("keel_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, grad: grad * 2)


@torch.library.custom_op("keel_tests::fill", mutates_args={"x"})
def fill(x: Tensor) -> None:
    x.fill_(3)


def control_flow(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2


def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda x: F.gelu(x).softmax(-1) * x, x, use_reentrant=False).sin()


def custom(x: Tensor) -> Tensor:
    return twice(x) + 1


def custom_that_writes(x: Tensor) -> Tensor:
    y = x.clone()
    fill(y)
    return y + x


def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x + 10 * torch.eye(4))


def attention(x: Tensor) -> Tensor:
    y = x.view(1, 2, 2, 4)
    return F.scaled_dot_product_attention(y, y, y)


def transform(x: Tensor) -> Tensor:
    return torch.fft.rfft(x).abs()


def mapped(x: Tensor) -> Tensor:
    """vmap converts the numbers to the dtype of a tensor that has no dimensions outside vmap."""
    return torch.vmap(lambda row: row.sum() * 2.5 + row.max() * 3 - 1)(x)


def turned(x: Tensor) -> Tensor:
    """The gradient is multiplied by the conjugates of the numbers."""
    y = torch.complex(x, x.sin()) * 1j
    return ((y / (1 + 2j)).real + (x * 3j).abs() + torch.view_as_real(y.conj() - 2j).sum(-1)).sin()


def chunks(x: Tensor) -> Any:
    a, b = x.chunk(2)
    return a * b, a, *x.unbind(0)


def mixed_precision(x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        return x @ x.t()


def sorts(x: Tensor) -> Any:
    values, order = x.sort(-1)
    return values, order.float()


def many(x: Tensor) -> Any:
    return tuple(torch._foreach_add([x, x * 2], 1.0))


def strided(x: Tensor) -> Any:
    return torch.as_strided(x, (2, 2), (1, 2)), x.expand(3, *x.shape), x[:, None].expand(-1, 3, -1) + 0


def with_a_break(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y.sin() + x


PROGRAMS = [
    control_flow,
    checkpointed,
    custom,
    custom_that_writes,
    inverse,
    attention,
    transform,
    mapped,
    turned,
    chunks,
    mixed_precision,
    sorts,
    many,
    strided,
    with_a_break,
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


def flat(results: Any) -> list[Tensor]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_and_gradients_are_eagers(
    program: Callable[..., Any], dynamic: bool | None, backends: list[Backend]
) -> None:
    x = R(4, 4, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    want, got = program(twin), keel.compile(program, backends=backends, dynamic=dynamic)(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for results in (got, want):
        sum(t.sum() for t in flat(results) if t.requires_grad).backward()
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_an_effect_takes_place(training: bool) -> None:
    before = _get_effect("aten::_linalg_check_errors")
    compiled = keel.compile(torch.linalg.inv, backends=[whole()])
    x = torch.eye(3, requires_grad=training)
    torch.testing.assert_close(result := compiled(x), torch.eye(3))
    if training:
        result.sum().backward()
        torch.testing.assert_close(x.grad, -torch.ones(3, 3))
    assert _get_effect("aten::_linalg_check_errors") is before
    with pytest.raises(torch.linalg.LinAlgError, match="inversion could not be completed"):
        compiled(torch.zeros(3, 3, requires_grad=training))


def test_a_recurrent_network_is_computed(backends: list[Backend]) -> None:
    lstm = nn.LSTM(4, 5)
    x = R(3, 2, 4)
    torch.testing.assert_close(keel.compile(lstm, backends=backends)(x), lstm(x))


def test_dropout_draws_in_forward_and_remembers_in_backward(backends: list[Backend]) -> None:
    x = torch.ones(1000, requires_grad=True)
    y = keel.compile(lambda x: F.dropout(x, 0.25), backends=backends)(x)
    y.sum().backward()
    kept = y.detach() != 0
    assert 0.7 < kept.float().mean() < 0.8
    assert x.grad is not None and torch.equal(x.grad != 0, kept)
    torch.testing.assert_close(x.grad[kept], torch.full_like(x.grad[kept], 1 / 0.75))


def test_a_module_compiled_in_place_keeps_its_parameters(backends: list[Backend]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.GELU())
    x = R(3, 4)
    want = model(x)
    compiled = keel.compile(model, backends=backends)
    torch.testing.assert_close(compiled(x), want)
    with torch.no_grad():
        model[0].weight.zero_()
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("backends", [["eager"], ["interp", "eager"]], ids="-".join)
def test_dropout_under_a_checkpoint_is_drawn_again_alike(backends: list[str]) -> None:
    def block(x: Tensor) -> Tensor:
        return F.dropout(x * 2, 0.5).relu() * 3

    go = keel.compile(lambda x: checkpoint(block, x, use_reentrant=False), backends=backends, strict=True)
    x = torch.ones(50, 40, requires_grad=True)
    y = go(x)
    y.sum().backward()
    assert torch.equal(x.grad != 0, y != 0) and 500 < int((y != 0).sum()) < 1500


def test_a_size_that_only_a_stride_tells() -> None:
    """The gradient of rfft fills half of what it has memory for, in rows of the whole length."""
    go = keel.compile(torch.fft.rfft, backends=["interp", "eager"], strict=True, dynamic=True)
    for shape in ((5, 6), (4, 9)):
        x = torch.randn(shape, requires_grad=True)
        (mine,) = torch.autograd.grad(go(x).abs().sum(), x)
        (theirs,) = torch.autograd.grad(torch.fft.rfft(x).abs().sum(), x)
        torch.testing.assert_close(mine, theirs)
