"""The interpreter agrees with a program that walks the loops point by point, and with torch on whole operators."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import KeelError
from keel.loops.interpret import interpret
from keel.loops.parser import parse
from keel.loops.verify import verify
from keel.types import DTYPES_BY_NAME

from .indices import SYMBOLS
from .kernels import kernels, memory, step_through

room = sys.modules["keel.loops.interpret"]  # keel.loops.interpret itself is the function of that name
SOFTMAX = """\
kernel softmax(in0: f32[768*s0]) -> (out0: f32[768*s0]) where s0:
  parallel i0 < s0:
    reduce r0 < 768:
      %0 = load in0[768*i0 + r0]
      %1 = reduce max %0
    reduce r0 < 768:
      %2 = load in0[768*i0 + r0]
      %3 = sub %2 %1
      %4 = exp %3
      %5 = reduce sum %4
    parallel r0 < 768:
      %6 = load in0[768*i0 + r0]
      %7 = sub %6 %1
      %8 = exp %7
      %9 = div %8 %5
      store out0[768*i0 + r0] %9
"""


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def run(text: str, *buffers: torch.Tensor, precise: bool = False, **symbols: int) -> None:
    kernel = parse(text)
    verify(kernel)
    interpret(kernel, buffers, symbols, precise=precise)


@pytest.mark.slow
@given(kernels(), st.integers(0, 3), st.sampled_from((2, 17, 1 << 17)))
def test_it_agrees_with_one_point_at_a_time(kernel, seed: int, points: int) -> None:
    """Also where loops are run in slices, of any size."""
    verify(kernel)
    found, want = memory(kernel, seed), memory(kernel, seed)
    whole, room.POINTS = room.POINTS, points
    try:
        interpret(kernel, found, SYMBOLS)
    finally:
        room.POINTS = whole
    step_through(kernel, want, SYMBOLS)
    for buffer, a, b in zip(kernel.buffers, found, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda m, n=buffer.name: f"{n}: {m}")


def test_softmax() -> None:
    x = seeded(300, 768)
    out = torch.empty_like(x)
    run(SOFTMAX, x, out, s0=300)
    torch.testing.assert_close(out, torch.softmax(x, -1))


def test_precise_rounds_only_what_is_stored() -> None:
    x = seeded(7, 768) * 30
    out = torch.empty_like(x)
    run(SOFTMAX, x, out, precise=True, s0=7)
    assert torch.equal(out, torch.softmax(x.double(), -1).float())


def test_layer_norm_in_bf16() -> None:
    x, weight = seeded(5, 64).bfloat16(), seeded(64).bfloat16()
    out = torch.empty_like(x)
    run(
        """\
kernel norm(in0: bf16[320], in1: bf16[64]) -> (out0: bf16[320]):
  parallel i0 < 5:
    %20 = const 1.0 : f32
    %21 = const 0.0 : f32
    reduce r0 < 64:
      %0 = load in0[64*i0 + r0]
      %1 = cast %0 : f32
      %2, %3, %4 = reduce welford %1 %21 %20
    %5 = div %3 %4
    %6 = const 1e-05 : f32
    %7 = add %5 %6
    %8 = rsqrt %7
    parallel r0 < 64:
      %9 = load in0[64*i0 + r0]
      %10 = cast %9 : f32
      %11 = sub %10 %2
      %12 = mul %11 %8
      %13 = load in1[r0]
      %14 = cast %13 : f32
      %15 = mul %12 %14
      %16 = cast %15 : bf16
      store out0[64*i0 + r0] %16
""",
        x,
        weight,
        out,
    )
    want = torch.nn.functional.layer_norm(x.float(), (64,), weight.float()).bfloat16()
    torch.testing.assert_close(out, want, rtol=2**-8, atol=2**-9)


def test_embedding_gathers_rows() -> None:
    table, rows = seeded(50, 8), torch.tensor([3, 49, 0, 3])
    out = torch.empty(4, 8)
    run(
        """\
kernel embed(in0: f32[400], in1: i64[4]) -> (out0: f32[32]):
  parallel i0 < 4, i1 < 8:
    %0 = load in1[i0]
    %1 = load in0[i1 + 8*(%0 < 50)]
    store out0[8*i0 + i1] %1
