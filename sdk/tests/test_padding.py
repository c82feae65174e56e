"""Drawn graphs: where padding is proved to change nothing, a graph has the same results at a larger size.

``KEEL_EXAMPLES=10000 pytest sdk/tests/test_padding.py`` draws that many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from keel.graph.calls import type_of
from keel.graph.static_sizes import type_with_sizes
from keel.masked_graph import MaskedGraph, masked
from keel.padding import cut, padded, why_not_padded
from keel.plugin import SizeRange
from keel.runtime.contract_checks import bind
from keel.types import TensorType

_MORE = os.environ.get("KEEL_EXAMPLES")
WIDTH = 4
TABLE = 70
"""The number of rows of a table."""
HIGH = 64
"""The largest number of rows."""
BOUNDS = SizeRange(low=2, high=HIGH, typical=7)


def _table(x: Tensor) -> Tensor:
    return torch.arange(TABLE).to(x.dtype)


def _positions(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0])


UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "add": lambda x: x + 3,
    "clamp": lambda x: x.clamp(-5, 5),
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "sum of rows": lambda x: x.sum(-1, keepdim=True).expand(x.shape) if x.dim() > 1 else x * 2,
    "largest of rows": lambda x: x - x.amax(-1, keepdim=True) if x.dim() > 1 else x,
    "softmax": lambda x: x.softmax(-1) if x.dim() > 1 and x.is_floating_point() else x,
    "norm": lambda x: F.layer_norm(x, x.shape[1:]) if x.dim() > 1 and x.is_floating_point() else x,
    "sum": lambda x: x + x.sum(0),
    "mean": lambda x: x - x.mean(0) if x.is_floating_point() else x,
    "softmax of columns": lambda x: x.softmax(0) if x.is_floating_point() else x,
    "running sum": lambda x: x.cumsum(0),
    "running sum from the end": lambda x: x.flip(0).cumsum(0).flip(0),
    "flip": lambda x: x.flip(0),
    "flip rows": lambda x: x.flip(-1) if x.dim() > 1 else x,
    "roll": lambda x: x.roll(1, 0),
    "transpose twice": lambda x: (x.t() + 1).t().contiguous() if x.dim() == 2 else x,
    "flat and back": lambda x: (x.reshape(-1) * 2).reshape(x.shape),
    "flat the other way": lambda x: x.t().reshape(-1).reshape(x.shape) if x.dim() == 2 else x,
    "one dimension and back": lambda x: (x.reshape(-1, x.shape[-1]) * 2).reshape(x.shape),
    "two dimensions and back": lambda x: ((x.reshape(-1, x.shape[-1]) + 1).reshape(-1) * 2).reshape(x.shape),
    "one dimension and positions": lambda x: (
        x.reshape(-1, x.shape[-1]) + torch.arange(x.numel() // x.shape[-1])[:, None]
    ).reshape(x.shape),
    "heads": lambda x: (
        (x.reshape(*x.shape[:-1], 2, -1).transpose(-3, -2) * 2).transpose(-3, -2).reshape(x.shape)
        if x.dim() == 3
        else x
    ),
    "norm of rows of one dimension": lambda x: (
        F.layer_norm(x.reshape(-1, x.shape[-1]), x.shape[-1:]).reshape(x.shape) if x.is_floating_point() else x
    ),
    "split rows": lambda x: x.reshape(x.shape[0], 2, -1).sum(1).repeat(1, 2) if x.dim() == 2 else x,
    "first half": lambda x: F.pad(x[: x.shape[0] // 2], (0, 0) * (x.dim() - 1) + (0, x.shape[0] - x.shape[0] // 2)),
    "shifted": lambda x: torch.cat([x[1:], x[:1]]),
    "doubled": lambda x: torch.cat([x, x])[: x.shape[0]],
    "positions": lambda x: x + torch.arange(x.shape[0]).reshape(-1, *[1] * (x.dim() - 1)),
    "size": lambda x: x + x.shape[0],
    "last": lambda x: x + x[-1],
    "first": lambda x: x + x[0],
    "looked up": lambda x: x[(x.reshape(x.shape[0], -1)[:, 0] * 0).to(torch.int64)],
    "rows by position": lambda x: x[torch.arange(x.shape[0])],
    "rows by position from the end": lambda x: x[-torch.arange(x.shape[0])],
    "a position of a table": lambda x: x + _table(x)[_positions(x)].reshape(-1, *[1] * (x.dim() - 1)),
    "beyond a table": lambda x: x + _table(x)[_positions(x) + 60].reshape(-1, *[1] * (x.dim() - 1)),
    "an element of each row": lambda x: (
        x + x.gather(1, torch.ones_like(x[:, :1], dtype=torch.int64)) if x.dim() > 1 else x
    ),
    "one row of a table": lambda x: x + _table(x)[torch.full_like(x, 5, dtype=torch.int64)],
    "triangle": lambda x: x.tril() if x.dim() == 2 else x,
    "integer division": lambda x: x // (x.abs() + 1),
    "sorted rows": lambda x: x.sort(-1).values if x.dim() > 1 else x,
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x) if x.dim() == 3 and x.is_floating_point() else x,
    "causal attention": lambda x: (
        F.scaled_dot_product_attention(x, x, x, is_causal=True) if x.dim() == 3 and x.is_floating_point() else x
    ),
    "gram": lambda x: x @ (x.mT @ x) // 50 if x.dim() > 1 else x,
    "products of columns": lambda x: x.prod(0, keepdim=True) + x,
    "any row": lambda x: torch.where((x > 8).any(0), x, x + 1),
    "sum of one dimension": lambda x: x + x.reshape(-1, x.shape[-1]).sum(0) if x.dim() == 3 else x,
    "position of the largest": lambda x: x + x.argmax(0, keepdim=True),
    "largest of all": lambda x: x.amax() - x,
}
BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "less": lambda x, y: torch.where(x < y, x, y),
}


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Tensor]:
    """A program of one to six steps on two tensors of one shape."""
    names = st.one_of(st.sampled_from([*UNARY]), st.sampled_from([*BINARY]).map(lambda name: (name,)))
    steps = draw(st.lists(names, max_size=6))

    def program(x: Tensor, y: Tensor) -> Tensor:
        for step in steps:
            x = BINARY[step[0]](x, y) if isinstance(step, tuple) else UNARY[step](x)
        return x * 1

    program.__doc__ = str(steps)
    return program


def traced(program: Callable[..., Tensor], inputs: Sequence[Tensor]) -> fx.GraphModule:
    gm: fx.GraphModule = make_fx(program, tracing_mode="symbolic")(*inputs)
    return gm


def rows_of(gm: fx.GraphModule, dim: int = 0) -> str:
    """The symbol of the number of rows, which are a dimension of the first input."""
    type = type_of(gm.graph.find_nodes(op="placeholder")[0].meta["val"])
    assert isinstance(type, TensorType)
    return str(type.shape[dim])


def at_a_larger_size(gm: fx.GraphModule, symbol: str, inputs: Sequence[Tensor], size: int) -> Tensor:
    """The result of a graph at a larger size, on padded inputs, cut off."""
    return at_a_larger_size_masked(MaskedGraph(gm), symbol, inputs, size)


def at_a_larger_size_masked(graph: MaskedGraph, symbol: str, inputs: Sequence[Tensor], size: int) -> Tensor:
    """The result of a graph with masks at a larger size, on padded inputs, cut off."""
    gm = graph.gm
    types = [type_of(n.meta["val"]) for n in gm.graph.find_nodes(op="placeholder")][: len(inputs)]
    small = bind(types, inputs)
    large = {**small, symbol: size}
    values = []
    for type, value in zip(types, inputs, strict=True):
        assert isinstance(type, TensorType)
        values.append(padded(value, type_with_sizes(type, large)))
    [result] = gm.graph.output_node().all_input_nodes
    type = type_of(result.meta["val"])
    assert isinstance(type, TensorType)
    return cut(gm(*values, *[mask.value(small, large) for mask in graph.masks]), type_with_sizes(type, small))


@settings(max_examples=int(_MORE or 60), deadline=None, derandomize=_MORE is None, suppress_health_check=[*HealthCheck])
@given(
    programs(),
    st.sampled_from([((), ()), ((), (WIDTH,)), ((3,), (WIDTH,))]),
    st.sampled_from([torch.int64, torch.float32]),
    st.integers(2, 40),
)
def test_results_are_the_same_at_a_larger_size(
    program: Callable[..., Tensor],
    around: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: torch.dtype,
    more: int,
) -> None:
    rows, (batch, row) = 7, around
    draws = torch.Generator().manual_seed(rows + more)
    inputs = [torch.randint(-9, 10, (*batch, rows, *row), generator=draws).to(dtype) for _ in range(2)]
    gm = traced(program, inputs)
    symbol = rows_of(gm, len(batch))
    graph = masked(MaskedGraph(gm), symbol, {symbol: BOUNDS})
    if isinstance(graph, str):
        assert why_not_padded(gm, symbol, {symbol: BOUNDS}) is not None
        return
    assert bool(graph.masks) == (why_not_padded(gm, symbol, {symbol: BOUNDS}) is not None)
    result, expected = at_a_larger_size_masked(graph, symbol, inputs, rows + more), gm(*inputs)
    if dtype == torch.int64:
        assert torch.equal(result, expected), program.__doc__
    else:
        torch.testing.assert_close(result, expected, msg=program.__doc__)


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "sum of rows",
        "softmax",
        "norm",
        "running sum",
        "flat and back",
        "split rows",
        "transpose twice",
        "one dimension and back",
        "rows by position",
        "a position of a table",
        "an element of each row",
        "one row of a table",
    ],
)
def test_the_proof_finds_what_is_safe(name: str) -> None:
    gm = traced(UNARY[name], [torch.randn(7, WIDTH)])
    assert why_not_padded(gm, rows_of(gm), {rows_of(gm): BOUNDS}) is None


@pytest.mark.parametrize("name", ["one dimension and back", "two dimensions and back", "norm of rows of one dimension"])
def test_batches_of_lengths_may_become_one_dimension(name: str) -> None:
    gm = traced(UNARY[name], [torch.randn(3, 7, WIDTH)])
    symbol = rows_of(gm, 1)
    assert why_not_padded(gm, symbol, {symbol: BOUNDS}) is None


def test_elements_of_different_batches_are_not_confused() -> None:
    gm = traced(UNARY["one dimension and positions"], [torch.randn(3, 7, WIDTH)])
    symbol = rows_of(gm, 1)
    assert why_not_padded(gm, symbol, {symbol: BOUNDS}) == "aten.add.Tensor computes with the size."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sum", "reduces along the size"),
        ("largest of all", "reduces along the size"),
        ("flip", "computes with the size"),
        ("size", "computes with the size"),
        ("sorted rows", "has no loop form"),
        ("integer division", "divides integers"),
        ("rows by position from the end", "computes with the size"),
        ("beyond a table", "reads at a computed index"),
    ],
)
def test_a_refusal_names_the_call(name: str, words: str) -> None:
    gm = traced(UNARY[name], [torch.ones(7, WIDTH, dtype=torch.int64)])
    assert words in (why_not_padded(gm, rows_of(gm), {rows_of(gm): BOUNDS}) or "")


@pytest.mark.parametrize(
    ("divided", "words"), [(lambda x, y: y // (x + y + 5), "divides integers"), (lambda x, y: y // (x + 5), None)]
)
def test_an_expanded_input_is_not_padded_with_zeros(divided: Callable[..., Tensor], words: str | None) -> None:
    inputs = [torch.tensor([-5]).expand(7), torch.full((7,), 10)]
    gm = traced(divided, inputs)
    why = why_not_padded(gm, rows_of(gm), {rows_of(gm): BOUNDS})
    assert why is None if words is None else words in (why or "")


def test_an_expanded_input_repeats_its_element() -> None:
    type = TensorType(torch.float32, (4, 8), (3, 0), torch.device("cpu"))
    result = padded(torch.tensor([[1.0], [2.0]]).expand(2, 5), type)
    assert (result.stride(), result.tolist()) == ((3, 0), [[1.0] * 8, [2.0] * 8, [0.0] * 8, [0.0] * 8])
    assert torch.equal(cut(result, type_with_sizes(type, {}))[:2], result[:2])
