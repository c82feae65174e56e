"""Resampled images keep channels-last in a trace. What PyTorch makes of them differs on CUDA, which fakes stand for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from keel.torch_adapter.meta_bugs.upsample import resampled

aten = torch.ops.aten
TWICE: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0),
    "nearest-exact": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest-exact"),
    "lines": lambda x: F.interpolate(x, None, 2.0, "bilinear"),
    "a module": torch.nn.Upsample(scale_factor=2),
    "an operator": lambda x: aten.upsample_nearest2d(x, [8, 8]),
    "an overload": lambda x: aten.upsample_nearest2d.default(self=x, output_size=[8, 8]),
}


@pytest.mark.parametrize("name", TWICE)
def test_images_on_cuda(name: str) -> None:
    gm = fx.symbolic_trace(TWICE[name])
    with FakeTensorMode(), enable_python_dispatcher():
        x = torch.empty(2, 3, 4, 4, device="cuda")
        last = x.to(memory_format=torch.channels_last)
        assert gm(last).is_contiguous()  # what is put right
        with resampled(gm):
            assert gm(last).is_contiguous(memory_format=torch.channels_last)
            assert gm(x).is_contiguous()


def test_where_nothing_is_resampled() -> None:
    assert isinstance(resampled(fx.symbolic_trace(lambda x: x.sin())), nullcontext)


def test_volumes_that_are_pooled() -> None:
    """Averages over areas are row-major, and called so."""
    gm = fx.symbolic_trace(lambda x: F.interpolate(x, size=2, mode="area"))
    with resampled(gm):
        assert gm(torch.rand(2, 3, 4, 4, 4).to(memory_format=torch.channels_last_3d)).is_contiguous()
