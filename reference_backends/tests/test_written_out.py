"""Composites whose sizes only the run tells, written out and run by a backend that has loops and primitives alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
import keel_interp
from keel import Backend, Call, loop_backend
from keel.opset import OPSET

PRIMITIVES = {str(overload) for overload, op in OPSET.items() if op.kind == "primitive"}


def _rest(call: Call) -> str | None:
    op = OPSET.get(call.op)
    return None if op is not None and op.kind == "primitive" else f"{call.name} is not a primitive."


EXTERNS = {name: extern for name, extern in keel_interp.target.externs.items() if name in PRIMITIVES}
BACKENDS = [
    loop_backend(replace(keel_interp.target, name="loops", externs=EXTERNS)),
    Backend(name="rest", device="*", supports=_rest, compile=lambda gm: gm.forward, last_resort=True),
]


def holds(fn: Callable[..., Any], *runs: tuple[Tensor, ...], dynamic: bool | None = None) -> None:
    """What is compiled gives eager's results, each of which is computed with; each run is of the same sizes."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = keel.compile(fn, backends=BACKENDS, fullgraph=True, dynamic=dynamic)
        for inputs in runs:
            for got, want in zip(compiled(*inputs), fn(*inputs), strict=True):
                torch.testing.assert_close(got, want)


def few(*shape: int, most: int = 3) -> Tensor:
    return torch.randint(0, most, shape)


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_where_masks_are_true(dynamic: bool) -> None:
    def fn(x: Tensor, m: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        first, second = torch.masked_select(x, m), torch.masked_select(x, n)
        return first, second * 2, first.sum(), second[:, None] * second

    holds(
        fn, *((torch.randn(4, 5), torch.randn(4, 5) > at, torch.randn(5) > -at) for at in (0, 0.9, 9)), dynamic=dynamic
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_distinct_elements(dynamic: bool) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        runs, place = torch.unique_consecutive(x, return_inverse=True)
        return values * counts, values, inverse, runs + 1, place

    holds(fn, (few(4, 5),), (few(4, 5, most=20),), (few(4, 5, most=1),), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_distinct_slices(dim: int, dynamic: bool) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=dim)
        runs, place, lengths = torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)
        return values + 1, inverse, counts * 2, runs + 1, place, lengths

    holds(fn, (few(7, 3, 2, most=2),), (torch.ones(7, 3, 2).long(),), (few(7, 3, 2, most=99),), dynamic=dynamic)


def test_distinct_rows_with_many_columns() -> None:
    x = few(12, 300, most=9)
    x[3:9] = x[0]
    x[4, -1], x[5, 0], x[6, 150] = 11, -1, 77
    holds(lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=0), (x,))


@pytest.mark.parametrize("dynamic", [False, True])
def test_counts_of_numbers(dynamic: bool) -> None:
    def fn(x: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        plain, weighted = torch.bincount(x, minlength=4), torch.bincount(x, weights)
        return plain * 2, weighted + 1, weighted.sum()

    holds(fn, *((few(6, most=most), torch.rand(6)) for most in (1, 3, 30)), dynamic=dynamic)


def test_distinct_numbers_of_a_choice() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        chosen = x[x > 0]
        return *torch.unique(chosen, return_inverse=True, return_counts=True), torch.bincount(chosen)

    holds(fn, (few(9),), (few(9, most=1),), (few(9, most=5),))


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_put_and_taken(dynamic: bool) -> None:
    def fn(x: Tensor, m: Tensor, y: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        chosen = torch.masked_select(y, m)
        put = torch.masked_scatter(x, m, chosen)
        places = torch.nonzero(m.reshape(-1))[:, 0]
        return put, put * 2, torch.take(x, at), torch.take(x, at[0, 0]) + 1, torch.take(y, places) - chosen

    holds(
        fn,
        *(
            (torch.randn(4, 5), torch.randn(4, 5) > cut, torch.randn(4, 5), few(2, 3, most=20) - 10)
            for cut in (0, 9, -9)
        ),
        dynamic=dynamic,
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_copies_onto_layouts_with_gaps(dynamic: bool) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        found = torch.ops.aten.copy.default(x[:, ::2], y)
        return found.sin(), found.sum(0)

    holds(fn, (torch.randn(4, 9), torch.randn(4, 5)), (torch.randn(4, 9), torch.randn(4, 5)), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_gradients_of_windows(step: int, dynamic: bool) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        columns = torch.nn.functional.unfold(x, 2, padding=1, stride=step)
        return columns.square().sum() + y.unfold(1, 2, step).pow(3).sum()

    given = [torch.randn(2, 3, 6, 5, requires_grad=True), torch.randn(3, 8, requires_grad=True)]
    torch._dynamo.reset()
    compiled = keel.compile(fn, backends=BACKENDS, dynamic=dynamic)
    for got, want in zip(*(torch.autograd.grad(f(*given), given) for f in (compiled, fn)), strict=True):
        torch.testing.assert_close(got, want)
