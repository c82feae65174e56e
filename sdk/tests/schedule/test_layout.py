"""Which values lie channels-last.  Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import keel
from keel.fuel import Fuel
from keel.schedule.layout import Choices, channels_last, choose_layouts
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall

CONV = "aten.convolution.default"


def dw(channels: int) -> Tensor:
    """Weights of a convolution of each channel by itself, which lie the same either way."""
    return torch.randn(channels, 1, 3, 3)


def moved(schedule: Schedule) -> list[str]:
    """The values that lie channels-last and not row-major."""
    return [
        t.name
        for t in schedule.tensors.tensors
        if t.type.rank in (4, 5) and t.type == channels_last(t.type) and not t.type.is_contiguous
    ]


def conversions(schedule: Schedule) -> list[str]:
    return [n.name for n in schedule.tensors.nodes if n.name.endswith("laid_out")]


def chain(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    y = F.relu(F.conv2d(x, v, groups=v.shape[0]))
    return F.relu(F.conv2d(y, w, groups=w.shape[0])).mean((2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_a_chain_of_convolutions_is_converted_once(scheduled: Any, dynamic: bool) -> None:
    (schedule,) = scheduled(chain, torch.randn(2, 16, 12, 12), dw(16), dw(16), dynamic=dynamic)
    assert len(conversions(schedule)) == 1
    assert [n for n in moved(schedule) if n.startswith("conv")]
    (first, second) = [s for s in schedule.steps if isinstance(s, ExternCall)]
    for call in (first, second):
        types = [schedule.tensors.tensors[t].type for t in (call.args[0].number, call.results[0])]
        assert types == [channels_last(t) for t in types]


def test_images_of_rank_5(scheduled: Any) -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        return F.conv3d(F.relu(F.conv3d(x, w, groups=8)), w, groups=8).sum((2, 3, 4))

    (schedule,) = scheduled(chain, torch.randn(1, 8, 17, 17, 17), torch.randn(8, 1, 2, 2, 2))
    assert len(conversions(schedule)) == 1
    assert len(moved(schedule)) >= 3


def test_what_leaves_a_graph_lies_as_in_eager(scheduled: Any) -> None:
    def both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = F.relu(F.conv2d(x, w, groups=16))
        return y, F.conv2d(y, w, groups=16).sum((2, 3))

    args = torch.randn(2, 16, 12, 12), dw(16)
    (schedule,) = scheduled(both, *args)
    out = schedule.tensors.outputs[0]
    assert schedule.tensors.tensors[out].type.is_contiguous


def test_what_comes_channels_last_stays_so_without_a_conversion(scheduled: Any) -> None:
    x = torch.randn(2, 16, 12, 12).to(memory_format=torch.channels_last)
    (schedule,) = scheduled(chain, x, dw(16), dw(16))
    assert not conversions(schedule)
    assert "arg0" not in moved(schedule)[1:]


def test_weights_that_would_be_converted_each_time_count(scheduled: Any) -> None:
    """The weights of the convolution are many times its image."""
    (schedule,) = scheduled(
        lambda x, w: F.relu(F.conv2d(x, w)).sum((2, 3)), torch.randn(1, 32, 4, 4), torch.randn(64, 32, 3, 3)
    )
    assert not moved(schedule)


def test_a_library_call_without_a_preference_gets_what_it_expects(scheduled: Any) -> None:
    """The gradient of max pooling is a library's, and its kernel reads what the graph promises."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(F.conv2d(x, w, groups=16)), 2)

    for schedule in scheduled(fn, torch.randn(2, 16, 14, 14, requires_grad=True), dw(16)):
        graph = schedule.tensors
        for call in (n for n in graph.nodes if isinstance(n, ExternCall) and n.extern.layout is None):
            assert all(graph.tensors[t].type.is_contiguous for t in call.operands)


def test_a_view_of_memory_keeps_what_it_is_a_view_of(scheduled: Any) -> None:
    """The matrix product takes the image as a matrix, where it lies."""

    def fn(x: Tensor, w: Tensor, m: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, w, groups=16)).flatten(1) @ m

    (schedule,) = scheduled(fn, torch.randn(2, 16, 6, 6), dw(16), torch.randn(16 * 16, 8))
    assert not any(n.startswith("relu") for n in moved(schedule))


def test_results_share_no_memory() -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = F.relu(F.conv2d(x, w, groups=16))
        z = F.conv2d(y, w, groups=16)
        return y, y.clone(), z, x.clone(), x.clone(memory_format=torch.channels_last)

    args = torch.randn(2, 16, 12, 12), dw(16)
    results = keel.compile(fn, backends=["interp"], strict=True)(*args)
    torch.testing.assert_close(results, fn(*args))
    assert len({t.untyped_storage().data_ptr() for t in (*results, *args)}) == 7


