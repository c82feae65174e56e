"""Branches, loops and regions that write to what they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel.torch_adapter.higher_order import while_loop

from ..releases import skip_without, writes_in_branches

pytestmark = pytest.mark.slow

BACKENDS = [["interp", "eager"], ["eager"]]
X = torch.arange(1.0, 13).view(3, 4)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    skip_without(writes_in_branches)
    torch.compiler.reset()
    with torch.no_grad():
        yield


def branches(p: Tensor, x: Tensor) -> Tensor:
    def taken(x: Tensor) -> Tensor:
        x.view(-1)[1:].mul_(2)
        return x.sin()

    result: Tensor = torch.cond(p, taken, lambda x: x.cos(), (x,))
    return result


def views(p: Tensor, x: Tensor) -> Any:
    def taken(x: Tensor) -> Tensor:
        x.add_(1)
        return x.sum(0)

    found = [torch.cond(p, taken, lambda x: x[0] * 2, (v,)) for v in (x[1:], x.t(), x.as_strided((2, 2), (1, 4), 1))]
    return *found, x * 2


def growing(p: Tensor, x: Tensor) -> Tensor:
    def taken(x: Tensor) -> Tensor:
        x[1:] += x.shape[0]
        return x.sum(0)

    result: Tensor = torch.cond(p, taken, lambda x: x.prod(0), (torch.cat([x, x]),))
    return result


def captured(p: Tensor, x: Tensor) -> Any:
    """Both branches write, and one to a tensor that is not an operand of the user's."""
    counts = torch.zeros(2)

    def taken(x: Tensor) -> Tensor:
        counts[0] += 1
        x.mul_(2)
        return x * counts.sum()

    def other(x: Tensor) -> Tensor:
        x.zero_()
        return x + counts.sum()

    return torch.cond(p, taken, other, (x,)), counts * 3


def inside(p: Tensor, x: Tensor) -> Tensor:
    """The branch inside writes to what the one outside has made."""

    def taken(x: Tensor) -> Tensor:
        y = x * 2

        def write(y: Tensor) -> Tensor:
            y.add_(1)
            return y.sum(0)

        return torch.cond(x.sum() > 0, write, lambda y: y[0] * 1, (y,)) + y  # type: ignore[no-any-return]

    result: Tensor = torch.cond(p, taken, lambda x: x * 3, (x,))
    return result


def loop(p: Tensor, x: Tensor) -> Any:
    total, step = torch.zeros(4), x[0] * 1

    def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total.add_(y.sum(0))
        return i + 1, y * 0.5 + step

    rounds = torch.where(p, 3, 0)
    return while_loop(lambda i, y: (i < rounds) & (total.sum() < 150), body, (torch.tensor(0), x)), total * 2


@torch.compiler.nested_compile_region
def _region(x: Tensor, y: Tensor) -> Tensor:
    y[1:].add_(1)
    return x * y


def regions(p: Tensor, x: Tensor) -> Any:
    y = x.clone()
    return _region(x, y) + _region(x * 2, y), y


PROGRAMS = [branches, views, growing, captured, inside, loop, regions]


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_is_written_is_seen_as_in_eager(program: Callable[..., Any], backends: list[str]) -> None:
    """As torch.compile's own eager backends have it: PyTorch runs none of them without tracing it."""
    compiled = keel.compile(program, backends=backends, placement="order")
    expected = torch.compile(program, backend="aot_eager")
    for p in (True, False):
        x, y = X.clone(), X.clone()
        torch.testing.assert_close(compiled(torch.tensor(p), x), expected(torch.tensor(p), y))
        torch.testing.assert_close(x, y)


def test_a_loop_that_writes_gives_eagers_numbers() -> None:
    """Counted by hand: 1 + 2 + 4 is written, and 8 is left."""

    def program(x: Tensor, total: Tensor) -> Any:
        def body(x: Tensor) -> tuple[Tensor]:
            total.add_(x)
            return (x * 2,)

        return while_loop(lambda x: x < 8, body, (x,))

    total = torch.zeros(())
    assert keel.compile(program, backends=["interp", "eager"], placement="order")(torch.tensor(1.0), total)[0] == 8
    assert total == 7


def test_nothing_is_left_of_the_writes() -> None:
    """Branches are functional, and the call is an ordinary one, which any backend may take."""
    explanation = keel.explain(branches, torch.tensor(True), X.clone(), backends=["eager"])
    assert "auto_functionalized" not in str(explanation)
    assert "cond" in str(explanation)
