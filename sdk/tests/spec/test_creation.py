"""Tensors made of numbers give what eager gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import decomposition_of

from .agreement import agree

aten = torch.ops.aten


@pytest.mark.parametrize("base", [10.0, 2.0, 0.5, 0.0])
@pytest.mark.parametrize("args", [(0, 1, 0), (3, -7, 1), (0, 2, 3), (3, -7, 50)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powers_at_equal_distances(args: tuple[int, int, int], base: float, dtype: torch.dtype) -> None:
    agree(aten.logspace.default, *args, base, dtype=dtype)


@pytest.mark.parametrize("args", [(0, 2, 3), (0, 2, 4), (1, 1, 0)], ids=str)
def test_powers_of_a_negative_base_are_nan_but_for_whole_ones(args: tuple[int, int, int]) -> None:
    agree(aten.logspace.default, *args, -2.0)


@pytest.mark.parametrize(
    ("op", "ends"),
    [
        (aten.logspace.Tensor_Tensor, (torch.tensor(0), torch.tensor(3))),
        (aten.logspace.Tensor_Scalar, (torch.tensor(1), 3)),
        (aten.logspace.Scalar_Tensor, (0, torch.tensor(2.9))),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex128])
def test_ends_may_be_tensors(op: Any, ends: tuple[Any, Any], dtype: torch.dtype) -> None:
    want, got = (f(*ends, 4, 2.0, dtype=dtype) for f in (op, decomposition_of(op)))
    torch.testing.assert_close(got, want)
