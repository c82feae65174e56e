"""What each lowering computes, next to eager PyTorch, on samples of the operator set; and numbers that XLA treats in a
way of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel.opset import MEMBERS, Op, overload_of
from keel.testing import compile_calls
from keel_pjrt import backend
from keel_pjrt.rows import ROWS

pytest.importorskip("jax", reason="jax is not installed: pip install jax")
INF, NAN = float("inf"), float("nan")
TINY = torch.finfo(torch.float32).smallest_normal
FREE = {"as_strided", "empty", "eig", "eigh", "svd"}
"""Members whose results are not specified, or only up to the signs of vectors, and one that reads memory as it lies."""
SAMPLES = 1
"""Calls of each member."""


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


def samples(op: Op) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """Calls of a member on ordinary numbers, in the first dtype of these that it has."""
    dtype = next(d for d in (torch.float32, torch.int64, *op.dtypes) if d in op.dtypes)
    assert op.samples is not None
    for sample in islice(filter(is_ordinary, op.samples(dtype)), SAMPLES):
        yield overload_of(op, sample.args, sample.kwargs), sample.args, dict(sample.kwargs)


def is_ordinary(sample: Any) -> bool:
    tensors = [x for x in sample.args if isinstance(x, Tensor) and x.numel()]
    return all(bool((x.double().abs() < 1e4).all()) for x in tensors if not x.is_complex())


@pytest.mark.slow
def test_each_lowering_computes_what_pytorch_computes() -> None:
    calls = [call for name in ROWS if name not in FREE and MEMBERS[name].samples for call in samples(MEMBERS[name])]
    batch = compile_calls(calls, backends=[backend], strict=True)
    results = batch.run([(args, kwargs) for _, args, kwargs in calls])
    assert len(calls) > 120
    for (op, args, kwargs), result in zip(calls, results, strict=True):
        expected = op(*args, **kwargs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        torch.testing.assert_close(result, expected, equal_nan=True, msg=lambda m, op=op: f"{op}: {m}")


def computed(function: Callable[..., Any], *inputs: Tensor) -> Any:
    return keel.compile(function, backends=[backend], strict=True)(*inputs)


def test_numbers_below_the_normal_ones_keep_their_order() -> None:
    x = torch.tensor([3 * TINY / 4, TINY / 2, 0.0, -0.0, -TINY / 4, NAN, 1.0, -INF])

    def ordered(x: Tensor) -> tuple[Tensor, ...]:
        return (*x.sort(stable=True), *x.topk(3), x.nextafter(x.flip(0)), x.neg(), x.flip(0))

    for result, expected in zip(computed(ordered, x), ordered(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    mantissa, exponent = computed(torch.frexp, x[:4])
    assert torch.ldexp(mantissa.double(), exponent).equal(x[:4].double())


def test_choices_take_numbers_below_the_normal_ones_for_zeros() -> None:
    """All of them, so that a composite of comparisons and choices is of one arithmetic."""
    x, y = torch.tensor([TINY / 2, -TINY / 2, TINY, 0.0]), torch.tensor([0.0, 1.0, TINY / 4, -1.0])

    def chosen(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x > 0, x.maximum(y), torch.where(y >= 0, x, y)

    flushed = (torch.where(each.abs() < TINY, each * 0, each) for each in (x, y))
    torch.testing.assert_close(computed(chosen, x, y), chosen(*flushed), rtol=0, atol=0)


def test_integers_wrap_around_and_shift_as_in_pytorch() -> None:
    least = torch.iinfo(torch.int8).min
    x, y = torch.tensor([least, least, 7, -7, 5], dtype=torch.int8), torch.tensor([-1, 126, 2, 2, -1], dtype=torch.int8)

    def integers(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        u = x.to(torch.uint8)
        divided = (torch.div(x[2:], y[2:], rounding_mode=mode) for mode in ("floor", "trunc"))
        return (
            *divided,
            x[2:] % y[2:],
            torch.fmod(x[2:], y[2:]),
            x * y,
            x - y,
            torch.gcd(x, y),
            x << 2,
            x >> 9,
            u >> 1,
            -x,
        )

    torch.testing.assert_close(computed(integers, x, y), integers(x, y))


def test_products_of_nothing_are_zeros() -> None:
    """Without its simplifier, XLA's compiler divides by their number of terms, and the process ends."""

    def products(x: Tensor, y: Tensor, image: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return x @ y, y @ x, torch.bmm(x[None], y[None]), torch.conv2d(image, weight), x.sum(1), x.amax(0), x.sort()[0]

    inputs = torch.ones(3, 0), torch.ones(0, 3), torch.ones(0, 2, 4, 4), torch.ones(3, 2, 2, 2)
    torch.testing.assert_close(computed(products, *inputs), products(*inputs))


def test_factors_give_the_matrix_back() -> None:
    x = torch.randn(2, 4, 4, dtype=torch.float64)
    u, s, v = computed(lambda x: torch.linalg.svd(x), x)
    torch.testing.assert_close(u * s[:, None] @ v, x)
    values, vectors = computed(lambda x: torch.linalg.eigh(x + x.mT), x)
    torch.testing.assert_close(vectors * values[:, None] @ vectors.mT, x + x.mT)


def test_xla_rewrites_no_arithmetic() -> None:
    """XLA's simplifier would make x of the first two, and 0 of a masked infinity. It does not see the numbers."""

    def arithmetic(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return (x + 1) - 1, (x * 1e30) * 1e-30, mask.to(x.dtype) * INF, x.bfloat16().float(), x + 0.0

    x = torch.tensor([1e-10, 1e30, 5.0, -0.0])
    for result, expected in zip(computed(arithmetic, x, x > 1), arithmetic(x, x > 1), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        assert result.signbit()[3] == expected.signbit()[3] or expected[3].isnan()


def test_functions_of_float64_are_precise() -> None:
    x = torch.linspace(-0.999, 4, 2000, dtype=torch.float64)

    def functions(x: Tensor) -> tuple[Tensor, ...]:
        return x.log1p(), x.tanh(), x.sinh(), x.cosh(), x.exp2()

    for result, expected in zip(computed(functions, x), functions(x), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-15, atol=0)
