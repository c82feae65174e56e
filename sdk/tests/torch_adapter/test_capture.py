"""What stands between Dynamo and a graph: views of results, compiled autograd, backward inside a compiled function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import keel
from keel import Backend

from ..line import LITTLE, takes, whole
from ..twin import assert_like_eager

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
BACKENDS = {"whole": [whole()], "little": [takes(*LITTLE, name="little"), whole("rest", last_resort=True)]}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.fixture(params=BACKENDS)
def backends(request: pytest.FixtureRequest) -> list[Backend]:
    return BACKENDS[request.param]


# -- views of results ------------------------------------------------------------------------------------------


def a_part_without_gradient(x: Tensor) -> Any:
    y = x * 3
    return y, y[0].detach()


def several_without_gradients(x: Tensor) -> Any:
    y = x * 3
    return y, y[:2].detach(), y.detach(), y.view(3, 1).detach()[0], y[1:]


def a_part_of_what_has_none(x: Tensor) -> Any:
    return (x * 3).detach()[1:], x * 2


def the_input_without_gradient(x: Tensor) -> Any:
    return x.detach(), x.detach()[1:], x * 2


def places_and_their_views(x: Tensor) -> Any:
    values, places = x.sort()
    return values, places, places[1:], values[1:]


def a_leaf() -> Sequence[Any]:
    return (torch.randn(3).requires_grad_(),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        a_part_without_gradient,
        several_without_gradients,
        a_part_of_what_has_none,
        the_input_without_gradient,
        places_and_their_views,
    ],
    ids=lambda f: f.__name__,
)
def test_views_require_a_gradient_where_eagers_do(program: Callable[..., Any], backends: list[Backend]) -> None:
    assert_like_eager(program, a_leaf, backends, backward=1)


def test_a_detached_view_of_a_result_can_be_written_to(backends: list[Backend]) -> None:
    result, view = keel.compile(a_part_without_gradient, backends=backends)(torch.ones(2, 2, requires_grad=True))
    view.add_(1)
    assert torch.equal(result.detach(), torch.tensor([[4.0, 4.0], [3.0, 3.0]]))


# -- backward inside a compiled function --------------------------------------------------------------------------


class Scaled(nn.Module):
    """A layer whose weight is made of a direction and a length, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(5, 2))
        self.second = nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def gradients(model: nn.Module) -> dict[str, Any]:
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("backends", [["eager"], ["interp", "eager"]], ids="-".join)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_in_autocast_with_its_backward_inside_is_eagers(dtype: torch.dtype, backends: list[str]) -> None:
    def step(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            loss: Tensor = model(x).sum()
            loss.backward()
        return loss

    model, x = Scaled(), torch.randn(2, 5, dtype=dtype, requires_grad=True)
    twin, y = copy.deepcopy(model), x.detach().clone().requires_grad_()
    compiled = keel.compile(step, backends=backends)
    for _ in range(2):
        torch.testing.assert_close(compiled(model, x), step(twin, y), rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(gradients(model), gradients(twin), rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(x.grad, y.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("backends", [["eager"], ["interp", "eager"]], ids="-".join)
def test_a_weight_made_of_direction_and_length_gets_eagers_gradients(backends: list[str]) -> None:
    model, x = Scaled(), torch.randn(4, 5)
    twin = copy.deepcopy(model)
    for run in (keel.compile(model, backends=backends), twin):
        nn.functional.mse_loss(run(x), torch.ones(4, 1)).backward()
    torch.testing.assert_close(gradients(model), gradients(twin))


# -- compiled autograd: the whole backward as one graph ---------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def clamps(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.clamp_(-1, 1)


def once(model: nn.Module, x: Tensor) -> None:
    model(x).sum().backward()


def keeping_the_graph(model: nn.Module, x: Tensor) -> None:
    loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


def with_a_hook(model: nn.Module, x: Tensor) -> None:
    y = model(x)
    y.register_hook(lambda grad: grad * 2 + 1)
    y.square().sum().backward()


def of_some(model: nn.Module, x: Tensor) -> None:
    parameters = list(model.parameters())
    for p, g in zip(parameters, torch.autograd.grad(model(x).square().sum(), parameters), strict=True):
        p.grad = g


@pytest.mark.slow
@pytest.mark.parametrize("step", [once, keeping_the_graph, with_a_hook, of_some], ids=lambda f: f.__name__)
def test_compiled_autograd_accumulates_what_eager_does(step: Callable[..., None], backends: list[Backend]) -> None:
    model, x = Net(), torch.randn(3, 4)
    twin = copy.deepcopy(model)
    for each in (model, twin):
        each.layers[0].weight.register_post_accumulate_grad_hook(clamps)
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = keel.compile(step, backends=backends)
        for _ in range(3):
            compiled(model, x)
            step(twin, x)
    torch.testing.assert_close(gradients(model), gradients(twin), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_compiled_autograd_trains_as_eager_does(backends: list[Backend]) -> None:
    model, x = Net(), torch.randn(3, 4)
    twin = copy.deepcopy(model)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = keel.compile(step, backends=backends)
        for run, trained in ((compiled, model), (step, twin)):
            optimizer = torch.optim.Adam(trained.parameters(), 0.01)
            for _ in range(3):
                run(trained, optimizer, x)
    torch.testing.assert_close(dict(model.state_dict()), dict(twin.state_dict()), rtol=1e-3, atol=1e-4)
