"""Functions of two operands: eager keeps the clauses and the budgets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.graph.calls import type_of
from keel.spec import MEMBERS, Sample
from keel.spec.dtype_groups import FLOATS
from keel.spec.normal import overload_of
from keel.spec.ops.elementwise_binary import family
from keel.spec.samples import drawn, specials

from .pointwise import within_budget

INF, NAN = float("inf"), float("nan")
T = torch.tensor


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in family.members if name != "nextafter"])
def test_eager_is_within_the_budget(name: str) -> None:
    def judged(sample: Sample) -> bool:
        x = sample.args[0]
        if x.is_complex() and name in ("div", "pow"):  # infinities and what overflows are not specified
            return bool(x.abs().isfinite().all() & (x.abs() < 10).all())
        # Where float64 truncates another quotient there is another integer.
        return sample.kwargs.get("rounding_mode") != "trunc" or not x.is_floating_point()

    within_budget(MEMBERS[name], judged)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_truncated_quotients(dtype: torch.dtype) -> None:
    x, y = drawn(dtype, 500, seed=1, high=100), drawn(dtype, 500, seed=2, low=0.5)
    got = torch.div(x, y, rounding_mode="trunc")
    assert torch.equal(got, got.trunc())
    assert ((got.double() - x.double() / y.double()).abs() <= 1 + got.double().abs() * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        (torch.float16, torch.int16),
        (torch.bfloat16, torch.int16),
        (torch.float32, torch.int32),
        (torch.float64, torch.int64),
    ],
    ids=str,
)
def test_neighbors_differ_by_one_bit(dtype: torch.dtype, bits: torch.dtype) -> None:
    x = specials(dtype)
    x = x[x.isfinite() & (x > 0)]
    up = torch.nextafter(x, torch.full_like(x, INF))
    assert torch.equal(up.view(bits) - x.view(bits), torch.ones(len(x), dtype=bits))
    assert torch.equal(torch.nextafter(up, torch.zeros_like(x)), x)


def same(got: torch.Tensor, want: list[Any]) -> None:
    """Equal, NaN and the signs of zeros too."""
    expected = T(want, dtype=got.dtype)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    if got.dtype.is_floating_point:
        known = ~expected.isnan()
        assert torch.equal(got.signbit()[known], expected.signbit()[known]), f"{got}, not {expected}"


def test_clauses_of_remainders() -> None:
    a, b = T([-4.0, 4.0, 5.0, INF, 5.0, 5.0, -0.0]), T([2.0, -2.0, 0.0, 2.0, INF, -INF, INF])
    same(torch.remainder(a, b), [-0.0, 0.0, NAN, NAN, 5.0, -INF, -0.0])
    same(torch.fmod(a, b), [-0.0, 0.0, NAN, NAN, 5.0, 5.0, -0.0])
    same(torch.remainder(T([-7, 7]), T([4, -4])), [1, -1])
    same(torch.fmod(T([-7, 7]), T([4, -4])), [-3, 3])


def test_clauses_of_quotients() -> None:
    same(T([1.0, -1.0, 0.0]) / T([-0.0, -0.0, 0.0]), [-INF, INF, NAN])
    same(torch.div(T([-7, 7]), 2, rounding_mode="floor"), [-4, 3])
    same(torch.div(T([-7, 7]), 2, rounding_mode="trunc"), [-3, 3])
    assert T([3.299999952316284]) / T([1.1]) == 3.0  # which is 2.99999990 before it is rounded
    same(torch.div(T([3.299999952316284]), T([1.1]), rounding_mode="floor"), [2.0])
    same(T([1, 2]) / 2, [0.5, 1.0])


def test_clauses_of_powers() -> None:
    base = T([NAN, 1.0, -8.0, -0.0, 0.0, -1.0, -1.0])
    same(torch.pow(base, T([0.0, NAN, 1 / 3, -1.0, -2.0, INF, -INF])), [1.0, 1.0, NAN, -INF, INF, 1.0, 1.0])
    same(torch.pow(T([2, 1, -1, -1]), T([-1, -3, -3, -2])), [0, 1, -1, 1])


def test_clauses_of_sums_and_products() -> None:
    same(T([-0.0, 0.0, 3.0, INF]) + T([-0.0, -0.0, -3.0, -INF]), [-0.0, 0.0, 0.0, NAN])
    same(T([5.0, INF]) - T([5.0, INF]), [0.0, NAN])
    same(T([0.0, -0.0, -2.0]) * T([INF, 3.0, 0.0]), [NAN, -0.0, -0.0])
    same(T([200, 3], dtype=torch.uint8) + T([100, -1 % 256], dtype=torch.uint8), [44, 2])
    same(torch.add(T([True, False, False]), T([False, True, True]), alpha=False), [True, False, False])


def test_clauses_of_shifts() -> None:
    amounts = T([7, 8, -1, 100], dtype=torch.int8)
    same(torch.bitwise_left_shift(T([1, 1, 1, 1], dtype=torch.int8), amounts), [-128, 0, 0, 0])
    same(torch.bitwise_right_shift(T([-128, -3, -3, 3], dtype=torch.int8), amounts), [-1, -1, -1, 0])


def test_clauses_of_order() -> None:
    same(torch.maximum(T([NAN, 1.0]), T([1.0, NAN])), [NAN, NAN])
    same(T([NAN, 0.0]).eq(T([NAN, -0.0])), [False, True])
    same(T([NAN, 0.0]).lt(T([NAN, -0.0])), [False, False])
    same(T([0.1]).eq(0.1), [True])  # the number is rounded to float32
    same(T([False]).lt(T([True])), [True])


def test_clauses_of_signs_and_neighbors() -> None:
    same(torch.copysign(T([1.0, -2.0, 0.0]), T([-0.0, 3.0, -NAN])), [-1.0, 2.0, -0.0 if T(-NAN).signbit() else 0.0])
    same(torch.nextafter(T([0.0, 1.0, INF]), T([-1.0, 1.0, 0.0])), [-(2.0**-149), 1.0, 3.4028234663852886e38])
    same(torch.atan2(T([0.0, -0.0]), T([-0.0, -0.0])), [T(torch.pi).item(), -T(torch.pi).item()])
    same(torch.gcd(T([0, -4, 12, -128], dtype=torch.int8), T([0, 6, -18, 0], dtype=torch.int8)), [0, 2, 6, -128])


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("add", (T([1.0, 2.0]), T([1.0, 2.0, 3.0])), "The shapes broadcast"),
        ("sub", (T([True]), T([True])), "No operand is a bool"),
        ("lt", (T([1j]), T([1j])), "No argument is complex"),
        ("bitwise_and", (T([1.0]), T([1.0])), "integers or bools"),
        ("shift_left", (T([1.0]), T([1.0])), "The tensors are integers"),
        ("pow", (T([2]), -1), "No integer is raised"),
        ("nextafter", (T([2]), T([3])), "The tensors are floats"),
    ],
)
def test_preconditions(name: str, args: tuple[Any, ...], sentence: str) -> None:
    op = MEMBERS[name]
    given = {k: type_of(v) if isinstance(v, torch.Tensor) else v for k, v in zip(op.operands, args, strict=True)}
    assert sentence in next(r.sentence for r in op.requires if not r.holds(given))
    target = overload_of(op, args, {})
    with pytest.raises((RuntimeError, NotImplementedError)):
        target(*args)
