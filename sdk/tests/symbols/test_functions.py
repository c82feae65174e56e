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

from keel.errors import KeelError
from keel.symbols import FUNCTIONS, PYTHON_NAMES, HostNumbers, bounds, evaluate, kind_of, python_text
from keel.symbols.host import _parts

from .drawn import FLOATS, INTS, TRUTHS, VALUES, M, N, U, X


def pytorch_functions() -> list[str]:
    """The classes that PyTorch's module of symbolic functions defines; a base class that is nobody's value left out."""
    return sorted(
        name
        for name, made in vars(pytorch).items()
        if inspect.isclass(made)
        and issubclass(made, sympy.Basic)
        and made.__module__ == pytorch.__name__
        and name != "MinMaxBase"
    )


@pytest.mark.parametrize("name", pytorch_functions())
def test_every_function_of_pytorch_is_declared(name: str) -> None:
    assert name in FUNCTIONS, f"PyTorch {torch.__version__} has the symbolic function {name}; declare it."


def test_everything_that_pytorch_interprets_is_declared() -> None:
    names = {made.__name__ for made in interp.handlers() if made.__name__ != "ExprCondPair"}
    assert names - FUNCTIONS.keys() == set()


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


for _name, _meaning in (
    ("expr_cond_pair", lambda value, condition: (value, condition)),  # which PyTorch 2.11 lacks
    ("piecewise", lambda *pairs: next(value for value, condition in pairs if condition)),
):
    if not hasattr(Python, _name):
        setattr(Python, _name, staticmethod(_meaning))
for _name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "asinh"):
    setattr(Python, _name, staticmethod(getattr(math, _name)))


def by_pytorch(expr: Any, values: dict[str, Any]) -> Any:
    """PyTorch's evaluation of an expression; the branches of a choice that is not taken may not have a value."""
    return interp.sympy_interp(Python, {s: values[s.name] for s in expr.free_symbols}, expr)


@pytest.mark.slow
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


def test_an_expression_of_no_known_function_is_refused() -> None:
    with pytest.raises(KeelError, match=r"bad-graph.*Frobnicate"):
        evaluate(sympy.Function("Frobnicate")(N), {"n": 1})
    with pytest.raises(KeelError, match=r"bad-graph.*Frobnicate"):
        python_text(sympy.Function("Frobnicate")(N))


@pytest.mark.parametrize("name", ["max(1)", "a b", "__import__('os')", "lambda", "math", "é", "float", ""])
def test_only_identifiers_become_text(name: str) -> None:
    with pytest.raises(KeelError, match="bad-graph"):
        python_text(sympy.Symbol(name, integer=True) + 1)


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (N * (N - 1) / 2, 21),
        (sympy.floor(N / 3) * N / 2, 7),
        (sympy.Integer(0), 0),
        (sympy.oo, math.inf),
        (sympy.pi * 2, 2 * math.pi),
        (sympy.sqrt(N), math.sqrt(7)),
        (sympy.Piecewise((1, N < 3), (2, N < 8)), 2),
        (pytorch.IsNonOverlappingAndDenseIndicator(N, 3, 3, 1), 1),
        (pytorch.IsNonOverlappingAndDenseIndicator(3, N, N, 2), 0),
        (pytorch.ToFloat(N * 10**30), 7e30),
        (pytorch.IntTrueDiv(N * 10**30 + 1, 10**30), 7.0),
        (pytorch.PowByNatural(10, N * 6), 10**42),
        (pytorch.RoundDecimal(pytorch.ToFloat(N) + 0.25, 1), 7.2),
        (pytorch.RoundToInt(pytorch.ToFloat(N) - 0.5), 6),
        (pytorch.FloorDiv(900, 2**N), 7),
        (N * 2**N, 896),
        (sympy.floor(900 * 2**-N), 7),
        (sympy.Xor(N > 3, N > 9), True),
        (sympy.sign(-N), -1),
        (sympy.Mod(-N, 4), 1),
    ],
)
def test_values_of_what_is_not_drawn(expr: Any, value: Any) -> None:
    assert valued(evaluate(expr, {"n": 7}), value)
    assert valued(eval(python_text(expr), dict(PYTHON_NAMES), {"n": 7}), value)


def test_a_result_is_what_its_number_is() -> None:
    """sympy makes an integer of a sum or product of floats that is 0."""
    assert valued(evaluate(sympy.Float(0.0) * pytorch.ToFloat(N), {"n": 7}, "float"), 0.0)
    assert valued(eval(python_text(sympy.Integer(0), kind="float"), dict(PYTHON_NAMES)), 0.0)


@pytest.mark.slow
@DRAWN
@given(INTS, VALUES)
def test_kernels_have_sums_and_symbols_for_the_rest(expr: Any, values: dict[str, Any]) -> None:
    try:
        wanted = evaluate(expr, values)
    except (OverflowError, ValueError, ZeroDivisionError):
        return
    host = HostNumbers({"h0"})
    form = host.integer(expr)
    known = values | {name: evaluate(e, values, "int") for name, e in host.by_name.items()}
    assert evaluate(form, known) == wanted
    assert "h0" not in host.by_name
    symbols = {s for s in getattr(form, "free_symbols", ()) if s.name in host.by_name}
    assert all(known[s.name] >= 1 or not s.is_positive for s in symbols)
    assert all(known[s.name] >= 0 or not s.is_nonnegative for s in symbols)


def test_no_symbol_stands_for_what_may_be_a_fraction() -> None:
    host = HostNumbers()
    form = host.integer(sympy.floor(900 * 2**-N) + M)
    known = {"m": 1} | {name: evaluate(e, {"n": 7, "m": 1}, "int") for name, e in host.by_name.items()}
    assert evaluate(form, known) == 8


def test_floats_are_given_to_kernels_by_their_bits() -> None:
    host = HostNumbers()
    form = host.real(X * 0.3)
    (name,) = host.by_name
    bits = evaluate(host.by_name[name], {"x": -2.5})
    assert evaluate(form, {name: bits}) == -2.5 * 0.3
    assert host.real(0.5) == 0.5
    assert evaluate(host.by_name[host.truth(U > M).name], {"u": 2, "m": 1}, "int") == 1


@pytest.mark.slow
def test_a_part_that_a_size_holds_many_times_is_looked_at_once() -> None:
    """Each level holds the one below twice, as the padding of a strided convolution does: 2**11 parts, written out."""
    size: Any = sympy.Symbol("of_this_test_alone", integer=True, positive=True)
    for _ in range(11):
        size = pytorch.FloorDiv(size, 3) + pytorch.Mod(size, 5)
    looked = _parts.cache_info().misses
    host = HostNumbers()
    assert host.integer(size) is size
    host.truth(U > M)  # what stands for nothing that the size holds
    assert host.integer(size) is size
    assert _parts.cache_info().misses - looked < 50
