"""Which kernels write over what they read. Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import keel_interp
from keel import Extern
from keel.fuel import Fuel
from keel.loops.ir import Kernel
from keel.loops.parser import parse
from keel.schedule.in_place import can_overwrite, write_in_place
from keel.schedule.kernel_launch import KernelLaunch
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall

Scheduled = Callable[..., list[Schedule]]


def roles(schedule: Schedule) -> list[list[str]]:
    """The roles of each kernel's buffers, in order."""
    return [[b.role for b in s.kernel.buffers] for s in schedule.steps if isinstance(s, KernelLaunch)]


def square(n: int = 4) -> Tensor:
    return torch.randn(n, n)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_what_is_read_for_the_last_time_is_overwritten(scheduled: Scheduled, dynamic: bool) -> None:
    (schedule,) = scheduled(lambda x, w: ((x @ w).relu() @ w).relu() @ w, square(), square(), dynamic=dynamic)
    assert roles(schedule) == [["inout"], ["inout"]]


def test_inputs_are_not_overwritten(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: x.relu() @ w, square(), square())
    assert roles(schedule) == [["in", "out"]]


def test_what_is_read_later_is_not_overwritten(scheduled: Scheduled) -> None:
    def read_later(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        return y.relu() @ w @ y

    def viewed_later(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        return (y.relu() @ w)[:2] @ y.T

    def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ w
        return y, y.relu() @ w

    for fn in (read_later, viewed_later, returned):
        (schedule,) = scheduled(fn, square(), square())
        assert roles(schedule) == [["in", "out"]]


def test_a_result_may_lie_where_something_else_was(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).relu(), square(), square())
    assert roles(schedule) == [["inout"]]


def test_a_library_may_read_a_view_of_what_was_overwritten(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).relu().view(2, 8).t() @ w[:2], square(), square())
    assert roles(schedule) == [["inout"]]


def test_elements_that_move_are_not_overwritten(scheduled: Scheduled) -> None:
    for fn in (
        lambda x, w: (x @ w).T.contiguous() @ w,
        lambda x, w: (x @ w).flip(0) @ w,
        lambda x, w: (x @ w).roll(1, 0) @ w,
        lambda x, w: torch.softmax(x @ w, 1) @ w,
    ):
        (schedule,) = scheduled(fn, square(), square())
        assert ["inout"] not in roles(schedule)


def test_one_of_two_operands_is_overwritten(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: ((x @ w) * (w @ x)) @ w, square(), square())
    assert roles(schedule) == [["inout", "in"]] or roles(schedule) == [["in", "inout"]]


def test_results_of_other_sizes_or_dtypes_have_their_own_memory(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).double() @ w.double(), square(), square())
    assert all("inout" not in of for of in roles(schedule))


def test_a_shape_that_only_kernels_are_given_does_not_matter(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).reshape(2, 8).relu().view(4, 4) @ w, square(), square())
    assert roles(schedule) == [["inout"]]


def test_a_copy_for_a_scatter_is_left_out(scheduled: Scheduled) -> None:
    def fn(x: Tensor, w: Tensor, at: Tensor) -> Tensor:
        return (x @ w).index_copy(0, at, w[:2]) @ w

    (schedule,) = scheduled(fn, square(), square(), torch.tensor([3, 0]))
    (launch,) = [s for s in schedule.steps if isinstance(s, KernelLaunch)]
    assert "inout" in [b.role for b in launch.kernel.buffers]


def test_a_library_that_returns_its_argument(scheduled: Scheduled) -> None:
    """It promises fresh memory. Kernels overwrite a copy if it breaks that promise."""
    product = keel_interp.target.externs["aten.mm.default"]
    same = dataclasses.replace(product, run=lambda x, w: x, out=None)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return x + (x @ w).neg() @ w

    (schedule,) = scheduled(fn, square(), torch.eye(4), externs={"aten.mm.default": same})
    assert ["inout"] in roles(schedule)


