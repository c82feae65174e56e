"""Weights that last are packed once, with arithmetic on channels folded into them, and activations applied behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import keel
import keel_interp
from keel.loop_level import compile_part, refuse, schedule_part
from keel.plugin import CompileContext
from keel.schedule import pack_weights
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.packed_call import PackedCall
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall
from keel.torch_adapter import packs_linear_dtype, packs_linear_for_speed

IMAGE = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(0))


def compiled(
    fn: Callable[..., Any], fuel: int | None = None, mode: str = "default"
) -> tuple[Callable[..., Any], list[Schedule]]:
    """``fn`` on the interpreter's target, and the schedules of its graphs once it has run."""
    torch.compiler.reset()
    target, found = keel_interp.target, list[Schedule]()

    def compile(gm: torch.fx.GraphModule, ctx: CompileContext) -> Any:
        found.append(schedule_part(target, gm, replace(ctx, fuel=keel.fuel.Fuel(fuel))))
        return compile_part(target, gm, ctx)

    backend = keel.Backend(name="probe", device="cpu", supports=lambda call: refuse(target, call), compile=compile)
    return keel.compile(fn, backends=[backend], strict=True, mode=mode), found


def packed_in(schedule: Schedule) -> list[PackedCall]:
    return [s.extern.run for s in schedule.steps if isinstance(s, ExternCall) and isinstance(s.extern.run, PackedCall)]


def run(model: nn.Module, fuel: int | None = None) -> tuple[list[PackedCall], int]:
    """The packed calls of a model in inference, whose result is compared with eager's, and the number of kernels."""
    fast, found = compiled(model, fuel)
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGE), model(IMAGE), rtol=1e-5, atol=1e-5)
    (schedule,) = found
    return packed_in(schedule), sum(isinstance(s, KernelLaunch) for s in schedule.steps)


def norm() -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(4)
    nn.init.uniform_(made.weight, 0.5, 1.5)
    nn.init.normal_(made.bias)
    made.running_mean = torch.randn(4)
    made.running_var = torch.rand(4) + 0.5
    return made


def block(*behind: nn.Module, **options: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, **options), *behind).eval()


@pytest.mark.parametrize("bias", [False, True])
def test_a_norm_and_an_activation_belong_to_the_call(bias: bool) -> None:
    (call,), kernels = run(block(norm(), nn.SiLU(), bias=bias))
    assert len(call.folded) == 4
    assert call.then is not None and call.then[1] == "swish"
    assert kernels <= 1  # the result becomes row-major


def test_relu_stays_a_kernel_since_the_library_drops_nan() -> None:
    (call,), _ = run(block(norm(), nn.ReLU()))
    assert call.then is None
    fast, _ = compiled(model := block(norm(), nn.ReLU()))
    with torch.no_grad():
        bad = IMAGE.clone()
        bad[0, 0, 2, 2] = torch.nan
        torch.testing.assert_close(fast(bad), model(bad), equal_nan=True)


class Residual(nn.Module):
    def __init__(self, then: Callable[[Tensor], Tensor]):
        super().__init__()
        self.inner, self.norm, self.outer, self.then = nn.Conv2d(4, 4, 1), norm(), nn.Conv2d(4, 4, 3), then
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.then(self.norm(self.inner(x)) + x))


def test_the_library_adds_a_tensor_unless_a_kernel_can() -> None:
    assert sorted(c.adds for c in run(Residual(lambda x: x))[0]) == [False, True]
    assert not any(c.adds for c in run(Residual(torch.relu))[0])


@pytest.mark.parametrize("change", [lambda p: p.mul_(2), lambda p: p.data.mul_(2), lambda p: p.set_(p * 2)])
def test_a_change_of_a_parameter_is_seen(change: Callable[[Tensor], Any]) -> None:
    model = block(norm(), nn.SiLU())
    fast, _ = compiled(model)
    with torch.no_grad():
        for parameter in (None, *model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            if parameter is not None:
                change(parameter)
            torch.testing.assert_close(fast(IMAGE), model(IMAGE), rtol=1e-5, atol=1e-5)


def test_a_factor_that_is_not_finite_is_not_folded() -> None:
    model = block(made := norm())
    assert made.running_var is not None
    made.running_var[1] = -1
    fast, _ = compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGE), model(IMAGE), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_weights_of_other_values_are_not_packed() -> None:
    fast, found = compiled(lambda x, w: torch.nn.functional.conv2d(x, w))
    with torch.no_grad():
        fast(IMAGE, torch.randn(4, 4, 3, 3))
    assert not packed_in(found[0])


def test_training_does_not_pack() -> None:
    fast, found = compiled(block(nn.SiLU()))
    fast(IMAGE).sum().backward()
    assert not any(map(packed_in, found))


class Batch(nn.Module):
    """The first of a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:1]


def test_some_calls_are_not_worth_it() -> None:
    assert not run(nn.ConvTranspose2d(4, 4, 3).eval())[0]
    assert not run(nn.Sequential(nn.AdaptiveAvgPool2d(1), Batch(), nn.Conv2d(4, 4, 1)).eval())[0]


def test_the_bytes_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_weights, "MOST_BYTES", 4 * 4 * 4)
    (call,), _ = run(Residual(torch.relu))
    assert call.rest[1] == [0, 0]  # the small weight, not that of 3 by 3


def test_fuel_bounds_what_is_packed() -> None:
    assert not run(block(), fuel=0)[0]


# -- products with matrices -------------------------------------------------------------------------------------------


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64, bias=False)).eval()


@pytest.mark.skipif(not packs_linear_dtype(torch.bfloat16), reason="oneDNN has no bfloat16 on this processor")
def test_matrices_are_cast_and_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_weights, "MOST_BYTES", 0)  # 16 bits of each parameter may be held even so
    fast, found = compiled(model := perceptron())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for rows in (torch.randn(3, 5, 64), torch.randn(2, 4, 64)):
            torch.testing.assert_close(fast(rows), model(rows), rtol=2e-2, atol=2e-2)
    assert all(len(packed_in(schedule)) == 2 for schedule in found)
    with torch.no_grad():
        model[2].weight.neg_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(fast(rows), model(rows), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_matrices_of_float32_are_packed_where_memory_may_be_spent(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_weights, "MOST_BYTES", 0)
    fast, found = compiled(model := perceptron(), mode=mode)
    for rows in (torch.randn(9, 64), torch.randn(5, 64)):
        with torch.no_grad():
            torch.testing.assert_close(fast(rows), model(rows))
    packs = mode == "max-autotune" and packs_linear_for_speed(torch.float32)
    assert all(len(packed_in(schedule)) == 2 * packs for schedule in found)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_one_graph_does_for_all_sizes(precision: torch.dtype) -> None:
    """PyTorch would guard on a symbolic size that is compared or counted."""
    images = precision == torch.float32
    model: nn.Module = block(norm(), nn.SiLU()) if images else perceptron()
    fast, found = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=not images):
        for n in (5, 3, 9):
            x = torch.randn(n, 4, 6 + n, 5) if images else torch.randn(n, n + 1, 64)
            for dim in (0, 2) if images else (0, 1):
                torch._dynamo.mark_dynamic(x, dim)
            torch.testing.assert_close(fast(x), model(x), rtol=2e-2, atol=2e-2)
    (schedule,) = found
    assert packed_in(schedule) or not (images or packs_linear_dtype(precision))
