"""FX operators as loop definitions: one rule per overload, by family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from keel.loops.builder import LoopDefinition, NotLowerable, Rule, trace_rule
from keel.loops.host_symbols import hosted
from keel.symbols import HostNumbers
from keel.types import DTYPE_NAMES, Call, SymType, TensorType, leaves, symbols_of

from . import (
    activations,
    arithmetic,
    contraction,
    convolution,
    creation,
    data_movement,
    indexing,
    logic,
    pooling,
    reductions,
    scatter,
    unary,
    views,
)

RULES: Mapping[Any, Rule] = {
    **unary.RULES,
    **arithmetic.RULES,
    **logic.RULES,
    **activations.RULES,
    **creation.RULES,
    **views.RULES,
    **data_movement.RULES,
    **reductions.RULES,
    **pooling.RULES,
    **indexing.RULES,
    **scatter.RULES,
    **contraction.RULES,
    **convolution.RULES,
}
AFTER_LIBRARIES = frozenset((*contraction.RULES, *convolution.RULES))
"""Operators whose loops are used only by a target that has no library call for them."""

MOVING = frozenset(
    (
        *views.RULES,
        *data_movement.RULES,
        *indexing.RULES,
        *creation.RULES,
        *scatter.RULES,
        *logic.CHOOSING,
        *unary.COPYING,
    )
)
"""Operators that only move elements, so that their rules work for complex numbers too."""
COMPLEX_MOVED = frozenset((torch.complex64, torch.complex128))

_known: dict[tuple[Any, ...], LoopDefinition | str] = {}


def lower(call: Call, host: HostNumbers | None = None) -> LoopDefinition | str:
    """Lowers ``call`` to loops, or returns a sentence that says why it cannot. Symbols of ``host`` replace sizes and
    numbers that kernels cannot compute. Memoized by the call and by what these symbols stand for.
    """
    host = HostNumbers() if host is None else host
    hosted_call = hosted(call, host)
    key = hosted_call.key if hosted_call is call else (call.key, hosted_call.key)
    if key not in _known:
        _known[key] = _new_size(call) or _lower(hosted_call)
    return _known[key]


def calls_by_result(call: Call) -> tuple[Call, ...]:
    """``call`` as calls for each of its results, if these have loops of their own, else ``call`` alone."""
    separate = convolution.CALLS_BY_RESULT.get(call.op)
    return (call,) if separate is None else separate(call)


def _new_size(call: Call) -> str | None:
    """The refusal of a call with a data-dependent result size; None if every symbol of the result's sizes is in an
    argument.
    """
    if new := _new_symbols(call):
        return f"{call.name} has a result of size {new[0]}, which depends on data."
    return None


def _lower(call: Call) -> LoopDefinition | str:
    rule = RULES.get(call.op)
    if rule is None:
        return f"{call.name} has no loop form."
    tensors = (*call.tensors, *(t for t in call.out if isinstance(t, TensorType)))
    odd = next(
        (
            t.dtype
            for t in tensors
            if t.dtype not in COMPLEX_MOVED and (t.dtype.is_complex or t.dtype not in DTYPE_NAMES)
        ),
        None,
    )
    if odd is None and call.op not in MOVING:
        odd = next((t.dtype for t in tensors if t.dtype.is_complex), None)
    if odd is not None:
        return f"{call.name} has no loop form on {str(odd).removeprefix('torch.')}."
    try:
        return trace_rule(rule, call)
    except NotLowerable as why:
        return why.sentence
    except TypeError:
        if (late := _late_number(call)) is None:
            raise
        return f"{call.name} takes {late}, which is known only at run time, where its loops need a plain number."


def _late_number(call: Call) -> object | None:
    """A float or bool argument that is known only at run time, so that it has no value here."""
    numbers = [v for v in leaves((*call.args, *call.kwargs.values())) if isinstance(v, SymType) and v.kind != "int"]
    return next((v.expr for v in numbers if isinstance(v.expr, sympy.Basic) and v.expr.free_symbols), None)


def _new_symbols(call: Call) -> list[str]:
    """The symbols of the results' sizes that are in no argument."""
    made = {s for t in call.out if isinstance(t, TensorType) for s in t.symbols}
    if not made:
        return []
    known = {s for t in call.tensors for s in t.symbols}
    numbers = [v.expr for v in leaves((*call.args, *call.kwargs.values())) if isinstance(v, SymType)]
    return sorted(made - known - set(symbols_of(n for n in numbers if isinstance(n, sympy.Expr))))


__all__ = ["AFTER_LIBRARIES", "RULES", "calls_by_result", "lower"]
