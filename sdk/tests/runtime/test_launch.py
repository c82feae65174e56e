"""The function of a launch list, apart from what it computes, which the backends' tests look at."""
from __future__ import annotations

import torch

import keel
import keel_interp
from keel.loop_backend import compile_part
from keel.runtime.launch import CHUNK


def longest(count: int) -> int:
    """The stack size of the launch list of ``count`` kernels, which gives what eager gives."""
    sizes: list[int] = []

    def compile(gm):
        run = compile_part(keel_interp.target, gm)
        sizes.append(run.__code__.co_stacksize)
        return run

    def fn(x):
        for _ in range(count):
            x = x.cos() @ x
        return x
    backend = keel.Backend(name="probe", device="cpu", supports=keel_interp.backend.supports, compile=compile)
    x = torch.randn(2, 2) / 2
    torch.testing.assert_close(keel.compile(fn, backends=[backend], strict=True)(x), fn(x))
    return max(sizes)


def test_a_long_list_has_a_chunk_of_the_frame_stack_for_itself() -> None:
    assert longest(140) >= CHUNK


def test_a_short_list_takes_no_more_than_it_needs() -> None:
    assert longest(2) < CHUNK // 4
