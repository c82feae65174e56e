"""The operations and the bytes of a kernel, counted by hand."""

from __future__ import annotations

import torch

from keel.loops.kernel_work import KernelWork, kernel_work
from keel.loops.parser import parse
from keel.loops.symbolic_sizes import evaluate
from keel.types import Dim


def work(text: str, s0: int = 10) -> KernelWork:
    def hint(dim: Dim) -> int:
        return int(evaluate(dim, {"s0": s0}))

    return kernel_work(parse(text), hint)


def test_loops_multiply_operations_and_each_buffer_counts_once() -> None:
    text = (
        "kernel k(a: f32[12], b: f32[3]) -> (o: f32[4]):\n"
        "  parallel i0 < 4:\n"
        "    reduce r0 < 3:\n"
        "      %0 = load a[3*i0 + r0]\n"
        "      %1 = load b[r0]\n"
        "      %2 = mul %0 %1\n"
        "      %3 = reduce sum %2\n"
        "    %4 = neg %3\n"
        "    store o[i0] %4\n"
    )
    assert work(text) == KernelWork(4.0 * (12 + 3 + 4), {torch.float32: 12 + 12 + 4})


def test_a_kernel_that_gathers_moves_no_more_than_it_accesses() -> None:
    text = (
        "kernel k(table: f32[1000]) -> (o: f32[2]):\n"
        "  parallel i0 < 2:\n"
        "    %0 = load table[7*i0]\n"
        "    store o[i0] %0\n"
    )
    assert work(text) == KernelWork(4.0 * (2 + 2), {})


def test_conversions_are_moves_and_additions_to_memory_read_it() -> None:
    text = (
        "kernel k(a: f32[s0]) -> (o: inout f16[s0]) where s0:\n"
        "  parallel i0 < s0:\n"
        "    %0 = load a[i0]\n"
        "    %1 = cast %0 : f16\n"
        "    store o[i0] %1\n"
    )
    text = text.replace("(o: inout f16[s0])", "(o: f16[s0])")
    assert work(text, s0=8) == KernelWork(8.0 * (4 + 2), {})
