"""Numbers computed from others that are known, on sizes that they were not traced with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.torch_adapter import NotRecorded, record


@pytest.mark.parametrize("rows", [lambda n, k: 6 * n, lambda n, k: n * k, lambda n, k: 2 * n + k + 3])
def test_a_size_is_computed_from_one_that_holds_it(rows: Callable[[Any, Any], Any]) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k = mode.from_tensor(torch.empty(4, 7), static_shapes=False).shape
    with mode:
        x, other = torch.empty(rows(n, k)), torch.empty(k)
    graph = record(lambda x, other: (torch.ops.aten.full.default([n], 1.0), other), [x, other], {}, mode)
    found, _ = fx.GraphModule(torch.nn.Module(), graph)(torch.empty(rows(5, 9)), torch.empty(9))
    assert found.shape == (5,)


def test_a_size_that_no_argument_tells_cannot_be_computed() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k = mode.from_tensor(torch.empty(4, 7), static_shapes=False).shape
    with mode:
        x = torch.empty(n * k)
    with pytest.raises(NotRecorded, match=r"cannot be computed from the sizes of the arguments"):
        record(lambda x: torch.ops.aten.full.default([n], 1.0), [x], {}, mode)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (lambda n, k: n // 2 + 1, lambda n, k: n // 2),
        (lambda n, k: k * (n // 2), lambda n, k: n // 2 + k),
        (lambda n, k: 3 * (n // 2) + 5, lambda n, k: torch.sym_max(1, n // 2)),
        (lambda n, k: torch.sym_min(n, 3), lambda n, k: torch.sym_min(n, torch.sym_min(3, k))),
        (lambda n, k: torch.sym_max(n, 3), lambda n, k: torch.sym_max(3, n) * 2 + k),
        (lambda n, k: n * (n // 2), lambda n, k: 4 * n * k * (n // 2) + k),
        (lambda n, k: n * n + n // 2 + 1, lambda n, k: 2 * k * n * n + 2 * k * (n // 2) + 3),
        (lambda n, k: n // 2 + 1, lambda n, k: n // 6 + 1),
        (lambda n, k: (n + 3) // 2, lambda n, k: ((n + 3) // 4) * k),
    ],
)
def test_what_is_left_of_a_size_is_computed_from_one_that_holds_it(
    rows: Callable[[Any, Any], Any], wanted: Callable[[Any, Any], Any]
) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k = mode.from_tensor(torch.empty(8, 7), static_shapes=False).shape
    with mode:
        x, other = torch.empty(rows(n, k)), torch.empty(k)
    graph = record(lambda x, other: torch.ops.aten.full.default([wanted(n, k)], 1.0), [x, other], {}, mode)
    for m, j in ((11, 2), (2, 5)):
        (found,) = fx.GraphModule(torch.nn.Module(), graph)(torch.empty(rows(m, j)), torch.empty(j))
        assert found.shape == (wanted(m, j),)


def test_a_minimum_tells_nothing_of_one_of_more() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k = mode.from_tensor(torch.empty(8, 7), static_shapes=False).shape
    with mode:
        x = torch.empty(torch.sym_min(n, k))
    with pytest.raises(NotRecorded, match=r"cannot be computed from the sizes of the arguments"):
        record(lambda x: torch.ops.aten.full.default([torch.sym_min(n, 3)], 1.0), [x], {}, mode)


def test_products_are_made_of_sizes_that_hold_their_factors() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k, m = mode.from_tensor(torch.empty(8, 7, 9), static_shapes=False).shape
    with mode:
        x = torch.empty(2 * (n // 2), k, (k // 2) * (m // 2))
    graph = record(lambda x: torch.ops.aten.full.default([3 * k * (n // 2) * (k // 2) * (m // 2)], 1.0), [x], {}, mode)
    (found,) = fx.GraphModule(torch.nn.Module(), graph)(torch.empty(10, 4, 2 * 3))
    assert found.shape == (3 * 4 * 5 * 2 * 3,)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda n, k: torch.sym_int(n * 0.75),
        lambda n, k: math.ceil(n / 3) + 1,
        lambda n, k: round(n / 2),
        lambda n, k: n & 6,
        lambda n, k: (n | 1) ^ k,
        lambda n, k: (n << 2) + (n >> 1),
        lambda n, k: abs(n - k),
        lambda n, k: -n % k,
        lambda n, k: torch.sym_ite(n > k, n, 2 * k),
        lambda n, k: torch.sym_ite(torch.sym_not(n == k), n, k + 1),
        lambda n, k: torch.sym_int(torch.sym_sqrt(n)),
        lambda n, k: torch.sym_max(n * 0.5, 2.5).__ceil__(),
        lambda n, k: round(n / k, 1).__ceil__(),
    ],
)
def test_functions_of_sizes_are_computed(wanted: Callable[[Any, Any], Any]) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    n, k = mode.from_tensor(torch.empty(9, 7), static_shapes=False).shape
    with mode:
        x = torch.empty(n, k)
    graph = record(lambda x: torch.ops.aten.full.default([wanted(n, k)], 1.0), [x], {}, mode)
    for m, j in ((11, 2), (2, 5), (8, 8)):
        (found,) = fx.GraphModule(torch.nn.Module(), graph)(torch.empty(m, j))
        assert found.shape == (wanted(m, j),)
