"""Which matrices have gaps behind their rows.  Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import keel_interp
from keel.schedule.align_rows import _view
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall
from keel.types import TensorType

PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default")
EXTERNS = {name: dataclasses.replace(keel_interp.target.externs[name], aligned_rows=16) for name in PRODUCTS}


def matrix(*sizes: int) -> Tensor:
    """Small whole numbers, whose products bfloat16 holds."""
    return torch.randint(-1, 2, sizes).bfloat16()


def gaps(schedule: Schedule) -> list[tuple[Any, ...]]:
    """The strides of tensors that have gaps, views of them aside."""
    return [
        t.type.strides
        for t in schedule.tensors.tensors
        if t.alias is None and t.type.rank > 1 and max(t.type.strides) % 8 == 0 and not t.type.is_contiguous
    ]


def calls(schedule: Schedule) -> list[ExternCall]:
    return [s for s in schedule.steps if isinstance(s, ExternCall)]


def test_a_product_that_kernels_read_has_a_gap(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).sign(), matrix(70, 64), matrix(64, 1001), externs=EXTERNS)
    assert gaps(schedule) == [(1008, 1)]
    assert len(schedule.steps) == 2


def test_a_result_is_copied(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: x @ w, matrix(70, 64), matrix(64, 1001), externs=EXTERNS)
    assert gaps(schedule) == [(1008, 1)]
    assert len(schedule.steps) == 2


def test_a_copy_costs_more_than_a_short_sum(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: x @ w, matrix(70, 32), matrix(32, 1001), externs=EXTERNS)
    assert gaps(schedule) == []


def test_what_kernels_make_for_products_has_a_gap(scheduled: Any) -> None:
    """Transposed as well, as in the gradient of a weight."""

    def fn(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = g.sign()
        return h.T @ x, h @ w

    (schedule,) = scheduled(fn, matrix(70, 1001), matrix(70, 8), matrix(1001, 8), externs=EXTERNS)
    assert gaps(schedule) == [(1008, 1)]
    first, _ = calls(schedule)
    operand = schedule.tensors.tensors[first.args[0].number].type
    assert (operand.shape, operand.strides) == ((1001, 70), (1, 1008))


def test_an_operand_that_lies_otherwise_is_copied_once(scheduled: Any) -> None:
    def fn(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        g = g.view(70, 1001)
        return g.T @ x, g @ w

    (schedule,) = scheduled(fn, matrix(7, 10, 1001), matrix(70, 64), matrix(1001, 64), externs=EXTERNS)
    assert gaps(schedule) == [(10080, 1008, 1)]
    assert len(schedule.steps) == 3
    types = [schedule.tensors.tensors[c.args[0].number].type.strides for c in calls(schedule)]
    assert types == [(1, 1008), (1008, 1)]


def test_an_operand_of_few_products_stays(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda g, w: g @ w, matrix(70, 1001), matrix(1001, 16), externs=EXTERNS)
    assert gaps(schedule) == []


def test_a_product_reads_what_another_wrote(scheduled: Any) -> None:
    """The result is written with gaps, and then copied to its place among the results."""
    (schedule,) = scheduled(lambda x, w: ((y := x @ w), y @ w.T), matrix(70, 64), matrix(64, 1001), externs=EXTERNS)
    assert gaps(schedule) == [(1008, 1)]
    first, second = calls(schedule)
    assert second.args[0].number == first.results[0]


def test_batches(scheduled: Any) -> None:
    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(1, 2)).sign() @ v

    (schedule,) = scheduled(fn, matrix(4, 150, 8), matrix(4, 155, 8), matrix(4, 155, 16), externs=EXTERNS)
    assert gaps(schedule) == [(24000, 160, 1), (24000, 160, 1)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (x @ w).reshape(-1) + 1,  # read across rows, by kernels alone
        lambda x, w: (x @ w)[3:, 5:].sign(),
        lambda x, w: ((y := x @ w) + 1, y),
        lambda x, w: ((x @ w).sort(1).values, x),  # another library reads it
        lambda x, w: (x @ w).view(7, 10, 1001).transpose(0, 1).sign() @ w.T,
    ],
)
def test_programs(scheduled: Any, fn: Any) -> None:
    scheduled(fn, matrix(70, 64), matrix(64, 1001), externs=EXTERNS)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_drawn_programs(scheduled: Any, data: Any) -> None:
    """Chains of products, views and maps of matrices with odd rows, some of them results."""
    sizes = [data.draw(st.sampled_from([64, 257, 263, 300])) for _ in range(4)]
    steps = data.draw(st.lists(st.sampled_from(["mm", "t", "sign", "result", "slice", "rows"]), min_size=2, max_size=7))
    weights = [matrix(n, m) for n in sorted(set(sizes)) for m in sizes[:1]]

    def fn(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        results: list[Tensor] = []
        for step in steps:
            match step:
                case "mm":
                    w = next((w for w in weights if w.shape[0] == x.shape[1]), None)
                    x = x.sign() @ x.sign().T if w is None else x.sign() @ w
                case "t":
                    x = x.T
                case "sign":
                    x = x.sign()
                case "result":
                    results.append(x)
                case "slice":
                    x = x[1:, :-1]
                case "rows":
                    x = x.unsqueeze(0).expand(2, -1, -1).reshape(-1, x.shape[1])
        return (*results, x)

    scheduled(fn, matrix(sizes[0], sizes[1]), *weights, externs=EXTERNS)


def test_nothing_changes_without_the_wish(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: (x @ w).sign(), matrix(70, 64), matrix(64, 1001))
    assert gaps(schedule) == []


def test_symbolic_sizes_and_wide_dtypes_stay(scheduled: Any) -> None:
    for convert, dynamic in ((Tensor.float, False), (Tensor.bfloat16, True)):
        x, w = convert(matrix(70, 64)), convert(matrix(64, 1001))
        (schedule,) = scheduled(lambda x, w: (x @ w).sign(), x, w, externs=EXTERNS, dynamic=dynamic)
        assert gaps(schedule) == []


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "wanted"),
    [
        ((10, 7), (1, 10), 0, ((1, 16), 0)),
        ((7, 4), (10, 2), 23, ((16, 2), 35)),
        ((7, 4), (10, 2), 5, None),  # the last element of a row is the first of the next
        ((70,), (1,), 0, None),
        ((3, 7, 10), (70, 10, 1), 0, ((112, 16, 1), 0)),
        ((5, 10), (0, 1), 0, ((0, 1), 0)),
    ],
)
def test_views_of_rows(shape: Any, strides: Any, offset: int, wanted: Any) -> None:
    type = TensorType(torch.bfloat16, shape, strides, torch.device("cpu"))
    assert _view(type, offset, 10, 16) == wanted
