"""Monoids obey their laws, and fold to what torch computes: with NaN, ties, infinities and nothing at all."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from keel.loops.monoids import MONOIDS, highest, lowest
from keel.loops.scalar_ops import SCALARS
from keel.loops.torch_monoids import State, combine, fold, identity, scan
from keel.loops.verify import DOMAINS
from keel.types import DTYPE_NAMES

NAN, INF = math.nan, math.inf
VALUES = {
    "number": st.sampled_from((0.0, 1.0, -2.0, 3.0, INF, -INF, NAN)),
    "float": st.integers(-4, 4),
    "any": st.sampled_from((0.0, 1.0, -2.0, 1.0, INF, -INF, NAN)),
    "int": st.integers(0, 6),
    "bool": st.booleans(),
    "integral": st.integers(-8, 8),
}
FIRST = {
    "number": torch.float32,
    "float": torch.float64,
    "any": torch.float32,
    "int": torch.int64,
    "bool": torch.bool,
    "integral": torch.int64,
}


@st.composite
def states(draw: st.DrawFn, monoid: str, least: int = 1, most: int = 9) -> State:
    """Columns of states, one element per fold step."""
    form = MONOIDS[monoid]
    length = draw(st.integers(least, most))
    columns = [draw(st.lists(VALUES[d], min_size=length, max_size=length)) for d in form.domains]
    if monoid == "welford":  # states of no elements, of one, of several
        columns[2] = draw(st.lists(st.sampled_from((0, 1, 4)), min_size=length, max_size=length))
        columns[1] = [abs(s) if n > 1 else 0 for s, n in zip(columns[1], columns[2], strict=True)]
        columns[0] = [m if n else 0 for m, n in zip(columns[0], columns[2], strict=True)]
    if monoid == "prod":
        columns[0] = [v if math.isfinite(v) else 2.0 for v in columns[0]]
    return tuple(torch.tensor(c, dtype=FIRST[d]) for c, d in zip(columns, form.domains, strict=True))


ANY = st.sampled_from(sorted(MONOIDS)).flatmap(lambda m: st.tuples(st.just(m), states(m)))


def equal(a: State, b: State) -> bool:
    """The same, to the rounding of welford's divisions."""
    return all(
        torch.allclose(x.double(), y.double(), rtol=1e-12, atol=1e-12, equal_nan=True)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("monoid", MONOIDS)
def test_the_program_is_well_formed(monoid: str) -> None:
    form = MONOIDS[monoid]
    assert len(form.outputs) == len(form.domains) == form.arity
    for n, (op, args) in enumerate(form.steps, 2 * form.arity):
        assert len(args) == SCALARS[op].arity
        assert all(0 <= a < n for a in args)
    used = {a for _, args in form.steps for a in args} | set(form.outputs)
    assert used == set(range(2 * form.arity + len(form.steps))), "every operand and every step counts"


@given(ANY)
def test_the_identity_changes_nothing(case: tuple[str, State]) -> None:
    monoid, state = case
    one = identity(monoid, tuple(s.dtype for s in state), tuple(state[0].shape))
    assert equal(combine(monoid, state, one), state)
    assert equal(combine(monoid, one, state), state)


@given(st.sampled_from(sorted(MONOIDS)).flatmap(lambda m: st.tuples(st.just(m), states(m, 3, 3))))
def test_the_combination_is_associative(case: tuple[str, State]) -> None:
    monoid, state = case
    a, b, c = (tuple(s[n] for s in state) for n in range(3))
    assert equal(combine(monoid, combine(monoid, a, b), c), combine(monoid, a, combine(monoid, b, c)))


@given(ANY)
def test_native_folds_are_what_the_steps_give(case: tuple[str, State]) -> None:
    monoid, state = case
    assert equal(fold(monoid, state), fold(monoid, state, native=False))
    assert all(a.dtype == b.dtype for a, b in zip(fold(monoid, state), state, strict=True))


@pytest.mark.slow
@given(ANY)
def test_a_scan_is_the_fold_of_every_prefix(case: tuple[str, State]) -> None:
    monoid, state = case
    for native in (True, False):
        running = scan(monoid, state, native=native)
        for n in range(1, len(state[0]) + 1):
            whole = fold(monoid, tuple(s[:n] for s in state), native=False)
            assert equal(tuple(r[n - 1] for r in running), whole)


@pytest.mark.parametrize("monoid", MONOIDS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.uint8, torch.uint32, torch.int64, torch.bool], ids=DTYPE_NAMES.get
)
def test_folding_in_every_dtype_that_it_takes(monoid: str, dtype: torch.dtype) -> None:
    form = MONOIDS[monoid]
    if dtype not in DOMAINS[form.domains[0]]:
        assert form.domains[0] != "any"
        return
    dtypes = tuple(dtype if n == 0 or d == "float" else torch.int64 for n, d in enumerate(form.domains))
    state = tuple(torch.tensor([[3, 1, 2, 3], [0, 1, 1, 0]]).to(d) for d in dtypes)
    assert equal(fold(monoid, state), fold(monoid, state, native=False))
    empty = fold(monoid, tuple(s[:, :0] for s in state))
    assert equal(empty, identity(monoid, dtypes, (2,)))
    assert all(e.dtype == d for e, d in zip(empty, dtypes, strict=True))


