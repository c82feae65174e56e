"""Prints sizes and numbers as Python expressions for generated functions, over variables for the values of symbols."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from keel.runtime.python_source import Expression, Name, Namespace, arithmetic, call, literal, tuple_of
from keel.symbols import PYTHON_NAMES, Kind, evaluate, free_symbols, python_text


class HostArithmetic:
    """Prints numbers as expressions. ``symbol`` returns the variable with a symbol's value."""

    def __init__(self, space: Namespace):
        self.space = space
        self._written: dict[tuple[Any, Kind | None], Expression] = {}

    def symbol(self, name: str) -> Name:
        return self.space.variable(("symbol", name), name)

    def number(self, value: Any, kind: Kind | None = None) -> Expression:
        """A number, or a sympy number, size or condition, as an int, a float or a bool if ``kind`` says so."""
        if type(value) in (bool, int) and kind in (None, type(value).__name__):
            return literal(value)
        if isinstance(value, sympy.Symbol) and kind in (None, "int"):
            return self.symbol(value.name)
        if not isinstance(value, sympy.Basic):
            return self.space.object(evaluate(value, {}, kind), "constant")
        key = value, kind
        if key not in self._written:
            self._written[key] = self._expression(value, kind)
        return self._written[key]

    def numbers(self, values: Iterable[Any]) -> Expression:
        """A tuple of them."""
        return tuple_of(map(self.number, values))

    def _expression(self, value: Any, kind: Kind | None) -> Expression:
        """An arithmetic expression if possible, else a call of a function that evaluates the number."""
        symbols = free_symbols(value)
        stands = {s: f"x{k}" for k, s in enumerate(symbols)}  # a symbol may have the name of a function
        words = {word: self.symbol(s) for s, word in stands.items()}
        try:
            text = python_text(value, stands.__getitem__, kind)
            used = {word: self.space.object(f, word) for word, f in PYTHON_NAMES.items() if word in text}
            return arithmetic(text, words | used)
        except ValueError:

            def evaluated(*values: Any) -> Any:
                return evaluate(value, dict(zip(symbols, values, strict=True)), kind)

            return call(self.space.object(evaluated, "evaluated"), words.values())
