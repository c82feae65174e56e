"""PyTorch's symbolic numbers as sympy expressions: what is known of a size, and the value it had while tracing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._sympy.functions import Max

from keel.types import Dim, as_dim

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool


def dim_of(value: int | torch.SymInt) -> Dim:
    """A size as a Dim.  Symbols keep the assumptions PyTorch gave them: integer, and positive for sizes.

    PyTorch's own functions (FloorDiv, Mod ...) stay as they are; ``loops.symbolic_sizes.canonicalize`` replaces them.
    """
    return value if isinstance(value, int) else as_dim(expression(value))


def expression(value: Symbolic | int | float) -> sympy.Expr:
    """The sympy expression of a symbolic number or bool; a sympy number for a plain one."""
    if isinstance(value, Symbolic):
        return value.node.expr
    return sympy.sympify(value)


def hint_of(value: int | torch.SymInt) -> int | None:
    """The value while tracing; None for a number that only the run will tell (the length of ``nonzero`` ...)."""
    if isinstance(value, int):
        return value
    node = value.node
    if not node.has_hint():
        return None
    return int(node.hint)


def constant_of(value: object) -> object:
    """A plain number or bool for a symbolic one whose value is already certain; anything else unchanged."""
    if not isinstance(value, Symbolic):
        return value
    known = expression(value)
    if isinstance(value, torch.SymBool):
        return bool(known) if known in (sympy.true, sympy.false) else value
    if not known.is_number:
        return value
    return int(known) if isinstance(value, torch.SymInt) else float(known)


def same(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    """Whether two sizes are equal, now and in every run.

    Where they were equal while tracing, a guard says that they are; sizes that only a run tells are equal if that is
    known already.
    """
    if expression(a) == expression(b):
        return True
    here, there = hint_of(a), hint_of(b)
    if here is not None and there is not None:
        return here == there and bool(a == b)  # asking makes the guard
    return statically_known_true(a == b)


def holds(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes is known to hold in every run; where they have values while tracing, a guard says
    that it does, if it does then.
    """
    if isinstance(condition, bool):
        return condition
    if condition.node.has_hint():
        return bool(condition)
    return statically_known_true(condition)


def promise(holds: bool | torch.SymBool) -> None:
    """Lets sizes that only a run tells rely on a condition.  Raises RuntimeError where it is known not to hold."""
    torch._check(holds)


def symbols_of(mode: Any) -> frozenset[sympy.Symbol]:
    """All symbols that a fake mode knows so far."""
    return frozenset() if mode is None or mode.shape_env is None else frozenset(mode.shape_env.var_to_range)


def late(expr: sympy.Expr) -> frozenset[sympy.Symbol]:
    """The symbols in an expression whose value only a run tells."""
    return frozenset(free_unbacked_symbols(expr))


def of_some(stride: sympy.Expr, sizes: Collection[sympy.Expr]) -> sympy.Expr:
    """A stride of a tensor that has elements, so that those of its sizes that only a run tells are 1 or more."""
    either = {m: u for m in stride.atoms(Max) for u in late(m) if u in sizes and set(m.args) == {u, sympy.Integer(1)}}
    return stride.xreplace(either)


def rename(mode: Any, names: Mapping[sympy.Symbol, sympy.Expr]) -> None:
    """Makes each symbol that only a run tells what is given for it, in all values of a fake mode.

    That they are equal is for the caller to know; what was known of a symbol's bounds is forgotten.
    """
    env = mode.shape_env
    for old, new in names.items():
        env.var_to_range[old] = env.bound_sympy(new)  # else bounds, some of them guesses, forbid it
        if new.is_Symbol and late(new):
            env._rename_unbacked_to(old, new)
        else:
            env._eliminate_unbacked(old, new)
