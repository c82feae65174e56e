"""The symbols of an expression, and which names they may have."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import sympy

from keel.errors import KeelError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def free_symbols(expr: Any) -> tuple[str, ...]:
    """The names of the symbols of an expression, sorted; none for a plain number."""
    return tuple(sorted(_symbols(expr))) if isinstance(expr, sympy.Basic) else ()


@lru_cache(maxsize=1 << 14)
def _symbols(expr: sympy.Basic) -> frozenset[str]:
    """Each part is looked at once: sizes of deep networks hold the same part thousands of times."""
    if not expr.args:
        return frozenset(str(s.name) for s in expr.free_symbols)
    return frozenset[str]().union(*map(_symbols, expr.args))


def checked_name(name: str, reserved: Collection[str] = ()) -> str:
    """``name`` itself, if it is an ASCII identifier, no keyword and not ``reserved``.

    Expressions may come from a file, so nothing else may become source text. Raises KeelError[bad-graph].
    """
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name) or name in reserved:
        raise KeelError(
            "bad-graph",
            f"A symbol is named {name!r}, which is not a valid variable name.",
            do="Rename it: letters, digits and underscores, and no keyword or function of Python.",
        )
    return name
