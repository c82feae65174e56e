"""The table of symbolic functions has all of PyTorch's, and each computes what PyTorch and Python compute."""
from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy import functions as pytorch
from torch.utils._sympy import interp, reference

from keel.symbols import FUNCTIONS, PYTHON_NAMES, bounds, evaluate, kind_of, python_text

N, M, U = (sympy.Symbol(n, integer=True, **k) for n, k in (("n", {"positive": True}), ("m", {"positive": True}),
                                                           ("u", {})))
X = sympy.Symbol("x", real=True)


def pytorch_functions() -> list[str]:
    """The classes that PyTorch's module of symbolic functions defines; a base class that is nobody's value left out."""
    return sorted(name for name, made in vars(pytorch).items()
                  if inspect.isclass(made) and issubclass(made, sympy.Basic) and made.__module__ == pytorch.__name__
                  and name != "MinMaxBase")


@pytest.mark.parametrize("name", pytorch_functions())
def test_every_function_of_pytorch_is_declared(name: str) -> None:
    assert name in FUNCTIONS, f"PyTorch {torch.__version__} has the symbolic function {name}; declare it."


def test_everything_that_pytorch_interprets_is_declared() -> None:
    names = {made.__name__ for made in interp.handlers() if made.__name__ != "ExprCondPair"}
    assert names - FUNCTIONS.keys() == set()


# -- drawn expressions -------------------------------------------------------------------------------

