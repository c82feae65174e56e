"""Right draws pass for every seed, and wrong ones fail."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from keel_conformance.cases.case import Case, Trial
from keel_conformance.oracles.judge import judge
from keel_conformance.oracles.rules import flat
from keel_conformance.oracles.statistical import independent

aten = torch.ops.aten
LIKE, HALVES = torch.empty(40, 33), torch.empty(40, 33, dtype=torch.bfloat16)
CHANCES = torch.linspace(0.05, 0.95, 1320).reshape(40, 33)
DRAWS: Mapping[str, tuple[str, Any, tuple[Any, ...]]] = {
    "uniform": ("uniform", aten.rand.default, ([40, 33],)), "normal": ("normal", aten.randn.default, ([40, 33],)),
    "half": ("rand_like", aten.rand_like.default, (HALVES,)), "integers": ("randint", aten.randint.low, (-3, 9, [999])),
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
    return judge(Case(member, "", "op", "core", str(op)), Trial(args), [change(first), *rest]).status


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", range(3))
def test_eager_draws_pass(name: str, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        assert drawn(name) == "pass"


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("change", [torch.zeros_like, torch.ones_like, lambda x: x + 1, lambda x: (
    x.flatten()[:1].expand(x.numel()).reshape(x.shape).clone())])
def test_wrong_draws_fail(name: str, change: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert drawn(name, change) == "fail"


def test_calls_are_independent() -> None:
    random = torch.Generator().manual_seed(0)
    x, y = (torch.rand(500, generator=random) for _ in range(2))
    assert not independent(x, y)
    assert "same numbers" in independent(x, x)
    assert "depend" in independent(x, x * 0.9 + y * 0.1)
