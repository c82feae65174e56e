"""What becomes one kernel with a product of matrices that no library computes: nothing is computed many times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import keel_interp
from keel.loops.ir import Apply, Kernel, Loop, walk
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule

Scheduled = Callable[..., list[Schedule]]


def kernels(schedules: list[Schedule]) -> list[Kernel]:
    return [s.kernel for schedule in schedules for s in schedule.steps if isinstance(s, KernelLaunch)]


def summed(kernel: Kernel) -> list[str]:
    """The operations in the kernel's reductions."""
    loops = [s for s in walk(kernel.body) if isinstance(s, Loop) and s.kind == "reduce"]
    return [s.op for loop in loops for s in loop.body if isinstance(s, Apply)]


def wanting(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def test_what_follows_a_product_is_in_its_kernel(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor, bias: Tensor, more: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, bias)) + more

    (schedule,) = scheduled(fn, *(torch.randn(n) for n in ((6, 12), (8, 12), (8,), (6, 8))), alone=True)
    (kernel,) = kernels([schedule])
    assert summed(kernel) == ["mul"]


@pytest.mark.parametrize("views", [False, True])
def test_what_a_product_reads_is_computed_once(scheduled: Scheduled, views: bool) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        x = x * 2
        return (x.transpose(0, 1).reshape(12, 6).t() if views else x) @ w

    (schedule,) = scheduled(fn, torch.randn(6, 12), torch.randn(12, 8), alone=True)
    before, product = kernels([schedule])
    assert not summed(before) and summed(product) == ["mul"]


def test_views_are_read_in_place(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return x.view(2, 3, 12).transpose(0, 1) @ w.t()

    (schedule,) = scheduled(fn, torch.randn(6, 12), torch.randn(8, 12), alone=True)
    assert [summed(k) for k in kernels([schedule])] == [["mul"]]


def test_a_product_is_not_computed_again_for_each_pass_of_a_softmax(scheduled: Scheduled) -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ((q @ k.transpose(1, 2)) * 0.5).softmax(-1) @ v

    (schedule,) = scheduled(fn, *(torch.randn(2, 6, 12) for _ in "qkv"), alone=True)
    first, middle, last = kernels([schedule])
    assert summed(first) == summed(last) == ["mul"]
    assert "exp" in summed(middle)


def test_two_products_that_are_added_are_two_kernels(scheduled: Scheduled) -> None:
    def fn(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        return (x @ w).relu() + y @ w

    (schedule,) = scheduled(fn, torch.randn(6, 12), torch.randn(6, 12), torch.randn(12, 8), alone=True)
    assert [summed(k) for k in kernels([schedule])] == [["mul"], ["mul"]]


def test_training_a_convolution(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, w, bias, stride=2, padding=1).relu()

    forward, backward = scheduled(fn, wanting(2, 4, 7, 7), wanting(6, 4, 3, 3), wanting(6), alone=True, tolerance=1e-5)
    assert len(kernels([forward])) == 1
    assert sum("mul" in summed(k) for k in kernels([backward])) == 2


def test_the_extern_of_a_product_is_preferred(scheduled: Scheduled) -> None:
    externs = {name: keel_interp.target.externs[name] for name in ("aten.mm.default",)}
    (schedule,) = scheduled(lambda x, w: x @ w, torch.randn(6, 12), torch.randn(12, 8), externs=externs, alone=True)
    assert kernels([schedule]) == []