def test_a_copy_of_what_a_library_views_is_made() -> None:
    def fn(x: Tensor, w: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        views = torch.ops.aten.view_as_real_copy(z), torch.ops.aten.view_as_complex_copy(torch.ops.aten.view_as_real(z))
        return F.conv2d(x, w, groups=16), *views

    args = torch.randn(2, 16, 12, 12), dw(16), torch.randn(5, dtype=torch.complex64)
    results = keel.compile(fn, backends=["cpp"], strict=True)(*args)
    torch.testing.assert_close(results, fn(*args))
    assert len({t.untyped_storage().data_ptr() for t in (*results, *args)}) == 6


@pytest.mark.parametrize("channels", [8, 5], ids=["entire", "a part"])
def test_a_write_through_a_view(scheduled: Any, channels: int) -> None:
    """Backward copies the gradient into fresh memory: the copy reads its source, not what it overwrites."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = torch.cat([x, F.conv2d(x, w, padding=1, groups=4)], 1)[:, :channels]
        y += 1
        return y

    scheduled(fn, torch.randn(2, 4, 6, 6, requires_grad=True), dw(4).requires_grad_())


def test_fuel_bounds_how_many_preferences_are_heard(
    scheduled: Any,
) -> None:
    (schedule,) = scheduled(chain, torch.randn(2, 16, 12, 12), dw(16), dw(16))
    assert choose_layouts(schedule.tensors, int, Fuel(0)) is schedule.tensors


# -- drawn programs -------------------------------------------------------------------------------------


def _conv(x: Tensor, n: int) -> Tensor:
    c = x.shape[1]
    return F.conv2d(x, torch.linspace(-1, 1, c * 9).reshape(c, 1, 3, 3), padding=1, groups=c)


def _mix(x: Tensor, n: int) -> Tensor:
    return F.conv2d(x, torch.linspace(-1, 1, x.shape[1] * 8).reshape(8, x.shape[1], 1, 1))


def _write(x: Tensor, n: int) -> Tensor:
    y = x * 2
    view = y[:, n:]
    view += x[:, n:]
    return view if n == 0 else y


OPS = {
    "conv": _conv,
    "mix": _mix,
    "relu": lambda x, n: F.relu(x),
    "twice": lambda x, n: x + x,
    "cat": lambda x, n: torch.cat([x, x * 2], 1)[:, : 8 + n],
    "rows": lambda x, n: torch.cat([x, x], 2),
    "turn": lambda x, n: x.transpose(2, 3),
    "scale": lambda x, n: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "softmax": lambda x, n: F.softmax(x, -1),
    "shuffle": lambda x, n: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2) if x.shape[1] % 2 == 0 else x,
    "pool": lambda x, n: F.avg_pool2d(x, 3, 1, 1),
    "pad": lambda x, n: F.pad(x, (1, 0, 0, 1)),
    "sort": lambda x, n: x.sort(-1).values,
    "write": _write,
    "grow": lambda x, n: F.interpolate(x, scale_factor=2.0) if x.shape[2] < 20 else x,
}
programs = st.lists(st.tuples(st.sampled_from([*OPS, "conv", "conv"]), st.integers(0, 3)), min_size=2, max_size=7)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(programs, st.booleans(), st.booleans(), st.sampled_from([(1, 8, 6, 5), (2, 6, 5, 7)]))
def test_drawn_programs(
    scheduled: Any, program: list[tuple[str, int]], entire: bool, gradient: bool, shape: tuple[int, ...]
) -> None:
    def fn(x: Tensor) -> Tensor:
        for name, n in program:
            x = OPS[name](x, n)
        return x if entire else x.sum((2, 3))

    x = torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape)
    scheduled(fn, x.requires_grad_(gradient), tolerance=1e-4)


# -- the choice -----------------------------------------------------------------------------------------

COSTS = st.integers(0, 9).map(float)
TABLES = st.fixed_dictionaries(dict.fromkeys(product((False, True), repeat=2), COSTS))


def assignments(count: int, fixed: dict[int, bool]) -> Iterator[tuple[bool, ...]]:
    return (a for a in product((False, True), repeat=count) if all(a[k] == v for k, v in fixed.items()))


@given(
    st.lists(st.integers(-9, 9), min_size=5, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), COSTS), max_size=8),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), TABLES), max_size=6),
    st.dictionaries(st.integers(0, 4), st.booleans(), max_size=2),
)
def test_the_choice_costs_least(
    own: list[int],
    pairs: list[tuple[int, int, float]],
    tables: list[tuple[int, int, dict[tuple[bool, bool], float]]],
    fixed: dict[int, bool],
) -> None:
    def like(cost: dict[tuple[bool, bool], float]) -> bool:
        return cost[False, False] + cost[True, True] <= cost[False, True] + cost[True, False]

    choices = Choices(5, fixed)
    tables = [(a, b, t) for a, b, t in tables if a != b and like(t)]
    for k, cost in enumerate(own):
        choices.add(k, cost)
    for one, other, cost in pairs:
        choices.add_pair(one, other, cost)
    for one, other, table in tables:
        choices.add_table(one, other, table)

    def cost_of(a: tuple[bool, ...]) -> float:
        return (
            sum(cost for k, cost in enumerate(own) if a[k])
            + sum(cost for one, other, cost in pairs if a[one] and not a[other])
            + sum(table[a[one], a[other]] for one, other, table in tables)
        )

    chosen = choices.cheapest()
    found = tuple(chosen(k) for k in range(5))
    best = min(map(cost_of, assignments(5, fixed)))
    assert cost_of(found) == best
    assert sum(found) == min(sum(a) for a in assignments(5, fixed) if cost_of(a) == best)
