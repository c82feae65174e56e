"""What a forward graph saves for backward lies channels-last where both graphs work on it so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import keel
from keel.testing import find

pytestmark = pytest.mark.slow


class Net(nn.Module):
    """Convolutions of each channel by itself, whose weights lie the same either way."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 16, 3, groups=16)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x)).sigmoid()
        y = F.max_pool2d(self.second(y + x[:, :, 1:-1, 1:-1]), 2)
        return torch.as_tensor(y * torch.sigmoid(y.mean((2, 3), keepdim=True)))


class Heavy(nn.Module):
    """The weights are many times the images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.first(x).sigmoid())


def step(run: Any, net: nn.Module, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The result and all gradients of a step, and the images that it saved, before they are pooled."""
    x = x.clone().requires_grad_()
    net.zero_grad()
    saved: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        y = run(x)
    y.square().sum().backward()
    grads = [x.grad, *(p.grad for p in net.parameters())]
    images = [t for t in saved if t.dim() == 4 and t.shape[1] == 16 and min(t.shape[2:]) >= 8]
    return [y.detach(), *(g for g in grads if g is not None)], images


def strides(t: Tensor) -> list[int]:
    """Those that count."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]


def check(net: nn.Module, x: Tensor, **options: Any) -> list[Tensor]:
    """Compares a step with eager's, strides too; returns the images that it saved beside its input."""
    torch.compiler.reset()
    compiled = keel.compile(net, strict=True, **options)
    results, images = step(compiled, net, x)
    expected, _ = step(net, net, x)
    torch.testing.assert_close(results, expected)
    assert list(map(strides, results)) == list(map(strides, expected))
    return [t for t in images if t.shape != x.shape]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_images_are_saved_channels_last(dynamic: bool) -> None:
    images = check(Net().eval(), torch.randn(2, 16, 12, 12), backends=["interp"], dynamic=dynamic)
    assert images
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in images)


def test_so_are_those_of_a_norm_that_trains() -> None:
    images = check(Net().train(), torch.randn(2, 16, 12, 12), backends=["interp"])
    assert images
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in images)


def test_weights_that_would_be_converted_each_time_count() -> None:
    torch.compiler.reset()
    net = Heavy()
    compiled = keel.compile(net, backends=["interp"], strict=True)
    x = torch.randn(1, 16, 5, 5)
    results, _ = step(compiled, net, x)
    torch.testing.assert_close(results, step(net, net, x)[0])
    y = compiled(x.requires_grad_())
    assert all(t.is_contiguous() for t in y.grad_fn.saved_tensors if t.dim() == 4)


def test_a_graph_level_backend_gets_what_was_captured() -> None:
    plain = keel.Backend(name="plain", device="cpu", supports=lambda call: None, compile=lambda gm: gm)
    images = check(Net().eval(), torch.randn(2, 16, 12, 12), backends=[plain])
    assert images
    assert all(t.is_contiguous() for t in images)


@pytest.mark.parametrize(("order", "channels_last"), [("cost", False), ("order", True)])
def test_by_cost_images_are_saved_for_the_backend_that_is_faster(order: str, channels_last: bool) -> None:
    slow, fast = (
        keel.Cost(flops={torch.float32: rate}, scalars=rate, bandwidth=rate, launch=1e-6, fuses=True)
        for rate in (1e9, 1e12)
    )
    plain = keel.Backend(name="plain", device="cpu", supports=lambda call: None, compile=lambda gm: gm, cost=fast)
    loops = replace(find("interp"), cost=slow)
    images = check(Net().eval(), torch.randn(2, 16, 12, 12), backends=[loops, plain], placement=order)
    assert images
    assert all(t.is_contiguous(memory_format=torch.channels_last) == channels_last for t in images)


def test_a_second_backward_finds_what_was_saved() -> None:
    torch.compiler.reset()
    net, x = Net().eval(), torch.randn(2, 16, 12, 12, requires_grad=True)
    y = keel.compile(net, backends=["interp"], strict=True)(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(y, x), first, rtol=0, atol=0)
