"""Conditions on sizes say the same as the function that chooses blocks."""

from __future__ import annotations

import random

import pytest

from keel_triton.block_conditions import any_of, blocks_of, conditions, largest, less, not_, plus, programs, times
from keel_triton.block_sizes import Blocks, choose
from keel_triton.launch_data import value
from keel_triton.launch_plan import plan

from ..kernels import sizes_of
from .kernels import TEXTS, kernel

SIZES = (0, 1, 2, 3, 5, 16, 17, 31, 32, 33, 64, 65, 100, 127, 128, 129, 263, 264, 265, 511, 512, 768, 1000, 4096, 8000)
LARGE = (33_791, 33_792, 67_584, 50_304, 100_000, 270_336, 1_000_003)


def shape(b: Blocks) -> tuple[int, int, int]:
    return b.x, b.r, b.warps


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_conditions_hold_where_blocks_are_chosen(name: str) -> None:
    k = kernel(name, **dict.fromkeys(sizes_of(TEXTS[name])))
    draw = random.Random(name)
    for part in (p for launch in plan(k) for p in launch.parts):
        points = [{s: draw.choice((*SIZES, *LARGE)) for s in k.symbols} for _ in range(40)]
        chosen = [choose(part, point) for point in points]
        for point, b in zip(points, chosen, strict=True):
            assert value(programs(part, b), point) == b.programs
            for other in {shape(b): b for b in chosen}.values():
                holds = all(value(c, point) for c in conditions(part, other))
                assert holds == (shape(other) == shape(b)), (point, other)


def test_conditions_of_one_kernel() -> None:
    (launch,) = plan(kernel("softmax", N=None, M=None))
    (part,) = launch.parts
    assert conditions(part, choose(part, {"N": 4096, "M": 768})) == (
        ["StrictLessThan", 512, "M"],
        ["StrictLessThan", "M", 1025],
    )
    assert conditions(part, choose(part, {"N": 4096, "M": 96})) == (
        ["StrictLessThan", 64, "M"],
        ["StrictLessThan", "M", 129],
        ["StrictLessThan", 4, "N"],
        ["LessThan", 264, ["FloorDiv", ["Add", "N", 7], 8]],
    )
    assert programs(part, choose(part, {"N": 4096, "M": 96})) == ["FloorDiv", ["Add", "N", 7], 8]


def test_known_sizes_leave_no_condition() -> None:
    for name in ("softmax", "side_by_side", "column_sum", "total"):
        for part in (p for launch in plan(kernel(name, N=300, M=768, K=9)) for p in launch.parts):
            b = choose(part, {})
            assert conditions(part, b) == () and programs(part, b) == b.programs


def test_blocks_that_are_never_chosen() -> None:
    (launch,) = plan(kernel("softmax", N=300, M=768))
    assert conditions(launch.parts[0], Blocks(64, 0, 4, 1)) == (False,)


def test_expressions() -> None:
    assert (times(3, 4), times(1, "N"), times("N", 1), times(2, "N")) == (12, "N", "N", ["Mul", 2, "N"])
    assert (plus(3, 4), plus("N"), plus("N", 1)) == (7, "N", ["Add", "N", 1])
    assert (blocks_of(9, 4), blocks_of("N", 1), blocks_of("N", 4)) == (3, "N", ["FloorDiv", ["Add", "N", 3], 4])
    assert (less(1, 2), not_(less(1, 2)), not_(less("N", 2))) == (True, False, ["LessThan", 2, "N"])
    assert (any_of([False, True, less("N", 2)]), any_of([False]), any_of([less("N", 2), False])) == (
        True,
        False,
        ["StrictLessThan", "N", 2],
    )
    assert any_of([less("N", 2), less("N", 3), less("N", 2)]) == ["Or", less("N", 2), less("N", 3)]
    assert (largest([3, 9]), largest(["N", "M", "N"]), largest(["N"]), largest([])) == (9, ["Max", "N", "M"], "N", 0)
