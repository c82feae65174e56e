"""The source that kernels become, read as text, and what Triton makes of it without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keel import KeelError
from keel.loops import parse
from keel_triton.render import render

from ..kernels import sized
from .kernels import TEXTS, kernel

Golden = Callable[..., None]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("broadcast", {"N": 64, "M": 768}),
        ("broadcast", {"N": None, "M": 768}),
        ("softmax", {"N": None, "M": 768}),
        ("softmax", {"N": 64, "M": 100_000}),
        ("layer_norm", {"N": 64, "M": 1024}),
        ("layer_norm", {"N": None, "M": None}),
        ("layer_norm_bf16", {"N": 64, "M": 768}),
        ("column_sum", {"N": 4096, "M": 768}),
        ("column_sum", {"N": 8, "M": 768}),
        ("argmax", {"N": 64, "M": 50_000}),
        ("total", {"N": 64, "M": 768}),
        ("cumsum", {"N": 64, "M": None}),
        ("masked", {"N": 128, "M": 128}),
        ("roll", {"N": None, "M": None}),
        ("scatter_add", {"N": 100, "M": 64, "K": 1000}),
        ("window", {"N": 56, "M": 56}),
        ("nested", {"N": 64, "M": 100, "K": 50}),
        ("side_by_side", {"N": 64, "M": 768, "K": 100}),
        ("row_twice", {"N": 64, "M": 20_000}),
        ("transposed", {"N": 8, "M": 128, "K": 256}),
        ("transposed", {"N": 8, "M": 35, "K": 33}),
        ("out_of_order", {"N": None, "M": 17, "K": 64}),
        ("rows_in_rows", {"N": 8, "M": 16, "K": 64}),
        ("images", {"N": None, "M": 64, "K": None}),
        ("images", {"N": 16, "M": 64, "K": 49}),
        ("permuted", {"N": 8, "M": None, "K": 64}),
    ],
    ids=lambda v: v if isinstance(v, str) else "x".join(map(str, v.values())),
)
def test_source(golden: Golden, name: str, sizes: dict[str, int | None]) -> None:
    golden(f"{TEXTS[name].strip()}\n\n{render(kernel(name, **sizes))}")


def test_rendering_is_pure() -> None:
    k = kernel("softmax", N=None, M=None)
    assert render(k) == render(kernel("softmax", N=None, M=None)) == render(k)


def test_indices_past_int32_take_int64(golden: Golden) -> None:
    golden(render(kernel("broadcast", N=2**20, M=2**12)))
    assert "int64" not in render(kernel("broadcast", N=2**10, M=2**12))


def test_sizes_that_are_no_polynomials_are_computed_on_the_host(golden: Golden) -> None:
    golden(
        render(
            sized(
                """
kernel halved(in0: f32[N*M]) -> (out0: f32[((N - 1) // 2 + 1)*M]):
  parallel i0 < (N - 1) // 2 + 1, i1 < M:
    %0 = load in0[2*M*i0 + i1]
    store out0[M*i0 + i1] %0
""",
                N=None,
                M=None,
            )
        )
    )


def test_names_that_the_source_needs_are_not_taken_from_buffers(golden: Golden) -> None:
    golden(
        render(
            sized(
                """
kernel names(x: f32[N], tl: f32[N]) -> (v1: f32[N]):
  parallel i0 < N:
    %1 = load x[i0]
    %2 = load tl[i0]
    %3 = add %1 %2
    store v1[i0] %3
""",
                N=100,
            )
        )
    )


def test_names_that_the_source_needs_are_not_taken_from_symbols(golden: Golden) -> None:
    text = TEXTS["broadcast"].replace("N", "n0").replace("M", "v1").replace("):", ") where n0, v1:", 1)
    golden(render(parse(text.replace("n0*v1", "(n0 // 2)*v1").replace("i0 < n0", "i0 < n0 // 2"))))


def test_a_name_stands_for_one_text() -> None:
    lines = [line.strip() for line in render(kernel("two_widths", N=8, M=40, K=33)).splitlines()]
    assert "r1_in = r1 < 40" in lines and "r1_in_ = r1 < 33" in lines
    assert "v2 = tl.load(in0 + r1, r1_in)" in lines and "v5 = tl.load(in0 + r1, r1_in_)" in lines


def test_no_atomic_add_of_small_integers() -> None:
    with pytest.raises(KeelError, match=r"no-lowering.*Triton has no atomic add of int8"):
        render(
            sized(
                """
kernel adds(in0: i8[N], out0: inout i8[N]) -> ():
  parallel i0 < N:
    %0 = load in0[i0]
    store add out0[i0] %0
""",
                N=100,
            )
        )


@pytest.mark.parametrize("name", ["in_place", "row_twice", "in_turn"])
def test_lanes_wait_only_where_they_must(name: str) -> None:
    """In place, a lane overwrites what it read itself; a row read back in reverse needs a barrier; launches are one."""
    source = render(kernel(name, N=4, M=300))
    assert source.count("tl.debug_barrier()") == {"in_place": 0, "row_twice": 1, "in_turn": 0}[name]
