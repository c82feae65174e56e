"""The C++ of the kernels that matter most, as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from keel.loops import Apply, Axis, Buffer, Kernel, Load, Loop, Store, index
from keel_cpp import target

from .kernels import TEXTS, kernel, sizes_of


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "column_sum", "broadcast", "cast", "argmax"])
def test_known_sizes(name: str, golden: Callable[..., None]) -> None:
    sizes = {"N": 4096, "M": 768}
    golden(target.render(kernel(name, **{s: sizes[s] for s in sizes_of(name)})), suffix=".cpp")


@pytest.mark.parametrize(
    "name", ["softmax", "column_sum", "total", "row_losses", "transposed", "window", "scatter", "permuted"]
)
def test_sizes_known_at_run_time(name: str, golden: Callable[..., None]) -> None:
    golden(target.render(kernel(name, **dict.fromkeys(sizes_of(name)))), suffix=".cpp")


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_kernel_gives_the_same_text(name: str) -> None:
    one, two = (kernel(name, **dict.fromkeys(sizes_of(name))) for _ in range(2))
    assert target.render(one) == target.render(two)


@pytest.mark.parametrize(("k", "m"), [(3, 17), (3, 33), (4, 32), (32, 4), (17, 17)])
def test_what_loops_over_a_row_of_several_axes_compute_alike_is_computed_once(k: int, m: int) -> None:
    text = target.render(kernel("channel_softmax", N=5, M=m, K=k))
    assert text.count("= exp(") == 1, text


@pytest.mark.parametrize(("k", "m"), [(3, None), (None, 17), (65, 64)])
def test_a_row_that_is_long_or_of_unknown_length_is_computed_each_time(k: int | None, m: int | None) -> None:
    assert target.render(kernel("channel_softmax", N=5, M=m, K=k)).count("= exp(") == 2


def test_the_body_of_a_small_loop_is_copied_only_where_there_are_vectors_or_little_of_it() -> None:
    assert "_point(2, 2)" in target.render(kernel("window", N=64, M=64))
    copied = target.render(kernel("chosen", N=8, M=8))
    assert "_point" not in copied and "UNROLL" not in copied and copied.count("in1[") == 1


def test_names_that_mean_something_in_cpp_are_changed() -> None:
    axis = Axis("from", 8)
    at = index(axis)
    kernel = Kernel(
        "exp",
        (Buffer("float", torch.float32, 8, "in"), Buffer("sum1", torch.float32, 8, "out")),
        (
            Loop(
                "parallel",
                (axis,),
                (Load(0, "float", at, torch.float32), Apply(1, "exp", (0,), torch.float32), Store("sum1", at, 1)),
            ),
        ),
    )
    text = target.render(kernel)
    assert "const float* float_, float* sum1_" in text
    assert "for (i64 from_ = 0; from_ < 8; ++from_)" in text
