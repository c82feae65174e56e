"""Constants and ranges: dtypes, ends, symbolic lengths."""

from __future__ import annotations

import pytest
import torch

from keel.loops.lower import lower

from .calls import INF, NAN, call_of, check, check_symbolic
from .evaluate import evaluate

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constants(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 3)
    for shape in ([2, 3], [], [0, 2]):
        check(aten.zeros.default, shape, dtype=dtype)
        check(aten.ones.default, shape, dtype=dtype)
        check(aten.full.default, shape, 1, dtype=dtype)
        check(aten.new_ones.default, x, shape, dtype=dtype)
        check(aten.new_zeros.default, x, shape, dtype=dtype)
        check(aten.new_full.default, x, shape, 2.5 if dtype.is_floating_point else 1, dtype=dtype)
    check(aten.full_like.default, x.to(dtype), 1)
    check(aten.zeros_like.default, x, dtype=dtype)
    check(aten.ones_like.default, x.to(dtype))
    check(aten.scalar_tensor.default, 1, dtype=dtype)
    check(aten.eye.default, 4, dtype=dtype)
    check(aten.eye.m, 3, 5, dtype=dtype)


def test_special_constants() -> None:
    for value in (INF, -INF, NAN, -0.0, 0.1):
        check(aten.full.default, [2], value)
        check(aten.full.default, [2], value, dtype=torch.bfloat16)
    check(aten.full.default, [2], NAN, dtype=torch.bool)
    check(aten.full.default, [2], 2.5, dtype=torch.int64)
    check(aten.full.default, [2], -1, dtype=torch.uint8)


def test_what_does_not_fit_is_refused() -> None:
    out = torch.zeros(2, dtype=torch.int8)
    assert (
        lower(call_of(aten.full.default, ([2], 300), {"dtype": torch.int8}, out))
        == "aten.full.default cannot hold 300 in int8."
    )
    assert "cannot hold inf" in str(lower(call_of(aten.full.default, ([2], INF), {"dtype": torch.int8}, out)))


def test_memory_without_a_value_gets_one() -> None:
    out = torch.zeros(3)
    for op, args in (
        (aten.empty.memory_format, ([3],)),
        (aten.new_empty.default, (out, [3])),
        (aten.empty_like.default, (out,)),
        (aten.empty_strided.default, ([3], [1])),
    ):
        definition = lower(call_of(op, args, {}, out))
        assert torch.equal(evaluate(definition, [out] if args[0] is out else [])[0], torch.zeros(3))


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.int32, torch.float64], ids=str)
def test_ranges(dtype: torch.dtype | None) -> None:
    check(aten.arange.default, 5, dtype=dtype)
    check(aten.arange.start, 2, 9, dtype=dtype)
    check(aten.arange.start_step, 10, -5, -3, dtype=dtype)
    check(aten.arange.default, 0, dtype=dtype)
    if dtype is None or dtype.is_floating_point:
        check(aten.arange.start_step, 0.5, 100.0, 0.1, dtype=dtype)
        check(
            aten.linspace.default, -1, 3.7, 11, dtype=dtype, atol=0.02 if dtype == torch.bfloat16 else 1e-6, rtol=1e-6
        )
        check(aten.linspace.default, 0, 1, 1, dtype=dtype)
        check(aten.linspace.default, 1, 0, 0, dtype=dtype)
    check(aten.arange.default, 4.0, dtype=dtype)


def test_a_range_of_integers_rounds_its_numbers_first() -> None:
    check(aten.arange.start_step, -1.5, 5, 1, dtype=torch.int32)
    check(aten.arange.start_step, 1.5, -9.7, -2.6, dtype=torch.int32)


def test_a_long_range_is_exact() -> None:
    want = aten.arange.start_step(0, 3.3, 1e-4, dtype=torch.float64).float()
    call = call_of(aten.arange.start_step, (0, 3.3, 1e-4), {}, want)
    assert torch.equal(evaluate(lower(call), [])[0], want)  # eager's own is off by a unit in the last place


def test_symbolic_lengths() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        n, m = x.shape
        return [
            aten.arange(n),
            aten.arange(n, dtype=torch.float32),
            aten.arange.start(m, m + n),
            aten.arange.start_step(0, 2 * m, 2),
            aten.new_ones(x, [n]),
            aten.zeros_like(x),
            aten.eye(n),
        ]

    assert len(check_symbolic(f, torch.randn(5, 7))) >= 6


def test_symbolic_values() -> None:
    """Apart from the lengths: some versions of PyTorch fix the sizes that these are called with."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        n, m = x.shape
        return [aten.scalar_tensor(n, dtype=torch.float32), aten.full([n, 2], m), aten.add.Scalar(x, n)]

    check_symbolic(f, torch.randn(5, 7))
