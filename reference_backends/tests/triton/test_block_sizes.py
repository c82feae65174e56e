"""Block sizes: enough programs, enough work in each, nothing that a machine cannot hold."""

from __future__ import annotations

from itertools import product

import pytest

from keel_triton.block_sizes import PROGRAMS, choose
from keel_triton.launch_plan import blocks, plan

from .. import kernels
from .kernels import kernel

SIZES = (1, 2, 3, 5, 17, 64, 100, 768, 1000, 4096, 50_304, 1_000_003)


@pytest.mark.parametrize("name", ["broadcast", "softmax", "column_sum", "total", "cumsum", "masked"])
@pytest.mark.parametrize("static", [True, False])
def test_blocks_cover_the_rows_and_fit_the_machine(name: str, static: bool) -> None:
    for n, m in product(SIZES, SIZES):
        k = kernel(name, N=n if static else None, M=m if static else None)
        for part in (p for launch in plan(k) for p in launch.parts):
            b = choose(part, {"N": n, "M": m})
            rows = {"column_sum": m, "broadcast": n * m, "total": 1}.get(name, n)
            assert (b.programs - 1) * b.x < rows <= b.programs * b.x
            widest = max((*blocks(part), b.r), default=1) if part.rank == 2 else 1
            assert b.x * widest <= 16_384
            assert b.warps in (1, 2, 4, 8, 16) and b.x & (b.x - 1) == 0 and b.r & (b.r - 1) == 0
            assert b.x * widest <= 32 * b.warps * 32, "more than 32 elements a thread"


@pytest.mark.parametrize(
    ("name", "sizes", "wanted"),
    [
        ("broadcast", (4096, 768), (1024, 0, 4)),  # eight elements a thread: 16 bytes of bfloat16
        ("broadcast", (1, 100), (128, 0, 1)),
        ("softmax", (4096, 768), (1, 0, 4)),
        ("softmax", (65_536, 64), (16, 0, 4)),  # short rows together
        ("softmax", (100, 64), (1, 0, 1)),  # but every multiprocessor first
        ("softmax", (512, 8000), (1, 0, 16)),
        ("softmax", (512, 100_000), (1, 2048, 8)),
        ("column_sum", (4096, 65_536), (32, 128, 8)),
        ("layer_norm_bf16", (4096, 1024), (1, 0, 1)),  # one warp for a row of 2 KiB
        ("layer_norm_bf16", (4096, 8192), (1, 0, 8)),
        ("total", (4096, 768), (1, 8192, 16)),
    ],
)
def test_examples(name: str, sizes: tuple[int, int], wanted: tuple[int, int, int]) -> None:
    (launch,) = plan(kernel(name, N=sizes[0], M=sizes[1]))
    b = choose(launch.parts[0], {})
    assert (b.x, b.r, b.warps) == wanted


def test_strips_of_columns_are_cache_lines() -> None:
    for dtype, wanted in (("f32", (32, 128)), ("bf16", (64, 128)), ("f64", (32, 128))):
        text = kernels.TEXTS["column_sum"].replace("in0: f32", f"in0: {dtype}")
        text = text.replace("reduce sum %0", "reduce sum %2").replace("    %1 =", "    %2 = cast %0 : f32\n      %1 =")
        (launch,) = plan(kernels.sized(text, N=4096, M=65_536))
        b = choose(launch.parts[0], {})
        assert (b.x, b.r) == wanted


def test_programs_of_strips_are_counted_for_each_point_of_the_outer_axes() -> None:
    (launch,) = plan(kernel("strips", N=16, M=1000, K=500))
    b = choose(launch.parts[0], {})
    assert (b.x, b.programs) == (32, 16 * 32)


def test_few_rows_are_not_packed_together() -> None:
    (launch,) = plan(kernel("softmax", N=PROGRAMS, M=32))
    assert choose(launch.parts[0], {}).programs == PROGRAMS


def test_no_rows_no_programs() -> None:
    (launch,) = plan(kernel("column_sum", N=None, M=None))
    assert choose(launch.parts[0], {"N": 5, "M": 0}).programs == 0
