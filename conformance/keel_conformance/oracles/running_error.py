"""Running error analysis: a call evaluated in float64, written out into primitives, each with its rule.

Wilkinson's running error analysis (Higham 2002, section 3.3), with bounds instead of estimates: each primitive takes
bounds on its operands' errors to a bound on its result's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from keel import Call
from keel.opset import OPSET, Op, Results, bind, decomposition_of
from keel.plugin import Arithmetic

from ..pytree import tree_leaves, tree_map
from . import conversions, dot_products, grid_sample, movement, pointwise, resampled, special, unspecified
from .error_rules import IEEE, INF, CallContext, ErrorBound, NoRule, Rule, coarser, flat, rounded
from .tracked_tensor import (
    BITS,
    Evaluate,
    Tracked,
    error_of,
    errors,
    gamma,
    inexact,
    overflow,
    plain_of,
    sums_in,
    tracked,
    unit,
    wide,
)

FAR = 2.0**20
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
FLUSHED = (torch.float32, torch.float64, torch.bfloat16)
"""Floats of which what is below the normal numbers may be taken for 0 on the way to a result."""
COMPOSITE_RULES: Mapping[str, Rule] = resampled.RULES
"""Of composites that are not followed into their pieces."""
OWN: Mapping[str, Rule] = {
    **pointwise.rule.declared,
    **conversions.rule.declared,
    **dot_products.rule.declared,
    **movement.rule.declared,
}
"""Of primitives that have a rule of their own."""
OF_RESULTS: Mapping[Results, Rule] = {
    Results.MOVED: movement.moved,
    Results.CHOSEN: movement.ordered,
    Results.SUMS: dot_products.sums,
}


def rule_of(member: Op) -> Rule | None:
    """The rule of a primitive: its own, or that of what its declaration says that it computes."""
    if member.name in OWN:
        return OWN[member.name]
    if member.operands and "pointwise" in member.tags:
        in_ulps = any(b.ulps is not None for b in member.budget.values())
        return pointwise.elementwise_or_unknown if in_ulps else special.by_eager
    if member.numerics.results is not None:
        return OF_RESULTS.get(member.numerics.results)
    return movement.undecided if member.numerics.steps else None


def analyze(
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    coarse: torch.dtype | None = None,
    inner: bool = False,
    arithmetic: Arithmetic = IEEE,
) -> Any:
    """What ``op`` gives for tensors that may be tracked, tracked. Raises NoRule for calls that it cannot analyze.

    ``coarse`` is the dtype in which results may be rounded where it is less precise than their own; ``inner`` says that
    they are intermediate ones. ``arithmetic`` has what the device does otherwise than IEEE arithmetic.
    """
    member = OPSET.get(op)
    outer: Evaluate = partial(analyze, coarse=coarse, inner=True, arithmetic=arithmetic)
    if member is not None and member.kind == "composite":
        coarse = intermediate_dtype(member, (args, kwargs), coarse)
    evaluate: Evaluate = partial(analyze, coarse=coarse, inner=True, arithmetic=arithmetic)
    args, kwargs = (tree_map(a, partial(_settled, evaluate=evaluate)) for a in (tuple(args), dict(kwargs)))
    if member is not None and member.kind == "primitive":
        return _primitive(op, member, args, kwargs, evaluate, coarse, inner, arithmetic)
    if member is not None and (rule := COMPOSITE_RULES.get(member.name)) is not None:
        with suppress(NoRule):
            return _composite_rule(
                rule,
                CallContext(
                    op,
                    member,
                    args,
                    kwargs,
                    flat(op(*tree_map(args, plain_of), **tree_map(kwargs, plain_of))),
                    arithmetic,
                ),
                evaluate,
                coarse,
            )
    if member is not None:
        args = _free_to_round(op, member, args, kwargs, evaluate, arithmetic)
    decompose = decomposition_of(op)
    if decompose is None or (member is not None and member.kind == "opaque"):
        raise NoRule(f"{op} is neither a primitive nor written out.")
    if getattr(decompose, "__self__", None) is op:  # PyTorch's own, which a mode would call without end
        return decompose(*args, **kwargs)
    with TrackedFactories(evaluate):
        result = tree_map(decompose(*args, **kwargs), partial(_evaluated_by, evaluate=outer))
    if member is None or member.name not in grid_sample.SAMPLERS:
        return result
    return grid_sample.loosened(bind(Call(op, tuple(args), dict(kwargs), ())), result)


def intermediate_dtype(member: Op, operands: Any, outer: torch.dtype | None) -> torch.dtype | None:
    """The dtype in which a composite may round what it computes on the way: the least precise of its operands' and of
    ``outer``, that of a composite of which it is a part; None if a clause says that it computes in float32.
    """
    if member.in_float32:
        return None
    dtypes = [getattr(x, "dtype", x) for x in (*tree_leaves(operands), outer)]
    return min((d for d in dtypes if d in SIXTEEN_BITS), key=BITS.__getitem__, default=None)


def _folds(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a result is of more than one element: the mean of one is that element, however it is computed."""
    out = flat(op(*tree_map(tuple(args), plain_of), **tree_map(dict(kwargs), plain_of)))[0]
    return bool(args[0].numel() != out.numel())


