"""Computes symbolic numbers with nodes of Python arithmetic, from known ones such as sizes of arguments. A size that is
not known itself is solved for in a known size that contains it, derived as a multiple of one, or computed from its
terms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import BooleanAtom
from torch import fx
from torch.utils._sympy.functions import FloorDiv

from keel.symbols import FUNCTIONS
from keel.torch_adapter.sympy_expressions import Symbolic, expression


class NotRecorded(Exception):
    """Raised if a function has no functional graph on these arguments. The message is a sentence."""


def number(value: Symbolic, known: dict[sympy.Expr, fx.Node], graph: fx.Graph) -> fx.Node:
    """Returns a node of ``graph`` that computes ``value`` from the numbers in ``known``, and adds new nodes to
    ``known``. Raises NotRecorded if the value does not follow from these, or needs a function that Python lacks.
    """
    target = expression(value)
    if (node := known.get(target)) is not None:
        return node
    result = _Arithmetic(known, graph).of(target)
    if not isinstance(result, fx.Node):
        raise NotRecorded(f"The size {target} is not symbolic.")
    return result


def ceil_divided(a: Any, b: Any) -> Any:
    return -(-a // b)


def modular_indexed(a: Any, b: Any, n: Any) -> Any:
    return a // b % n


def truncated(x: Any) -> Any:
    return torch.sym_float(torch.sym_int(x))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": ceil_divided,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": modular_indexed,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": torch.sym_float,
    "TruncToInt": torch.sym_int,
    "TruncToFloat": truncated,
    "PowByNatural": operator.pow,
    "FloatPow": operator.pow,
    "Pow": operator.pow,
    "Add": operator.add,
    "Mul": operator.mul,
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "ceiling": math.ceil,
    "floor": math.floor,
    "Abs": abs,
    "RoundToInt": round,
    "RoundDecimal": round,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
    "Where": torch.sym_ite,
    "Identity": operator.pos,
    "BitwiseFn_bitwise_and": operator.and_,
    "BitwiseFn_bitwise_or": operator.or_,
    "BitwiseFn_bitwise_xor": operator.xor,
    "And": operator.and_,
    "Or": operator.or_,
    "Not": torch.sym_not,
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
    **{
        name: result
        for name in FUNCTIONS
        if name.startswith("OpaqueUnaryFn_")
        and (result := getattr(torch, name.replace("OpaqueUnaryFn", "_sym"), None)) is not None
    },
}
"""Python functions for sympy's. They work on symbolic numbers too. ``Piecewise`` is handled separately."""
_FOLDED = frozenset(
    ("Add", "Mul", "Max", "Min", "And", "Or", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor")
)
"""Functions of any number of arguments, which are applied to two at a time."""
_DEEPEST = 3
"""The depth of the search for a size. The search tries each size that contains an unknown one."""

Computed = fx.Node | int | float | bool


@dataclass(frozen=True)
class _Arithmetic:
    """``above`` are the sizes that are being computed, so they cannot be used as sources."""

    known: dict[sympy.Expr, fx.Node]
    graph: fx.Graph
    above: tuple[sympy.Expr, ...] = ()

    def of(self, target: Any) -> Computed:
        if (node := self.known.get(target)) is not None:
            return node
        if target.is_Integer:
            return int(target)
        if target.is_Float:
            return float(target)
        if isinstance(target, BooleanAtom):
            return bool(target)
        if not self._is_known(target):
            for node in self._candidates(target):
                self.known[target] = node
                return node
        name = type(target).__name__
        if name != "Piecewise" and name not in _FUNCTIONS:
            raise NotRecorded(f"The size {target} cannot be computed from the sizes of the arguments.")
        if name == "Piecewise":
            result = self._cases(target)
        else:
            args = [*map(self.of, target.args if self._is_known(target) else self._covered(target))]
            apply = partial(self._apply, _FUNCTIONS[name])
            result = reduce(apply, args) if name in _FOLDED and len(args) > 1 else apply(*args)
        assert isinstance(result, fx.Node)
        self.known[target] = result
        return result

    def _cases(self, target: sympy.Piecewise) -> Computed:
        """Computes a ``Piecewise``: the last case, unless the condition of an earlier case holds."""
        *before, (last, _) = target.args
        result = self.of(last)
        for value, holds in reversed(before):
            result = self._apply(torch.sym_ite, self.of(holds), self.of(value), result)
        return result

    def _is_known(self, target: sympy.Expr) -> bool:
        """True if all symbols of an expression are known numbers."""
        return all(s in self.known for s in target.free_symbols)

    def _candidates(self, target: sympy.Expr) -> Iterator[fx.Node]:
        """Tries to derive a size with unknown symbols from known sizes."""
        if target in self.above or len(self.above) >= _DEEPEST:
            return
        inner = _Arithmetic(self.known, self.graph, (*self.above, target))
        for way in (inner._solved, inner._grown, inner._divided):
            if isinstance(result := way(target), fx.Node):
                yield result

    def _solved(self, target: sympy.Expr) -> Computed | None:
        """Solves for a size in a known size that is a multiple of it plus a rest."""
        it = sympy.Dummy(integer=True)
        for size, node in list(self.known.items()):
            if size.is_integer is not True or not target.free_symbols <= size.free_symbols:
                continue
            line = sympy.expand(size.xreplace({target: it}))
            times = line.coeff(it)
            parts = self._both(times, sympy.expand(line - times * it)) if times.is_positive else None
            if parts is not None:
                by, rest = parts
                result = node if rest == 0 else self._apply(operator.sub, node, rest)
                return result if by == 1 else self._apply(operator.floordiv, result, by)
        return None

    def _grown(self, target: sympy.Expr) -> Computed | None:
        """Computes a size as a multiple of a known size plus a rest."""
        if not isinstance(target, sympy.Add | sympy.Mul):
            return None
        unknown = [t for t in _terms(target) if not self._is_known(t)]
        for size, node in list(self.known.items()):
            if self._is_known(size) or size.is_integer is not True:
                continue
            first = next((t for t in _terms(size) if not self._is_known(t)), None)
            for times in (t / first for t in unknown if first is not None):
                if (parts := self._both(times, sympy.expand(target - times * size))) is not None:
                    by, rest = parts
                    result = node if by == 1 else self._apply(operator.mul, node, by)
                    return result if rest == 0 else self._apply(operator.add, result, rest)
        return None

    def _divided(self, target: sympy.Expr) -> Computed | None:
        """Computes a quotient from a known quotient by a divisor of its divisor."""
        if not isinstance(target, FloorDiv) or not isinstance(target.args[1], sympy.Integer):
            return None
        number, by = target.args
        for part in sorted({q for size in self.known for q in size.atoms(FloorDiv)}, key=str):
            over, less = part.args
            if (
                over == number
                and isinstance(less, sympy.Integer)
                and 0 < less < by
                and by % less == 0
                and (result := self._or_none(part)) is not None
            ):
                return self._apply(operator.floordiv, result, int(by // less))
        return None

    def _both(self, times: sympy.Expr, rest: sympy.Expr) -> tuple[Computed, Computed] | None:
        """Nodes for a factor and a summand, if both are integers that can be computed."""
        if times.is_integer is not True or times == 0 or (by := self._or_none(times)) is None:
            return None
        return None if (more := self._or_none(rest)) is None else (by, more)

    def _or_none(self, target: sympy.Expr) -> Computed | None:
        try:
            return self.of(target)
        except NotRecorded:
            return None

    def _covered(self, target: sympy.Expr) -> tuple[sympy.Expr, ...]:
        """The arguments of a function. For a minimum or maximum, known values replace subsets of the arguments."""
        terms: tuple[sympy.Expr, ...] = target.args
        if type(target).__name__ in ("Max", "Min"):
            for size in (s for s in self.known if type(s) is type(target)):
                if (those := {*size.args}) <= {*terms} and not those <= self.known.keys():
                    terms = (size, *(t for t in terms if t not in those))
        return terms

    def _apply(self, target: Callable[..., Any], *args: Computed) -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta["val"] = target(*(a.meta["val"] if isinstance(a, fx.Node) else a for a in args))
        return node


def _terms(total: sympy.Expr) -> tuple[sympy.Expr, ...]:
    return tuple(sympy.Add.make_args(sympy.expand(total)))
