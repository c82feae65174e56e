"""Inputs that a program mutates are written by kernels where nothing else needs their old contents. Every program here
is compared with eager PyTorch: what it returns, what its arguments hold then, and after they have changed again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
import keel_interp
from keel import Backend
from keel.loop_level import compile_part, refuse, schedule_part
from keel.plugin import CompileContext

aten = torch.ops.aten
Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def overwritten(fn: Program, *args: Tensor, backends: tuple[Backend, ...] = (), **options: Any) -> int:
    """How many inputs the kernels of a program overwrite. It is compared with eager PyTorch."""
    counts: list[int] = []

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        counts.append(len(schedule_part(keel_interp.target, gm, ctx).overwritten))
        return compile_part(keel_interp.target, gm, ctx)

    def supports(call: keel.Call) -> Any:
        return refuse(keel_interp.target, call)

    interp = Backend(name="counted", device="cpu", supports=supports, compile=compile)
    compiled = keel.compile(fn, backends=[*backends, interp], placement="order", **options)
    for _ in range(2):
        own, expected = [a.clone() for a in args], [a.clone() for a in args]
        results, right = compiled(*own), fn(*expected)
        torch.testing.assert_close(own, expected)
        for each in (own, expected):
            each[0].add_(1)  # what was returned must not change with it
        torch.testing.assert_close(results, right)
    return sum(counts)


def adam(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> Tensor:
    first.lerp_(gradient, 0.1)
    second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
    weight.addcdiv_(first, second.abs().sqrt() + 1e-3, value=-0.1)
    return weight


X, Y = torch.arange(12.0).reshape(3, 4), torch.randn(3, 4)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_a_step_of_an_optimizer_writes_in_place(dynamic: bool) -> None:
    assert overwritten(adam, X, Y, Y * 2, Y * 3, dynamic=dynamic) == 3


def mutated(x: Tensor, y: Tensor) -> None:
    x.mul_(2).add_(y)


def returns_the_value(x: Tensor, y: Tensor) -> Tensor:
    z = x + y
    x.copy_(z)
    return z


def returns_a_view_of_the_value(x: Tensor, y: Tensor) -> Tensor:
    z = x + y
    x.copy_(z)
    return z.t()


def transposed(x: Tensor, y: Tensor) -> None:
    x.t().mul_(y.t() + 1)


@pytest.mark.parametrize("program", [mutated, returns_the_value, returns_a_view_of_the_value, transposed])
def test_the_last_reader_overwrites(program: Program) -> None:
    """A value that is returned, too, has memory of its own."""
    assert overwritten(program, X, Y) == 1


def normalized(x: Tensor, y: Tensor) -> None:
    x.sub_(x.mean(0)).div_(y.exp().sum())


def reads_elsewhere(x: Tensor, y: Tensor) -> None:
    x.copy_(x.roll(1) + y)


def reads_across(x: Tensor, y: Tensor) -> None:
    x.copy_(x.flip(0) + y)


def reads_the_old_later(x: Tensor, y: Tensor) -> Tensor:
    old = x.clone()
    x.add_(y)
    return old @ x.t()


def swaps(x: Tensor, y: Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def converts(x: Tensor, y: Tensor) -> None:
    x.copy_((x * y).double())


def writes_a_row(x: Tensor, y: Tensor) -> None:
    x.copy_(y[0] * 2)


@pytest.mark.parametrize(
    "program",
    [
        normalized,
        reads_elsewhere,
        reads_across,
        reads_the_old_later,
        swaps,
        writes_a_row,
    ],
)
def test_where_the_old_contents_are_needed_nothing_is_overwritten(program: Program) -> None:
    assert overwritten(program, X, Y) == 0


def test_a_value_of_another_dtype_is_converted_first() -> None:
    assert overwritten(converts, X, Y) <= 1


def test_inputs_that_overlap() -> None:
    def doubled(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    compiled = keel.compile(doubled, backends=[keel_interp.backend])
    own, expected = torch.arange(12.0), torch.arange(12.0)
    results = [fn(base[:6], base[3:9]) for fn, base in ((compiled, own), (doubled, expected))]
    torch.testing.assert_close((own, results[0]), (expected, results[1]))


def test_a_graph_that_may_stop_overwrites_nothing() -> None:
    def checked(x: Tensor, y: Tensor) -> Tensor:
        torch._assert_async((y < 100).all())
        x.mul_(2)
        return x + 1

    assert overwritten(checked, X, Y) == 0


def written_at(cache: Tensor, row: Tensor, at: Tensor) -> Tensor:
    cache.index_copy_(0, at, row)
    return cache.sum(0)


def doubled_before(cache: Tensor, row: Tensor, at: Tensor) -> Tensor:
    cache.mul_(2)
    return row[at]


def doubled_behind(cache: Tensor, row: Tensor, at: Tensor) -> Tensor:
    chosen = row[at]
    cache.mul_(2)
    return chosen + 1


def put_before(cache: Tensor, row: Tensor, at: Tensor) -> Tensor:
    chosen = row.clone()
    chosen[at] = 1.0
    cache.mul_(2)
    return chosen


def with_what_is_chosen(cache: Tensor, row: Tensor, at: Tensor) -> None:
    cache.add_(row[at])


@pytest.mark.parametrize(
    ("program", "count"),
    [(written_at, 1), (doubled_before, 1), (doubled_behind, 0), (put_before, 0), (with_what_is_chosen, 0)],
)
def test_after_an_index_that_is_out_of_range_inputs_are_as_eager_leaves_them(program: Program, count: int) -> None:
    cache, row = torch.arange(12.0).reshape(3, 4), torch.randn(1, 4)
    at = torch.tensor([0])
    assert overwritten(program, cache, row, at) == count
    compiled = keel.compile(program, backends=[keel_interp.backend])
    for place in (3, -5):
        own, expected = cache.clone(), cache.clone()
        for fn, x in ((compiled, own), (program, expected)):
            with suppress(IndexError):
                fn(x, row, torch.tensor([place]))
        torch.testing.assert_close(own, expected)


def test_a_cache_of_several_layers_is_written_where_it_lies() -> None:
    """The copies that come before the updates are one kernel, and it is left out."""

    def step(keys: Tensor, values: Tensor, row: Tensor, at: Tensor) -> Tensor:
        for cache in (keys, values):
            cache.index_copy_(1, at, row)
        return (keys * values).sum(1)

    keys, values, row = torch.randn(2, 8, 4), torch.randn(2, 8, 4), torch.randn(2, 1, 4)
    assert overwritten(step, keys, values, row, torch.tensor([5])) == 2


def test_a_graph_of_several_parts_overwrites_nothing() -> None:
    def sine_alone(call: keel.Call) -> str | None:
        return None if call.name == "aten.sin.default" else "It has sin alone."

    other = Backend(name="other", device="cpu", supports=sine_alone, compile=lambda gm: gm.forward)
    assert overwritten(lambda x, y: x.add_(y.sin()), X, Y, backends=(other,)) == 0


def test_calls_that_are_checked_or_repeated_overwrite_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEL_CHECK", "1")
    assert overwritten(mutated, X, Y) == 0


def test_a_gradient_is_not_lost() -> None:
    """A forward graph may have saved what it mutates, so only graphs without gradients overwrite."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return (x * y).sum()

    y = Y.clone().requires_grad_()
    x, expected = X.clone(), X.clone()
    keel.compile(fn, backends=[keel_interp.backend])(x, y).backward()
    own, y.grad = y.grad, None
    fn(expected, y).backward()
    torch.testing.assert_close((own, x), (y.grad, expected))
