"""Running error analysis: a call evaluated in float64, written out into primitives, each with its rule.

Wilkinson's running error analysis (Higham 2002, section 3.3), with bounds instead of estimates: each primitive takes
bounds on its operands' errors to a bound on its result's.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from keel import OPSET, decomposition_of

from . import linear, movement, pointwise
from .rules import INF, Asked, Bound, NoRule, Rule, flat, rounded
from .tracked import Tracked, error_of, inexact, leaves, mapped, overflow, plain_of, tracked

RULES: Mapping[str, Rule] = {**pointwise.RULES, **linear.RULES, **movement.RULES}


def analysed(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What ``op`` gives for tensors that may be tracked, tracked. Raises NoRule for what is not analysed."""
    member = OPSET.get(op)
    args, kwargs = mapped(tuple(args), _settled), mapped(dict(kwargs), _settled)
    if member is not None and member.kind == "primitive":
        return _primitive(op, member, args, kwargs)
    decompose = decomposition_of(op)
    if decompose is None or (member is not None and member.kind == "opaque"):
        raise NoRule(f"{op} is neither a primitive nor written out.")
    return decompose(*args, **kwargs)


def _primitive(op: Any, member: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    out = op(*mapped(tuple(args), plain_of), **mapped(dict(kwargs), plain_of))
    outs = flat(out)
    if _sure(member, args, kwargs, outs):
        return out
    rule = RULES.get(member.name)
    if rule is None:
        raise NoRule(f"{member.name} has no rule.")
    bounds = rule(Asked(op, member, args, kwargs, outs))
    found = [_wrapped(o, b) for o, b in zip(outs, bounds, strict=True)]
    remaining = iter(found)
    return mapped(out, lambda _: next(remaining))


def _sure(member: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outs: Sequence[Any]) -> bool:
    """Whether eager's results are the only right ones: exact operands, and nothing to round."""
    given = [x for x in leaves((args, kwargs)) if isinstance(x, Tracked)]
    if any(error_of(x) is not None or getattr(x, "value", None) is not None for x in given):
        return False
    if member.name == "convert":
        return False
    whole = all(not isinstance(o, Tensor) or not inexact(o.dtype) for o in outs)
    return whole or (bool(member.budget) and all(b.ulps == 0 for b in member.budget.values()))


def _wrapped(out: Any, bound: Bound) -> Any:
    if not isinstance(out, Tensor):
        return out
    if not inexact(out.dtype) or bound.value is None:
        return tracked(out, analysed, None, bound.error)
    error = rounded(bound.value, bound.error, out.dtype, bound.ulps) if bound.ulps else bound.error
    return tracked(out, analysed, bound.value, error)


def _settled(x: Any) -> Any:
    """An operand that may have overflowed in its dtype, or not in a wider one, is not known."""
    if not isinstance(x, Tensor) or not isinstance(x, Tracked) or getattr(x, "value", None) is None:
        return x if not isinstance(x, Tensor) or isinstance(x, Tracked) else tracked(x, analysed)
    value, error = x.value, x.error
    assert value is not None
    reach = value.abs() if error is None else value.abs() + error
    lost = value.isfinite() & (reach >= overflow(x.dtype))
    if not lost.any():
        return x
    return tracked(x.plain, analysed, value, torch.where(lost, INF, 0.0 if error is None else error))
