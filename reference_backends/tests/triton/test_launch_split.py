"""What runs at once, what runs after what, and what one program must do alone."""

from __future__ import annotations

from keel.loops import Loop, Store, walk
from keel_triton.launch_split import Piece, launches

from ..kernels import sized
from .kernels import kernel


def shape(found: tuple[tuple[Piece, ...], ...]) -> list[list[str]]:
    """Per launch, each piece as its axes and the buffers it stores to."""
    return [
        [
            f"{','.join(a.name for a in p.axes) or 'once'}: "
            f"{' '.join(sorted({s.buffer for s in walk(p.body) if isinstance(s, Store)}))}"
            for p in launch
        ]
        for launch in found
    ]


def test_loops_that_need_nothing_from_each_other_share_a_launch() -> None:
    found = launches(kernel("side_by_side", N=3, M=4, K=5))
    assert shape(found) == [["i0: out0", "i0: out1", "once: out2"]]


def test_a_loop_that_reads_what_another_stored_comes_later() -> None:
    assert shape(launches(kernel("in_turn", N=3, M=4))) == [["i0,i1: out0"], ["i0: out1"]]


def test_atomics_come_after_what_they_add_to_and_beside_each_other() -> None:
    found = launches(
        sized(
            """
kernel adds(in0: f32[N], out0: inout f32[N]) -> ():
  %0 = const 0.0 : f32
  parallel i0 < N:
    store out0[i0] %0
  parallel i0 < N:
    %1 = load in0[i0]
    store add out0[i0] %1
  parallel i0 < N:
    %2 = load in0[i0]
    store add out0[N - i0 - 1] %2
""",
            N=100,
        )
    )
    assert shape(found) == [["i0: out0"], ["i0: out0", "i0: out0"]]


def test_what_overwrites_a_buffer_waits_for_its_readers() -> None:
    found = launches(
        sized(
            """
kernel after(in0: inout f32[N]) -> (out0: f32[N]):
  parallel i0 < N:
    %0 = load in0[N - i0 - 1]
    store out0[i0] %0
  parallel i0 < N:
    %1 = const 1.0 : f32
    store in0[i0] %1
""",
            N=100,
        )
    )
    assert shape(found) == [["i0: out0"], ["i0: in0"]]


def test_a_folded_value_keeps_its_users_in_one_program() -> None:
    assert shape(launches(kernel("total", N=3, M=4))) == [["once: out0 out1 out2"]]


def test_loops_that_need_each_other_both_ways_are_one_program() -> None:
    found = launches(
        sized(
            """
kernel knot(in0: inout f32[N], in1: inout f32[N]) -> ():
  reduce r0 < N:
    %0 = load in0[r0]
    %1 = reduce sum %0
  parallel i0 < N:
    %2 = load in1[i0]
    %3 = neg %2
    store in0[i0] %3
  parallel i0 < N:
    store in1[i0] %1
""",
            N=100,
        )
    )
    assert shape(found) == [["once: in0 in1"]]


def test_plain_values_are_computed_again_where_they_are_needed() -> None:
    ((a, b),) = launches(
        sized(
            """
kernel twice(in0: f32[1]) -> (out0: f32[N], out1: f32[N]):
  %0 = load in0[0]
  %1 = exp %0
  parallel i0 < N:
    store out0[i0] %1
  parallel i0 < N:
    %2 = neg %1
    store out1[i0] %2
""",
            N=100,
        )
    )
    assert [type(s).__name__ for s in a.body] == ["Load", "Apply", "Store"]
    assert [type(s).__name__ for s in b.body] == ["Load", "Apply", "Apply", "Store"]


def test_loops_that_never_run_are_left_out() -> None:
    assert launches(kernel("broadcast", N=0, M=4)) == ()
    assert shape(launches(kernel("column_sum", N=0, M=4))) == [["i0: out0"]]


def test_parallel_in_parallel_is_one_loop() -> None:
    ((piece,),) = launches(
        sized(
            """
kernel nest(in0: f32[N], in1: f32[N*M]) -> (out0: f32[N*M]):
  parallel i0 < N:
    %0 = load in0[i0]
    parallel i1 < M:
      %1 = load in1[M*i0 + i1]
      %2 = add %0 %1
      store out0[M*i0 + i1] %2
""",
            N=10,
            M=20,
        )
    )
    assert [a.name for a in piece.axes] == ["i0", "i1"]
    assert not any(isinstance(s, Loop) for s in piece.body)


def test_independent_loops_in_rows_move_up() -> None:
    assert shape(launches(kernel("rows_in_rows", N=3, M=4, K=5))) == [["i0,i1: out0 out2", "i0: out1"]]


def test_loops_in_rows_that_need_the_row_stay() -> None:
    found = launches(
        sized(
            """
kernel needs(in0: f32[N*M*K]) -> (out0: f32[N*M]):
  parallel i0 < N:
    reduce r0 < M, r1 < K:
      %0 = load in0[K*M*i0 + K*r0 + r1]
      %1 = reduce max %0
    parallel i1 < M:
      reduce r1 < K:
        %2 = load in0[K*M*i0 + K*i1 + r1]
        %3 = sub %2 %1
        %4 = reduce sum %3
      store out0[M*i0 + i1] %4
""",
            N=10,
            M=20,
            K=30,
        )
    )
    assert shape(found) == [["i0: out0"]]
