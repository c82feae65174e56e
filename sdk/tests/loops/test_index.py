"""The index algebra keeps what an index is worth at every point, whatever it does to its form."""

from __future__ import annotations

from itertools import product as points_of

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from keel.loops.index import (
    ZERO,
    Axis,
    Div,
    Index,
    Loaded,
    Mod,
    axes_of,
    bounds,
    dims_of,
    flatten,
    floordiv,
    index,
    is_provably_less,
    loaded_of,
    make,
    mod,
    quotient,
    substitute,
    unflatten,
)
from keel.loops.symbolic_sizes import evaluate
from keel.types import Dim, contiguous_strides

from .indices import LOADED, S0, S1, SPACES, build, trees, value_at, value_of

AXIS_I, AXIS_J = Axis("i", 4), Axis("j", 6)
i, j = index(AXIS_I), index(AXIS_J)
cases = SPACES.flatmap(lambda space: st.tuples(st.just(space), trees(space)))


@pytest.mark.slow
@given(cases)
def test_a_canonical_form_is_worth_what_was_written(case) -> None:
    space, tree = case
    found = build(tree)
    for point in space.points():
        assert value_at(found, point, space.symbols) == value_of(tree, point, space.symbols), str(found)


@pytest.mark.slow
@given(cases)
def test_bounds_hold_at_every_point(case) -> None:
    space, tree = case
    found = build(tree)
    if (ends := bounds(found)) is None:
        return
    low, high = (evaluate(e, space.symbols) for e in ends)
    assert all(low <= value_at(found, point, space.symbols) <= high for point in space.points())


@pytest.mark.slow
@given(cases, st.data())
def test_substitution_evaluates_what_it_replaces(case, data) -> None:
    space, tree = case
    found = build(tree)
    values = {a: mod(build(data.draw(trees(space))), a.size) for a in data.draw(st.sets(st.sampled_from(space.axes)))}
    after = substitute(found, values)
    for point in space.points():
        inner = point | {a.name: value_at(v, point, space.symbols) for a, v in values.items()}
        assert value_at(after, point, space.symbols) == value_at(found, inner, space.symbols)


@pytest.mark.slow
@given(cases)
def test_canonical_forms_are_fixed_points(case) -> None:
    """Rebuilding a form from its own atoms changes nothing: equality of forms is structural."""
    found = build(case[1])
    assert substitute(found, {}) == found
    assert make(found.const, reversed(found.terms)) == found
    for atom, _ in found.terms:
        if isinstance(atom, Div | Mod):
            again = floordiv(atom.of, atom.by) if isinstance(atom, Div) else mod(atom.of, atom.by)
            assert again == index(atom)
            assert atom.by != 1


@pytest.mark.parametrize(
    ("sizes", "divisors"),
    [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (4, 6)),
        ((6, 4), (2, 2, 6)),
        ((24,), (3, 8)),
        ((1, 5, 1), (5,)),
        ((4,), (1, 4, 1)),
        ((S0, 4), (S0, 2, 2)),
        ((S0, S1), (S0, S1)),
        ((2, S0), (S0 * 2,)),
        ((S0 * S1,), (S0, S1)),
    ],
)
def test_a_view_reads_the_element_that_it_names(sizes: tuple[Dim, ...], divisors: tuple[Dim, ...]) -> None:
    axes = tuple(Axis(f"a{n}", d) for n, d in enumerate(sizes))
    offset = flatten(map(index, axes), contiguous_strides(sizes))
    coordinates = unflatten(offset, divisors)
    assert flatten(coordinates, contiguous_strides(divisors)) == offset
    symbols = {"s0": 3, "s1": 5}
    shape = [evaluate(d, symbols) for d in divisors]
    for number, point in enumerate(points_of(*(range(evaluate(a.size, symbols)) for a in axes))):
        at = {a.name: p for a, p in zip(axes, point, strict=True)}
        got = [value_at(c, at, symbols) for c in coordinates]
        assert all(0 <= c < n for c, n in zip(got, shape, strict=True))
        assert sum(c * s for c, s in zip(got, contiguous_strides(tuple(shape)), strict=True)) == number