def _free_to_round(
    op: Any, member: Op, args: Sequence[Any], kwargs: Mapping[str, Any], evaluate: Evaluate, arithmetic: Arithmetic
) -> Sequence[Any]:
    """``args`` with errors that stand for what other ways of computing the member round, of which its numerics tell.

    With Welford's updates |mean - exact| <= gamma(n + 1) sum |x| / n, as of any order of summation, but never 0. With
    n products g x and g mean that are summed apart, it is gamma(n + 3) (sum |g x| + sum |g mean|): as if x and the mean
    were off by gamma(n + 3) of theirs, n being the longer of the sums over which the gradients go. With x s and mean s
    apart, of which each is rounded twice and their sums are, too, it is gamma(4) of each.
    """
    facts = member.numerics
    if facts.updated_mean and _folds(op, args, kwargs):
        return [_off(args[0], 0.0, evaluate), *args[1:]]
    if not facts.scaled_and_shifted and facts.split_sums is None:
        return args
    named = bind(Call(op, tuple(args), dict(kwargs), ()))
    if facts.scaled_and_shifted:
        off, share = (
            facts.scaled_and_shifted,
            gamma(4, unit(sums_in(args[0].dtype, args[0].dtype not in arithmetic.sums))),
        )
    else:
        assert facts.split_sums is not None
        off, x = (facts.split_sums.x, facts.split_sums.mean), named[facts.split_sums.x]
        sums = min(prod(facts.split_sums.weights.of(named)), named[facts.split_sums.mean].numel())
        share = gamma(x.numel() / max(sums, 1) + 3, unit(sums_in(x.dtype, x.dtype not in arithmetic.sums)))
    return [_off(x, float(share), evaluate) if name in off else x for name, x in zip(named, args, strict=False)]


def _off(x: Any, share: float, evaluate: Evaluate) -> Any:
    """``x``, off by so much of its size; not known to be exact even if that is nothing."""
    if not isinstance(x, Tensor) or not inexact(x.dtype):
        return x
    value = wide(x)
    more = torch.where(value.isfinite(), share * value.abs(), 0.0) if share else 0.0
    return tracked(plain_of(x), evaluate, value, errors(x) + more)


class TrackedFactories(TorchFunctionMode):
    """Within it, what operators make of numbers alone is tracked, too."""

    def __init__(self, evaluate: Evaluate):
        super().__init__()
        self.evaluate = evaluate

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if OPSET.get(func) is None or any(isinstance(x, Tensor) for x in tree_leaves((args, keywords))):
            return func(*args, **keywords)
        return self.evaluate(func, args, keywords)