def test_integer_sums_wrap() -> None:
    x = torch.full((4,), 100, dtype=torch.int8)
    assert fold("sum", (x,))[0].item() == fold("sum", (x,), native=False)[0].item() == 400 - 512
    u = torch.full((3,), 2**32 - 1, dtype=torch.int64).to(torch.uint32)
    assert fold("sum", (u,))[0].item() == fold("sum", (u,), native=False)[0].item() == 2**32 - 3


ROWS = (
    [1.0, 3.0, 2.0, 3.0],
    [3.0, NAN, 5.0, NAN],
    [-INF, -INF, -INF, -INF],
    [INF, 1.0, INF, -INF],
    [0.0, -0.0, 0.0, 0.0],
    [2.0, 2.0, 2.0, 2.0],
)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_argmax_is_torchs(row: list[float], name: str, native: bool) -> None:
    """The first of equals, and the first NaN if there is one, in any order of folding."""
    x, at = torch.tensor(row), torch.arange(4)
    want = (torch.max if name == "argmax" else torch.min)(x, 0)
    value, position = fold(name, (x, at), native=native)
    assert position.item() == getattr(torch, name)(x).item()
    torch.testing.assert_close(value, want.values, equal_nan=True)
    back = fold(name, (x.flip(0), at.flip(0)), native=native)
    assert back[1].item() == position.item()


def test_argmax_of_nothing_is_the_identity() -> None:
    value, position = fold("argmax", (torch.empty(0), torch.empty(0, dtype=torch.int32)))
    assert (value.item(), position.item()) == (-INF, 2**31 - 1)
    value, position = fold("argmin", (torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)))
    assert (value.item(), position.item()) == (255, 2**63 - 1)


def welford(x: Tensor, native: bool) -> State:
    return fold("welford", (x, torch.zeros_like(x), torch.ones_like(x)), native=native)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_welford_is_torchs_variance(count: int, offset: float, native: bool) -> None:
    x = torch.randn(3, count, generator=torch.Generator().manual_seed(count)) + offset
    mean, squares, total = welford(x, native)
    variance, center = torch.var_mean(x.double(), -1, correction=0)
    torch.testing.assert_close(mean.double(), center, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(squares.double() / count, variance, rtol=1e-3 if offset else 1e-5, atol=1e-6)
    assert total.tolist() == [count] * 3


@pytest.mark.parametrize("native", [True, False])
def test_welford_of_nothing_one_infinity_and_nan(native: bool) -> None:
    assert [s.item() for s in welford(torch.empty(0), native)] == [0, 0, 0]
    assert [s.item() for s in welford(torch.tensor([5.0]), native)] == [5, 0, 1]
    mean, squares, _ = welford(torch.tensor([1.0, NAN, 2.0]), native)
    assert mean.isnan() and squares.isnan()
    for row in ([1.0, 2.0, INF], [INF, 1.0, 2.0], [-INF, INF, 0.0]):
        mean, squares, _ = welford(torch.tensor(row), native)
        assert not mean.isfinite() and squares.isnan()


def test_welford_merges_states_of_different_counts() -> None:
    x = torch.randn(37, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [tuple(s[None] for s in welford(p, True)) for p in (x[:0], x[:5], x[5:5], x[5:30], x[30:])]
    whole = parts[0]
    for part in parts[1:]:
        whole = combine("welford", whole, part)
    assert equal(tuple(s[0] for s in whole), welford(x, False))


def test_extremes_of_dtypes() -> None:
    assert (lowest(torch.float32), highest(torch.float64)) == (-INF, INF)
    assert (lowest(torch.int8), highest(torch.uint8)) == (-128, 255)
    assert (lowest(torch.bool), highest(torch.bool)) == (False, True)
    assert fold("max", (torch.full((2,), -INF),))[0].item() == -INF
