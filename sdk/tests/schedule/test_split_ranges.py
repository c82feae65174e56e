"""Loops in pieces in which comparisons of positions are decided.  Every schedule here gave what eager gives."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.loops.index import Axis, index
from keel.loops.ir import Apply, Kernel, Load, Loop, Stmt, walk
from keel.plugin import Limits
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.split_ranges import ENDS, changes, compared

PIECES = Limits(pieces=16)


def kernels(schedule: Schedule) -> list[Kernel]:
    return [s.kernel for s in schedule.steps if isinstance(s, KernelLaunch)]


def innermost(kernel: Kernel) -> list[Loop]:
    return [s for s in walk(kernel.body) if isinstance(s, Loop) and not any(isinstance(b, Loop) for b in s.body)]


def compares(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Apply) and s.op in ENDS for s in walk(body))


def concatenated(*xs: Tensor) -> Tensor:
    return torch.relu(torch.cat(xs, -1) * 2 + 1)


def test_a_concatenation_is_a_loop_for_each_operand(scheduled: Any, text: Any, golden: Any) -> None:
    schedules = scheduled(concatenated, torch.randn(3, 8), torch.randn(3, 4), torch.randn(3, 6), limits=PIECES)
    (kernel,) = kernels(schedules[0])
    for loop in innermost(kernel):
        assert sum(isinstance(s, Load) for s in loop.body) == 1
        assert not compares(loop.body)
    golden(text(schedules))


def test_pieces_are_no_shorter_than_vectors(scheduled: Any) -> None:
    xs = torch.randn(3, 8), torch.randn(3, 4), torch.randn(3, 6)
    (schedule,) = scheduled(concatenated, *xs, limits=Limits(pieces=16, vector=8))
    assert len(innermost(*kernels(schedule))) == 1


@pytest.mark.parametrize("pieces", [1, 2])
def test_no_more_pieces_than_the_target_takes(scheduled: Any, pieces: int) -> None:
    xs = torch.randn(3, 8), torch.randn(3, 4), torch.randn(3, 6)
    (schedule,) = scheduled(concatenated, *xs, limits=Limits(pieces=pieces))
    assert len(innermost(*kernels(schedule))) == 1


def test_symbolic_sizes_stay_in_one_loop(scheduled: Any) -> None:
    xs = torch.randn(3, 8), torch.randn(3, 4), torch.randn(3, 6)
    (schedule,) = scheduled(concatenated, *xs, limits=PIECES, dynamic=True)
    assert all(compares(k.body) for k in kernels(schedule))


OPS = {
    "cat": lambda x, n: torch.cat([x, x + n, x[..., : n + 1]], -1),
    "rows": lambda x, n: torch.cat([x[: n + 1], x * 2, x], 0),
    "pad": lambda x, n: F.pad(x, (n, 1, 0, 2), value=float(n)),
    "roll": lambda x, n: x.roll(n, -1),
    "stack": lambda x, n: torch.stack([x, x.neg(), x.abs()], 1).flatten(1),
    "below": lambda x, n: torch.where(torch.arange(x.shape[-1]) < n + 2, x, x * 3),
    "tril": lambda x, n: x.tril(n - 1),
    "sum": lambda x, n: x + x.sum(-1, keepdim=True),
    "flip": lambda x, n: torch.cat([x.flip(-1), x], -1),
    "set": lambda x, n: x.index_fill(0, torch.tensor(0), float(n)),
}


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([*OPS]), st.integers(0, 3)), min_size=1, max_size=3))
def test_drawn_programs(scheduled: Any, program: list[tuple[str, int]]) -> None:
    def fn(x: Tensor) -> Tensor:
        for name, n in program:
            x = OPS[name](x, n)
        return x

    scheduled(fn, torch.linspace(-2, 2, 20).reshape(4, 5), limits=PIECES)


@given(st.integers(-3, 3), st.integers(-9, 9), st.integers(-2, 2), st.integers(-12, 12))
def test_a_comparison_changes_within_these_places(step: int, const: int, other: int, end: int) -> None:
    """For each point of the other axis it changes at one place at most; the first and the last of these are given."""
    a, b = Axis("a", 9), Axis("b", 4)
    places = set(changes(index(a) * step + index(b) * other + const, a, end))
    outcomes = [[step * i + other * j + const >= end for i in range(9)] for j in range(4)]
    seams = {i for row in outcomes for i in range(1, 9) if row[i] != row[i - 1]}
    assert not seams or min(places) <= min(seams) <= max(seams) <= max(places)
    assert {p for p in places if 0 < p < 9} <= seams


RANGES = st.tuples(st.integers(-4, 4), st.integers(0, 3)).map(lambda r: (r[0], r[0] + r[1]))
OUTCOME = {
    "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__, "ne": int.__ne__
}  # fmt: skip


@given(st.sampled_from([*ENDS]), RANGES, RANGES)
def test_an_outcome_is_known_if_it_is_always_the_same(op: str, one: tuple[int, int], other: tuple[int, int]) -> None:
    pairs = product(range(one[0], one[1] + 1), range(other[0], other[1] + 1))
    outcomes = {OUTCOME[op](a, b) for a, b in pairs}
    assert compared(op, one, other) == (outcomes.pop() if len(outcomes) == 1 else None)
