"""Calls that decide: comparisons, roundings, the choice of a largest element.

Where legal evaluations differ by less than their errors, a decision may be either. The runs with noise take the other
decision at each element where that is so, and these elements are allowed for in everything that depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from keel.error_budgets.double_precision import is_inexact, is_rounded, mapped
from keel.error_budgets.rounding_noise import random_like
from keel.graph.calls import call_of
from keel.graph.leaf_calls import leaf_calls
from keel.spec import OPSET
from keel.types import Call, TensorType, leaves

REACH = 5.0
"""A decision may be either within this many times the spread of its operands."""
SMALL = 1024.0
"""A shift that is smaller by this factor changes a continuous function less by this factor."""


def is_decision(node: fx.Node, sizes: Mapping[str, int]) -> bool:
    """True if a call with operands that round has results that jump."""
    call = call_of(node)
    if call is None or not any(is_inexact(t.dtype) for t in call.tensors):
        return False
    return any(_jumps(piece) for piece in (call, *leaf_calls(call, sizes)))


def _jumps(call: Call) -> bool:
    member = OPSET.get(call.op)
    rounded = any(is_inexact(t.dtype) for t in call.tensors)
    is_integral = any(isinstance(t, TensorType) and not is_inexact(t.dtype) for t in call.out)
    return rounded and (is_integral or (member is not None and member.numerics.steps))


def shifted(operands: Any, spreads: Mapping[int, Tensor], amount: float, start: int) -> Any:
    """The operands, each element moved up or down by ``amount`` times its spread. ``spreads`` are by identity."""

    def shift(x: Any) -> Any:
        if id(x) not in spreads:
            return x
        sign = random_like(x, start).sign()
        return x + (amount * sign * spreads[id(x)]).to(x.dtype)

    return mapped(operands, shift)


def with_jumps(run: Callable[[Any], Any], result: Any, exact: Any, far: Any, near: Any) -> Any:
    """``result`` with the elements of ``run(far)`` where that jumps away from ``exact``. ``far`` are operands that are
    shifted by the reach of decisions, ``near`` by much less.
    """
    pairs = zip(leaves(result), leaves(exact), leaves(run(far)), leaves(run(near)), strict=True)
    chosen = [_chosen(*pair) for pair in pairs]
    remaining = iter(chosen)
    return mapped(result, lambda _: next(remaining))


def _chosen(result: Any, exact: Any, far: Any, near: Any) -> Any:
    if not isinstance(result, Tensor) or {x.shape for x in (exact, far, near)} != {result.shape}:
        return result
    if not is_rounded(result):
        return far
    moved, moved_little = (far - exact).abs(), (near - exact).abs()
    continuous = (moved_little > moved / (4 * SMALL)) & (moved_little < moved / (SMALL / 4))
    jumps = (moved > 0) & ~continuous & far.isfinite()
    return torch.where(jumps, far, result)
