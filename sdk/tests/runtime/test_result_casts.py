"""Operators whose fake kernels promise other types than their kernels give, beside eager PyTorch and under strict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import keel
from keel import Backend, KeelError, KeelWarning

from ..line import takes, whole


@torch.library.custom_op("keel_mended::widens", mutates_args=())
def widens(x: Tensor) -> Tensor:
    return x.double() * 2


@torch.library.custom_op("keel_mended::turns", mutates_args=())
def turns(x: Tensor) -> Tensor:
    return (x * 2).t().contiguous().t()


@torch.library.custom_op("keel_mended::grows", mutates_args=())
def grows(x: Tensor) -> Tensor:
    return torch.cat([x, x])


for op in (widens, turns, grows):
    op.register_fake(torch.empty_like)

LAST = whole("rest", last_resort=True)
BACKENDS: list[list[Backend]] = [[LAST], [takes("add", "sin", "as_strided", name="some"), LAST]]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backends", BACKENDS, ids=["whole", "parts"])
@pytest.mark.parametrize(
    ("op", "what"),
    [(widens, "Its dtype is torch.float64, not torch.float32"), (turns, r"Its strides are \[1, 2\], not \[3, 1\]")],
    ids=["dtype", "strides"],
)
def test_it_is_cast_with_one_warning(
    op: Callable[[Tensor], Tensor], what: str, backends: list[Backend], dynamic: bool
) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = op(x.sin())
        return y, y + 1

    compiled = keel.compile(program, backends=backends, dynamic=dynamic)
    message = rf"(?s)PyTorch's kernels return other types in part .*{what}.*test_result_casts.py"
    with pytest.warns(KeelWarning, match=message):
        got = compiled(torch.ones(2, 3))
    for x in (torch.ones(2, 3), torch.zeros(2, 3)):
        got = compiled(x)
        for result, want in zip(got, program(x), strict=True):
            assert (result.dtype, result.stride()) == (torch.float32, (3, 1))
            torch.testing.assert_close(result, want.float())


def test_under_strict_it_is_an_error() -> None:
    with pytest.raises(KeelError, match=r"(?s)\[wrong-result\].*Its dtype is torch.float64"):
        keel.compile(lambda x: widens(x), backends=[LAST], strict=True)(torch.ones(2, 3))


def test_other_sizes_are_an_error_of_the_fake_kernel() -> None:
    with pytest.raises(KeelError, match=r"(?s)\]: PyTorch's kernels .*Its shape is \[4, 3\].*fake kernel"):
        keel.compile(lambda x: grows(x), backends=[LAST])(torch.ones(2, 3))


def test_a_backend_that_compiles_is_held_to_its_promise() -> None:
    with pytest.raises(KeelError, match=r"(?s)\[wrong-result\].*Its dtype is torch.float64"):
        keel.compile(lambda x: widens(x), backends=[whole()])(torch.ones(2, 3))
