"""Long reductions become kernels that fill the machine.  Each schedule was also run, and gave what eager gives."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.loops import Axis, Kernel, Loop, walk
from keel.plugin import Limits
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.split_reduction import _chunks

LIMITS = Limits(parallel=64, columns=8)


def kernels(schedule: Schedule) -> list[Kernel]:
    return [s.kernel for s in schedule.steps if isinstance(s, KernelLaunch)]


def rows(kernel: Kernel) -> tuple[int, ...]:
    """The sizes of the loops that run side by side."""
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    return tuple(int(a.size) for a in loop.axes) if loop.kind == "parallel" else ()


def folds(kernel: Kernel) -> Iterator[int]:
    for loop in walk(kernel.body):
        if isinstance(loop, Loop) and loop.kind == "reduce":
            yield prod(int(a.size) for a in loop.axes)


def whole(*shape: int) -> Tensor:
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-3, 4, shape).float()


def test_columns_are_worked_on_in_blocks(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x: x.sum(0), whole(5000, 64), limits=LIMITS)
    first, second = kernels(schedule)
    assert rows(first) == (8, 64)  # eight blocks of eight columns, so eight chunks fill the machine
    assert [*folds(second)] == [8]


def test_rows_need_no_blocks(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x: x.sum(1), whole(64, 5000), limits=LIMITS)
    assert [rows(k) for k in kernels(schedule)] == [(64,)]


def test_statistics_of_channels_are_three_kernels(scheduled: Any) -> None:
    def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean((0, 2, 3), keepdim=True)
        return mean, (x - mean).square().sum((0, 2, 3))

    (schedule,) = scheduled(statistics, whole(5, 16, 30, 40).to(memory_format=torch.channels_last), limits=LIMITS)
    first, second, third = kernels(schedule)
    assert len(rows(first)) == len(rows(second)) == 2
    assert [*folds(second)] == [rows(first)[0], 6000 // rows(second)[0]]  # each chunk computes the mean again
    assert [*folds(third)] == [rows(first)[0], rows(second)[0]]


def test_a_reduction_is_not_done_again_where_that_costs_as_much(scheduled: Any) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        shift = y.sum(0)
        return (x - shift).square().sum(0)

    (schedule,) = scheduled(fn, whole(4096, 16), whole(4000, 16), limits=LIMITS)
    assert sum(4000 in folds(k) for k in kernels(schedule)) <= 1


def test_what_needs_a_sum_of_columns_is_a_kernel_of_its_own(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x: x - x.sum(0), whole(6000, 64), limits=LIMITS)
    *_, last = kernels(schedule)
    assert not [*folds(last)] or max(folds(last)) <= 64
    assert 6000 in rows(last) or 6000 * 64 in rows(last)


def test_a_small_tensor_does_not_make_rows_to_columns(scheduled: Any) -> None:
    """The sum reads one number for each row, so no neighbors in memory share its loop, and what needs it may be there.

    That number's cost does not matter either: the loops compute it once.
    """

    def fn(x: Tensor, targets: Tensor, scale: Tensor) -> Tensor:
        hot = torch.where(torch.arange(x.shape[1]) == targets[:, None], 1 / scale.exp(), 0)
        return hot - x * hot.sum(1, keepdim=True)

    given = whole(300, 700), torch.randint(0, 700, (300,)), torch.zeros(1)
    (schedule,) = scheduled(fn, *given, limits=LIMITS)
    (kernel,) = kernels(schedule)
    assert rows(kernel) == (300,) and [*folds(kernel)] == [700]


@pytest.mark.parametrize(
    ("sizes", "target", "whole", "chunk"),
    [
        ((100352,), 256, (), 256),
        ((100351,), 256, (), 256),  # not a multiple: the last chunk is not full
        ((32, 49), 256, (32,), 7),
        ((32, 3136), 16, (), 16),
        ((4, 5, 600), 100, (4, 5), 5),
        ((3,), 64, None, 0),
        ((5000,), 1, None, 0),
    ],
)
def test_chunks(sizes: tuple[int, ...], target: int, whole: tuple[int, ...] | None, chunk: int) -> None:
    chunks = _chunks([Axis(f"a{k}", n) for k, n in enumerate(sizes)], target, int)
    if whole is None:
        assert chunks is None
    else:
        assert chunks is not None
        assert tuple(a.size for a in chunks.leading) == whole
        assert chunks.chunk.size == chunk
        assert chunks.chunk.size * chunks.within.size >= chunks.cut.size


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_drawn_statistics(scheduled: Any, data: Any) -> None:
    """Chains of reductions over drawn dimensions of drawn layouts, on drawn machines."""
    shape = data.draw(st.tuples(*[st.integers(5, 14)] * 4).filter(lambda s: prod(s) >= 4096))
    dims = data.draw(st.sets(st.integers(0, 3), min_size=1).map(sorted))
    limits = Limits(parallel=data.draw(st.sampled_from([16, 300])), columns=data.draw(st.sampled_from([1, 8])))
    x = torch.randn(shape, dtype=torch.float64)
    x = x.to(memory_format=torch.channels_last) if data.draw(st.booleans()) else x

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        mean = x.mean(dims, keepdim=True)
        spread = (x - mean).square().mean(dims, keepdim=True)
        return mean, spread, ((x - mean) * spread).amax(dims), x - spread

    scheduled(fn, x, limits=limits)