def ints(deeper: st.SearchStrategy[Any], floats: st.SearchStrategy[Any],
         truths: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Integers made of what is ``deeper``."""
    divisor = st.one_of(st.sampled_from([N, M]), st.integers(1, 9).map(sympy.Integer))
    small = st.integers(0, 3).map(sympy.Integer)
    return st.one_of(
        st.builds(lambda a, b: a + b, deeper, deeper), st.builds(lambda a, b: a - b, deeper, deeper),
        st.builds(lambda a, b: a * b, deeper, deeper), st.builds(pytorch.FloorDiv, deeper, divisor),
        st.builds(pytorch.PythonMod, deeper, divisor), st.builds(pytorch.Mod, st.sampled_from([N, M, N * M]), divisor),
        st.builds(pytorch.CleanDiv, deeper, divisor), st.builds(pytorch.CeilDiv, deeper, divisor),
        st.builds(pytorch.ModularIndexing, st.sampled_from([N, M + 1, N * M]), divisor, divisor),
        st.builds(pytorch.PowByNatural, deeper, small), st.builds(pytorch.PowByNatural, divisor, st.just(M % 3)),
        st.builds(pytorch.LShift, deeper, small), st.builds(pytorch.RShift, deeper, st.sampled_from([N, *map(
            sympy.Integer, range(3))])),
        st.builds(pytorch.Max, deeper, deeper), st.builds(pytorch.Min, deeper, deeper),
        st.builds(abs, deeper), st.builds(pytorch.Identity, deeper), st.builds(pytorch.Where, truths, deeper, deeper),
        st.builds(lambda c, a, b: sympy.Piecewise((a, c), (b, True)), truths, deeper, deeper),
        *(st.builds(f, deeper, deeper) for f in (
            pytorch.BitwiseFn_bitwise_and, pytorch.BitwiseFn_bitwise_or, pytorch.BitwiseFn_bitwise_xor)),
        *(st.builds(f, floats) for f in (
            pytorch.TruncToInt, pytorch.FloorToInt, pytorch.CeilToInt, pytorch.RoundToInt)))


def floats(deeper: st.SearchStrategy[Any], numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    constant = st.sampled_from([0.5, 0.1, 1.5, -2.25, 3.0]).map(sympy.Float)
    nonzero = st.sampled_from([pytorch.ToFloat(N), pytorch.ToFloat(M) + 0.5, sympy.Float(1.5), sympy.Float(-0.3)])
    angle = st.builds(pytorch.FloatTrueDiv, st.sampled_from([pytorch.ToFloat(U), X]),
                      st.just(pytorch.ToFloat(N * 64)))
    return st.one_of(
        st.builds(pytorch.ToFloat, numbers), st.builds(lambda a, b: a * b, constant, deeper),
        st.builds(lambda a, b: a + b, deeper, constant), st.builds(lambda a, b: a - b, deeper, deeper),
        st.builds(pytorch.IntTrueDiv, numbers, st.sampled_from([N, M, sympy.Integer(3), sympy.Integer(-7)])),
        st.builds(pytorch.FloatTrueDiv, deeper, nonzero),
        st.builds(pytorch.FloatPow, st.just(pytorch.ToFloat(N)), constant),
        st.builds(pytorch.RoundDecimal, deeper, st.integers(0, 3).map(sympy.Integer)),
        st.builds(pytorch.TruncToFloat, deeper), st.builds(pytorch.Max, deeper, numbers),
        st.builds(pytorch.Min, deeper, constant), st.builds(abs, deeper),
        *(st.builds(getattr(pytorch, f"OpaqueUnaryFn_{f}"), st.sampled_from([N, pytorch.ToFloat(M)]))
          for f in ("sqrt", "log", "log2", "atan", "asinh", "cos", "sin", "tan")),
        *(st.builds(getattr(pytorch, f"OpaqueUnaryFn_{f}"), angle)
          for f in ("tanh", "sinh", "cosh", "exp", "asin", "acos")))


def truths(numbers: st.SearchStrategy[Any], deeper: st.SearchStrategy[Any] | None) -> st.SearchStrategy[Any]:
    relations = [st.builds(f, numbers, numbers) for f in (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)]
    if deeper is None:
        return st.one_of(relations)
    return st.one_of(*relations, st.builds(sympy.And, deeper, deeper), st.builds(sympy.Or, deeper, deeper),
                     st.builds(sympy.Not, deeper))


INTS: Any = st.one_of(st.sampled_from([N, M, U]), st.integers(-9, 9).map(sympy.Integer))
FLOATS: Any = st.one_of(st.just(X), st.builds(pytorch.ToFloat, st.sampled_from([N, U])))
TRUTHS: Any = truths(INTS, None)
for _ in range(2):
    INTS, FLOATS, TRUTHS = (st.one_of(INTS, ints(INTS, FLOATS, TRUTHS)),
                            st.one_of(FLOATS, floats(FLOATS, INTS)),
                            st.one_of(TRUTHS, truths(st.one_of(INTS, FLOATS), TRUTHS)))
VALUES = st.fixed_dictionaries({"n": st.integers(1, 60), "m": st.integers(1, 60), "u": st.integers(-40, 40),
                                "x": st.floats(-40, 40)})
DRAWN = settings(max_examples=250, deadline=None)


def valued(value: Any, wanted: Any) -> bool:
    """Whether both are the same number of the same type; two NaNs are."""
    if type(value) is not type(wanted):
        return False
    return bool(value == wanted) or (isinstance(value, float) and math.isnan(value) and math.isnan(wanted))


class Python(reference.PythonReferenceAnalysis):
    """PyTorch's own evaluation on plain numbers, with Python's meaning of what it leaves out."""

    modular_indexing = staticmethod(lambda a, b, n: a // b % n)
    identity = staticmethod(lambda a: a)
    where = staticmethod(lambda c, a, b: a if c else b)
    trunc = staticmethod(lambda a: float(math.trunc(a)))
    trunc_to_int = staticmethod(lambda a, dtype: math.trunc(a))
    int_truediv = staticmethod(lambda a, b: a / b)
    not_ = staticmethod(lambda a: not a)
    sqrt = staticmethod(math.sqrt)
    log = staticmethod(math.log)
    log2 = staticmethod(math.log2)
    exp = staticmethod(math.exp)
    mod = python_mod = staticmethod(lambda a, b: a % b)


for _name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "asinh"):
    setattr(Python, _name, staticmethod(getattr(math, _name)))


def by_pytorch(expr: Any, values: dict[str, Any]) -> Any:
    """PyTorch's evaluation of an expression; the branches of a choice that is not taken may not have a value."""
    return interp.sympy_interp(Python, {s: values[s.name] for s in expr.free_symbols}, expr)


@DRAWN
@given(st.one_of(INTS, FLOATS, TRUTHS), VALUES)
def test_values_are_those_of_pytorch(expr: Any, values: dict[str, Any]) -> None:
    """Values and types, by evaluation and by Python's text; and bounds hold them."""
    try:
        wanted = by_pytorch(expr, values)
    except (OverflowError, ValueError, ZeroDivisionError):
        return
    assert valued(evaluate(expr, values), wanted), (evaluate(expr, values), wanted)
    text = python_text(expr)
    assert valued(eval(text, dict(PYTHON_NAMES), values), wanted), text
    assert kind_of(expr) == type(wanted).__name__
    within = bounds(expr)
    assert math.isnan(wanted) or within.low <= wanted <= within.high, within
