"""Which products are padded, and how.  Every schedule here was also run, and gave what eager gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import keel_interp
from keel.schedule import row_blocks
from keel.schedule.schedule import Schedule
from keel.schedule.tensor_graph import ExternCall, Slot

PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default")
EXTERNS = {name: dataclasses.replace(keel_interp.target.externs[name], aligned_rows=16) for name in PRODUCTS}


def matrix(*sizes: int) -> Tensor:
    """Small whole numbers, whose products bfloat16 holds."""
    return torch.randint(-1, 2, sizes).bfloat16()


def products(schedule: Schedule) -> list[tuple[Any, ...]]:
    """The shapes of the matrices that library calls read, and of what they write."""
    return [
        tuple(schedule.tensors.tensors[t].type.shape for t in (*step.operands, *step.results))
        for step in schedule.steps
        if isinstance(step, ExternCall)
    ]


def strides(schedule: Schedule, call: int, operand: int) -> tuple[Any, ...]:
    calls = [s for s in schedule.steps if isinstance(s, ExternCall)]
    slots = [a for a in calls[call].args if isinstance(a, Slot)]
    return schedule.tensors.tensors[slots[operand].number].type.strides


def kernels(schedule: Schedule) -> int:
    return sum(not isinstance(s, ExternCall) for s in schedule.steps)


def test_kernels_read_a_part_of_a_padded_result(scheduled: Any) -> None:
    """Columns behind the last are columns of zeros, as kernels made them."""
    (schedule,) = scheduled(lambda x, w: (x @ w.sign()).sign(), matrix(70, 64), matrix(64, 1001), externs=EXTERNS)
    assert products(schedule) == [((70, 64), (64, 1008), (70, 1008))]
    assert kernels(schedule) == 2


def test_a_result_is_copied(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: x @ w.sign(), matrix(70, 64), matrix(64, 1001), externs=EXTERNS)
    assert products(schedule) == [((70, 64), (64, 1008), (70, 1008))]
    assert kernels(schedule) == 2


@pytest.mark.parametrize("bias", [False, True], ids=["mm", "addmm"])
def test_a_large_result_is_computed_by_blocks_of_rows(
    scheduled: Any, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last block is shorter. No tensor has the size of the padded result."""
    monkeypatch.setattr(row_blocks, "LARGE", 2 * 70 * 1001)

    def fn(x: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.addmm(b, x, w.sign()) if bias else x @ w.sign()
        return logits, logits.sign()

    (schedule,) = scheduled(fn, matrix(70, 72), matrix(1001), matrix(72, 1001), externs=EXTERNS)
    (call,) = [s for s in schedule.steps if isinstance(s, ExternCall)]
    assert isinstance(call.extern.run, row_blocks.RowBlocks)
    assert all(t.type.shape != (70, 1008) for t in schedule.tensors.tensors)


def test_an_input_is_copied(scheduled: Any) -> None:
    """Also where it is transposed: then its rows are columns of the product."""
    for w in (matrix(64, 1001), matrix(1001, 64).T):
        (schedule,) = scheduled(lambda x, w: (x @ w).sign(), matrix(70, 64), w, externs=EXTERNS)
        assert products(schedule) == [((70, 64), (64, 1008), (70, 1008))]
        assert strides(schedule, 0, 1) == ((1008, 1) if w.is_contiguous() else (1, 64))
        assert kernels(schedule) == 2


def test_a_copy_costs_more_than_a_short_sum(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda x, w: x @ w, matrix(70, 32), matrix(32, 1001), externs=EXTERNS)
    assert products(schedule) == [((70, 32), (32, 1001), (70, 1001))]


def test_a_sum_is_padded_with_zeros_on_both_sides(scheduled: Any) -> None:
    """The kernel that makes a matrix pads it, for all products that read it."""

    def fn(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = g.sign()
        return h.T @ x, h @ w.sign()

    (schedule,) = scheduled(fn, matrix(70, 1001), matrix(70, 8), matrix(1001, 8), externs=EXTERNS)
    assert products(schedule) == [((1001, 70), (70, 8), (1001, 8)), ((70, 1008), (1008, 8), (70, 8))]
    assert strides(schedule, 0, 0) == (1, 1008)
    assert kernels(schedule) == 1  # a loop for each argument


def test_sums_along_rows_that_are_not_neighbors_stay(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda g, x: g.sign().T @ x, matrix(1001, 80), matrix(1001, 80), externs=EXTERNS)
    assert products(schedule) == [((80, 1001), (1001, 80), (80, 80))]


def test_nothing_but_zeros_is_behind_a_row(scheduled: Any) -> None:
    """A product of zeros and infinity is not a number, but only where eager has it as well."""
    x, w = matrix(70, 64), matrix(64, 1001)
    x[3, 5] = float("inf")
    (schedule,) = scheduled(lambda x, w: ((y := x @ (v := w.sign())), y @ v.T), x, w, externs=EXTERNS)
    assert [p[-1] for p in products(schedule)] == [(70, 1008), (70, 64)]


def test_an_operand_of_few_products_stays(scheduled: Any) -> None:
    (schedule,) = scheduled(lambda g, w: g @ w, matrix(70, 1001), matrix(1001, 16), externs=EXTERNS)
    assert products(schedule) == [((70, 1001), (1001, 16), (70, 16))]


def test_the_square_of_a_matrix_stays(scheduled: Any) -> None:
    """Its rows would be padded as results, and its columns as sums, but it is one tensor."""
    (schedule,) = scheduled(lambda x: ((y := x.sign()) @ y).sign(), matrix(1001, 1001), externs=EXTERNS)
    assert products(schedule) == [((1001, 1001), (1001, 1001), (1001, 1001))]


def test_a_bias_is_padded(scheduled: Any) -> None:
    def fn(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, x, w).sign()

    (schedule,) = scheduled(fn, matrix(70, 64), matrix(64, 1001), matrix(1001), externs=EXTERNS)
    assert products(schedule) == [((1008,), (70, 64), (64, 1008), (70, 1008))]
    (schedule,) = scheduled(fn, matrix(70, 64), matrix(64, 1001), matrix(70, 1), externs=EXTERNS)
    assert products(schedule) == [((70, 1), (70, 64), (64, 1008), (70, 1008))]


def test_batches(scheduled: Any) -> None:
    """Attention over an odd number of tokens; the kernel of the weights pads them."""

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.sign().transpose(1, 2)).sign() @ v.sign()

    (schedule,) = scheduled(fn, matrix(4, 150, 8), matrix(4, 155, 8), matrix(4, 155, 16), externs=EXTERNS)
    scores, result = ((4, 150, 8), (4, 8, 160), (4, 150, 160)), ((4, 150, 160), (4, 160, 16), (4, 150, 16))
    assert products(schedule) == [scores, result]
    assert kernels(schedule) == 2  # one for both arguments


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: (x @ w).reshape(-1) + 1,  # read across rows, by kernels alone
        lambda x, w: (x @ w)[3:, 5:].sign(),
        lambda x, w: ((y := x @ w) + 1, y),
        lambda x, w: ((x @ w).sort(1).values, x),  # another library reads it
        lambda x, w: (x @ w).view(7, 10, 1001).transpose(0, 1).sign() @ w.T,
        lambda x, w: x @ w[:, 3:],  # it has gaps already
        lambda x, w: x[:1] @ w,
        lambda x, w: x @ w @ w.T @ w,
    ],
)
def test_programs(scheduled: Any, fn: Any) -> None:
    scheduled(fn, matrix(70, 64), matrix(64, 1001), externs=EXTERNS)


@pytest.mark.slow
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
    assert products(schedule) == [((70, 64), (64, 1001), (70, 1001))]


def test_symbolic_sizes_and_wide_dtypes_stay(scheduled: Any) -> None:
    for convert, dynamic in ((Tensor.float, False), (Tensor.bfloat16, True)):
        x, w = convert(matrix(70, 64)), convert(matrix(64, 1001))
        (schedule,) = scheduled(lambda x, w: (x @ w).sign(), x, w, externs=EXTERNS, dynamic=dynamic)
        assert kernels(schedule) == 1
