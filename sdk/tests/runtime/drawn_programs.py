"""Functions of two matrices, drawn at random, whose launch programs hold all kinds of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

UNARY: tuple[Callable[..., Any], ...] = (
    torch.tanh,
    lambda x: x @ x.mT * 0.1 @ x,
    lambda x: x - x.amax(1, keepdim=True),
    lambda x: x.sort(1)[0],
    lambda x: x.topk(2, 1)[0].sum(1, keepdim=True) + x,
    lambda x: x.mT.contiguous().mT,
    lambda x: x.cumsum(0),
    lambda x: x[:, 1:].exp().sum() + x,
    lambda x: x.flip(1),
    lambda x: x[(x[:, 0].abs() * 2).long().clamp(0, 1)],
)
BINARY: tuple[Callable[..., Any], ...] = (
    torch.add,
    torch.mul,
    lambda a, b: a @ b.mT @ b * 0.1,
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.index_add(0, (a[:2, 0] > 0).long(), b[:2]),
    lambda a, b: torch.cat([a, b])[1 : a.shape[0] + 1],
)

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(UNARY), st.integers(1, 4)),
        st.tuples(st.sampled_from(BINARY), st.integers(1, 4), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=7,
)


def drawn(program: list[Any]) -> Callable[..., Any]:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for op, *back in program:
            values.append(op(*(values[-min(b, len(values))] for b in back)))
        return values[-1], values[len(values) // 2] * 2, values[-1][1:, :2]

    return fn
