"""Sizes as text of a language: their value is the size's, whatever its functions."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import KeelError
from keel.loops.size_text import size_text
from keel.loops.symbolic_sizes import evaluate, symbol

S, T = symbol("s0"), symbol("s1")
LEAVES = st.sampled_from([S, T]) | st.integers(-5, 9).map(sympy.Integer)


def _with(inner: st.SearchStrategy) -> st.SearchStrategy:
    by = st.integers(2, 7)
    return st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, by).map(lambda p: sympy.floor(p[0] / p[1])),
        st.tuples(inner, by).map(lambda p: p[0] % p[1]),
        st.tuples(inner, st.integers(2, 3)).map(lambda p: p[0] ** p[1]),
        st.tuples(inner, inner).map(lambda p: sympy.Max(*p)),
        st.tuples(inner, inner).map(lambda p: sympy.Min(*p)),
    )


@pytest.mark.slow
@given(st.recursive(LEAVES, _with, max_leaves=6), st.integers(1, 40), st.integers(1, 40))
def test_the_text_has_the_value_of_the_size(size: sympy.Expr, s: int, t: int) -> None:
    size = int(size) if size.is_Integer else size
    text = size_text(size, lambda name: f"{name}_")
    words = {"s0_": s, "s1_": t, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "max": max, "min": min}
    assert "**" not in text and "//" not in text and " / " not in text
    assert eval(text, words) == evaluate(size, {"s0": s, "s1": t})


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (-3, "(-3)"),
        (S, "s0"),
        (S * T * S, "((s0 * s0) * s1)"),
        (sympy.floor(S / 2), "floordiv(s0, 2)"),
        (S * (S + 1) / 2, "((s0 * (s0 + 1)) / 2)"),
        (sympy.Max(1, S - 2), "max(1, (s0 + (-2)))"),
    ],
)
def test_how_sizes_look(size: sympy.Expr | int, text: str) -> None:
    assert size_text(size) == text


def test_forms_of_the_targets_own() -> None:
    forms = {"floordiv": "({0}).floordiv({1})", "mod": "", "max": "", "min": "select({0} < {1}, {0}, {1})"}
    assert size_text(sympy.floor(sympy.Min(S, T, 9) / 4), str.upper, forms) == (
        "(select(select(9 < S0, 9, S0) < S1, select(9 < S0, 9, S0), S1)).floordiv(4)"
    )


def test_a_function_that_sizes_cannot_have() -> None:
    with pytest.raises(KeelError, match=r"no-lowering.*cos"):
        size_text(sympy.cos(S))