""",
        table,
        rows,
        out,
    )
    assert torch.equal(out, table[rows])


def test_a_false_mask_reads_nothing_and_gives_zero() -> None:
    out = torch.full((6,), 9.0)
    run(
        """\
kernel pad(in0: f32[4]) -> (out0: f32[6]):
  parallel i0 < 6:
    %0 = position i0
    %1 = const 4 : i64
    %2 = lt %0 %1
    %3 = load in0[i0] if %2
    store out0[i0] %3
""",
        torch.tensor([1.0, 2, 3, 4]),
        out,
    )
    assert out.tolist() == [1, 2, 3, 4, 0, 0]
    run(
        """\
kernel none(in0: bf16[0]) -> (out0: bf16[2]):
  %0 = const false : b8
  parallel i0 < 2:
    %1 = load in0[i0] if %0
    store out0[i0] %1
""",
        torch.empty(0, dtype=torch.bfloat16),
        nothing := torch.ones(2, dtype=torch.bfloat16),
    )
    assert nothing.tolist() == [0, 0]


def test_a_false_mask_writes_nothing() -> None:
    out = torch.full((4,), -1.0)
    run(
        """\
kernel some(in0: f32[4]) -> (out0: f32[4]):
  parallel i0 < 4:
    %0 = load in0[i0]
    %1 = const 2.0 : f32
    %2 = gt %0 %1
    store out0[i0] %0 if %2
""",
        torch.tensor([1.0, 3, 2, 5]),
        out,
    )
    assert out.tolist() == [-1, 3, -1, 5]


@pytest.mark.parametrize(
    ("mode", "start", "want"),
    [("add", 1.0, [7.0, 4.0]), ("mul", 2.0, [16.0, 6.0]), ("min", 9.0, [2.0, 3.0]), ("max", 0.0, [4.0, 3.0])],
)
@pytest.mark.parametrize("name", ["f32", "i64", "i32", "bf16", "u32"])
def test_read_modify_write_counts_every_point(mode: str, start: float, want: list[float], name: str) -> None:
    dtype = DTYPES_BY_NAME[name]
    out = torch.full((2,), start).to(dtype)
    run(
        f"""\
kernel scatter(in0: {name}[3], in1: i64[3], out0: inout {name}[2]) -> ():
  parallel i0 < 3:
    %0 = load in0[i0]
    %1 = load in1[i0]
    store {mode} out0[(%1 < 2)] %0
""",
        torch.tensor([2, 3, 4]).to(dtype),
        torch.tensor([0, 1, 0]),
        out,
    )
    assert out.tolist() == want


def test_adding_the_same_thing_at_every_point_adds_it_as_often() -> None:
    out = torch.zeros(1)
    run(
        """\
kernel count(out0: inout f32[1]) -> ():
  parallel i0 < 1000, i1 < 300:
    %0 = const 1.0 : f32
    store add out0[0] %0
""",
        out,
    )
    assert out.item() == 300_000


def test_folding_the_same_thing_at_every_point_folds_it_as_often() -> None:
    out = torch.zeros(1, dtype=torch.int64)
    run(
        """\
kernel count() -> (out0: i64[1]):
  %0 = const 1 : i64
  reduce r0 < 1000, r1 < 300:
    %1 = reduce sum %0
  store out0[0] %1
""",
        out,
    )
    assert out.item() == 300_000


@pytest.mark.parametrize("size", [0, 1, 5])
def test_sizes_of_nothing_and_one(size: int) -> None:
    x, out, total = torch.arange(5.0)[:size] + 1, torch.full((5,), -1.0)[:size], torch.full((1,), -1.0)
    run(
        """\
kernel k(in0: f32[u0]) -> (out0: f32[u0], out1: f32[1]) where u0 >= 0:
  parallel i0 < u0:
    %0 = load in0[i0]
    store out0[i0] %0
  reduce r0 < u0:
    %1 = load in0[r0]
    %2 = reduce max %1
  store out1[0] %2
""",
        x,
        out,
        total,
        u0=size,
    )
    assert torch.equal(out, x)
    assert total.item() == (x.max().item() if size else float("-inf"))


def test_a_scan_runs_in_order_within_each_row() -> None:
    x = seeded(6, 40)
    out, best = torch.empty_like(x), torch.empty(6, 40, dtype=torch.int64)
    run(
        """\
