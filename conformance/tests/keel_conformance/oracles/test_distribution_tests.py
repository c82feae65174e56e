"""Right draws pass for every seed, and wrong ones fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.distribution_tests import independent
from keel_conformance.oracles.error_rules import flat
from keel_conformance.oracles.judge import judge

aten = torch.ops.aten
LIKE, HALVES = torch.empty(40, 33), torch.empty(40, 33, dtype=torch.bfloat16)
CHANCES = torch.linspace(0.05, 0.95, 1320).reshape(40, 33)
DRAWS: Mapping[str, tuple[str, Any, tuple[Any, ...]]] = {
    "uniform": ("uniform", aten.rand.default, ([40, 33],)),
    "normal": ("normal", aten.randn.default, ([40, 33],)),
    "half": ("rand_like", aten.rand_like.default, (HALVES,)),
    "integers": ("randint", aten.randint.low, (-3, 9, [999])),
    "permutation": ("randperm", aten.randperm.default, (500,)),
    "between": ("uniform_between", aten.uniform.default, (LIKE, -1.0, 3.0)),
    "exponential": ("exponential", aten.exponential.default, (LIKE, 2.0)),
    "geometric": ("geometric", aten.geometric.default, (LIKE, 0.3)),
    "bernoulli": ("bernoulli", aten.bernoulli.default, (CHANCES,)),
    "poisson": ("poisson", aten.poisson.default, (CHANCES * 9,)),
    "gamma": ("gamma", aten._standard_gamma.default, (CHANCES * 9,)),
    "dropout": ("native_dropout", aten.native_dropout.default, (CHANCES, 0.3, True)),
    "multinomial": ("multinomial", aten.multinomial.default, (CHANCES[:3, :9], 60, True)),
}


def drawn(name: str, change: Any = lambda x: x) -> str:
    member, op, args = DRAWS[name]
    first, *rest = flat(op(*args))
    return judge(Case(member, "", "op", "core", str(op)), Inputs(args), [change(first), *rest]).status


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", range(3))
def test_eager_draws_pass(name: str, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        assert drawn(name) == "pass"


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(
    "change",
    [
        torch.zeros_like,
        torch.ones_like,
        lambda x: x + 1,
        lambda x: x.flatten()[:1].expand(x.numel()).reshape(x.shape).clone(),
    ],
)
def test_wrong_draws_fail(name: str, change: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert drawn(name, change) == "fail"


def test_calls_are_independent() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.rand(500, generator=random) for _ in range(2))
    named = [{}, {}]
    assert not independent("uniform", named, [[x], [y]])
    assert "same numbers" in independent("uniform", named, [[x], [x]])
    assert "depend" in independent("uniform", named, [[x], [x * 0.9 + y * 0.1]])
    chances = [{"self": torch.linspace(0.01, 0.99, 500)}, {"self": torch.linspace(0.02, 0.98, 500)}]
    first, second = ((u < n["self"]).float() for u, n in zip((x, y), chances, strict=True))
    assert not independent("bernoulli", chances, [[first], [second]])
    assert "depend" in independent("bernoulli", chances, [[first], [(x < chances[1]["self"]).float()]])


def test_a_normal_number_is_not_0_twice_at_one_place() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.randn(17, generator=random) for _ in range(2))
    named = [{}, {}]
    assert not independent("normal", named, [[x], [y]])
    x[-1] = 0
    assert not independent("normal", named, [[x], [y]])
    y[-1] = 0
    assert independent("normal", named, [[x], [y]]).startswith("Draw [16] is 0 in both calls: p = ")
    around = [{"mean": torch.zeros(17), "std": torch.full((17,), 1e-30)}] * 2  # which may be rounded to 0
    assert not independent("normal_around", around, [[x], [y]])


def test_sixteen_bits_are_as_coarse_as_they_are() -> None:
    """Draws that the dtype rounds to a handful of numbers, or past their bounds, are not wrong."""
    torch.manual_seed(0)
    x = torch.empty(4000, dtype=torch.bfloat16)
    for member, op, args in (
        ("uniform_between", aten.uniform.default, (x, 100.0, 101.5)),
        ("normal_functional", aten.normal_functional.default, (x, 50.0, 0.5)),
        ("geometric", aten.geometric.default, (x, 0.002)),
    ):
        given = op(*args)
        case = Case(member, "", "op", "core", str(op))
        assert judge(case, Inputs(args), [given]).status == "pass", member
        assert judge(case, Inputs(args), [given * 1.25]).status == "fail", member


def test_what_dropout_scales_past_the_range_is_infinite() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.full((64,), 3e38), torch.full((64,), 3e-45)])
    assert (
        judge(
            Case("native_dropout", "", "op", "core", "aten.native_dropout.default"),
            Inputs((x, 0.3, True)),
            list(aten.native_dropout.default(x, 0.3, True)),
        ).status
        != "fail"
    )


@pytest.mark.parametrize(
    ("member", "op", "args", "number"),
    [
        ("normal", aten.randn.default, ([17],), 0.0),
        ("rand_like", aten.rand_like.default, (HALVES[0, :9],), 0.5),
        ("geometric", aten.geometric.default, (LIKE.flatten()[:255], 0.9), 1.0),
        ("binomial", aten.binomial.default, (torch.full((30,), 7.0), torch.full((30,), 0.5)), 3.0),
    ],
)
def test_a_few_draws_that_are_all_the_same_are_none(member: str, op: Any, args: Any, number: float) -> None:
    case, right = Case(member, "", "op", "core", str(op)), op(*args)
    assert judge(case, Inputs(args), [right]).status == "pass"
    found = judge(case, Inputs(args), [torch.full_like(right, number)])
    assert found.status == "fail" and "draws are" in found.sentence


def test_what_no_chance_gives_is_no_draw() -> None:
    sure = torch.tensor([0.0, 1.0, 0.5])
    case = Case("bernoulli", "", "op", "core", "aten.bernoulli.default")
    assert judge(case, Inputs((sure,)), [torch.tensor([0.0, 1.0, 1.0])]).status == "pass"
    assert judge(case, Inputs((sure,)), [torch.tensor([0.0, 0.0, 1.0])]).status == "fail"


def test_a_distribution_that_reaches_past_the_range_gives_infinities() -> None:
    torch.manual_seed(0)
    x = torch.empty(4000, dtype=torch.float16)
    op = aten.cauchy.default
    got = op(x, 0.0, 5.0)
    got[7] = float("inf")
    assert judge(Case("cauchy", "", "op", "core", str(op)), Inputs((x, 0.0, 5.0)), [got]).status == "pass"
    normal = aten.normal_functional.default
    got = normal(x, 0.0, 5.0)
    got[7] = float("inf")
    assert (
        judge(Case("normal_functional", "", "op", "core", str(normal)), Inputs((x, 0.0, 5.0)), [got]).status == "fail"
    )


def test_what_draws_nothing_out_of_training_is_computed() -> None:
    op, x = aten.rrelu_with_noise_functional.default, torch.linspace(-3, 3, 40)
    args = (x, torch.zeros(40), 0.125, 0.5, False)
    right, noise = op(*args)
    case = Case("rrelu", "", "op", "core", str(op))
    assert judge(case, Inputs(args), [right, noise]).status == "pass"
    for wrong in (x, torch.zeros(40), torch.full((40,), float("nan"))):
        assert judge(case, Inputs(args), [wrong, noise]).status == "fail"


def test_a_factor_that_is_nan_fails() -> None:
    op, x = aten.linalg_eig.default, torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    case = Case("eig", "", "op", "core", str(op))
    values, vectors = op(x)
    assert judge(case, Inputs((x,)), [values, vectors]).status == "pass"
    for wrong in ([values, vectors * float("nan")], [values * float("nan"), vectors]):
        assert judge(case, Inputs((x,)), wrong).status == "fail"


def test_sums_of_a_few_uniform_numbers_have_no_tails() -> None:
    torch.manual_seed(0)
    case = Case("normal", "", "op", "core", "aten.randn.default")
    sums = (torch.rand(4, 70_001) - 0.5).sum(0) * 3**0.5
    verdict = judge(case, Inputs(([70_001],)), [sums])
    assert verdict.status == "fail" and "tails of the distribution" in verdict.sentence
    assert judge(case, Inputs(([70_001],)), [torch.randn(70_001)]).status == "pass"


def test_scaled_floats_are_no_integers_of_a_wide_range() -> None:
    torch.manual_seed(0)
    case, inputs = Case("randint", "", "op", "core", "aten.randint.low"), Inputs((0, 2**40, [999]))
    verdict = judge(case, inputs, [(torch.rand(999) * 2**40).long()])
    assert verdict.status == "fail" and "999 are even" in verdict.sentence
    assert judge(case, inputs, [torch.randint(0, 2**40, (999,))]).status == "pass"


def test_permutations_that_are_all_single_cycles() -> None:
    def cycle(n: int) -> torch.Tensor:
        order = torch.randperm(n)
        return torch.empty_like(order).scatter_(0, order, order.roll(-1))

    torch.manual_seed(0)
    named = [{"n": 40_009}] * 2
    assert "single cycle" in independent("randperm", named, [[cycle(40_009)], [cycle(40_009)]])
    assert not independent("randperm", named, [[cycle(40_009)], [torch.randperm(40_009)]])
    assert not independent("randperm", [{"n": 0}] * 2, [[cycle(0)], [cycle(0)]])
