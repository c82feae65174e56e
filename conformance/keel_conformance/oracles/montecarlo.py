"""Monte-Carlo arithmetic: a computation run several times in float64, every step off by a random rounding.

Parker's random rounding (Monte Carlo Arithmetic, 1997): each result x of a step becomes x (1 + u r), r even between -1
and 1, u being the unit roundoff of the dtype that the step has. How far the runs lie apart shows how far rounding moves
the result where a bound by error analysis grows beyond use. This is a sample and no bound, so it is widened by
``FACTOR``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from keel.opset import OPSET, decomposition_of

from ..pytree import tree_map
from .error_rules import NoRule, flat, widened
from .tracked_tensor import Evaluate, inexact, plain_of, tracked, unit, wide

RUNS = 16
FACTOR = 8.0
"""Of 16 runs the farthest misses the next run's with a chance of 1 in 17; eight times as far is beyond what sums of
even errors reach (they are normal in the limit, and the farthest of 16 normal numbers is at 1.8 deviations; 14
deviations have a chance below 1e-40)."""


def sampled(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, random: torch.Generator) -> Any:
    """One run of a call: its exact value, and that moved by a rounding."""
    evaluate: Evaluate = partial(sampled, random=random)
    member = OPSET.get(op)
    decompose = decomposition_of(op)
    if member is not None and member.kind != "primitive" and decompose is not None:
        return decompose(*_followed(args, evaluate), **_followed(dict(kwargs), evaluate))
    if member is not None and "random" in member.tags:
        raise NoRule(f"{member.name} draws.")
    out = op(*tree_map(tuple(args), plain_of), **tree_map(dict(kwargs), plain_of))
    widened_results = flat(op(*tree_map(tuple(args), widened), **tree_map(dict(kwargs), widened)))
    pairs = iter(zip(flat(out), widened_results, strict=True))

    def moved(_: Any) -> Any:
        plain, value = next(pairs)
        if not isinstance(plain, Tensor):
            return plain
        if not inexact(plain.dtype):
            return tracked(value.to(plain.dtype), evaluate)
        exact = member is not None and bool(member.budget) and all(b.ulps == 0 for b in member.budget.values())
        noise = torch.rand(value.shape, generator=random, dtype=torch.float64) * 2 - 1
        by = 0.0 if exact and member is not None and not member.numerics.converts else unit(plain.dtype)
        return tracked(plain, evaluate, value * (1 + by * noise))

    return tree_map(out, moved)


def _followed(tree: Any, evaluate: Evaluate) -> Any:
    return tree_map(tree, lambda x: tracked(x, evaluate) if isinstance(x, Tensor) and not hasattr(x, "plain") else x)


def envelope(run: Callable[[Evaluate], Sequence[Any]], values: Sequence[Any]) -> list[Tensor | None]:
    """For each result of ``run``, the largest distance of ``RUNS`` perturbed runs from the exact results ``values``,
    times ``FACTOR``; None for a result that is not floating. ``run`` gets the function that evaluates operators.
    Deterministic. Raises NoRule for a program that draws random numbers.
    """
    farthest: list[Tensor | None] = [
        torch.zeros(v.shape, dtype=torch.float64) if isinstance(v, Tensor) and inexact(v.dtype) else None
        for v in values
    ]
    for seed in range(RUNS):
        random = torch.Generator().manual_seed(seed)
        for k, got in enumerate(run(partial(sampled, random=random))):
            far = farthest[k]
            if far is not None:
                off = (wide(got) - values[k]).abs()
                same = (wide(got) == values[k]) | (wide(got).isnan() & values[k].isnan())
                farthest[k] = torch.maximum(far, torch.where(same, 0.0, off.nan_to_num(float("inf"), float("inf"))))
    return [None if f is None else f * FACTOR for f in farthest]
