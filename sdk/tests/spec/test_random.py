"""Random numbers: the distributions are those that are promised, by their moments, extremes and frequencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.graph.calls import type_of
from keel.spec import MEMBERS, decomposition_of
from keel.spec.bind import bound
from keel.torch_adapter.meta_bugs.table import METAS

from .agreement import agree
from .test_types import agrees
from .written_out import pieces

aten = torch.ops.aten
F16, BF16, F32, F64, I64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64
N = 20_000


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def like(dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.zeros(N, dtype=dtype)


def same_distribution(a: torch.Tensor, b: torch.Tensor) -> None:
    """Two samples of N draws are from one distribution: Kolmogorov and Smirnov's distance is less than what one in
    10,000 pairs exceeds. Source: Smirnov's limit, D < sqrt(-ln(alpha / 2) / N).
    """
    x, y = a.double().sort()[0], b.double().sort()[0]
    every = torch.cat([x, y])
    distance = torch.searchsorted(x, every, right=True) / len(x) - torch.searchsorted(y, every, right=True) / len(y)
    assert distance.abs().max() < (9.9 / N) ** 0.5, f"the distance is {distance.abs().max()}"


P = torch.rand(N, generator=torch.Generator().manual_seed(1))
DRAWS: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "uniform_between": (aten.uniform.default, lambda: (like(), -2.0, 3.0), {}),
    "rand_like": (aten.rand_like.default, lambda: (like(),), {}),
    "rand_like of another dtype": (aten.rand_like.default, lambda: (like(I64),), {"dtype": F64}),
    "randn_like": (aten.randn_like.default, lambda: (like(),), {}),
    "randint_from_0": (aten.randint.default, lambda: (7, [N]), {}),
    "randint_like": (aten.randint_like.default, lambda: (like(), 7), {}),
    "randint_like_between": (aten.randint_like.low_dtype, lambda: (like(I64), -3, 7), {}),
    "randint_like_tensor": (aten.randint_like.Tensor, lambda: (like(I64), torch.tensor(9)), {}),
    "random_integers": (aten.random.default, lambda: (like(),), {}),
    "random_integers of bytes": (aten.random.default, lambda: (like(torch.int8),), {}),
    "random_integers of halves": (aten.random.default, lambda: (like(F16),), {}),
    "random_integers of all": (aten.random.default, lambda: (like(I64),), {}),
    "random_integers to": (aten.random.to, lambda: (like(I64), 9), {}),
    "random_integers from": (getattr(aten.random, "from"), lambda: (like(), -4, 9), {}),
    "normal_functional": (aten.normal_functional.default, lambda: (like(), 2.0, 3.0), {}),
    "normal_functional of halves": (aten.normal_functional.default, lambda: (like(BF16), 2.0, 3.0), {}),
    "normal_around": (aten.normal.Tensor_Tensor, lambda: (P * 5, P + 1), {}),
    "normal_around one": (aten.normal.Tensor_float, lambda: (P * 5, 2.0), {}),
    "normal_around a number": (aten.normal.float_Tensor, lambda: (1.0, P * 5), {}),
    "normal_of_size": (aten.normal.float_float, lambda: (1.0, 2.0, [N]), {"dtype": F64}),
    "log_normal": (aten.log_normal.default, lambda: (like(), 0.5, 1.5), {}),
    "exponential": (aten.exponential.default, lambda: (like(), 2.0), {}),
    "exponential of halves": (aten.exponential.default, lambda: (like(F16), 2.0), {}),
    "cauchy": (aten.cauchy.default, lambda: (like(F64), 1.0, 2.0), {}),
    "geometric": (aten.geometric.default, lambda: (like(), 0.2), {}),
    "geometric of integers": (aten.geometric.default, lambda: (like(I64), 0.2), {}),
    "bernoulli": (aten.bernoulli.default, lambda: (P,), {}),
    "bernoulli_like": (aten.bernoulli.p, lambda: (like(), 0.3), {}),
    "bernoulli_like of integers": (aten.bernoulli.p, lambda: (like(I64), 0.3), {}),
    "bernoulli_like of probabilities": (aten.bernoulli.Tensor, lambda: (like(), P.double()), {}),
    "multinomial": (aten.multinomial.default, lambda: (torch.tensor([1.0, 0, 3, 2]), N, True), {}),
    "multinomial once": (aten.multinomial.default, lambda: (torch.tensor([1.0, 0, 3, 2]).expand(N, 4), 1), {}),
    "multinomial of halves": (aten.multinomial.default, lambda: (torch.tensor([1, 0, 3, 2], dtype=F16), N, True), {}),
    "sample_dirichlet": (aten._sample_dirichlet.default, lambda: (torch.tensor([0.5, 2.0]).expand(N, 2),), {}),
    "native_dropout": (aten.native_dropout.default, lambda: (like() + 1, 0.3, True), {}),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_written_out_has_eagers_distribution(name: str) -> None:
    op, args, keywords = DRAWS[name]
    want, got = op(*args(), **keywords), decomposition_of(op)(*args(), **keywords)
    for w, g in zip(*(v if isinstance(v, tuple) else (v,) for v in (want, got)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        same_distribution(*(t.flatten() if name != "sample_dirichlet" else t[:, 0] for t in (w, g)))


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", DRAWS)
def test_pieces_are_simpler_and_have_the_types_that_were_promised(name: str, symbolic: bool) -> None:
    if name == "random_integers from":
        pytest.skip("no graph holds it: its overload's name is a keyword of Python, which torch.fx cannot print")
    op, args, keywords = DRAWS[name]
    if symbolic and name == "sample_dirichlet":
        pytest.skip("PyTorch has no meta kernel for it")
    assert str(op) not in pieces(op, *args(), symbolic=symbolic, **keywords)


def test_all_are_tested() -> None:
    family = {name for name, op in MEMBERS.items() if op.family == "distributions"}
    assert family - {"native_dropout_backward"} == {name.partition(" ")[0] for name in DRAWS}


def test_bounds_that_rounding_would_reach_are_not_drawn() -> None:
    drawn = decomposition_of(aten.uniform.default)(torch.zeros(100_000, dtype=BF16), 1.0, 2.0)
    assert drawn.min() >= 1 and drawn.max() < 2
    assert (decomposition_of(aten.exponential.default)(torch.zeros(100_000)) > 0).all()
    assert (decomposition_of(aten.geometric.default)(torch.zeros(100_000), 0.999) >= 1).all()


def test_probabilities_of_0_and_1_are_certain() -> None:
    ours = decomposition_of(aten.bernoulli.p)
    assert not ours(like(), 0.0).any() and ours(like(), 1.0).all()


def test_multinomial_draws_no_index_twice_and_none_of_no_weight() -> None:
    ours = decomposition_of(aten.multinomial.default)
    weights = torch.tensor([[1.0, 0.0, 2.0, 0.0, 5.0], [0.0, 1.0, 1.0, 1.0, 1e-6]])
    for _ in range(50):
        drawn = ours(weights, 3)
        assert all(len(set(row)) == 3 for row in drawn.tolist()) and set(drawn[0].tolist()) == {0, 2, 4}
        assert not set(ours(weights, 40, True)[0].tolist()) & {1, 3}


def test_a_generator_is_left_to_who_takes_the_whole() -> None:
    generator = torch.Generator()
    for op, *args in (
        (aten.uniform.default, like()),
        (aten.bernoulli.p, like(), 0.5),
        (aten._sample_dirichlet.default, torch.ones(3)),
        (getattr(aten.random, "from"), like(), 1, 3),
    ):
        assert decomposition_of(op)(*args, generator=generator) is NotImplemented
        assert isinstance(decomposition_of(op)(*args, generator=None), torch.Tensor)


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
def test_dropout_backward(dtype: torch.dtype) -> None:
    grad, mask = torch.randn(5, 9).to(dtype), torch.rand(5, 9) < 0.5
    for scale in (1.0, 2.0, 0.0, 1 / 0.7):
        agree(aten.native_dropout_backward.default, grad, mask, scale)
        agree(aten.native_dropout_backward.default, grad.t(), mask.t(), scale)
        agree(aten.native_dropout_backward.default, mask.to(torch.int64) * 3, mask, scale)


def test_dropouts_gradient_is_that_of_its_definition() -> None:
    x = torch.randn(40, dtype=F64, requires_grad=True)
    out, mask = aten.native_dropout(x, 0.4, True)
    (want,) = torch.autograd.grad(out.sum(), x)
    got = decomposition_of(aten.native_dropout_backward.default)(torch.ones_like(out), mask, 1 / 0.6)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", ["uniform", "normal", "randint", "randperm", "gamma", "poisson", "binomial"])
def test_a_seed_gives_the_same_draws_again(name: str) -> None:
    op = MEMBERS[name]
    samples = list(op.samples(F32))  # type: ignore[misc]

    def draw() -> list[torch.Tensor]:
        torch.manual_seed(5)
        return [op.targets[0](*s.args, **s.kwargs) for s in samples]

    assert all(map(torch.equal, draw(), draw()))


def test_draws_keep_to_their_clauses() -> None:
    for dtype in (F16, BF16, F32, F64):
        u, z = torch.rand(100_000, dtype=dtype), torch.randn(100_000, dtype=dtype)
        assert u.min() >= 0 and u.max() < 1 and z.isfinite().all()
        steps = u.double() * (2.0**53 if dtype == F64 else 2.0**24)
        assert torch.equal(steps, steps.floor())
        assert dtype.itemsize == 2 or (aten._standard_gamma(torch.full((1000,), 1e-3, dtype=dtype)) > 0).all()
    assert abs(torch.randn(N, dtype=torch.complex64).real.var() - 0.5) < 0.02
    assert not aten.poisson(torch.zeros(9)).any() and aten.poisson(torch.rand(99) * 9).frac().eq(0).all()
    assert torch.randperm(50).sort()[0].tolist() == list(range(50))
    for p, want in ((0.0, 0), (1.0, 9)):
        assert (aten.binomial(torch.full((99,), 9.0), torch.full((99,), p)) == want).all()
    with pytest.raises(RuntimeError):
        aten.poisson(torch.tensor([-1.0]))


def test_the_type_of_what_has_no_meta_kernel() -> None:
    assert aten.binomial.default in METAS
    for sample in MEMBERS["binomial"].samples(F32):  # type: ignore[misc]
        real = aten.binomial.default(*sample.args)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        with mode:
            given = [mode.from_tensor(a) for a in sample.args]
            fake = METAS[aten.binomial.default](*given)
        rule = MEMBERS["binomial"].types(bound(aten.binomial.default, [type_of(g) for g in given], {}))
        assert agrees(type_of(fake), rule[0])
        assert (real.dtype, real.shape, real.is_contiguous()) == (fake.dtype, real.shape, True)
