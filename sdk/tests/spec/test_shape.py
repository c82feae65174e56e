"""Movement composites give what eager gives; views and slices with symbolic bounds have FakeTensor's types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.graph.calls import call_of
from keel.spec import MEMBERS, OPSET, Op, bind
from keel.torch_adapter import expression, hint_of
from keel.types import Dim, TensorType, as_dim

from .decomposed import holds
from .test_types import agrees

pytestmark = pytest.mark.slow

aten = torch.ops.aten
X = torch.arange(60.0).reshape(3, 4, 5)
M = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.select_scatter.default, (X, -X[:, 1], 1, 1)),
        (aten.select_scatter.default, (X, -X[..., 1], -1, -2)),
        (aten.diagonal_scatter.default, (M, -torch.arange(3.0))),
        (aten.diagonal_scatter.default, (M, torch.ones(3), 1)),
        (aten.diagonal_scatter.default, (M, torch.ones(1), -2)),
        (aten.diagonal_scatter.default, (M, torch.ones(0), 9)),
        (aten.diagonal_scatter.default, (X, -torch.rand(4, 2), 1, 2, 0)),
        (aten.copy.default, (M, torch.arange(4))),
        (aten.copy.default, (M.t(), torch.rand(4, 3))),
        (aten.resize.default, (M, [2, 3])),
        (aten.resize.default, (M, [12])),
        (aten.alias_copy.default, (M.t(),)),
        (aten.detach_copy.default, (M,)),
        (aten.as_strided_copy.default, (M, [2, 2], [4, 1])),
        (aten.diagonal_copy.default, (M, 1)),
        (aten.expand_copy.default, (M[:, :1], [3, 5])),
        (aten.permute_copy.default, (X, [2, 0, 1])),
        (aten.select_copy.int, (X, 1, 2)),
        (aten.slice_copy.Tensor, (X, 1, 0, 4, 2)),
        (aten.squeeze_copy.default, (M[:, :1],)),
        (aten.squeeze_copy.dim, (M[:, :1], 1)),
        (aten.squeeze_copy.dims, (M[:, :1], [0, 1])),
        (aten.t_copy.default, (M,)),
        (aten.transpose_copy.int, (X, 0, -1)),
        (aten.unfold_copy.default, (M, 1, 2, 1)),
        (aten.unsqueeze_copy.default, (M, -1)),
        (aten.view_copy.default, (M, [2, -1])),
        (aten.view_copy.dtype, (M.short(), torch.uint8)),
        (aten.repeat.default, (M, [2, 3])),
        (aten.repeat.default, (M, [2, 1, 0])),
        (aten.repeat.default, (M.t(), [2, 1, 3])),
        (aten.repeat.default, (torch.tensor(2.0), [3])),
        (aten.narrow_copy.default, (M, 1, 1, 2)),
    ],
    ids=lambda v: str(v) if not isinstance(v, tuple) else "",
)
def test_composites(op, args) -> None:
    holds(op, *args)


def settled(t: object, hints: Mapping[sympy.Symbol, int]) -> object:
    """The type with each Max and Min settled as it is for the sizes traced, which PyTorch guards."""
    if not isinstance(t, TensorType):
        return t

    def one(d: Dim) -> Dim:
        if isinstance(d, int):
            return d
        at = {s: hints[s] for s in d.free_symbols}
        return as_dim(
            d.replace(
                lambda e: isinstance(e, sympy.Max | sympy.Min),
                lambda e: next(a for a in e.args if a.subs(at) == e.subs(at)),
            )
        )

    return TensorType(t.dtype, tuple(map(one, t.shape)), tuple(map(one, t.strides)), t.device)


def typed(fn: Callable[..., object], *args: torch.Tensor) -> int:
    """How many calls of primitives there are, each with the type that its rule says."""
    seen, hints = 0, {}
    for node in make_fx(fn, tracing_mode="symbolic")(*args).graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            hints |= {expression(n): hint_of(n) for n in value.shape if expression(n).is_Symbol}
        call = call_of(node)
        op: Op | None = OPSET.get(node.target)
        if call is not None and op is not None and op.out is not None:
            seen += 1
            got = op.types(bind(call))
            for w, g in zip(call.out, got, strict=True):
                assert agrees(w, g) or agrees(w, settled(g, hints)), f"{call}; the rule says {g}"
    return seen


A, B = torch.randn(40, 33), torch.randn(25, 41)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: aten.slice(a, 0, 0, b.shape[0]),
        lambda a, b: aten.slice(a, 0, b.shape[0] // 5, -3),
        lambda a, b: aten.slice(a, 1, -a.shape[1] // 2, 2**63 - 1, 3),
        lambda a, b: aten.slice(a, 0, a.shape[0] - 5),
        lambda a, b: aten.expand(aten.unsqueeze(a, 0), [b.shape[0], -1, -1]),
        lambda a, b: aten.view(a, [a.shape[0] * a.shape[1]]),
        lambda a, b: aten.view(a, [1, -1, a.shape[1]]),
        lambda a, b: aten.view(aten.permute(a, [1, 0]), [3, a.shape[1] // 3, a.shape[0]]),
        lambda a, b: aten.cat([a, aten.slice(a, 0, 2, 9)], 0),
        lambda a, b: aten.constant_pad_nd(a, [b.shape[0], -3]),
        lambda a, b: aten.unfold(a, 0, 7, 3),
        lambda a, b: aten.diagonal(a, 2),
        lambda a, b: aten.select(a, 0, -1),
        lambda a, b: aten.topk(a, b.shape[0] // 5, 1),
        lambda a, b: aten.view(a, torch.int16),
        lambda a, b: aten.as_strided(a, [b.shape[0], 2], [a.shape[1], 1]),
        lambda a, b: aten.index(b, [None, aten.nonzero_static(a, size=b.shape[0]).select(1, 1).clamp(0)]),
        lambda a, b: aten.arange(0, torch.sym_int(b.shape[0] * 0.6), 1, dtype=torch.float32),
        lambda a, b: aten.arange(b.shape[0], 2.5, -1, dtype=torch.float32),
        lambda a, b: aten.view(
            a.repeat(a.shape[0], b.shape[0] ** 2 // b.shape[0], 1, 1).permute(0, 1, 3, 2),
            [a.shape[0] * b.shape[0], a.shape[1], a.shape[0]],
        ),
    ],
    ids=range(20),
)
def test_bounds_that_are_symbols(fn) -> None:
    assert typed(fn, A, B)


@pytest.mark.parametrize("name", ["any", "squeeze", "sum", "sort", "scatter", "reshape", "index", "index_put", "alias"])
def test_other_overloads_have_the_same_types(name: str) -> None:
    x, at = torch.randn(3, 4), torch.tensor([0, 2])
    calls = {
        "any": lambda x: [aten.any(x), aten.any(x, 1, True)],
        "squeeze": lambda x: [aten.squeeze(x[:, :1], 1)],
        "sum": lambda x: [aten.sum(x)],
        "sort": lambda x: [aten.sort(x, 0, True)],
        "scatter": lambda x: [aten.scatter(x, 0, torch.zeros(1, 4, dtype=torch.int64), 2.0)],
        "reshape": lambda x: [aten._unsafe_view(x, [2, 6])],
        "index": lambda x: [aten._unsafe_index(x, [at])],
        "index_put": lambda x: [aten._unsafe_index_put(x, [at], x[:2])],
        "alias": lambda x: [aten.alias(x)],
    }
    seen = 0
    for node in make_fx(calls[name])(x).graph.nodes:
        if node.target in MEMBERS[name].targets and (call := call_of(node)) is not None:
            seen += 1
            assert all(map(agrees, call.out, MEMBERS[name].types(bind(call))))
    assert seen
