"""PyTorch's symbolic numbers as sympy expressions: facts about sizes, and the values they had while tracing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._sympy.functions import Max

from keel.types import Dim, TensorType, as_dim

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool


def dim_of(value: int | torch.SymInt) -> Dim:
    """A size as a Dim.  Symbols keep the assumptions PyTorch gave them: integer, and positive for sizes.

    PyTorch's own functions (FloorDiv, Mod ...) stay as they are; ``loops.symbolic_sizes.canonicalize`` replaces them.
    """
    return value if isinstance(value, int) else as_dim(expression(value))


def tensor_type(x: torch.Tensor) -> TensorType:
    """The type of a tensor, fake or not, of any layout that has strides."""
    return TensorType(x.dtype, tuple(map(dim_of, x.shape)), tuple(map(dim_of, x.stride())), x.device)


def expression(value: Symbolic | int | float) -> sympy.Expr:
    """The sympy expression of a symbolic number or bool; a sympy number for a plain one."""
    if isinstance(value, Symbolic):
        return value.node.expr
    return sympy.sympify(value)


def hint_of(value: int | torch.SymInt) -> int | None:
    """The value while tracing; None for a data-dependent number (the length of ``nonzero`` ...)."""
    if isinstance(value, int):
        return value
    node = value.node
    if not node.has_hint():
        return None
    return int(node.hint)


def hints_of(value: torch.SymInt) -> dict[str, int]:
    """The values while tracing of all symbols of integers of a number's shape environment, by name: also of those that
    it has since replaced by symbols that are equal, and that types of older calls still name.
    """
    known = backed_values(value.node.shape_env)
    return {symbol.name: int(hint) for symbol, hint in known.items() if isinstance(hint, sympy.Integer)}


def backed_values(env: Any) -> Mapping[sympy.Symbol, Any]:
    """The values while tracing of the symbols of a shape environment that are not data-dependent."""
    known: Mapping[sympy.Symbol, Any]
    known = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val  # the name in 2.11
    return known


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
    """True if two sizes are equal in every run. If they were equal while tracing, a guard is added. Data-dependent
    sizes are equal only if that is already known.
    """
    if expression(a) == expression(b):
        return True
    here, there = hint_of(a), hint_of(b)
    if here is not None and there is not None:
        return here == there and bool(a == b)  # the comparison adds the guard
    return statically_known_true(a == b)


def holds(condition: bool | torch.SymBool) -> bool:
    """True if a condition on sizes holds in every run. If it held for the values while tracing, a guard is added."""
    if isinstance(condition, bool):
        return condition
    if condition.node.has_hint():
        return bool(condition)
    return statically_known_true(condition)


def promise(holds: bool | torch.SymBool) -> None:
    """Declares that a condition on data-dependent sizes holds. Raises RuntimeError if it is known to be false."""
    torch._check(holds)


def symbols_of(mode: Any) -> frozenset[sympy.Symbol]:
    """All symbols of a fake mode so far."""
    return frozenset() if mode is None or mode.shape_env is None else frozenset(mode.shape_env.var_to_range)


def late(expr: sympy.Expr) -> frozenset[sympy.Symbol]:
    """The unbacked symbols of an expression: those whose values are data-dependent."""
    return frozenset(free_unbacked_symbols(expr))


def of_some(stride: sympy.Expr, sizes: Collection[sympy.Expr]) -> sympy.Expr:
    """A stride of a tensor that is assumed to have elements, so that its data-dependent sizes are at least 1."""
    either = {m: u for m in stride.atoms(Max) for u in late(m) if u in sizes and set(m.args) == {u, sympy.Integer(1)}}
    return stride.xreplace(either)


def rename(mode: Any, names: Mapping[sympy.Symbol, sympy.Expr]) -> None:
    """Replaces unbacked symbols, in all values of a fake mode, by the expressions in ``names``. The caller guarantees
    that they are equal. Known bounds of the symbols are dropped.
    """
    env = mode.shape_env
    for old, new in names.items():
        env.var_to_range[old] = env.bound_sympy(new)  # otherwise bounds, some of them guesses, prevent it
        if new.is_Symbol and late(new):
            env._rename_unbacked_to(old, new)
        else:
            env._eliminate_unbacked(old, new)
