"""Sizes and indices as C++ expressions of type i64."""

from __future__ import annotations

from collections.abc import Callable

import keel
from keel import Dim
from keel.loops import Axis, Div, Index, Loaded, Mod, bounds, non_negative

Names = Callable[[str], str]
Values = Callable[[Loaded], str]
NARROW = 2**31


def is_positive(d: Dim) -> bool:
    """True if d > 0 can be proved. False means that it is unknown."""
    return non_negative(d - 1)


FORMS = {
    "floordiv": "size_div({0}, {1})",
    "mod": "size_mod({0}, {1})",
    "max": "most({0}, {1})",
    "min": "least({0}, {1})",
}
"""The names of the functions of sizes in the prelude."""


def size_text(d: Dim, names: Names) -> str:
    """A size, in parentheses unless it is one word."""
    return keel.loops.size_text(d, names, FORMS)


def constant_text(n: int) -> str:
    """A number that the compiler has to know, so that ``merge_functions`` never makes it a parameter: the extent of an
    array, a divisor that becomes a multiplication, the length of a loop to be unrolled.
    """
    return f"{n}u"


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
    """A quotient or remainder, in unsigned and narrow integers if the bounds allow it, because the vectorizer can
    divide only these.
    """
    of = index_text(atom.of, names, values)
    by = constant_text(atom.by) if isinstance(atom.by, int) and atom.by > 0 else size_text(atom.by, names)
    symbol = "/" if isinstance(atom, Div) else "%"
    limits = bounds(atom.of)
    if limits is None or not non_negative(limits[0]) or not is_positive(atom.by):
        return f"{'size_div' if isinstance(atom, Div) else 'size_mod'}({of}, {by})"
    if isinstance(limits[1], int) and limits[1] < NARROW and isinstance(atom.by, int) and atom.by < NARROW:
        return f"i64(u32({of}) {symbol} {by})"
    return f"(({of}) {symbol} {by})"
