"""Sizes: tidy forms equal what they came from, texts read back, signs are claimed only where they always hold."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import KeelError
from keel.loops.symbolic_sizes import (
    assumption_of,
    canonicalize,
    evaluate,
    format_size,
    is_positive,
    non_negative,
    symbol,
)
from keel.types import Dim

S, T, U = symbol("s0"), symbol("s1"), symbol("u0", "any")
AT = [{"s0": s, "s1": t, "u0": u} for s in (1, 2, 5) for t in (1, 3, 4) for u in (-3, 0, 2)]

leaves = st.one_of(st.sampled_from((S, T, U)), st.integers(-4, 4).map(sympy.Integer))
divisors = st.sampled_from((sympy.Integer(2), sympy.Integer(3), S, T, S * T, S + 1))
dims = st.recursive(
    leaves,
    lambda d: st.one_of(
        st.tuples(d, d).map(lambda p: p[0] + p[1]),
        st.tuples(d, d).map(lambda p: p[0] * p[1]),
        st.tuples(d, divisors).map(lambda p: sympy.floor(p[0] / p[1])),
        st.tuples(d, divisors).map(lambda p: sympy.Mod(*p)),
        st.tuples(d, d).map(lambda p: sympy.Max(*p)),
        st.tuples(d, d).map(lambda p: sympy.Min(*p)),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(dims)
def test_the_tidy_form_and_its_text_are_worth_the_same(d: sympy.Expr) -> None:
    form = canonicalize(d)
    python = compile(format_size(form), "size", "eval")
    for at in AT:
        want = int(d.subs({S: at["s0"], T: at["s1"], U: at["u0"]}))
        assert evaluate(form, at) == want
        assert eval(python, {"max": max, "min": min}, dict(at)) == want


@given(dims)
def test_tidying_twice_is_tidying_once(d: sympy.Expr) -> None:
    assert canonicalize(canonicalize(d)) == canonicalize(d)


@pytest.mark.slow
@given(dims)
def test_a_sign_is_claimed_only_where_it_always_holds(d: sympy.Expr) -> None:
    values = [evaluate(canonicalize(d), at) for at in AT]
    assert not is_positive(d) or all(v > 0 for v in values)
    assert not non_negative(d) or all(v >= 0 for v in values)


@pytest.mark.parametrize("d", [768 * S - 767, S * T, S, 3 * S * T - S - T, sympy.Integer(1)])
def test_polynomials_that_are_positive_at_all_sizes_are_known_to_be(d: Dim) -> None:
    assert is_positive(d)


@pytest.mark.parametrize(
    ("d", "text"),
    [
        (768 * S, "768*s0"),
        (S * T + 1, "s0*s1 + 1"),
        (1 - S, "1 - s0"),
        (-S, "-s0"),
        (S**2, "s0**2"),
        (7, "7"),
        (-7, "-7"),
        (sympy.floor(S / 2), "s0 // 2"),
        (sympy.floor((S + 1) / 2), "(s0 + 1) // 2"),
        (2 * sympy.floor(S / T) + 1, "2*(s0 // s1) + 1"),
        (sympy.Mod(S, 4) * T, "s1*(s0 % 4)"),
        (sympy.Max(1, S - 3), "max(1, s0 - 3)"),
        (S * (S + 1) / 2, "s0**2/2 + s0/2"),
    ],
)
def test_texts(d: Dim, text: str) -> None:
    assert format_size(canonicalize(d)) == text


def test_a_tight_text_is_one_factor() -> None:
    assert [format_size(d, tight=True) for d in (4, -4, S, S + 1, 2 * S)] == ["4", "(-4)", "s0", "(s0 + 1)", "(2*s0)"]


def test_pytorch_functions_become_plain_ones() -> None:
    """Told by name, as ``FloorDiv(s0 + 1, 2)`` prints where PyTorch halves a size."""
    named = {n: type(n, (sympy.Function,), {}) for n in ("FloorDiv", "CleanDiv", "PythonMod", "CeilDiv", "Identity")}
    assert canonicalize(named["FloorDiv"](S + 1, 2)) == sympy.floor((S + 1) / 2)
    assert canonicalize(named["CleanDiv"](S, 2)) == sympy.floor(S / 2)
    assert canonicalize(named["PythonMod"](S, 4)) == sympy.Mod(S, 4)
    assert canonicalize(named["Identity"](S) * 2) == 2 * S
    assert evaluate(named["CeilDiv"](S, 2), {"s0": 5}) == 3


def test_what_is_not_known_stays_as_it_is_and_has_no_value() -> None:
    unknown = sympy.Function("Frobnicate")(S * (S + 1))
    assert canonicalize(2 * (unknown + 1)) == 2 * unknown + 2
    with pytest.raises(KeelError, match="Frobnicate"):
        evaluate(unknown, {"s0": 5})


def test_symbols_say_what_is_known_of_them() -> None:
    assert [assumption_of(symbol("n", a)) for a in (">= 1", ">= 0", "any")] == [">= 1", ">= 0", "any"]


def test_a_size_that_is_no_integer_has_no_value() -> None:
    with pytest.raises(ValueError, match="5/2"):
        evaluate(S / 2, {"s0": 5})