def _primitive(
    op: Any,
    member: Op,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    evaluate: Evaluate,
    coarse: torch.dtype | None,
    inner: bool,
    arithmetic: Arithmetic,
) -> Any:
    out = op(*tree_map(tuple(args), plain_of), **tree_map(dict(kwargs), plain_of))
    outs = flat(out)
    if _sure(member, args, kwargs, outs):
        bounds: Sequence[ErrorBound] = [ErrorBound(None, None) for _ in outs]
    else:
        rule = rule_of(member)
        if rule is None:
            raise NoRule(f"{member.name} has no rule.")
        bounds = rule(CallContext(op, member, args, kwargs, outs, arithmetic, coarse))
    if member.unspecified is not None:
        bounds = _without_unspecified(CallContext(op, member, args, kwargs, outs), bounds)
    if member.numerics.identities or member.numerics.converts:
        bounds = [_steady(member, o, b, args, kwargs, coarse) for o, b in zip(outs, bounds, strict=True)]
    if inner:
        bounds = [_flushed(o, b, arithmetic) for o, b in zip(outs, bounds, strict=True)]
    remaining = iter([_wrapped(o, b, evaluate, coarse) for o, b in zip(outs, bounds, strict=True)])
    return tree_map(out, lambda _: next(remaining))


def _flushed(out: Any, bound: ErrorBound, arithmetic: Arithmetic) -> ErrorBound:
    """An intermediate result below the normal numbers of its dtype may be 0: no clause asks for gradual underflow, and
    PyTorch's vectors of ``exp`` have none. float16, whose normal numbers end at 6e-5, is computed in float32.
    """
    flushed = (*FLUSHED, *arithmetic.flushes_subnormals)
    if not isinstance(out, Tensor) or out.dtype not in flushed or bound.value is None or not bound.ulps:
        return bound
    small = (bound.value != 0) & (bound.value.abs() < torch.finfo(out.dtype).smallest_normal)
    if not bool(small.any()):
        return bound
    before = torch.zeros_like(bound.value) if bound.error is None else bound.error
    return replace(bound, error=torch.where(small, before + bound.value.abs(), before))


def _composite_rule(rule: Rule, call: CallContext, evaluate: Evaluate, coarse: torch.dtype | None) -> Any:
    """The one result of a composite that has a rule of its own."""
    (bound,) = rule(call)
    return _wrapped(call.outs[0], bound, evaluate, coarse)


def _without_unspecified(call: CallContext, bounds: Sequence[ErrorBound]) -> Sequence[ErrorBound]:
    """Nothing is known of elements that clauses leave open, by eager's results or by the precise ones."""
    assert call.member is not None
    named = {n: plain_of(v) for n, v in call.named.items()}
    wide = [o if b.value is None else b.value for o, b in zip(call.outs, bounds, strict=True)]
    free = zip(*(unspecified.unspecified_elements(call.member, named, outs) for outs in (call.outs, wide)), strict=True)
    return [_free(b, [f for f in some if f is not None and f.any()]) for b, some in zip(bounds, free, strict=True)]


def _free(bound: ErrorBound, free: Sequence[Tensor]) -> ErrorBound:
    error = bound.error
    for some in free:
        error = torch.where(some, INF, 0.0 if error is None else error)
    return replace(bound, error=error)


def _sure(member: Op, args: Sequence[Any], kwargs: Mapping[str, Any], outs: Sequence[Any]) -> bool:
    """Whether eager's results are the only right ones: exact operands, and nothing to round."""
    operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tracked)]
    if any(error_of(x) is not None or getattr(x, "value", None) is not None for x in operands):
        return False
    if member.numerics.converts:
        return False
    integral = all(not isinstance(o, Tensor) or not inexact(o.dtype) for o in outs)
    return integral or (bool(member.budget) and all(b.ulps == 0 for b in member.budget.values()))


