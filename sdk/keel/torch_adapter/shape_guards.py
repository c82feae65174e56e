"""Guards on sizes and numbers that compiling a graph adds: conditions under which Dynamo may run the compiled code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
from torch.utils._sympy.symbol import SymT, symbol_is_type


def guards_of(mode: Any) -> tuple[sympy.Basic, ...]:
    """The guards of a fake mode so far, in order."""
    env = None if mode is None else mode.shape_env
    return () if env is None else tuple(guard.expr for guard in env.guards)


def assumes_a_float(mode: Any) -> bool:
    """True if there is a guard on a float: the graph holds a number that another call may change."""
    symbols = {symbol for guard in guards_of(mode) for symbol in guard.free_symbols}
    return any(symbol_is_type(symbol, SymT.FLOAT) for symbol in symbols)


def add_guards(mode: Any, conditions: Iterable[sympy.Basic]) -> bool:
    """Adds guards to a fake mode. Returns False, and may have added some, if a condition does not hold for the sizes
    that were captured.
    """
    conditions = tuple(conditions)
    if not conditions:
        return True
    env = None if mode is None else mode.shape_env
    return env is not None and all(env.evaluate_expr(condition) == sympy.true for condition in conditions)
