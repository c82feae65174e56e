"""Joining, padding, scattering a part, reordering: each gives what eager gives."""

from __future__ import annotations

import pytest
import sympy
import torch

from keel.loops.lower import lower
from keel.types import Call, SymType, TensorType

from .calls import INF, NAN, check, check_symbolic

aten = torch.ops.aten

X = torch.arange(60.0).reshape(3, 4, 5)
NINF = -INF
CASES = [
    (aten.cat.default, [X, X[:, :1], X[:, 1:3]], 1),
    (aten.cat.default, [X], 0),
    (aten.cat.default, [torch.zeros(0), X], -1),
    (aten.cat.default, [X, X.int()], 2),
    (aten.cat.default, [X[:, :0], X], 1),
    (aten.cat.default, [torch.tensor([1]), torch.tensor([2.5])]),
    (aten.cat.default, [X.bfloat16(), X.half()]),
    (aten.cat.default, [torch.zeros(0), torch.zeros(0)]),
    (aten.stack.default, [X, X + 1], 0),
    (aten.stack.default, [X, X + 1, X * 2], -1),
    (aten.stack.default, [torch.tensor(1.0), torch.tensor(2.0)]),
    (aten.constant_pad_nd.default, X, [1, 2]),
    (aten.constant_pad_nd.default, X, [0, 0, 2, 0], 7.5),
    (aten.constant_pad_nd.default, X, [-1, 2, 1, -2]),
    (aten.constant_pad_nd.default, X, [-1, -1]),
    (aten.constant_pad_nd.default, X.long(), [0, 1], -100.0),
    (aten.constant_pad_nd.default, X[:0], [1, 1, 0, 0, 2, 0], NAN),
    (aten.constant_pad_nd.default, X.bfloat16(), [1, 1], NINF),
    (aten.constant_pad_nd.default, X > 3, [1, 1], True),
    (aten.slice_scatter.default, X, -X[:, 1:3], 1, 1, 3),
    (aten.slice_scatter.default, X, -X, 0),
    (aten.slice_scatter.default, X, -X[..., ::2], 2, 0, 9, 2),
    (aten.slice_scatter.default, X, -X[:, -2:], 1, -2),
    (aten.slice_scatter.default, X, -X[:0], 0, 3, 3),
    (aten.slice_scatter.default, X, -X[..., 1:4:2], 2, 1, 4, 2),
    (aten.slice_backward.default, X[:, :2], [3, 7, 5], 1, 3, 5, 1),
    (aten.slice_backward.default, X, [3, 4, 10], 2, 1, 9999, 2),
    (aten.slice_backward.default, X, [3, 4, 5], 0, 0, 9223372036854775807, 1),
    (aten.slice_backward.default, X[:0], [3, 4, 5], 0, 2, 1, 1),
    (aten.select_scatter.default, X, -X[:, 1], 1, -2),
    (aten.select_scatter.default, X, -X[0].bfloat16(), 0, 1),
    (aten.select_backward.default, X[0], [4, 6, 5], 1, -1),
    (aten.select_backward.default, X.bfloat16(), [3, 4, 5, 2], 3, 0),
    (aten.diagonal_scatter.default, X, -torch.rand(5, 3)),
    (aten.diagonal_scatter.default, X, torch.rand(3, 4), 1, 1, 2),
    (aten.diagonal_backward.default, torch.ones(5, 3), [3, 4, 5], 0, 0, 1),
    (aten.diagonal_backward.default, torch.ones(4, 2), [3, 4, 5], -1, 0, 2),
    (aten.unfold_backward.default, torch.rand(3, 2, 5, 3), [3, 6, 5], 1, 3, 2),
    (aten.unfold_backward.default, torch.rand(3, 4, 3, 3), [3, 4, 5], 2, 3, 1),
    (aten.unfold_backward.default, torch.rand(3, 4, 3, 3) < 0.3, [3, 4, 5], 2, 3, 1),
    (aten.unfold_backward.default, torch.rand(2, 2), [7], 0, 2, 4),
    (aten.unfold_backward.default, torch.rand(1, 2, 1, 3), [3, 6, 5], 1, 3, 2),
    (aten.unfold_backward.default, torch.rand(1), [], 0, 1, 1),
    (aten.flip.default, X, [0, -1]),
    (aten.flip.default, X, []),
    (aten.flip.default, torch.tensor(1.0), [0]),
    (aten.repeat.default, X, [1, 2, 1]),
    (aten.repeat.default, X, [2, 1, 1, 3]),
    (aten.repeat.default, X[:0], [2, 1, 1]),
    (aten.repeat.default, torch.tensor(4.0), [3]),
    (aten.repeat.default, X, [0, 1, 1]),
    (aten.roll.default, X, [2], [1]),
    (aten.roll.default, X, [-1, 7], [0, 2]),
    (aten.roll.default, X, [13]),
    (aten.roll.default, X[:0], [1], [0]),
    (aten.tril.default, X),
    (aten.tril.default, X, 1),
    (aten.triu.default, X, -2),
    (aten.triu.default, X.bool()),
    (aten.tril.default, torch.full((3, 3), NAN)),
    (aten.reflection_pad1d.default, X, [2, 1]),
    (aten.reflection_pad2d.default, X, [2, 1, 0, 3]),
    (aten.reflection_pad2d.default, X[None], [4, 4, 3, 3]),
    (aten.replication_pad1d.default, X, [7, 3]),
    (aten.replication_pad2d.default, X, [-1, 3, 9, 0]),
    (aten.replication_pad3d.default, X[None], [1, 1, 2, 2, 1, 0]),
    (aten.copy.default, X, X[0, 0]),
    (aten.copy.default, X.int(), X),
    (aten.fill.Scalar, X, 3),
    (aten.fill.Tensor, X.bfloat16(), torch.tensor(0.1)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_shaping(case: tuple) -> None:
    check(case[0], *case[1:])


def test_only_masked_elements_may_lie_outside() -> None:
    definition = check(aten.constant_pad_nd.default, X, [1, 2])
    assert definition.steps and not definition.is_view
    assert check(aten.slice_scatter.default, X, -X, 0).is_view
    assert check(aten.flip.default, X, [1]).is_view
    assert check(aten.constant_pad_nd.default, X, [-1, -1]).is_view


@pytest.mark.slow
def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        n, m = x.shape
        return [
            torch.cat([x, y, x], 0),
            torch.stack([x, x], 1),
            aten.constant_pad_nd(x, [1, 0, 2, 3], 5),
            aten.constant_pad_nd(x, [-1, n]),
            aten.slice_scatter(x, y[:1], 0, 1, 2),
            aten.slice_backward(x[:, 1:], [n, m], 1, 1, 9223372036854775807, 1),
            aten.select_backward(x, [n, m, 3], 2, -1),
            aten.select_backward(x, [n, 4, m], 1, 3),
            aten.flip(x, [0]),
            x.repeat(2, 3),
            aten.roll(x, [1], [0]),
            x.tril(),
            x.triu(1),
            aten.unfold_backward(x.unfold(1, 2, 1), [n, m], 1, 2, 1),
            aten.select_scatter(x, x[0], 0, n - 1),
            aten.reflection_pad1d(x, [2, 1]),
            aten.diagonal_backward(x.diagonal(), [n, m], 0, 0, 1),
        ]

    assert len(check_symbolic(f, torch.randn(5, 7), torch.randn(4, 7))) > 17


def test_a_slice_whose_start_is_unknown_is_refused() -> None:
    start = sympy.Symbol("u0", integer=True)
    x = TensorType.dense(torch.float32, (8,))
    answer = lower(
        Call(
            aten.slice.Tensor, (x, 0, SymType(start), SymType(start + 4)), {}, (TensorType.dense(torch.float32, (4,)),)
        )
    )
    assert answer == "aten.slice.Tensor starts at u0, whose sign is unknown."