@given(st.lists(st.sampled_from((1, 2, 3, 4, 5)), min_size=1, max_size=3), st.permutations((2, 3, 4)))
def test_views_of_views_fold_back(extra, shape) -> None:
    """Reshaping to any shape and back gives the index one started from, at any number of steps."""
    whole = Axis("a", 24)
    start = index(whole)
    once = flatten(unflatten(start, tuple(shape)), contiguous_strides(tuple(shape)))
    twice = flatten(unflatten(once, (4, 6)), (6, 1))
    assert once == twice == start


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ((i * 6 + j) // 6, "i"),
        ((i * 6 + j) % 6, "j"),
        ((i * 6 + j) // 3, "2*i + (j // 3)"),
        ((i * 6 + j) // 12, "i // 2"),
        ((i * 6 + j) % 12, "j + 6*(i % 2)"),
        ((i * 6 + j) // 4, "(6*i + j) // 4"),
        ((i * 4 + 7) // 4, "i + 1"),
        ((i - 1) // 8, "((i + 7) // 8) - 1"),
        ((i - 1) % 8, "(i + 7) % 8"),
        ((i + 4) // 8, "0"),
        ((j // 2) // 2, "j // 4"),
        ((i * 6 + j) % 20 % 5, "(6*i + j) % 5"),
        (((i * 6 + j) % 20) // 5, "((6*i + j) // 5) % 4"),
        ((i * -2) // 4, "(-i) // 2"),
        ((j // 4) * 4 + j % 4, "j"),
        (i * 0 + 5, "5"),
        (63 - i * 2 - j, "-2*i - j + 63"),
        (index(Loaded(3, 100)) * 768 + j, "j + 768*(%3 < 100)"),
        (index(Loaded(3, 100)) // 100, "0"),
        (index(Axis("a", S0)) * S1 + S0 - 1, "s1*a + s0 - 1"),
        (index(Axis("a", S0)) * (768 * S1), "(768*s1)*a"),
        ((index(Axis("a", S0)) * S1 + index(Axis("b", S1))) // S1, "a"),
        ((index(Axis("a", S0)) * 64 + index(Axis("b", 64))) % (64 * S0), "64*a + b"),
        (index(Axis("a", 1)), "0"),
    ],
)
def test_forms_and_their_text(got: Index, want: str) -> None:
    assert str(got) == want


@pytest.mark.parametrize(
    ("low", "high", "known"),
    [
        (1, 2, True),
        (2, 2, False),
        (S0 - 1, S0, True),
        (S0, S0, False),
        (0, S0 * S1, True),
        (767, 768 * S0, True),
        (S0, S1, False),
        (S0, S0 * S1, False),
        (sympy.Symbol("u0", integer=True), 4, False),
    ],
)
def test_below_claims_only_what_always_holds(low: Dim, high: Dim, known: bool) -> None:
    assert is_provably_less(low, high) is known


@pytest.mark.parametrize(
    ("d", "by", "want"),
    [
        (12, 4, 3),
        (12, 5, None),
        (-12, 4, -3),
        (0, S0, 0),
        (S0, S0, 1),
        (6 * S0, 4, None),
        (S0 * S1 + S0, S0, S1 + 1),
        (S0, S1, None),
        (1, S0, None),
        (S0, 2, None),
        (8 * sympy.floor(S0 / 2), sympy.floor(S0 / 2), 8),
    ],
)
def test_quotient_divides_exactly_or_not_at_all(d: Dim, by: Dim, want: Dim | None) -> None:
    assert quotient(d, by) == want


def test_what_an_index_mentions() -> None:
    k = Axis("k", S0)
    found = floordiv(index(k) * 3 + index(LOADED) + i, 7) + index(Loaded(9, S0 * 2)) * S1
    assert axes_of(found) == {k, AXIS_I}
    assert loaded_of(found) == {7, 9}
    assert dims_of(found) == {S1, 2 * S0}
    assert (i * 3 + j).coefficient(AXIS_I) == 3
    assert (i * 3).coefficient(AXIS_J) == 0


def test_loaded_values_are_renumbered_inside_divisions() -> None:
    found = substitute(floordiv(index(LOADED), 2) + index(LOADED), {}, lambda n: n + 10)
    assert loaded_of(found) == {17}


def test_a_shape_with_nothing_in_it_has_no_coordinates_to_get_wrong() -> None:
    assert unflatten(i, (4, 0, 2)) == (ZERO, ZERO, ZERO)


def test_an_index_times_a_symbol_works_from_both_sides() -> None:
    assert i * S0 == S0 * i
    assert i * 1 is i
    assert S0 + i == i + S0 and S0 - i == i * -1 + S0
