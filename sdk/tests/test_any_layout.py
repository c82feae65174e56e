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


def copying(parts: list[int]) -> Backend:
    """A backend of values: each result is a new tensor. ``parts`` grows by the number of calls in each part."""

    def compile(gm: fx.GraphModule) -> Any:
        parts.append(sum(node.op == "call_function" for node in gm.graph.nodes))
        return lambda *inputs: tuple(r.clone(memory_format=torch.contiguous_format) for r in gm(*inputs))

    return Backend(name="acme", device="cpu", supports=lambda call: None, compile=compile, any_layout=True)


def addresses(results: Any) -> list[int]:
    return [result.untyped_storage().data_ptr() for result in results]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (lambda x: (y := x + 1, y.t(), y[1]), 1),
        (lambda x: ((y := x * 3)[:2], y[1:]), 1),
        (lambda x: (*(x * 2).split(2), x.relu().flatten()), 2),
        (lambda x: (x.t() + 1).t()[1:], 2),
        (lambda x: (x.t(), x.view(-1)[1:]), None),
    ],
    ids=["a result and its views", "two views of a result", "a list of views", "one view", "views alone"],
)
def test_results_that_are_views_share_memory_as_in_eager_pytorch(fn: Any, calls: int | None, dynamic: bool) -> None:
    torch.compiler.reset()
    parts: list[int] = []
    run = keel.compile(fn, backends=[copying(parts)], strict=True, dynamic=dynamic)
    for rows in (4, 6):
        x = torch.randn(rows, 5)
        results, expected = run(x), fn(x)
        both = [r if isinstance(r, tuple) else (r,) for r in (results, expected)]
        for result, want in zip(*both, strict=True):
            assert torch.equal(result, want)
            assert (result.stride(), result.storage_offset()) == (want.stride(), want.storage_offset())
        memory, own = (addresses(each) for each in both)
        assert [memory.index(m) for m in memory] == [own.index(m) for m in own]
    assert set(parts) == ({calls} if calls else set())


def test_a_part_of_views_alone_is_not_compiled() -> None:
    parts: list[int] = []
    x = torch.randn(3, 4)
    batch = keel.testing.compile_calls([(torch.ops.aten.t.default, (x,), {})], backends=[copying(parts)])
    [[result]] = batch.run([((x,), {})])
    assert result.data_ptr() == x.data_ptr() and result.shape == (4, 3)
    assert not parts
