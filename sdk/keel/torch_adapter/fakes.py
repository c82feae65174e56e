"""Symbolic sizes as plain data, and fake values made from that data, for saved graphs.

An expression is an int, a float or bool, the name of a symbol, or a list of a function's name and its arguments, as in
``["FloorDiv", ["Add", "s0", 1], 2]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import sympy
import torch
from sympy.functions.elementary.piecewise import ExprCondPair
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as torch_functions

from keel.symbols import FUNCTIONS, BitsOfFloat, FloatOfBits
from keel.torch_adapter.sympy_expressions import Symbolic, backed_values, expression


@lru_cache
def _functions() -> Mapping[str, Callable[..., Any]]:
    """The functions that expressions may use, by class name: PyTorch's own, else sympy's."""
    functions = {name: getattr(torch_functions, name, getattr(sympy, name, None)) for name in FUNCTIONS}
    return {name: made for name, made in functions.items() if made is not None} | {
        "Rational": sympy.Rational,
        "ExprCondPair": ExprCondPair,
        "BitsOfFloat": BitsOfFloat,
        "FloatOfBits": FloatOfBits,
    }


@dataclass(frozen=True)
class SymbolFacts:
    """The facts about a symbol: its hint (the value while tracing, None if it is data-dependent), its range (None where
    it is open), and whether it is positive, as sizes are.
    """

    hint: int | float | None
    lower: int | None
    upper: int | None
    positive: bool
    kind: Literal["int", "float"] = "int"


def expression_data(value: Any) -> Any:
    """A size, number or expression as data. Raises ValueError for a function that cannot be saved."""
    expr = expression(value) if isinstance(value, Symbolic) else sympy.sympify(value)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if expr.is_Integer:
        return int(expr)
    if expr.is_Rational:
        return ["Rational", int(expr.p), int(expr.q)]
    if expr.is_Float:
        return float(expr)
    if expr.is_Symbol:
        return str(expr.name)
    name = type(expr).__name__
    if name not in _functions():
        raise ValueError(f"{expr} uses {name}, which cannot be saved.")
    return [name, *map(expression_data, expr.args)]


def expression_of(data: Any, symbols: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    """The expression that data describes. Raises ValueError unless it is an expression over the symbols."""
    match data:
        case bool():
            return sympy.true if data else sympy.false
        case int() | float():
            return sympy.sympify(data)
        case str() if data in symbols:
            return symbols[data]
        case [str() as name, *args] if args and name in _functions():
            return _functions()[name](*(expression_of(arg, symbols) for arg in args))
    raise ValueError(f"{data!r} is not a size.")


def facts_of(values: Iterable[Any]) -> dict[str, SymbolFacts]:
    """The symbols of sizes and numbers, by name, with the facts that their shape environment has about them."""
    facts: dict[str, SymbolFacts] = {}
    for value in values:
        if isinstance(value, Symbolic):
            env = value.node.shape_env
            for symbol in expression(value).free_symbols:
                facts[symbol.name] = _facts(env, symbol)
    return dict(sorted(facts.items()))


def _facts(env: Any, symbol: sympy.Symbol) -> SymbolFacts:
    is_float = symbol.is_integer is not True
    convert: Any = float if is_float else int
    hint = backed_values(env).get(symbol)
    span = env.var_to_range.get(symbol)
    lower, upper = (None, None) if span is None or is_float else (_finite(span.lower), _finite(span.upper))
    return SymbolFacts(
        None if hint is None else convert(hint), lower, upper, bool(symbol.is_positive), "float" if is_float else "int"
    )


def _finite(bound: Any) -> int | None:
    """Sizes that reach half the machine's range are unbounded."""
    return int(bound) if bound.is_Integer and abs(int(bound)) < 2**62 else None


@dataclass
class Fakes:
    """Makes fake values whose sizes are data over ``symbols``."""

    symbols: Mapping[str, SymbolFacts]
    mode: FakeTensorMode = field(init=False)
    _known: dict[str, sympy.Symbol] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        env: Any = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=False)
        for name, facts in self.symbols.items():
            known: dict[str, bool] = {"real": True} if facts.kind == "float" else {"integer": True}
            symbol = sympy.Symbol(name, **known, **({"positive": True} if facts.positive else {}))
            self._known[name] = symbol
            if facts.hint is not None:
                env.add_backed_var_to_val(symbol, facts.hint)
            if facts.kind == "int":
                env.constrain_symbol_range(
                    symbol,
                    compiler_min=-_MANY if facts.lower is None else facts.lower,
                    compiler_max=_MANY if facts.upper is None else facts.upper,
                )
            if (number := re.fullmatch(r"u(\d+)", name)) is not None:
                env.unbacked_symint_counter = max(env.unbacked_symint_counter, int(number[1]) + 1)

    def number(self, data: Any, kind: Literal["int", "float", "bool"] = "int") -> Any:
        """The number that data describes: a symbolic one if its expression has symbols."""
        expr = expression_of(data, self._known)
        if not expr.free_symbols:
            return {"int": int, "float": float, "bool": bool}[kind](expr)
        env: Any = self.mode.shape_env
        make = {"int": env.create_symintnode, "float": env.create_symfloatnode}.get(kind)
        return env.create_symboolnode(expr) if make is None else make(expr, hint=self._hint(expr))

    def _hint(self, expr: sympy.Expr) -> Any:
        values = {s: self.symbols[s.name].hint for s in expr.free_symbols}
        if None in values.values():
            return None
        value = expr.xreplace({s: sympy.sympify(v) for s, v in values.items()})
        return int(value) if value.is_integer else float(value)

    def tensor(
        self, dtype: torch.dtype, sizes: Iterable[Any], strides: Iterable[Any], offset: Any, device: torch.device
    ) -> FakeTensor:
        """A fake tensor of these sizes and strides that begins at element ``offset`` of its memory."""
        shape, steps, start = [self.number(n) for n in sizes], [self.number(s) for s in strides], self.number(offset)
        made: Any
        with self.mode:
            made = torch.empty_strided(shape, steps, dtype=dtype, device=device)
            if not isinstance(start, int) or start:
                made = made.as_strided(shape, steps, start)
        return made  # type: ignore[no-any-return]


_MANY = 2**63 - 1
