"""Numeric facts that a backend declares make right what is right by them, and nothing that is off by more."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.plugin import Arithmetic
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles.declared_facts import judge_by_facts
from keel_conformance.oracles.judge import judge
from keel_conformance.results.verdict import Verdict

aten = torch.ops.aten
FLUSHES = Arithmetic(flushes_subnormals=(torch.float32,))
CUTS = Arithmetic(products={torch.float32: "tf32"})
CUTS_MORE = Arithmetic(products={torch.float32: torch.bfloat16})
ADDS = Arithmetic(sums={torch.bfloat16: torch.bfloat16})
TINY = torch.finfo(torch.float32).smallest_normal


def verdict(name: str, op: Any, args: Sequence[Any], results: Sequence[Any], facts: Arithmetic) -> Verdict:
    case = Case(name, "", "op", "core", str(op), choice=(("values", "random"),))
    inputs = Inputs(tuple(args), {}, frozenset())

    def by(inputs: Inputs, arithmetic: Arithmetic) -> Verdict:
        return judge(case, inputs, results, arithmetic=arithmetic)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge_by_facts(judge(case, inputs, results), inputs, facts, by)


@contextmanager
def flushing() -> Iterator[None]:
    """The processor flushes subnormals: operands and results."""
    if not torch.set_flush_denormal(True):
        pytest.skip("The processor cannot flush subnormals.")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small(*shape: int, seed: int = 0) -> Tensor:
    """Numbers around the smallest normal one, and a few of usual size."""
    x = draw(*shape, seed=seed)
    return torch.where(draw(*shape, seed=seed + 1) > 1, x, x * TINY)


def cut(x: Tensor, bits: int, *, rounded: bool = False) -> Tensor:
    """``x`` with ``bits`` bits of its significand: truncated, or rounded."""
    significand, exponent = torch.frexp(x)
    scaled = significand.double() * 2.0**bits
    return torch.ldexp((scaled.round() if rounded else scaled.trunc()) / 2.0**bits, exponent).float()


SUBNORMAL: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("mul", aten.mul.Tensor, (small(64), draw(64, seed=5))),
    ("add", aten.add.Tensor, (small(64), small(64, seed=7))),
    ("reciprocal", aten.reciprocal.default, (small(64),)),
    ("sqrt", aten.sqrt.default, (small(64).abs(),)),
    ("mul", aten.mul.Tensor, (small(1, 8).expand(4, 8), draw(8, 4, seed=2).t())),
    ("eq", aten.eq.Scalar, (small(64), 0.0)),
    ("sum", aten.sum.dim_IntList, (small(8, 64), [1])),
    ("mm", aten.mm.default, (small(8, 16), small(16, 8, seed=3))),
    ("hardtanh", aten.hardtanh.default, (small(64),)),
    ("silu", aten.silu.default, (small(64),)),
]


@pytest.mark.parametrize(("name", "op", "args"), SUBNORMAL, ids=[f"{k}-{each[0]}" for k, each in enumerate(SUBNORMAL)])
def test_a_processor_that_flushes_is_right_by_its_word(name: str, op: Any, args: tuple[Any, ...]) -> None:
    with flushing():
        result = op(*args)
    assert verdict(name, op, args, [result], FLUSHES).status in ("pass", "quality warning")


def test_the_verdict_names_the_fact() -> None:
    x = small(64)
    with flushing():
        result = aten.reciprocal.default(x)
    assert verdict("reciprocal", aten.reciprocal.default, [x], [result], Arithmetic()).status == "fail"
    by_word = verdict("reciprocal", aten.reciprocal.default, [x], [result], Arithmetic(**vars(FLUSHES)))
    assert by_word.status == "pass" and by_word.figures["fact"] == "flushes subnormals of float32"
    assert by_word.sentence == "By its declaration, it flushes subnormals of float32."
    exact = verdict("reciprocal", aten.reciprocal.default, [x], [x.reciprocal()], FLUSHES)
    assert exact.status == "pass" and "fact" not in exact.figures


@pytest.mark.parametrize("facts", [FLUSHES, CUTS, CUTS_MORE, ADDS], ids=lambda f: f.sentences()[0])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.where(x.abs() < 1e-30, 0.0, x),
        lambda x: torch.where(x.abs() < 8 * TINY, 0.0, x),
        lambda x: torch.where(x == 0, TINY / 2, x),
        torch.neg,
        lambda x: x.roll(1),
    ],
    ids=["flushes too much", "flushes normal numbers", "makes subnormals", "negates", "shifts"],
)
def test_a_wrong_product_stays_wrong(facts: Arithmetic, wrong: Callable[[Tensor], Tensor]) -> None:
    x, y = small(256), torch.where(draw(256, seed=9) > 0, 4.0, 0.0)
    right = x * y
    assert verdict("mul", aten.mul.Tensor, (x, y), [right], facts).status == "pass"
    assert verdict("mul", aten.mul.Tensor, (x, y), [wrong(right)], facts).status == "fail"


def test_another_dtype_is_not_flushed() -> None:
    x = torch.full((8,), 2.0**-20, dtype=torch.float16)
    assert verdict("neg", aten.neg.default, [x], [torch.zeros_like(x)], FLUSHES).status == "fail"


PRODUCTS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("mm", aten.mm.default, (draw(9, 64), draw(64, 9, seed=1))),
    ("addmm", aten.addmm.default, (draw(9), draw(9, 64, seed=2), draw(64, 9, seed=1))),
    ("bmm", aten.bmm.default, (draw(2, 9, 64), draw(2, 64, 9, seed=1))),
    (
        "convolution",
        aten.convolution.default,
        (draw(1, 2, 9, 9), draw(3, 2, 3, 3, seed=1), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
]


def with_cut(op: Any, args: Sequence[Any], bits: int, **how: Any) -> Tensor:
    result: Tensor = op(*(cut(a, bits, **how) if isinstance(a, Tensor) and a.dim() > 1 else a for a in args))
    return result


@pytest.mark.parametrize(("name", "op", "args"), PRODUCTS, ids=[each[0] for each in PRODUCTS])
@pytest.mark.parametrize("rounded", [False, True])
def test_products_of_operands_that_are_cut(name: str, op: Any, args: tuple[Any, ...], rounded: bool) -> None:
    in_tf32, in_bfloat16 = (with_cut(op, args, bits, rounded=rounded) for bits in (11, 8))
    assert verdict(name, op, args, [in_tf32], Arithmetic()).status == "fail"
    assert verdict(name, op, args, [in_tf32], CUTS).figures["fact"] == "cuts operands of float32 products to tf32"
    assert verdict(name, op, args, [in_bfloat16], CUTS_MORE).status == "pass"
    assert verdict(name, op, args, [with_cut(op, args, 4)], CUTS_MORE).status == "fail"


@pytest.mark.parametrize(("facts", "bits"), [(CUTS, 8), (CUTS_MORE, 5)], ids=["tf32", "bfloat16"])
@pytest.mark.parametrize("length", [4, 64, 1024])
def test_operands_that_are_cut_by_more_than_the_fact(facts: Arithmetic, bits: int, length: int) -> None:
    """Errors of long sums are far below their bound, so what they are in the mean counts."""
    args = draw(16, length), draw(length, 16, seed=1)
    assert verdict("mm", aten.mm.default, args, [with_cut(aten.mm.default, args, bits + 3)], facts).status == "pass"
    assert verdict("mm", aten.mm.default, args, [with_cut(aten.mm.default, args, bits)], facts).status == "fail"


@pytest.mark.parametrize(("name", "op", "args"), PRODUCTS, ids=[each[0] for each in PRODUCTS])
@pytest.mark.parametrize("facts", [CUTS, CUTS_MORE], ids=["tf32", "bfloat16"])
def test_a_product_that_is_wrong_otherwise_fails(name: str, op: Any, args: tuple[Any, ...], facts: Arithmetic) -> None:
    right: Tensor = op(*args)
    lost: Tensor = (
        op(*(a[..., :-1] if a is args[-2] else a[..., :-1, :] if a is args[-1] else a for a in args))
        if (name != "convolution")
        else right.roll(1)
    )
    for wrong in (lost, right * 1.25, right.roll(1), right.neg(), torch.zeros_like(right)):
        assert verdict(name, op, args, [wrong], facts).status == "fail"


def test_operands_that_the_format_holds_are_multiplied_exactly() -> None:
    x, y = (torch.randint(-8, 9, (9, 9), generator=torch.Generator().manual_seed(k)).float() for k in (0, 1))
    right = x @ y
    assert verdict("mm", aten.mm.default, (x, y), [right], CUTS).status == "pass"
    right[3, 3] += 1
    assert verdict("mm", aten.mm.default, (x, y), [right], CUTS).status == "fail"


def test_what_is_no_product_is_not_cut() -> None:
    x, y = draw(64), draw(64, seed=1)
    assert verdict("mul", aten.mul.Tensor, (x, y), [cut(x, 11) * cut(y, 11)], CUTS).status == "fail"
    assert verdict("sum", aten.sum.default, (x,), [cut(x, 8).sum()], CUTS).status == "fail"


def in_sixteen_bits(x: Tensor) -> Tensor:
    """The sums of rows, rounded after each addition."""
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in x.unbind(1):
        total = total + column
    return total


def test_sums_in_sixteen_bits() -> None:
    x = draw(64, 60).bfloat16()
    result, dims = in_sixteen_bits(x), [1]
    assert verdict("sum", aten.sum.dim_IntList, (x, dims), [result], Arithmetic()).status == "fail"
    assert verdict("sum", aten.sum.dim_IntList, (x, dims), [result], ADDS).status == "pass"
    for wrong in (result + 40, x.abs().sum(1) * 1.5, torch.full_like(result, 50.0)):
        assert verdict("sum", aten.sum.dim_IntList, (x, dims), [wrong], ADDS).status == "fail"


def test_of_long_sums_in_sixteen_bits_nothing_is_known() -> None:
    x = torch.ones(4, 1000, dtype=torch.bfloat16) * 1.01
    assert verdict("sum", aten.sum.dim_IntList, (x, [1]), [in_sixteen_bits(x)], ADDS).status == "vacuous"


def test_facts_are_tried_one_by_one_and_then_together() -> None:
    both = Arithmetic(flushes_subnormals=(torch.float32,), products={torch.float32: "tf32"}, float64=False)
    assert [f.sentences() for f in both.one_by_one()] == [
        ("flushes subnormals of float32",),
        ("cuts operands of float32 products to tf32",),
        ("flushes subnormals of float32", "cuts operands of float32 products to tf32"),
    ]
    assert not list(Arithmetic(float64=False, native=(torch.float8_e4m3fn,)).one_by_one())
