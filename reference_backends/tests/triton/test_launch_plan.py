"""How loops are cut into blocks, and what their functions are handed."""

from __future__ import annotations

import pytest

from keel.loops import Loop
from keel_triton.launch_plan import NARROW, Part, mode, plan, reach
from keel_triton.render import render

from ..kernels import sized
from .kernels import kernel


def only(name: str, **sizes: int | None) -> Part:
    (launch,) = plan(kernel(name, **sizes))
    (part,) = launch.parts
    return part


def modes(part: Part) -> list[str]:
    return [mode(s, part) for s in part.body if isinstance(s, Loop)]


@pytest.mark.parametrize(
    ("length", "how"),
    [(1, "serial"), (4, "serial"), (5, "block"), (768, "block"), (16384, "block"), (16385, "steps"), (None, "steps")],
)
def test_rows_that_are_read_again_stay_in_a_block(length: int | None, how: str) -> None:
    part = only("softmax", N=64, M=length)
    assert set(modes(part)) == {how}
    assert part.rank == (1 if how == "serial" else 2)


def test_rows_that_are_read_once_need_not() -> None:
    assert modes(only("argmax", N=64, M=4096)) == ["block"]
    assert modes(only("argmax", N=64, M=4097)) == ["steps"]


@pytest.mark.parametrize(("length", "how"), [(16, "serial"), (17, "block"), (64, "block"), (65, "steps")])
def test_columns_are_folded_by_lanes_or_in_strips(length: int, how: str) -> None:
    part = only("column_sum", N=length, M=768)
    assert (part.contiguous, modes(part)) == ("x", [how])


def test_what_columns_share_is_a_scalar_of_their_strip() -> None:
    part = only("strips", N=16, M=1024, K=500)
    assert ([a.size for a in part.outer], [a.size for a in part.axes]) == ([16], [1024])
    for sizes in ({"N": 16, "M": 32, "K": 500}, {"N": 16, "M": None, "K": 500}):  # no strips, or nobody knows
        assert only("strips", **sizes).outer == ()
    assert only("column_sum", N=100, M=768).outer == ()


def test_programs_of_strips_are_counted_where_the_outer_axes_are_a_sum() -> None:
    kernel = sized(
        """
kernel sums(in0: f32[500*M + 500], in1: f32[64000*M + 64000]) -> (out0: f32[128*M + 128], out1: f32[1]):
  parallel i0 < M + 1, i1 < 128:
    reduce j0 < 500:
      %0 = load in1[64000*i0 + i1 + 128*j0]
      %1 = load in0[500*i0 + j0]
      %2 = mul %0 %1
      %3 = reduce sum %2
    store out0[128*i0 + i1] %3
  reduce j0 < 500:
    %4 = load in0[j0]
    %5 = reduce sum %4
  store out1[0] %5
""",
        M=None,
    )
    assert "end0 = (1 + M) * tl.cdiv(128, XBLOCK0)" in render(kernel)


def test_a_short_loop_does_not_decide_how_a_long_one_reads() -> None:
    """The mean of each channel from sums of its chunks, and then deviations from it, over long rows."""
    text = """
kernel deviations(in0: f32[N*M], in1: f32[N*K]) -> (out0: f32[N]):
  parallel i0 < N:
    reduce j0 < K:
      %0 = load in1[i0 + N*j0]
      %1 = reduce sum %0
    reduce j0 < M:
      %2 = load in0[M*i0 + j0]
      %3 = sub %2 %1
      %4 = reduce sum %3
    store out0[i0] %4
"""
    for long in (100_000, None):
        (launch,) = plan(sized(text, N=64, M=long, K=16))
        assert launch.parts[0].contiguous == "r"


def test_windows_are_folded_by_lanes() -> None:
    part = only("window", N=56, M=56)
    assert (part.contiguous, part.rank, modes(part)) == ("x", 1, ["serial"])


def test_pointwise_parts_have_one_lane_per_row() -> None:
    assert only("broadcast", N=64, M=768).rank == 1
    assert only("total", N=64, M=768).rank == 2


def test_parameters() -> None:
    (launch,) = plan(kernel("layer_norm", N=None, M=None))
    assert launch.arguments == ("in0", "in1", "in2", "out0", "out1", "M", "N")
    assert launch.constants == ("INDEX", "XBLOCK", "RBLOCK")
    (launch,) = plan(kernel("layer_norm", N=8, M=768))
    assert launch.constants == ("XBLOCK",)
    copy, add = plan(kernel("scatter_add", N=4, M=5, K=6))
    assert ([b.name for b in copy.buffers], [b.name for b in add.buffers]) == (["in0", "out0"], ["in1", "in2", "out0"])


def test_sizes_of_the_host() -> None:
    (launch,) = plan(
        sized(
            """
kernel pooled(in0: f32[N*M]) -> (out0: f32[(N // 2)*M]):
  parallel i0 < N // 2, i1 < M:
    %0 = load in0[2*M*i0 + i1]
    store out0[M*i0 + i1] %0
""",
            N=None,
            M=None,
        )
    )
    assert launch.symbols == ("M",) and [str(d) for d in launch.derived] == ["floor(N/2)"]
    assert launch.arguments == ("in0", "out0", "M", "n0")


def test_reach_counts_intermediate_results() -> None:
    assert reach(kernel("broadcast", N=10, M=20), {}) == 200
    wide = sized("""
kernel far(in0: f32[100]) -> (out0: f32[100]):
  parallel i0 < 100:
    %0 = load in0[(100000000*i0 + 7) // 100000001]
    store out0[i0] %0
""")
    assert reach(wide, {}) > NARROW
    assert plan(wide)[0].index == "int64"


def test_reach_at_sizes_known_later() -> None:
    k = kernel("broadcast", N=None, M=None)
    assert plan(k)[0].index == "INDEX"
    assert reach(k, {"N": 2**20, "M": 2**11}) > NARROW > reach(k, {"N": 2**20, "M": 2**10})
