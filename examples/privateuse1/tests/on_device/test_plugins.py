"""Plugins at both levels on the device: results of the CPU, and nothing that passes through the host."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import keel
from keel.plugin import Backend, has_kernel
from keel_privateuse1 import NAME
from keel_privateuse1.graph_backend import backend as graph_backend
from keel_privateuse1.loop_target import backend as loop_backend

LEVELS = pytest.mark.parametrize("backend", [loop_backend, graph_backend], ids=lambda b: b.name)
QUIET = {"to_device": 0, "to_host": 0, "synchronizations": 0, "fallbacks": {}}


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    torch.example.set_device(0)  # type: ignore[attr-defined]


def counted() -> dict[str, object]:
    counters = torch.example.counters()  # type: ignore[attr-defined]
    return {name: getattr(counters, name) for name in QUIET}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.3), nn.Linear(8, 3))


@LEVELS
def test_a_step_does_not_touch_the_host(backend: Backend) -> None:
    model = network().to(NAME)
    compiled = keel.compile(model, backends=[backend], strict=True)
    x = torch.randn(5, 6, device=NAME)
    for _ in range(2):
        torch.example.reset_counters()  # type: ignore[attr-defined]
        compiled(x).square().sum().backward()
    assert counted() == QUIET


@LEVELS
@pytest.mark.parametrize("index", [0, 1])
def test_training_is_that_of_the_cpu(backend: Backend, index: int) -> None:
    model = network()
    here = copy.deepcopy(model).to(torch.device(NAME, index))
    compiled = keel.compile(here, backends=[backend], strict=True)
    optimizers = [torch.optim.AdamW(m.parameters()) for m in (model, here)]
    for rows in (4, 7):
        x = torch.randn(rows, 6)
        torch.manual_seed(rows)
        model(x).square().mean().backward()
        torch.manual_seed(rows)
        compiled(x.to(torch.device(NAME, index))).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(model.parameters(), here.parameters(), strict=True):
        assert q.device.index == index
        torch.testing.assert_close(q.cpu(), p)


@LEVELS
def test_random_numbers_and_their_state(backend: Backend) -> None:
    def draw(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.dropout(x, 0.5), torch.rand_like(x)

    x = torch.ones(64, device=NAME)
    compiled = keel.compile(draw, backends=[backend], strict=True)
    state = torch.example.get_rng_state()  # type: ignore[attr-defined]
    first, want = compiled(x), None
    after = torch.example.get_rng_state()  # type: ignore[attr-defined]
    torch.example.set_rng_state(state)  # type: ignore[attr-defined]
    again = compiled(x)
    torch.example.set_rng_state(state)  # type: ignore[attr-defined]
    want = draw(x)
    assert torch.equal(after, torch.example.get_rng_state())  # type: ignore[attr-defined]
    assert all(a.cpu().equal(b.cpu()) and a.cpu().equal(c.cpu()) for a, b, c in zip(first, again, want, strict=True))


@LEVELS
def test_autocast(backend: Backend) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Softmax(-1)).to(NAME)
    compiled = keel.compile(model, backends=[backend], strict=True)
    x = torch.randn(5, 6, device=NAME)
    with torch.autocast(NAME, torch.bfloat16):
        got, want = compiled(x), model(x)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got.cpu(), want.cpu(), atol=1e-2, rtol=1e-2)


@LEVELS
def test_a_model_on_two_devices(backend: Backend) -> None:
    first, second = nn.Linear(4, 4).to(f"{NAME}:0"), nn.Linear(4, 4).to(f"{NAME}:1")

    def both(x: Tensor) -> Tensor:
        return second(first(x).relu().to(f"{NAME}:1"))

    x = torch.randn(3, 4, device=f"{NAME}:0")
    got = keel.compile(both, backends=[backend, "eager"], placement="order")(x)
    assert got.device == torch.device(NAME, 1)
    torch.testing.assert_close(got.cpu(), both(x).cpu())


@LEVELS
def test_a_model_across_the_host_and_the_device(backend: Backend) -> None:
    on_host, here = nn.Linear(4, 4), nn.Linear(4, 4).to(NAME)

    def both(x: Tensor) -> Tensor:
        return here(on_host(x).relu().to(NAME)).cpu() * 2

    x = torch.randn(3, 4)
    compiled = keel.compile(both, backends=[backend, "cpp", "eager"])
    torch.testing.assert_close(compiled(x), both(x))
    compiled(x).sum().backward()
    got = [p.grad.cpu() for p in (*on_host.parameters(), *here.parameters()) if p.grad is not None]
    for module in (on_host, here):
        module.zero_grad()
    both(x).sum().backward()
    want = [p.grad.cpu() for p in (*on_host.parameters(), *here.parameters()) if p.grad is not None]
    torch.testing.assert_close(got, want)


@LEVELS
def test_a_copy_that_does_not_block(backend: Backend) -> None:
    def step(x: Tensor) -> Tensor:
        return (x.to(NAME, non_blocking=True) * 2).sin()

    x = torch.randn(8).pin_memory()
    compiled = keel.compile(step, backends=[backend, "eager"], placement="order")
    compiled(x)
    torch.example.reset_counters()  # type: ignore[attr-defined]
    got = compiled(x)
    assert counted() == {**QUIET, "to_device": 1}
    torch.testing.assert_close(got.cpu(), (x * 2).sin())


@LEVELS
def test_a_checkpoint_draws_again(backend: Backend) -> None:
    model = network().to(NAME)

    def step(x: Tensor) -> Tensor:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)  # type: ignore[no-any-return]

    x = torch.randn(5, 6, device=NAME, requires_grad=True)
    torch.manual_seed(3)
    [want] = torch.autograd.grad(step(x).square().sum(), [x])
    torch.manual_seed(3)
    [got] = torch.autograd.grad(
        keel.compile(step, backends=[backend, "eager"], placement="order")(x).square().sum(), [x]
    )
    torch.testing.assert_close(got.cpu(), want.cpu())


def test_operators_without_a_kernel_of_the_device_are_no_externs() -> None:
    assert loop_backend.target is not None
    assert "aten.mm.default" in loop_backend.target.externs
    assert "aten.cholesky_inverse.default" not in loop_backend.target.externs
    assert has_kernel(torch.ops.aten.mm.default, NAME) and not has_kernel(torch.ops.aten.cholesky_inverse.default, NAME)


@LEVELS
def test_a_call_that_would_fall_back_is_refused(backend: Backend) -> None:
    def inverse(x: Tensor) -> Tensor:
        return torch.ops.aten.cholesky_inverse.default(x)  # type: ignore[no-any-return]

    x = torch.eye(3)
    with pytest.raises(keel.KeelError, match=r"aten\.cholesky_inverse"):
        keel.compile(inverse, backends=[backend], strict=True)(x.to(NAME))
    assert keel.compile(inverse, backends=[backend])(x.to(NAME)).cpu().equal(inverse(x))


def test_a_step_with_indices_does_not_wait() -> None:
    table, rows = torch.randn(10, 4, device=NAME), torch.tensor([3, 9], device=NAME)
    compiled = keel.compile(F.embedding, backends=[loop_backend], strict=True)
    compiled(rows, table)
    torch.example.reset_counters()  # type: ignore[attr-defined]
    got = compiled(rows, table)
    assert counted() == {**QUIET, "to_host": 1}
    torch.testing.assert_close(got.cpu(), table.cpu()[[3, 9]])


@pytest.mark.parametrize("index", [0, 1])
def test_an_index_out_of_range_is_an_error_of_the_next_call(index: int) -> None:
    device = torch.device(NAME, index)
    table, rows = torch.randn(10, 4, device=device), torch.tensor([3, 9], device=device)
    compiled = keel.compile(F.embedding, backends=[loop_backend], strict=True)
    compiled(rows, table)
    compiled(rows + 1, table)
    with pytest.raises(keel.KeelError, match=r"(?s)index 10 is out of bounds.*or an earlier one"):
        compiled(rows, table)
    torch.testing.assert_close(compiled(rows, table).cpu(), table.cpu()[[3, 9]])
    torch.testing.assert_close(compiled(rows, table).cpu(), table.cpu()[[3, 9]])


def test_the_first_call_waits_for_errors() -> None:
    table, rows = torch.randn(10, 4, device=NAME), torch.tensor([10], device=NAME)
    with pytest.raises(keel.KeelError, match="index 10 is out of bounds"):
        keel.compile(F.embedding, backends=[loop_backend], strict=True)(rows, table)


@LEVELS
def test_a_convolution_of_channels_last_images_is_row_major(backend: Backend) -> None:
    """As PyTorch promises for a vendor's device, of whatever layout the images are."""
    model = nn.Conv2d(3, 4, 3).to(NAME)
    x = torch.randn(2, 3, 8, 8, device=NAME).contiguous(memory_format=torch.channels_last).requires_grad_()
    got = keel.compile(model, backends=[backend], strict=True)(x)
    want = model(x)
    assert got.stride() == want.stride() == (144, 36, 6, 1)
    [of_got], [of_want] = (torch.autograd.grad(y.square().sum(), [x]) for y in (got, want))
    torch.testing.assert_close([got.cpu(), of_got.cpu()], [want.cpu(), of_want.cpu()])


@LEVELS
def test_a_product_with_gelu_is_that_of_the_host(backend: Backend) -> None:
    def product(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.ops.aten._addmm_activation.default(c, a, b, use_gelu=True)  # type: ignore[no-any-return]

    on_host = [torch.randn(6), torch.randn(5, 4), torch.randn(4, 6)]
    got = keel.compile(product, backends=[backend], strict=True)(*(t.to(NAME) for t in on_host))
    torch.testing.assert_close(got.cpu(), product(*on_host), atol=1e-6, rtol=1e-6)