def test_what_a_library_views_is_read_with_its_views(scheduled: Scheduled) -> None:
    """One kernel reads a product and a library's view of it, in which other elements have the same place."""
    view = Extern(run=lambda x: x.flip(0) if x.shape[0] == 0 else x.T, view=True)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        return (y + torch.ops.aten.t(y)).relu() @ w

    (schedule,) = scheduled(fn, square(), square(), externs={"aten.t.default": view, "aten.permute.default": view})
    assert any(isinstance(s, ExternCall) and s.extern.view for s in schedule.steps)
    assert all("inout" not in of for of in roles(schedule))


def test_fuel_bounds_how_many_are_overwritten(scheduled: Scheduled) -> None:
    (schedule,) = scheduled(lambda x, w: x.relu() @ w, square(), square())
    unchanged = schedule.tensors, schedule.steps, frozenset(), frozenset()
    assert write_in_place(schedule.tensors, schedule.steps, Fuel(0), donated={0}) == unchanged
    _, _, overwritten, donated = write_in_place(schedule.tensors, schedule.steps, Fuel(), donated={0})
    assert (overwritten, donated) == (frozenset(), {schedule.tensors.inputs[0]})


def kernel(body: str) -> Kernel:
    return parse(f"kernel k(a: f32[8], b: f32[8]) -> (c: f32[8]):\n{body}")


@pytest.mark.parametrize(
    ("body", "can"),
    [
        ("  parallel i < 8:\n    %0 = load a[i]\n    store c[i] %0\n", True),
        ("  parallel i < 8:\n    %0 = load a[i]\n    %1 = load a[i]\n    %2 = add %0 %1\n    store c[i] %2\n", True),
        ("  parallel i < 4:\n    %0 = load a[2*i]\n    store c[2*i] %0\n", True),
        ("  parallel i < 7:\n    %0 = load a[i + 1]\n    store c[i] %0\n", False),
        ("  parallel i < 8:\n    %0 = load b[i]\n    store c[i] %0\n    %1 = load a[i]\n    store b[i] %1\n", False),
        (
            "  parallel i < 8:\n    %0 = load a[i]\n    store c[i] %0\n"
            "  parallel j < 8:\n    %1 = load a[j]\n    store c[j] %1\n",
            False,
        ),
        (
            "  parallel i < 8:\n    %0 = load b[i]\n    store c[i] %0\n"
            "  parallel j < 8:\n    %1 = load a[j]\n    store b[j] %1\n",
            False,
        ),
    ],
    ids=["same", "twice", "gaps", "next", "after", "two-stores", "another-loop"],
)
def test_each_iteration_reads_what_it_writes(body: str, can: bool) -> None:
    assert can_overwrite(kernel(body), "a", "c") is can


OPERATIONS = ("relu", "flip", "T", "view", "product", "keep", "add", "part", "index_add", "softmax")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    program=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3)), min_size=2, max_size=9),
    dynamic=st.booleans(),
)
def test_drawn_programs(scheduled: Scheduled, program: list[tuple[str, int]], dynamic: bool) -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        values: list[Tensor] = [x @ w]
        results: list[Tensor] = []
        for name, which in program:
            y = values[-1 - which % len(values)]
            step: dict[str, Callable[[], Any]] = {
                "relu": y.relu,
                "flip": lambda y=y: y.flip(0),
                "T": lambda y=y: y.T,
                "view": lambda y=y: y.reshape(2, 8).sin().view(4, 4),
                "product": lambda y=y: y @ w,
                "keep": lambda y=y: y,
                "add": lambda y=y: y + values[0],
                "part": lambda y=y: torch.cat([y[2:] * 2, y[:2]]),
                "index_add": lambda y=y: y.index_add(0, torch.tensor([2, 2]), x[:2]),
                "softmax": lambda y=y: y.softmax(1),
            }
            values.append(step[name]())
            if name == "keep":
                results.append(y + 1)
        return (*results, values[-1] * 1.0)

    torch.manual_seed(0)
    scheduled(fn, square() / 2, square() / 2, dynamic=dynamic, tolerance=1e-5)
