"""Sizes as text of a target's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import sympy

from keel.errors import KeelError
from keel.loops.symbolic_sizes import tidy
from keel.types import Dim

FORMS: Mapping[str, str] = {
    "floordiv": "floordiv({0}, {1})",
    "mod": "mod({0}, {1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
}
"""How functions of sizes are called by default: quotient toward minus infinity, remainder with the sign of the divisor,
the larger and the smaller."""


def size_text(size: Dim, name: Callable[[str], str] = str, forms: Mapping[str, str] = FORMS) -> str:
    """``size`` as an integer expression in parentheses (unless it is one word), for a language that has ``+ - * /``.

    Languages differ in powers, in the quotient and remainder of negative numbers, and ``//`` starts a comment in C, so
    ``str(size)`` is not what a kernel can hold.  Here a power is written as products; a quotient that is known to be
    exact is ``/``; what else sizes hold takes the text of ``forms``, over ``{0} {1}``; ``name`` spells a symbol.
    Raises KeelError[no-lowering] for a function that sizes cannot have in a kernel.
    """
    size = tidy(size)
    if isinstance(size, int):
        return str(size) if size >= 0 else f"({size})"
    over, under = sympy.fraction(sympy.together(size))
    top = _text(over, name, forms)
    return top if under == 1 else f"({top} / {_text(under, name, forms)})"


def _text(d: Any, name: Callable[[str], str], forms: Mapping[str, str]) -> str:
    def part(of: Any) -> str:
        return size_text(int(of) if of.is_Integer else of, name, forms)

    def joined(symbol: str, args: tuple[Any, ...]) -> str:
        return "(" + f" {symbol} ".join(map(part, args)) + ")"

    def nested(form: str, args: tuple[Any, ...]) -> str:
        return reduce(forms[form].format, map(part, args))

    match d:
        case sympy.Integer():
            return part(d)
        case sympy.Symbol():
            return name(d.name)
        case sympy.Add():
            return joined("+", d.as_ordered_terms())
        case sympy.Mul():
            return joined("*", d.as_ordered_factors())
        case sympy.Pow() if d.exp.is_Integer and d.exp > 0:
            return joined("*", (d.base,) * int(d.exp))
        case sympy.floor():
            return nested("floordiv", sympy.fraction(sympy.together(d.args[0])))
        case sympy.Mod():
            return nested("mod", d.args)
        case sympy.Max() | sympy.Min():
            return nested("max" if isinstance(d, sympy.Max) else "min", tuple(sorted(d.args, key=str)))
    raise KeelError("no-lowering", f"The size {d} uses {type(d).__name__}, which has no form in a kernel.")