kernel scan(in0: f32[240]) -> (out0: f32[240], out1: i64[240]):
  parallel i0 < 6:
    scan t0 < 40:
      %0 = load in0[40*i0 + t0]
      %1 = scan sum %0
      %2 = position t0
      %3, %4 = scan argmax %0 %2
      store out0[40*i0 + t0] %1
      store out1[40*i0 + t0] %4
""",
        x,
        out,
        best,
    )
    torch.testing.assert_close(out, x.cumsum(-1))
    assert torch.equal(best, x.cummax(-1).indices)


def test_a_fold_of_folds() -> None:
    x = seeded(3, 4, 5)
    out = torch.empty(3)
    run(
        """\
kernel nested(in0: f32[60]) -> (out0: f32[3]):
  parallel i0 < 3:
    reduce r0 < 4:
      reduce r1 < 5:
        %0 = load in0[20*i0 + 5*r0 + r1]
        %1 = reduce sum %0
      %2 = reduce max %1
    store out0[i0] %2
""",
        x,
        out,
    )
    torch.testing.assert_close(out, x.sum(-1).amax(-1))


def test_a_buffer_starts_at_its_data_whatever_its_strides() -> None:
    base = torch.arange(20.0)
    out = torch.zeros(10)
    text = (
        "kernel k(in0: f32[13]) -> (out0: f32[4]):\n  parallel i0 < 4:\n    %0 = load in0[3*i0 + 2]\n"
        "    store out0[i0] %0\n"
    )
    run(text, base[5:].as_strided((2, 2), (3, 1)), out[3:7:2])
    assert out.tolist() == [0, 0, 0, 7, 10, 13, 16, 0, 0, 0]


def test_reading_what_shares_memory_with_what_is_written() -> None:
    """An out buffer may be the very memory of an in buffer, element for element."""
    x = torch.arange(4.0)
    also = torch.empty(4)
    run(
        """\
kernel k(in0: f32[4]) -> (out0: f32[4], out1: f32[4]):
  parallel i0 < 4:
    %0 = load in0[i0]
    %1 = const 1.0 : f32
    %2 = add %0 %1
    store out0[i0] %2
    store out1[i0] %0
""",
        x,
        x,
        also,
    )
    assert x.tolist() == [1, 2, 3, 4]
    assert also.tolist() == [0, 1, 2, 3]


def test_an_index_outside_of_its_buffer_is_an_error() -> None:
    text = (
        "kernel k(in0: f32[4], in1: i64[1]) -> (out0: f32[1]):\n  %0 = load in1[0]\n  %1 = load in0[(%0 < 4)]\n"
        "  store out0[0] %1\n"
    )
    for wrong in (4, -1):
        with pytest.raises(KeelError, match=f"bad-graph.*element {wrong} of in0, which has 4"):
            run(text, torch.zeros(4), torch.tensor([wrong]), torch.zeros(1))


def test_a_buffer_of_another_dtype_is_an_error() -> None:
    with pytest.raises(KeelError, match="in0 of softmax takes"):
        run(SOFTMAX, torch.zeros(768, dtype=torch.float64), torch.zeros(768), s0=1)


def test_undefined_arithmetic_does_not_stop_the_program() -> None:
    out = torch.zeros(3, dtype=torch.int32)
    run(
        """\
kernel k(in0: i32[3], in1: i32[3]) -> (out0: i32[3]):
  parallel i0 < 3:
    %0 = load in0[i0]
    %1 = load in1[i0]
    %2 = floordiv %0 %1
    %3 = mod %0 %1
    %4 = truncdiv %0 %1
    %5 = fmod %0 %1
    %6 = add %2 %3
    %7 = add %4 %5
    %8 = add %6 %7
    store out0[i0] %8
""",
        torch.tensor([5, -(2**31), -7], dtype=torch.int32),
        torch.tensor([0, -1, 2], dtype=torch.int32),
        out,
    )
    assert out[2].item() == -4 + 1 + -3 + -1


def test_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of a sliced loop is larger than a slice."""
    seen: list[int] = []
    whole = room.evaluate_op
    monkeypatch.setattr(
        room, "evaluate_op", lambda op, args, dtype: seen.append(max(a.numel() for a in args)) or whole(op, args, dtype)
    )
    x = torch.ones(1000, 768)
    run(SOFTMAX, x, torch.empty_like(x), s0=1000)
    assert max(seen) <= room.POINTS
