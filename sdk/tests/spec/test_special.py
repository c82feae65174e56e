"""Special functions: eager keeps the budgets, and the decompositions what eager gives."""

from __future__ import annotations

import pytest
import torch

from keel.spec import MEMBERS, decomposition_of
from keel.spec.ops.special import family

from .pointwise import closed, faithful, within_budget

COMPOSITES = [name for name, op in family.members.items() if op.kind == "composite"]
PRIMITIVES = [
    name
    for name, op in family.members.items()
    if op.kind == "primitive" and all(b.ulps is not None for b in op.budget.values())
]


def away(x: torch.Tensor) -> bool:
    """From the poles of polygamma, near which eager is far off, and of a dtype in which eager has all digits."""
    far = (x > 0) | ((x.float() - x.float().round()).abs() > 0.01)
    return x.dtype != torch.float64 and bool((far & (x.float().abs() < 1e3)).all())


@pytest.mark.parametrize("name", PRIMITIVES)
def test_eager_is_within_the_budget(name: str) -> None:
    within_budget(MEMBERS[name])


@pytest.mark.parametrize("name", COMPOSITES)
def test_decompositions(name: str) -> None:
    faithful(MEMBERS[name], judged=lambda sample: name != "polygamma" or sample.args[0] == 0 or away(sample.args[1]))


def test_trigamma_in_double_precision() -> None:
    """Eager's has ten digits."""
    x = torch.tensor([1.0, 0.5, 0.25, -0.5], dtype=torch.float64)
    catalan = 0.915965594177219015
    want = torch.tensor(
        [torch.pi**2 / 6, torch.pi**2 / 2, torch.pi**2 + 8 * catalan, torch.pi**2 / 2 + 4], dtype=torch.float64
    )
    got = decomposition_of(torch.ops.aten.polygamma.default)(1, x)
    torch.testing.assert_close(got, want, rtol=1e-14, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSITES)
def test_decompositions_end_in_primitives(name: str) -> None:
    closed(MEMBERS[name])


T = torch.linspace(-1.5, 1.5, 31, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "third"),
    [
        ("chebyshev_polynomial_t", 4 * T**3 - 3 * T),
        ("chebyshev_polynomial_u", 8 * T**3 - 4 * T),
        ("chebyshev_polynomial_v", 8 * T**3 - 4 * T**2 - 4 * T + 1),
        ("chebyshev_polynomial_w", 8 * T**3 + 4 * T**2 - 4 * T - 1),
        ("hermite_polynomial_h", 8 * T**3 - 12 * T),
        ("hermite_polynomial_he", T**3 - 3 * T),
        ("laguerre_polynomial_l", (-(T**3) + 9 * T**2 - 18 * T + 6) / 6),
        ("legendre_polynomial_p", (5 * T**3 - 3 * T) / 2),
    ],
)
def test_polynomials_of_degree_three(name: str, third: torch.Tensor) -> None:
    polynomial = MEMBERS[name].targets[0]
    torch.testing.assert_close(polynomial(T, torch.tensor(3)), third)
    torch.testing.assert_close(polynomial(T, torch.tensor(3.7)), third)
    assert not polynomial(T, torch.tensor(-1)).any()
    if name.startswith("chebyshev"):
        shifted = MEMBERS[f"shifted_{name}"].targets[0]
        torch.testing.assert_close(shifted(T / 2 + 0.5, torch.tensor(3)), third)


def test_clauses_of_gamma_and_zeta() -> None:
    inf, nan = float("inf"), float("nan")
    a, x = torch.tensor([0.0, 2.0, 2.0, -1.0, 0.0]), torch.tensor([1.0, 0.0, inf, 1.0, 0.0])
    assert torch.equal(torch.igamma(a, x).nan_to_num(7), torch.tensor([1.0, 0.0, 1.0, 7.0, 7.0]))
    assert torch.equal(torch.igammac(a, x).nan_to_num(7), torch.tensor([0.0, 1.0, 0.0, 7.0, 7.0]))
    zeta = torch.special.zeta(torch.tensor([1.0, 0.5, 3.0, 2.5, 2.0]), torch.tensor([2.0, 2.0, -2.0, -1.5, nan]))
    assert torch.equal(zeta.nan_to_num(7, 8), torch.tensor([8.0, 7.0, 8.0, 7.0, 7.0]))


def test_trigamma_left_of_zero_is_near_the_reflection() -> None:
    x = torch.tensor([-0.3, -7.25, -900.5])
    got = decomposition_of(torch.ops.aten.polygamma.default)(1, x)
    want = torch.polygamma(1, x.double())
    torch.testing.assert_close(got.double(), want, rtol=4e-7, atol=0)
    assert decomposition_of(torch.ops.aten.polygamma.default)(1, torch.tensor([0.0, -3.0])).isposinf().all()
