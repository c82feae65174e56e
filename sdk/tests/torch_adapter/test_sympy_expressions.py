"""Symbolic numbers read as expressions."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.graph.calls import type_of
from keel.torch_adapter import constant_of, dim_of, expression, hint_of, holds, late, of_some, rename, same, symbols_of
from keel.types import TensorType


def fake(*shape: int) -> torch.Tensor:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    return mode.from_tensor(torch.empty(shape), static_shapes=False)


def test_a_size_is_a_positive_integer_symbol_and_keeps_its_hint() -> None:
    x = fake(5, 7)
    rows = dim_of(x.shape[0])
    assert isinstance(rows, sympy.Symbol) and rows.is_integer and rows.is_positive
    assert hint_of(x.shape[0]) == 5 and hint_of(3) == 3 and dim_of(3) == 3


def test_a_type_has_strides_in_symbols() -> None:
    x = fake(5, 7)
    t = type_of(x)
    assert isinstance(t, TensorType)
    assert t.strides == (t.shape[1], 1) and t.is_contiguous and t.numel == t.shape[0] * t.shape[1]


def test_arithmetic_stays_an_expression() -> None:
    x = fake(5, 7)
    n = x.shape[0]
    assert dim_of(n * 2 + 1) == 2 * dim_of(n) + 1
    assert expression(n / 2).free_symbols == {dim_of(n)}


def test_sizes_zero_and_one_are_known() -> None:
    x = fake(1, 0, 4)
    assert x.shape[0] == 1 and dim_of(x.shape[0]) == 1 and dim_of(x.shape[1]) == 0


def test_a_number_that_only_the_run_tells_has_no_hint() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with mode:
        found = torch.nonzero(mode.from_tensor(torch.ones(4)))
    assert hint_of(found.shape[0]) is None


def test_a_certain_number_is_plain() -> None:
    x = fake(5, 7)
    n = x.shape[0]
    assert constant_of(n - n + 3) == 3 and constant_of("text") == "text" and constant_of(n) is n


def found(mode: FakeTensorMode, n: int) -> torch.Tensor:
    with mode:
        return torch.nonzero(mode.from_tensor(torch.ones(n)))


def test_numbers_that_only_the_run_tells_are_never_made_equal_by_asking() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    a, b = found(mode, 4).shape[0], found(mode, 4).shape[0]
    assert not same(a, b) and not same(a, 1) and not same(1, a) and same(a, a + 1 - 1)
    assert expression(a) != expression(b) and late(expression(a)) == {expression(a)}


@pytest.mark.parametrize("n", [1, 4, 400], ids=lambda n: f"of at most {n}")
def test_a_symbol_is_renamed_in_every_value(n: int) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    a = found(mode, 4)
    known = symbols_of(mode)
    b = found(mode, n)
    old, new = expression(b.shape[0]), expression(a.shape[0])
    assert symbols_of(mode) - known == {old} and new in known
    rename(mode, {old: new})
    assert type_of(a) == type_of(b) and b.stride() == (1, b.shape[0]) and expression(b.shape[0]) == new


def test_a_symbol_can_become_a_size_that_is_known() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n = mode.from_tensor(torch.empty(7), static_shapes=False).shape[0]
    a, b = found(mode, 4), found(mode, 4)
    rename(mode, {expression(a.shape[0]): 2 * expression(n), expression(b.shape[0]): sympy.Integer(3)})
    assert expression(a.shape[0]) == 2 * expression(n) and b.shape == (3, 1)


def test_without_symbols_none_are_known() -> None:
    assert symbols_of(None) == symbols_of(FakeTensorMode()) == frozenset()


def test_strides_of_tensors_with_elements() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    rows = found(mode, 4)
    with mode:
        turned = torch.empty(3, rows.shape[0])
    n, step = expression(rows.shape[0]), expression(turned.stride(0))
    assert step != n and of_some(step, [n, 3]) == n and of_some(step, [3]) == step


def test_what_holds_of_sizes() -> None:
    x = fake(5, 7)
    n, late = x.shape[0], found(FakeTensorMode(shape_env=ShapeEnv()), 4).shape[0]
    assert holds(True) and not holds(False) and holds(n >= 3) and not holds(n > 5)
    assert holds(late >= 0) and not holds(late >= 1) and not holds(late < 2)
