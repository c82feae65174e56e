"""Rules of operators that compute nothing: elements are moved with their errors, or chosen by order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from ..pytree import tensor_leaves, tree_leaves
from .error_rules import INF, CallContext, ErrorBound, NoRule, Rule, tracked_errors, uncertain, unknown, widened
from .pointwise import distance
from .tracked_tensor import error_of, errors, inexact, plain_of, wide

rule: ByMember[Rule] = ByMember()
FILLS = frozenset({"value", "fill_value"})
"""Parameters whose number stands in the result itself, without an error."""


def moved(call: CallContext) -> Sequence[ErrorBound]:
    """The same operator moves values and errors. An element that an unknown index picks is unknown."""
    if call.exact:
        return [
            ErrorBound(wide(o) if inexact(o.dtype) else None, None) if isinstance(o, Tensor) else ErrorBound(None, None)
            for o in (call.widely() if any(_valued(x) for x in tree_leaves((call.args, call.kwargs))) else call.outs)
        ]
    tensors = tensor_leaves((call.args, call.kwargs))
    floats = [x for x in tensors if inexact(x.dtype)]
    if floats and call.member is not None and call.member.name in _PICKED and uncertain(call.args, call.kwargs):
        return _picked(call)
    if (floats and uncertain(call.args, call.kwargs)) or (not floats and len(tensors) > 1):
        return [unknown(o) for o in call.outs]
    if not floats:  # integers or bools, moved alone
        error = _again(call, lambda x: errors(x) if isinstance(x, Tensor) else x)
        return [ErrorBound(None, e) for e in error]
    return [ErrorBound(v, e) for v, e in zip(call.widely(), _again(call, tracked_errors), strict=True)]


_PICKED = frozenset({"gather", "index"})


def _picked(call: CallContext) -> Sequence[ErrorBound]:
    """Picks elements by indices, some of which may be unknown: these pick an additional element that is unknown."""
    named = call.named
    x, indices = named["self"], named["indices"] if "indices" in named else [named["index"]]
    if any(i is not None and not _is_index(plain_of(i)) for i in indices):
        return [unknown(o) for o in call.outs]
    dims = range(len(indices)) if "indices" in named else [named["dim"] % max(x.dim(), 1)]
    if not x.dim() or any(i is not None and i.shape == () and len(indices) == 1 and "dim" in named for i in indices):
        return [unknown(o) for o in call.outs]
    size = list(x.shape)
    moved = errors(x)
    for d, index in zip(dims, indices, strict=True):
        if index is not None:
            moved = torch.nn.functional.pad(moved, [0, 0] * (x.dim() - 1 - d) + [0, 1], value=INF)
    away = [
        None if i is None else torch.where(errors(i) > 0, size[d], plain_of(i) % max(size[d], 1))
        for d, i in zip(dims, indices, strict=True)
    ]
    error = call.op(moved, away) if "indices" in named else call.op(moved, named["dim"], away[0])
    return [ErrorBound(call.widely()[0], error)]


def _is_index(x: Tensor) -> bool:
    return not inexact(x.dtype) and x.dtype not in (torch.bool, torch.uint8)


def _valued(x: Any) -> bool:
    return getattr(x, "value", None) is not None


def _again(call: CallContext, change: Any) -> tuple[Any, ...]:
    """The operator on changed tensors, with zeros for the numbers that it fills in."""
    names = list(call.named)
    filled = [
        0.0 if n in FILLS and isinstance(a, (int, float, bool)) else a for n, a in zip(names, call.args, strict=False)
    ]
    kwargs = {n: 0.0 if n in FILLS and isinstance(a, (int, float, bool)) else a for n, a in call.kwargs.items()}
    return CallContext(call.op, call.member, filled, kwargs, call.outs).again(change)


@rule("as_strided")
def strided(call: CallContext) -> Sequence[ErrorBound]:
    """as_strided reads memory: values and errors are laid out as the operand is first."""
    x = call.args[0]
    if not x.numel():
        return [ErrorBound(None, None)]
    offset = call.named.get("storage_offset")
    if offset not in (None, 0) or not _dense(plain_of(x)):
        return [unknown(o) for o in call.outs] if not call.exact else [ErrorBound(None, None)]
    results = []
    for part in (wide(x), errors(x)):
        laid = torch.empty_strided(x.shape, plain_of(x).stride(), dtype=part.dtype).copy_(part)
        results.append(call.op(laid, *call.args[1:], **call.kwargs))
    return [ErrorBound(results[0] if inexact(x.dtype) else None, None if call.exact else results[1])]


def _dense(x: Tensor) -> bool:
    return x.numel() == 0 or 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) == x.numel()


@rule("bitcast")
def bits(call: CallContext) -> Sequence[ErrorBound]:
    """Nothing is known about the bits of an inexact number."""
    x = call.args[0]
    if call.exact and not _valued(x):
        return [ErrorBound(None, None)]
    return [unknown(call.outs[0])] if x.dtype != call.outs[0].dtype else [ErrorBound(wide(x), error_of(x))]


@rule("view_as_real")
def parts(call: CallContext) -> Sequence[ErrorBound]:
    """The two parts of a complex number are each as far off as the whole at the most."""
    error = error_of(call.args[0])
    return [ErrorBound(call.widely()[0], None if error is None else error[..., None].expand(*error.shape, 2).clone())]


@rule("view_as_complex")
def pairs(call: CallContext) -> Sequence[ErrorBound]:
    """A complex number is as far off as both of its parts together at the most."""
    error = error_of(call.args[0])
    return [ErrorBound(call.widely()[0], None if error is None else error.sum(-1))]


def ordered(call: CallContext) -> Sequence[ErrorBound]:
    """The k-th of the elements in order, whichever k: it does not decrease if no element does, so that its extremes are
    those of the elements' lower and upper ends. Where two elements may change places nothing is known of indices.
    """
    if call.exact and not any(_valued(x) for x in tree_leaves((call.args, call.kwargs))):
        return [ErrorBound(None, None) for _ in call.outs]
    values = call.widely()
    ends = [call.again(partial(_moved, sign=sign)) for sign in (-1.0, 1.0)]
    results = []
    for k, out in enumerate(call.outs):
        if inexact(out.dtype):
            gap = torch.maximum(distance(ends[0][k], values[k]), distance(ends[1][k], values[k]))
            results.append(ErrorBound(values[k], None if call.exact else gap))
        else:
            results.append(ErrorBound(None, None) if call.exact else unknown(out))
    return results


def _moved(x: Any, sign: float) -> Any:
    if not isinstance(x, Tensor) or not inexact(x.dtype):
        return widened(x)
    return wide(x) + sign * errors(x)


def _extreme(call: CallContext, sign: float) -> Sequence[ErrorBound]:
    """argmax and, with a ``sign`` of -1, argmin: known where no other element's interval reaches that of the one that
    is found.
    """
    out = call.outs[0]
    if call.exact and not any(map(_valued, call.args)):
        return [ErrorBound(None, None)]
    x, dim = call.args[0], call.named.get("dim")
    if not inexact(x.dtype):
        return [unknown(out)]
    value, gap = wide(x) * sign, errors(x)
    if dim is None or not x.dim():
        value, gap, dim = value.flatten(), gap.flatten(), 0
    best = value.argmax(dim, keepdim=True)
    floor = (value - gap).gather(dim, best)
    rivals = ((value + gap) >= floor) & ((gap > 0) | (gap.gather(dim, best) > 0))
    rivals = rivals.scatter(dim, best, False) | value.isnan()
    error = torch.where(rivals.any(dim), INF, 0.0).reshape(out.shape)
    return [ErrorBound(None, error)]


rule.declare("argmax", partial(_extreme, sign=1.0))
rule.declare("argmin", partial(_extreme, sign=-1.0))


def undecided(call: CallContext) -> Sequence[ErrorBound]:
    """What is found by comparing is known where the operands are."""
    if call.exact and not any(map(_valued, tree_leaves((call.args, call.kwargs)))):
        return [ErrorBound(None, None) for _ in call.outs]
    return [unknown(o) for o in call.outs]


@rule("searchsorted")
def searched(call: CallContext) -> Sequence[ErrorBound]:
    """A place in a row is how many of it are less; it is known where it is eager's with all of the row, and what is
    searched, moved to either end of their errors.
    """
    named = call.named
    rows, values = named.get("sorted_sequence", named.get("boundaries")), named.get("self")
    rounded = not call.exact or any(map(_valued, (rows, values)))
    if not rounded or named.get("sorter") is not None or not isinstance(values, Tensor) or uncertain(rows, values):
        return undecided(call)

    def place(sign: float) -> Tensor:
        ends = (wide(rows) - sign * errors(rows)).sort(-1).values
        result: Tensor = torch.searchsorted(ends, wide(values) + sign * errors(values), right=_right(named))
        return result

    eager = plain_of(call.outs[0])
    return [ErrorBound(None, torch.where((place(-1.0) == eager) & (place(1.0) == eager), 0.0, INF))]


def _right(named: Mapping[str, Any]) -> bool:
    return bool(named.get("right")) or named.get("side") == "right"


@rule("item")
def hosted(call: CallContext) -> Sequence[ErrorBound]:
    """A number that the host goes on with must be known."""
    if not call.exact:
        raise NoRule("A number is read that is not exact.")
    return [ErrorBound(None, None) for _ in call.outs]
