"""The tables of a program for the C++ runtime: numbers as expressions over symbols, and types of tensors.

An entry of the table of expressions is a literal (``["i", 3]``, ``["f", "0x1.8p+0"]``, ``["b", 1]``), the value of a
symbol (``["s", 0]``), or a function of earlier entries (``["Add", 0, 1]``), so that the table has no cycles. Functions
are named as in the table of the symbolic language, and compute on 64-bit integers and floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy
import torch

from keel.serialize.codec import Data, NotSerializable
from keel.symbols import function_of, kind_of
from keel.symbols.evaluate import constant
from keel.symbols.functions import Kind, arguments_of
from keel.symbols.printing import is_fractional
from keel.types import TensorType, leaves

Scope = Mapping[str, int]
"""The number of each symbol, by its name in a part or in the graph."""
DEVICES = ("cpu", "cuda")
"""The types of devices on which the runtime has tensors: the host, and one device of CUDA's driver."""
_CONVERSIONS: Mapping[Kind, str] = {"int": "to_int", "float": "ToFloat", "bool": "to_bool"}
_INT64 = range(-(2**63), 2**63)


class Tables:
    """The symbols, expressions and types of one program. Equal entries are written once."""

    def __init__(self) -> None:
        self.symbols: list[str] = []
        self.expressions: list[Data] = []
        self.types: list[Data] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._types: dict[tuple[Any, ...], int] = {}

    def symbol(self, name: str) -> int:
        """A new symbol. Its name is for messages."""
        self.symbols.append(name)
        return len(self.symbols) - 1

    def type(self, type: TensorType, scope: Scope) -> int:
        """The number of a tensor's type: its dtype, and expressions for its sizes and strides."""
        if type.device.type not in DEVICES or type.device.index not in (None, 0):
            raise NotSerializable(f"The C++ runtime has no tensors on {type.device}.")
        if type.dtype.is_complex:
            raise NotSerializable("The C++ runtime has no complex tensors.")
        shape, strides = self.numbers(type.shape, scope), self.numbers(type.strides, scope)
        key = (type.dtype, type.device.type, *shape, *strides)
        if key not in self._types:
            self._types[key] = len(self.types)
            self.types.append([dtype_name(type.dtype), shape, strides, type.device.type])
        return self._types[key]

    def numbers(self, values: Iterable[Any], scope: Scope) -> list[int]:
        """The numbers of several expressions."""
        return [self.number(value, scope) for value in values]

    def number(self, value: Any, scope: Scope, kind: Kind | None = None) -> int:
        """The number of an expression. ``kind`` converts it, if it is of another type. Raises NotSerializable for what
        64-bit integers and floats cannot express, and for a symbol that is not in the scope.
        """
        if kind is None or kind == kind_of(value):
            return self._expression(value, scope)
        if (known := constant(value)) is not None:
            return self._literal({"int": int, "float": float, "bool": bool}[kind](known))
        return self._entry(_CONVERSIONS[kind], self._expression(value, scope))

    def _entry(self, *entry: Any) -> int:
        key = tuple((type(v), v) for v in entry)
        if key not in self._numbers:
            self._numbers[key] = len(self.expressions)
            self.expressions.append([*entry])
        return self._numbers[key]

    def _expression(self, expr: Any, scope: Scope) -> int:
        if (value := constant(expr)) is not None:
            return self._literal(value)
        if isinstance(expr, sympy.Symbol):
            if expr.name not in scope:
                raise NotSerializable(f"No argument tells the size {expr.name} before it is used.")
            return self._entry("s", scope[expr.name])
        if (row := function_of(expr)) is None or row.c is None:
            raise NotSerializable(f"The C++ runtime has no {type(expr).__name__}, which a size applies: {expr}.")
        if isinstance(expr, sympy.floor) and kind_of(expr.args[0]) == "int":
            over, under = sympy.fraction(sympy.together(expr.args[0]))
            return self._divided(over, under, scope)
        if is_fractional(expr):
            over, under = sympy.fraction(sympy.together(expr))
            if expr.is_integer is False or (under == 1 and is_fractional(over)):
                raise NotSerializable(f"The C++ runtime has no fractions of integers: {expr}.")
            return self._divided(over, under, scope)
        if isinstance(expr, sympy.Pow) and expr.exp == sympy.S.Half:
            return self._entry("OpaqueUnaryFn_sqrt", self._expression(expr.base, scope))
        return self._entry(row.names[0], *(self._expression(a, scope) for a in arguments_of(expr)))

    def _divided(self, over: Any, under: Any, scope: Scope) -> int:
        if under == 1:
            return self._expression(over, scope)
        return self._entry("FloorDiv", self._expression(over, scope), self._expression(under, scope))

    def _literal(self, value: Any) -> int:
        if isinstance(value, bool):
            return self._entry("b", int(value))
        if isinstance(value, float):
            return self._entry("f", value.hex())
        if isinstance(value, Fraction):
            return self._entry("f", (value.numerator / value.denominator).hex())
        if value not in _INT64:
            raise NotSerializable(f"The integer {value} has more than 64 bits.")
        return self._entry("i", value)


def dtype_name(dtype: torch.dtype) -> str:
    """A dtype's name, such as ``float32``."""
    return str(dtype).removeprefix("torch.")


def symbol_names(values: Iterable[Any]) -> list[str]:
    """The names of the symbols in some expressions, sorted."""
    return sorted({s.name for v in leaves([*values]) for s in getattr(v, "free_symbols", ())})
