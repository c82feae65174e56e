"""Bounds of integers that the dtype cannot hold do what they do in the PyTorch at hand, in loops and written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from keel.loops.clamp_bounds import BY_VALUE, keeps_all, keeps_none
from keel.spec import decomposition_of

from .lower.calls import check

aten = torch.ops.aten
OPS: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]]]] = {
    "below": (aten.clamp_min.default, lambda n: (n,)),
    "above": (aten.clamp_max.default, lambda n: (n,)),
    "between": (aten.clamp.default, lambda n: (n, 300)),
    "from": (aten.clamp.default, lambda n: (-300, n)),
    "equal": (aten.clamp.default, lambda n: (n, n)),
}


@pytest.mark.parametrize("name", [*OPS, "hardtanh"])
@pytest.mark.parametrize("bound", [-70_000, -300, -129, -128, -3, 0, 5, 255, 256, 300, 70_000])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64], ids=str)
def test_bounds(dtype: torch.dtype, bound: int, name: str) -> None:
    op, rest = OPS.get(name, (aten.hardtanh.default, lambda n: (-n, n)))
    info = torch.iinfo(dtype)
    x = torch.tensor([info.min, info.min + 1, 1, 7, 100, info.max], dtype=dtype)
    try:
        want = op(x, *rest(bound))
    except RuntimeError:
        return  # as a graph with it does, before any loop
    check(op, x, *rest(bound))
    if name != "hardtanh":
        torch.testing.assert_close(decomposition_of(op)(x, *rest(bound)), want, rtol=0, atol=0)


def test_a_bound_that_nothing_meets_has_no_loops() -> None:
    assert keeps_none(-1, torch.uint8, upper=True) == keeps_none(300, torch.int8, upper=False) == BY_VALUE
    if BY_VALUE:  # others wrap it, or raise
        x = torch.ones(3, dtype=torch.uint8)
        for op, bound in ((aten.clamp_max.default, -1), (aten.clamp_min.default, 256)):
            with pytest.raises(RuntimeError, match="representable"):
                op(x, bound)


def test_only_numbers_beyond_integers_are_told_apart() -> None:
    for bound, dtype in ((-3, torch.bool), (1e6, torch.float16), (None, torch.int8), (-128, torch.int8)):
        assert not keeps_all(bound, dtype, upper=False) and not keeps_none(bound, dtype, upper=True)
