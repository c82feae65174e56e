"""The OpenCL C of the kernels that matter most, as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from keel.loops import Apply, Axis, Buffer, Kernel, Load, Loop, Store, index
from keel_opencl import target

from ..kernels import TEXTS, sized, sizes_of


@pytest.mark.parametrize("name", ["softmax", "column_sum", "argmax"])
def test_known_sizes(name: str, golden: Callable[..., None]) -> None:
    sizes = {"N": 4096, "M": 768}
    text = TEXTS[name]
    golden(target.render(sized(text, **{s: sizes[s] for s in sizes_of(text)})), suffix=".cl")


@pytest.mark.parametrize("name", ["softmax", "nested"])
def test_sizes_known_at_run_time(name: str, golden: Callable[..., None]) -> None:
    golden(target.render(sized(TEXTS[name])), suffix=".cl")


def test_names_that_mean_something_in_opencl_are_changed() -> None:
    at = index(Axis("global", 8))
    body = Loop(
        "parallel",
        (Axis("global", 8),),
        (Load(0, "float", at, torch.float32), Apply(1, "exp", (0,), torch.float32), Store("point", at, 1)),
    )
    buffers = (Buffer("float", torch.float32, 8, "in"), Buffer("point", torch.float32, 8, "out"))
    text = target.render(Kernel("exp", buffers, (body,)))
    assert "void exp_0(" in text and "point_[global_] = v1;" in text and "= float_[global_];" in text


def test_large_indices_have_64_bits() -> None:
    text = TEXTS["column_sum"]
    assert "const int i0_" in target.render(sized(text, N=1 << 15, M=1 << 15))
    assert "const long i0_" in target.render(sized(text, N=1 << 16, M=1 << 16))