def _steady(
    member: Op, out: Any, bound: ErrorBound, args: Sequence[Any], kwargs: Mapping[str, Any], coarse: torch.dtype | None
) -> ErrorBound:
    """The bound without a rounding where there is nothing to round: of operands without error, of which all are
    multiples of a sixteenth or one is an identity or all are converted, a result that the dtype has; and what is
    multiplied by 0 and sure to be finite.
    """
    facts = member.numerics
    if not isinstance(out, Tensor) or not out.is_floating_point() or bound.value is None or not bound.ulps:
        return bound
    known, small, idle, none = (torch.full((), b) for b in (True, facts.keeps_dyadics, facts.converts, False))
    for k, x in enumerate(tree_leaves((args, kwargs))):
        if isinstance(x, Tensor | int | float):
            value = wide(x).double() if isinstance(x, Tensor) else torch.tensor(float(x), dtype=torch.float64)
            small = small & (value * 16 == (value * 16).round()) & (value.abs() <= FAR)
            if len(args) == 2 and not kwargs and facts.identities and (identity := facts.identities[k]) is not None:
                idle = idle | (value.abs() == identity)
            error = error_of(x)
            sure = torch.full((), True) if error is None else error == 0
            known, none = known & sure, none | (sure & (value == 0) & facts.zero_absorbs)
    dtype, finite = coarser(out.dtype, coarse), bound.error is None or bound.error.isfinite()
    known = known & (small | idle) & (bound.value.to(dtype).double() == bound.value)
    known = known | (none & (bound.value == 0) & finite)
    if not bool(known.any()):
        return bound
    ulps = torch.where(known, 0.0, bound.ulps)
    error = bound.error if bound.error is None else torch.where(known, 0.0, bound.error)  # nor has the reference any
    return ErrorBound(bound.value, rounded(bound.value, error, dtype, ulps), overflowed=bound.overflowed)


def _wrapped(out: Any, bound: ErrorBound, evaluate: Evaluate, coarse: torch.dtype | None) -> Any:
    if not isinstance(out, Tensor):
        return out
    if not inexact(out.dtype) or bound.value is None:
        known = bound.error is None or not bool((bound.error != 0).any())
        return tracked(out, evaluate, None, None if known else bound.error)
    error = rounded(bound.value, bound.error, coarser(out.dtype, coarse), bound.ulps) if bound.ulps else bound.error
    if error is not None:  # 0 times what is not known, say
        error = error.nan_to_num(INF, INF)
    made = tracked(out, evaluate, bound.value, error)
    made.overflowed = bound.overflowed
    return made


def _evaluated_by(x: Any, evaluate: Evaluate) -> Any:
    """A tracked tensor whose operators do what ``evaluate`` does; other things as they are."""
    if not isinstance(x, Tracked) or not hasattr(x, "plain"):
        return x
    made = tracked(x.plain, evaluate, x.value, x.error)
    made.lost, made.overflowed = x.lost, x.overflowed
    return made


def _settled(x: Any, evaluate: Evaluate) -> Any:
    """An operand that may have overflowed in its dtype, or not in a wider one: which of both is not known. Of one that
    overflows in float64 nothing is.
    """
    if not isinstance(x, Tensor):
        return x
    if not isinstance(x, Tracked) or not hasattr(x, "plain"):
        return tracked(x, evaluate)
    if x.value is None:
        return _evaluated_by(x, evaluate)
    if x.overflowed is not None:
        return tracked(x.plain, evaluate, x.value, torch.where(x.overflowed, INF, 0.0 if x.error is None else x.error))
    reach = x.value.abs() if x.error is None else x.value.abs() + x.error
    lost = x.value.isfinite() & (reach >= overflow(x.dtype))
    if not lost.any():
        return _evaluated_by(x, evaluate)
    made = tracked(x.plain, evaluate, x.value, x.error)
    made.lost = lost
    return made
