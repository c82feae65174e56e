"""PyTorch's symbolic numbers as sympy expressions: what is known of a size, and the value it had while tracing."""
from __future__ import annotations

import sympy
import torch

from keel.types import Dim, as_dim

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool


def dim_of(value: int | torch.SymInt) -> Dim:
    """A size as a Dim.  Symbols keep the assumptions PyTorch gave them: integer, and positive for sizes.

    PyTorch's own functions (FloorDiv, Mod ...) stay as they are; ``loops.dims.tidy`` replaces them.
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

    Where they were equal while tracing, a guard says that they are; of sizes that only a run tells, an assertion, if it
    makes them one symbol.
    """
    if expression(a) == expression(b):
        return True
    here, there = hint_of(a), hint_of(b)
    if here is not None and there is not None:
        return here == there and bool(a == b)                 # asking makes the guard
    try:
        promise(a == b)
    except RuntimeError:
        return False
    return bool(expression(a) == expression(b))


def promise(holds: bool | torch.SymBool) -> None:
    """Lets sizes that only a run tells rely on a condition.  Raises RuntimeError where it is known not to hold."""
    torch._check(holds)  # type: ignore[no-untyped-call]
