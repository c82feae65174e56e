"""Sizes and indices as C++ expressions of type i64."""
from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy

from keel import Axis, Dim, Div, Index, KeelError, Loaded, Mod, bounds, non_negative

Names = Callable[[str], str]
Values = Callable[[Loaded], str]
NARROW = 2**31


def is_positive(d: Dim) -> bool:
    """Whether d > 0 can be proved; False means that it is not known."""
    return non_negative(d - 1)


def size_text(d: Dim, names: Names) -> str:
    """A size, in parentheses unless it is one word."""
    if isinstance(d, int):
        return str(d) if d >= 0 else f"({d})"
    over, under = sympy.fraction(sympy.together(d))
    return _size(d, names) if under == 1 else f"({_size(over, names)} / {_size(under, names)})"


def _size(d: Any, names: Names) -> str:
    def joined(symbol: str, args: tuple[Any, ...]) -> str:
        return "(" + f" {symbol} ".join(size_text(a, names) for a in args) + ")"

    def nested(function: str, args: tuple[Any, ...]) -> str:
        return reduce(lambda a, b: f"{function}({a}, {b})", (size_text(a, names) for a in args))

    if d.is_Integer:
        return size_text(int(d), names)
    if d.is_Symbol:
        return names(d.name)
    if isinstance(d, sympy.Add):
        return joined("+", d.as_ordered_terms())
    if isinstance(d, sympy.Mul):
        return joined("*", d.as_ordered_factors())
    if isinstance(d, sympy.Pow) and d.exp.is_Integer and d.exp > 0:
        return joined("*", (d.base,) * int(d.exp))
    if isinstance(d, sympy.floor):
        return nested("size_div", sympy.fraction(sympy.together(d.args[0])))
    if isinstance(d, sympy.Mod):
        return nested("size_mod", d.args)
    if isinstance(d, sympy.Max | sympy.Min):
        return nested("most" if isinstance(d, sympy.Max) else "least", tuple(sorted(d.args, key=str)))
    raise KeelError("no-lowering", f"The size {d} uses {type(d).__name__}, which has no form in C++.")


def index_text(i: Index, names: Names, values: Values) -> str:
    """An index; ``values`` gives the text of a loaded one."""
    terms = [_term(_atom(a, names, values), c, names) for a, c in i.terms]
    if i.const != 0 or not terms:
        terms.append(size_text(i.const, names))
    return " + ".join(terms)


def _term(atom: str, c: Dim, names: Names) -> str:
    return atom if c == 1 else f"{size_text(c, names)} * {atom}"


def _atom(atom: Axis | Loaded | Div | Mod, names: Names, values: Values) -> str:
    match atom:
        case Axis():
            return names(atom.name)
        case Loaded():
            return values(atom)
        case Div() | Mod():
            return _divided(atom, names, values)


def _divided(atom: Div | Mod, names: Names, values: Values) -> str:
    """Unsigned and narrow where the bounds allow it: that is what the vectoriser can divide."""
    of, by = index_text(atom.of, names, values), size_text(atom.by, names)
    symbol = "/" if isinstance(atom, Div) else "%"
    found = bounds(atom.of)
    if found is None or not non_negative(found[0]) or not is_positive(atom.by):
        return f"{'size_div' if isinstance(atom, Div) else 'size_mod'}({of}, {by})"
    if isinstance(found[1], int) and found[1] < NARROW and isinstance(atom.by, int) and atom.by < NARROW:
        return f"i64(u32({of}) {symbol} {by}u)"
    return f"(({of}) {symbol} {by})"
