"""Prints sizes in a target's language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from typing import Any

import sympy

from keel.errors import KeelError
from keel.loops.symbolic_sizes import canonicalize
from keel.types import Dim

FORMS: Mapping[str, str] = {
    "floordiv": "floordiv({0}, {1})",
    "mod": "mod({0}, {1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
}
"""The default text of functions of sizes: the quotient toward minus infinity, the remainder with the sign of the
divisor, maximum and minimum.
"""


def size_text(size: Dim, name: Callable[[str], str] = str, forms: Mapping[str, str] = FORMS) -> str:
    """``size`` as an integer expression in parentheses (unless it is one word), for a language that has ``+ - * /``.

    ``str(size)`` is not valid in a kernel: languages differ in powers and in the quotient and remainder of negative
    numbers, and ``//`` starts a comment in C. Here a power becomes products, and a quotient that is known to be exact
    becomes ``/``. Other functions take their text from ``forms``, with operands ``{0} {1}``. ``name`` gives the text of
    a symbol. Raises KeelError[no-lowering] for a function that kernels cannot compute.
    """
    return _Printer(name, forms).size(size)


@lru_cache(maxsize=1 << 12)
def _over_and_under(d: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Numerator and denominator."""
    over, under = sympy.fraction(sympy.together(d))
    return over, under


class _Printer:
    """Caches the texts of all parts, because sizes in deep networks contain the same part thousands of times."""

    def __init__(self, name: Callable[[str], str], forms: Mapping[str, str]):
        self.name = name
        self.forms = forms
        self._texts: dict[sympy.Expr, str] = {}

    def size(self, size: Dim) -> str:
        size = canonicalize(size)
        if isinstance(size, int):
            return str(size) if size >= 0 else f"({size})"
        if size not in self._texts:
            over, under = _over_and_under(size)
            top = self._text(over)
            self._texts[size] = top if under == 1 else f"({top} / {self._text(under)})"
        return self._texts[size]

    def _part(self, d: sympy.Expr) -> str:
        return self.size(int(d) if d.is_Integer else d)

    def _joined(self, symbol: str, args: Iterable[sympy.Expr]) -> str:
        return "(" + f" {symbol} ".join(map(self._part, args)) + ")"

    def _nested(self, form: str, args: Iterable[sympy.Expr]) -> str:
        return reduce(self.forms[form].format, map(self._part, args))

    def _text(self, d: Any) -> str:
        match d:
            case sympy.Integer():
                return self._part(d)
            case sympy.Symbol():
                return self.name(d.name)
            case sympy.Add():
                return self._joined("+", d.as_ordered_terms())
            case sympy.Mul():
                return self._joined("*", d.as_ordered_factors())
            case sympy.Pow() if d.exp.is_Integer and d.exp > 0:
                return self._joined("*", (d.base,) * int(d.exp))
            case sympy.floor():
                return self._nested("floordiv", _over_and_under(d.args[0]))
            case sympy.Mod():
                return self._nested("mod", d.args)
            case sympy.Max() | sympy.Min():
                return self._nested("max" if isinstance(d, sympy.Max) else "min", tuple(sorted(d.args, key=str)))
        raise KeelError("no-lowering", f"The size {d} uses {type(d).__name__}, which kernels cannot compute.")
