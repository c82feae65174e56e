"""Which functions a kernel becomes, and how their loops are divided among work items."""

from __future__ import annotations

from keel.loops import parse
from keel_opencl.kernel_functions import functions

from ..kernels import TEXTS, sized

APART = """
kernel apart(in0: f32[4096]) -> (out0: f32[1], out1: f32[4096], out2: f32[4096]):
  %0 = const 2.0 : f32
  parallel i0 < 4096:
    %1 = load in0[i0]
    %2 = mul %1 %0
    store out1[i0] %2
  reduce r0 < 4096:
    %3 = load out1[r0]
    %4 = reduce sum %3
  store out0[0] %4
  parallel i1 < 4096:
    %5 = load in0[i1]
    %6 = mul %5 %4
    store out2[i1] %6
"""


def test_outer_loops_are_functions_and_those_that_share_a_folded_value_are_one() -> None:
    first, second = functions(parse(APART))
    assert [a.name for a in first.axes] == ["i0"] and not first.grouped
    assert second.axes == () and second.grouped and len(second.body) == 3


def test_a_group_shares_long_inner_loops_along_memory() -> None:
    softmax, columns = TEXTS["softmax"], TEXTS["column_sum"]
    assert [f.grouped for f in functions(sized(softmax, N=64, M=4096))] == [True]
    assert [f.grouped for f in functions(sized(softmax))] == [True]
    assert [f.grouped for f in functions(sized(softmax, N=64, M=8))] == [False]
    assert [f.grouped for f in functions(sized(columns, N=4096, M=64))] == [False]


def test_nested_parallel_loops_have_more_points() -> None:
    text = """
kernel deep(in0: f32[64]) -> (out0: f32[4096]):
  parallel i0 < 64:
    %0 = load in0[i0]
    parallel i1 < 64:
      store out0[64*i0 + i1] %0
"""
    (function,) = functions(parse(text))
    assert [a.name for a in function.axes] == ["i0", "i1"] and function.points == 4096
