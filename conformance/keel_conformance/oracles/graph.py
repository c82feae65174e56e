"""Running error analysis over a whole functional graph: for drawn graphs and for what programs are traced to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ..pytree import tree_leaves, tree_map
from .compare import MASKED, Finding, compare
from .error_rules import NoRule, flat, rounded, widened
from .montecarlo import envelope
from .running_error import analyze
from .tracked_tensor import Evaluate, Tracked, error_of, inexact, plain_of, tracked, wide


@dataclass(frozen=True)
class Bounded:
    """One result: ``reference`` in float64 (integers and bools as they are), ``bound`` on the distance from it in
    float64, ``mask`` where anything may stand, and eager's own result.
    """

    reference: Tensor
    bound: Tensor
    mask: Tensor
    eager: Tensor
    by: str = "error analysis"


class _Runner(fx.Interpreter):
    """Every operator of the graph does what ``evaluate`` does."""

    evaluate: Evaluate

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch.ops.aten.add.Tensor.__class__) and any(
            isinstance(x, Tensor) for x in tree_leaves((args, kwargs))
        ):
            return self.evaluate(target, args, kwargs)
        return super().call_function(target, args, kwargs)


def _run(gm: fx.GraphModule, inputs: Sequence[Any], evaluate: Evaluate) -> tuple[Any, ...]:
    runner = _Runner(gm)
    runner.evaluate = evaluate
    tracked_inputs = [tracked(x, evaluate) if isinstance(x, Tensor) else x for x in inputs]
    return flat(runner.run(*tracked_inputs))


def graph_bounds(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Bounded | None]:
    """For each result of a functional graph of ATen overloads, on ``inputs``, its reference, bound and mask; None for a
    result that is not a tensor.

    The bound is that of running error analysis, each node in its own dtype, decomposed where it is composite. Where it
    leaves more than 1 % of a result's elements without a bound, or does not reach a node, Monte-Carlo arithmetic
    stands in.  Raises NoRule for a graph that draws random numbers.
    """
    with torch.no_grad():
        eager = flat(_plainly(gm, inputs))
        try:
            results: Sequence[Any] = _run(gm, inputs, analyze)
        except NoRule:
            return _sampled(gm, inputs, eager)
        bounded = [_bounded(f, e) for f, e in zip(results, eager, strict=True)]
        if any(b is not None and float(b.mask.double().mean() if b.mask.numel() else 0) > MASKED for b in bounded):
            return _narrower(bounded, _sampled(gm, inputs, eager))
        return bounded


def _plainly(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return gm(*inputs)


def _bounded(result: Any, eager: Any) -> Bounded | None:
    if not isinstance(eager, Tensor):
        return None
    error = error_of(result)
    bound = torch.zeros(eager.shape, dtype=torch.float64) if error is None else error
    value = wide(result) if isinstance(result, Tracked) and inexact(eager.dtype) else wide(plain_of(result))
    return Bounded(value, bound, bound.isinf(), eager)


def _sampled(gm: fx.GraphModule, inputs: Sequence[Any], eager: Sequence[Any]) -> list[Bounded | None]:
    """Bounds by Monte-Carlo arithmetic around the results in float64; half an ulp more, for the result's rounding."""
    values = [wide(v) if isinstance(v, Tensor) else v for v in flat(_exact(gm, inputs))]
    spread = envelope(lambda evaluate: _run(gm, inputs, evaluate), values)
    results: list[Bounded | None] = []
    for value, far, own in zip(values, spread, eager, strict=True):
        if not isinstance(own, Tensor):
            results.append(None)
        elif far is None:
            moved = torch.where(value != own, float("inf"), 0.0)
            results.append(Bounded(own, moved, moved.isinf(), own, "Monte-Carlo arithmetic"))
        else:
            bound = rounded(value, far, own.dtype, 1.0)
            results.append(Bounded(value, bound, bound.isinf(), own, "Monte-Carlo arithmetic"))
    return results


def _exact(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """The graph in float64, no step moved."""

    def evaluate(op: Any, args: Any, kwargs: Any) -> Any:
        plain = op(*tree_map(tuple(args), plain_of), **tree_map(dict(kwargs), plain_of))
        values = iter(flat(op(*tree_map(tuple(args), widened), **tree_map(dict(kwargs), widened))))

        def with_value(own: Any) -> Any:
            value = next(values)
            if not isinstance(own, Tensor):
                return own
            return tracked(own, evaluate, value) if inexact(own.dtype) else tracked(value.to(own.dtype), evaluate)

        return tree_map(plain, with_value)

    return _run(gm, inputs, evaluate)


def _narrower(bounded: Sequence[Bounded | None], sampled: Sequence[Bounded | None]) -> list[Bounded | None]:
    """Monte-Carlo arithmetic's bounds for those results that are masked too much."""
    results: list[Bounded | None] = []
    for b, s in zip(bounded, sampled, strict=True):
        bad = b is not None and b.mask.numel() and float(b.mask.double().mean()) > MASKED
        results.append(s if bad and s is not None and inexact(s.eager.dtype) else b)
    return results


def judge_graph(
    gm: fx.GraphModule, inputs: Sequence[Any], results: Sequence[Any], bounds: Sequence[Bounded | None] | None = None
) -> list[Finding]:
    """What is wrong with each result that a backend gave for the graph: dtype and sizes first, then the numbers.
    ``bounds`` are those of ``graph_bounds``, where they are known already.
    """
    bounds = graph_bounds(gm, inputs) if bounds is None else bounds
    if len(results) != len(bounds):
        return [Finding(f"There are {len(results)} results, not {len(bounds)}.")]
    return [Finding() if b is None else _finding(got, b) for got, b in zip(results, bounds, strict=True)]


def _finding(got: Any, b: Bounded) -> Finding:
    if not isinstance(got, Tensor) or (got.dtype, got.shape) != (b.eager.dtype, b.eager.shape):
        have = f"{got.dtype} {list(got.shape)}" if isinstance(got, Tensor) else type(got).__name__
        return Finding(f"It is {have}, not {b.eager.dtype} {list(b.eager.shape)}.")
    if not inexact(got.dtype):
        return compare(got, tracked(b.reference, analyze, None, b.bound), [b.eager])
    return compare(got, tracked(b.eager, analyze, b.reference, b.bound), [b.eager])
