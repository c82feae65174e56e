"""Writes to tensors of one float64 number take place, which PyTorch's own backends lose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.symbolic_convert import TensorifyState

import keel

Program = Callable[[torch.Tensor, torch.Tensor, float], Any]


def add(total: torch.Tensor, x: torch.Tensor, _: float) -> None:
    total.add_(x)


def overwrite(total: torch.Tensor, x: torch.Tensor, _: float) -> None:
    total.copy_(x * 3)


def twice(total: torch.Tensor, x: torch.Tensor, _: float) -> torch.Tensor:
    total.mul_(x)
    total.add_(1)
    return total * 2


def read_first(total: torch.Tensor, x: torch.Tensor, _: float) -> torch.Tensor:
    before = total.item()
    total.add_(x)
    return x * math.sin(before)


def decide(total: torch.Tensor, x: torch.Tensor, _: float) -> torch.Tensor:
    if total.item() > 2:
        total.add_(x)
        return x
    total.sub_(x)
    return x * 2


def with_a_float_that_makes_no_tensor(total: torch.Tensor, x: torch.Tensor, bound: float) -> torch.Tensor:
    total.add_(x)
    return torch.clamp(x, -bound, bound) * bound


PROGRAMS = (add, overwrite, twice, read_first, decide, with_a_float_that_makes_no_tensor)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_write_to_one_number_takes_place(program: Program, dynamic: bool | None) -> None:
    compiled = keel.compile(program, backends=["eager"], dynamic=dynamic)
    total, expected_total = (torch.ones((), dtype=torch.float64) for _ in range(2))
    for i in range(4):
        x = torch.tensor(1.5 + i, dtype=torch.float64)
        result, expected = compiled(total, x, 0.5 * i), program(expected_total, x, 0.5 * i)
        torch.testing.assert_close(total, expected_total)
        if expected is not None:
            torch.testing.assert_close(result, expected)


def test_an_optimizer_steps_a_parameter_of_one_number() -> None:
    parameters = [torch.nn.Parameter(torch.ones((), dtype=torch.float64)) for _ in range(2)]
    own, eager = (torch.optim.Adagrad([p], lr=0.1) for p in parameters)
    compiled = keel.compile(lambda: own.step(), backends=["eager"])
    for i in range(3):
        for p in parameters:
            p.grad = torch.tensor(float(i + 1), dtype=torch.float64)
        compiled()
        eager.step()
    torch.testing.assert_close(parameters[0], parameters[1])


def test_nothing_is_left_for_the_next_compilation() -> None:
    total, x = torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    keel.compile(add, backends=["eager"])(total, x, 0.5)
    assert not TensorifyState.force_specializations
