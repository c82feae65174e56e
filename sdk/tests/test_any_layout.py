"""A backend whose results may have any strides: Keel lays them out as the graph promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

import keel
from keel import Backend, KeelError


def row_major(any_layout: bool, dtype: torch.dtype | None = None) -> Backend:
    def compile(gm: fx.GraphModule) -> Any:
        return lambda *inputs: tuple(r.contiguous().to(dtype or r.dtype) for r in gm(*inputs))

    return Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile, any_layout=any_layout)


def transposed(x: Tensor) -> Tensor:
    return x.t() + 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_get_the_strides_of_the_graph(dynamic: bool) -> None:
    torch.compiler.reset()
    run = keel.compile(transposed, backends=[row_major(True)], strict=True, dynamic=dynamic)
    for rows in (3, 4):
        x = torch.randn(rows, 5)
        result = run(x)
        torch.testing.assert_close(result, transposed(x), rtol=0, atol=0)
        assert result.stride() == transposed(x).stride()


def test_expanded_results_share_elements() -> None:
    x = torch.randn(1, 4)
    batch = keel.testing.compile_calls([(torch.ops.aten.expand.default, (x, [3, 4]), {})], backends=[row_major(True)])
    [[result]] = batch.run([((x, [3, 4]), {})])
    assert torch.equal(result, x.expand(3, 4))
    assert result.stride() == (0, 1)


def test_without_it_other_strides_are_a_fault() -> None:
    torch.compiler.reset()
    with pytest.raises(KeelError, match="Its strides are"):
        keel.compile(transposed, backends=[row_major(False)], strict=True)(torch.randn(3, 5))


def test_another_dtype_is_a_fault_still() -> None:
    torch.compiler.reset()
    with pytest.raises(KeelError, match="Its dtype is"):
        keel.compile(transposed, backends=[row_major(True, torch.float64)], strict=True)(torch.randn(3, 5))
