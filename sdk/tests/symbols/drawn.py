"""Drawn expressions over PyTorch's symbolic functions, and values of their symbols."""

from __future__ import annotations

from typing import Any

import sympy
from hypothesis import strategies as st
from torch.utils._sympy import functions as pytorch

N, M, U = (
    sympy.Symbol(n, integer=True, **k) for n, k in (("n", {"positive": True}), ("m", {"positive": True}), ("u", {}))
)
X = sympy.Symbol("x", real=True)


def ints(
    deeper: st.SearchStrategy[Any], floats: st.SearchStrategy[Any], truths: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Integers made of what is ``deeper``."""
    divisor = st.one_of(st.sampled_from([N, M]), st.integers(1, 9).map(sympy.Integer))
    small = st.integers(0, 3).map(sympy.Integer)
    return st.one_of(
        st.builds(lambda a, b: a + b, deeper, deeper),
        st.builds(lambda a, b: a - b, deeper, deeper),
        st.builds(lambda a, b: a * b, deeper, deeper),
        st.builds(pytorch.FloorDiv, deeper, divisor),
        st.builds(pytorch.PythonMod, deeper, divisor),
        st.builds(pytorch.Mod, st.sampled_from([N, M, N * M]), divisor),
        st.builds(pytorch.CleanDiv, deeper, divisor),
        st.builds(pytorch.CeilDiv, deeper, divisor),
        st.builds(pytorch.ModularIndexing, st.sampled_from([N, M + 1, N * M]), divisor, divisor),
        st.builds(pytorch.PowByNatural, deeper, small),
        st.builds(pytorch.PowByNatural, divisor, st.just(M % 3)),
        st.builds(pytorch.LShift, deeper, small),
        st.builds(pytorch.RShift, deeper, st.sampled_from([N, *map(sympy.Integer, range(3))])),
        st.builds(pytorch.Max, deeper, deeper),
        st.builds(pytorch.Min, deeper, deeper),
        st.builds(abs, deeper),
        st.builds(pytorch.Identity, deeper),
        st.builds(pytorch.Where, truths, deeper, deeper),
        st.builds(lambda c, a, b: sympy.Piecewise((a, c), (b, True)), truths, deeper, deeper),
        *(
            st.builds(f, deeper, deeper)
            for f in (pytorch.BitwiseFn_bitwise_and, pytorch.BitwiseFn_bitwise_or, pytorch.BitwiseFn_bitwise_xor)
        ),
        *(
            st.builds(f, floats)
            for f in (pytorch.TruncToInt, pytorch.FloorToInt, pytorch.CeilToInt, pytorch.RoundToInt)
        ),
    )


def floats(deeper: st.SearchStrategy[Any], numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    constant = st.sampled_from([0.5, 0.1, 1.5, -2.25, 3.0]).map(sympy.Float)
    nonzero = st.sampled_from([pytorch.ToFloat(N), pytorch.ToFloat(M) + 0.5, sympy.Float(1.5), sympy.Float(-0.3)])
    angle = st.builds(pytorch.FloatTrueDiv, st.sampled_from([pytorch.ToFloat(U), X]), st.just(pytorch.ToFloat(N * 64)))
    return st.one_of(
        st.builds(pytorch.ToFloat, numbers),
        st.builds(lambda a, b: a * b, constant, deeper),
        st.builds(lambda a, b: a + b, deeper, constant),
        st.builds(lambda a, b: a - b, deeper, deeper),
        st.builds(pytorch.IntTrueDiv, numbers, st.sampled_from([N, M, sympy.Integer(3), sympy.Integer(-7)])),
        st.builds(pytorch.FloatTrueDiv, deeper, nonzero),
        st.builds(pytorch.FloatPow, st.just(pytorch.ToFloat(N)), constant),
        st.builds(pytorch.RoundDecimal, deeper, st.integers(0, 3).map(sympy.Integer)),
        st.builds(pytorch.TruncToFloat, deeper),
        st.builds(pytorch.Max, deeper, numbers),
        st.builds(pytorch.Min, deeper, constant),
        st.builds(abs, deeper),
        *(
            st.builds(getattr(pytorch, f"OpaqueUnaryFn_{f}"), st.sampled_from([N, pytorch.ToFloat(M)]))
            for f in ("sqrt", "log", "log2", "atan", "asinh", "cos", "sin", "tan")
        ),
        *(
            st.builds(getattr(pytorch, f"OpaqueUnaryFn_{f}"), angle)
            for f in ("tanh", "sinh", "cosh", "exp", "asin", "acos")
        ),
    )


def truths(numbers: st.SearchStrategy[Any], deeper: st.SearchStrategy[Any] | None) -> st.SearchStrategy[Any]:
    relations = [st.builds(f, numbers, numbers) for f in (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)]
    if deeper is None:
        return st.one_of(relations)
    return st.one_of(
        *relations,
        st.builds(sympy.And, deeper, deeper),
        st.builds(sympy.Or, deeper, deeper),
        st.builds(sympy.Not, deeper),
    )


INTS: Any = st.one_of(st.sampled_from([N, M, U]), st.integers(-9, 9).map(sympy.Integer))
FLOATS: Any = st.one_of(st.just(X), st.builds(pytorch.ToFloat, st.sampled_from([N, U])))
TRUTHS: Any = truths(INTS, None)
for _ in range(2):
    INTS, FLOATS, TRUTHS = (
        st.one_of(INTS, ints(INTS, FLOATS, TRUTHS)),
        st.one_of(FLOATS, floats(FLOATS, INTS)),
        st.one_of(TRUTHS, truths(st.one_of(INTS, FLOATS), TRUTHS)),
    )
VALUES = st.fixed_dictionaries(
    {"n": st.integers(1, 60), "m": st.integers(1, 60), "u": st.integers(-40, 40), "x": st.floats(-40, 40)}
)
