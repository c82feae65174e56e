"""Which small kernels become one. Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import keel_interp
from keel import Limits
from keel.fuel import Fuel
from keel.loops.ir import Loop
from keel.schedule.horizontal_fusion import LOOPS, SMALL, fuse_horizontally
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule

Scheduled = Callable[..., list[Schedule]]
LIMITS = keel_interp.target.limits


def loops(schedule: Schedule) -> list[int]:
    """The number of loops in each kernel, in order; 0 for a library call."""
    kernels = [s.kernel.body if isinstance(s, KernelLaunch) else () for s in schedule.steps]
    return [sum(isinstance(s, Loop) for s in body) for body in kernels]


def weights(*sizes: int) -> list[Tensor]:
    return [torch.randn(n, n) for n in sizes]


def test_casts_of_inputs_run_together_and_first(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(
        lambda x, v, w: (x @ v.double().t()) @ w.double().t(), torch.randn(3, 4).double(), *weights(4, 4)
    )
    assert loops(schedule) == [2, 0, 0]


def test_casts_of_results_run_together_and_last(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: ((x @ w).float(), (w @ x.t()).float()), *[w.double() for w in weights(4, 4)])
    assert loops(schedule) == [0, 0, 2] or loops(schedule) == [1, 0, 0, 2]


def test_what_is_computed_in_between_stays_there(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: ((x @ w).relu() @ w).relu() @ w, *weights(4, 4))
    assert loops(schedule) == [0, 1, 0, 1, 0]


def test_a_result_that_is_read_is_not_delayed(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = (x @ w).relu()
        z = y @ w
        return y, z, z.float()

    (schedule,) = scheduled(fn, *[w.double() for w in weights(4, 4)])
    assert loops(schedule) == [0, 1, 0, 1]


@pytest.mark.parametrize(("count", "groups"), [(LOOPS, [LOOPS]), (LOOPS + 3, [LOOPS, 3])])
def test_a_kernel_has_so_many_loops_at_most(scheduled: Scheduled, count: int, groups: list[int]) -> None:
    (schedule,) = scheduled(lambda *xs: tuple(x + 1 for x in xs), *[torch.randn(n + 2) for n in range(count)])
    assert loops(schedule) == groups


def test_a_kernel_has_so_many_buffers_at_most(scheduled: Scheduled) -> None:
    xs = [torch.randn(n + 2) for n in range(5)]
    (schedule,) = scheduled(lambda *xs: tuple(x + 1 for x in xs), *xs, limits=Limits(max_buffers=4))
    assert loops(schedule) == [2, 2, 1]


def test_a_tensor_that_several_loops_read_is_one_buffer(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x: (x + 1, x[:3] * 2), torch.randn(7))
    (launch,) = schedule.steps
    assert isinstance(launch, KernelLaunch) and len(launch.tensors) == len(set(launch.tensors)) == 3


def test_large_kernels_stay_alone(scheduled: Scheduled) -> None:
    large = torch.zeros(SMALL // 4, dtype=torch.uint8)
    (schedule,) = scheduled(lambda x, y, z: (x.float(), y + 1, z + 1), large, torch.randn(3), torch.randn(4))
    assert sorted(loops(schedule)) == [1, 2]


def test_reductions_and_sizes_known_at_run_time_stay_alone(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, y: (x.sum(0), y.sum(1)), torch.randn(4, 5), torch.randn(3, 2))
    assert loops(schedule) == [1, 1]
    (schedule,) = scheduled(lambda x, y: (x + 1, y + 1), torch.randn(4), torch.randn(5), dynamic=True)
    assert loops(schedule) == [1, 1]


def test_fuel_bounds_how_many_kernels_join(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda *xs: tuple(x.sin() for x in xs), *[torch.randn(n + 2) for n in range(4)])
    (launch,) = schedule.steps
    alone: Any = [KernelLaunch(launch.kernel, launch.tensors), *schedule.steps]
    assert fuse_horizontally(schedule.tensors, alone, LIMITS, int, Fuel(0)) == tuple(alone)
