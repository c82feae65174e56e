"""Kernels taken up again: expanded, rendered, run beside the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from keel import Backend, KeelError, LoopTarget, Source, loop_backend
from keel.opt import for_target, made_up, read_kernel, source, trial

TEXT = """kernel k(in0: f32[s0], in1: i64[4]) -> (out0: f32[4]) where s0:
  parallel i0 < 4:
    %0 = load in1[i0]
    %1 = load in0[(%0 < s0)]
    %2 = sigmoid %1
    store out0[i0] %2
"""


def backend(wrong: float = 0.0) -> Backend:
    """A target that computes what the text above says, in PyTorch, or a little off."""

    def build(sources: Sequence[Source]) -> list[Callable[..., Any]]:
        def launch(in0: torch.Tensor, in1: torch.Tensor, out0: torch.Tensor, s0: int) -> None:
            assert in0.shape == (s0,)
            out0.copy_(in0[in1].sigmoid() + wrong)

        return [launch for _ in sources]

    return loop_backend(
        LoopTarget(
            name="lab",
            device="cpu",
            dtypes={torch.float32: "float", torch.int64: "long"},
            reductions={},
            build=build,
            scalars={op: op for op in ("exp", "neg", "add", "reciprocal", "div", "where", "lt", "ge", "abs", "mul")},
            render=lambda kernel: f"// {kernel}",
        )
    )


def test_a_kernel_in_the_scalars_of_a_target() -> None:
    kernel = read_kernel(TEXT)
    assert "sigmoid" not in str(for_target(kernel, backend())) and "exp" in str(for_target(kernel, backend()))
    assert source(kernel, backend()).startswith("// kernel k(") and "sigmoid" not in source(kernel, backend())


def test_a_graph_backend_has_no_kernels() -> None:
    acme = Backend(name="acme", device="cpu", supports=lambda call: None, compile=lambda gm: gm.forward)
    with pytest.raises(KeelError, match="acme compiles graphs, not loops"):
        source(read_kernel(TEXT), acme)


def test_a_trial_compares_the_target_with_the_interpreter() -> None:
    (alone,) = trial(read_kernel(TEXT), {"s0": 3})
    assert alone.built is None and alone.difference is None and alone.buffer == "out0"
    (right,) = trial(read_kernel(TEXT), {"s0": 3}, backend())
    assert right.difference is not None and right.difference < 1e-6
    (wrong,) = trial(read_kernel(TEXT), {"s0": 3}, backend(0.25))
    assert wrong.difference == pytest.approx(0.25, abs=1e-6)
    (nan,) = trial(read_kernel(TEXT), {"s0": 3}, backend(float("nan")))
    assert nan.difference == float("inf")


def test_made_up_integers_serve_as_indices() -> None:
    for size in (1, 2, 100):
        values, at, out = made_up(read_kernel(TEXT), {"s0": size}, seed=1)
        assert at.min() >= 0 and at.max() < size and values.shape == (size,) and not out.any()


def test_a_trial_needs_every_size() -> None:
    with pytest.raises(KeelError, match="sizes of unknown value: s0"):
        trial(read_kernel(TEXT), {})


def test_a_trial_takes_no_more_memory_than_it_may() -> None:
    for size in (1 << 31, 10**19):
        with pytest.raises(KeelError, match=r"buffers of .* bytes, and a trial at most") as raised:
            trial(read_kernel(TEXT), {"s0": size})
        assert raised.value.code == "bad-option"


@pytest.mark.parametrize(
    ("text", "code"), [("kernel", "bad-text"), (TEXT.replace("store out0", "store in0"), "bad-graph")]
)
def test_a_broken_kernel(text: str, code: str) -> None:
    with pytest.raises(KeelError) as caught:
        read_kernel(text)
    assert caught.value.code == code
