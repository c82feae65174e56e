"""Folds and scans give what eager gives: dtypes, named dimensions, empty and 0-d tensors, NaN and ties."""

from __future__ import annotations

import pytest
import torch

from keel.loops.lower import lower

from .calls import INF, NAN, call_of, check, check_symbolic, compare
from .evaluate import evaluate

aten = torch.ops.aten
X = torch.arange(1.0, 25.0).reshape(2, 3, 4).sin()
SPECIAL = torch.tensor([[1.0, NAN, -INF], [INF, INF, 2.0], [-0.0, 0.0, -1.0], [NAN, NAN, NAN], [-INF, -INF, -INF]])
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.uint8, torch.bool)


def sample(dtype: torch.dtype) -> torch.Tensor:
    return (X * 5).abs().to(dtype) if dtype == torch.uint8 else (X * 5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_and_products(dtype: torch.dtype) -> None:
    x = sample(dtype)
    for args in ((None,), ([],), ([0],), ([-1, 0], True), ([0, 1, 2],), ([1], True)):
        check(aten.sum.dim_IntList, x, *args)
        if dtype.is_floating_point:
            check(aten.mean.dim, x, *args)
    check(aten.sum.default, x)
    check(aten.sum.dim_IntList, x, [1], dtype=torch.float64)
    check(aten.prod.default, x)
    check(aten.prod.dim_int, x, 1, True)
    check(aten.prod.dim_int, x, -1, dtype=torch.int32)
    check(aten.mean.dim, x, [0], dtype=torch.float32)
    check(aten.sum.default, torch.ones((), dtype=dtype))
    check(aten.sum.dim_IntList, torch.ones((0, 3), dtype=dtype), [0])
    check(aten.prod.dim_int, torch.ones((0, 3), dtype=dtype), 0)


def test_means_of_nothing_are_nan() -> None:
    check(aten.mean.default, torch.ones(0))
    check(aten.mean.default, torch.tensor(3.0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extremes(dtype: torch.dtype) -> None:
    x = sample(dtype)
    for op in (aten.amax.default, aten.amin.default):
        for args in ((), ([],), ([0],), ([-1, 0], True)):
            check(op, x, *args)
    check(aten.max.default, x)
    check(aten.min.default, x)
    for op in (aten.max.dim, aten.min.dim):
        for args in ((0,), (-1, True), (1,)):
            check(op, x, *args)
        check(op, x.reshape(-1)[0], 0)
    if dtype != torch.bool:
        for op in (aten.argmax.default, aten.argmin.default):
            for args in ((), (None, True), (0,), (-1, True)):
                check(op, x, *args)
            check(op, x.reshape(-1)[0])


def test_nan_and_ties() -> None:
    for op in (aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim):
        check(op, SPECIAL, 1)
        check(op, SPECIAL, 0)
        check(op, torch.tensor([[2, 5, 5, 1, 1]]), 1)
    for op in (aten.amax.default, aten.amin.default):
        check(op, SPECIAL, [1])
    check(aten.argmax.default, SPECIAL)
    check(aten.sum.dim_IntList, SPECIAL, [1])
    check(aten.prod.dim_int, SPECIAL, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_truth(dtype: torch.dtype) -> None:
    x = sample(dtype)
    x[0, 1] = 0
    for packet in (aten.any, aten.all):
        check(packet.default, x)
        for args in ((0,), (-1, True)):
            check(packet.dim, x, *args)
        for args in ((None,), ([0, 2], True), ([],), ([], True), ([1],)):
            check(packet.dims, x, *args)
        check(packet.default, x[:0])
        check(packet.dim, x[:0], 0)


def test_nan_is_true() -> None:
    check(aten.any.dim, SPECIAL, 1)
    check(aten.all.dim, SPECIAL, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scans(dtype: torch.dtype) -> None:
    x = sample(dtype)
    for op in (aten.cumsum.default, aten.cumprod.default):
        coarse = {"rtol": 2e-2, "atol": 1e-2} if dtype in (torch.bfloat16, torch.float16) else {}
        for dim in (0, -1, 1):
            check(op, x, dim, **coarse)
        check(op, x[0, 0, 0], 0)
        check(op, x[:0], 1)
        check(op, x, 1, dtype=torch.float64)


def test_a_long_scan_keeps_its_digits() -> None:
    x = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0))
    want = x.double().cumsum(1).float()
    call = call_of(aten.cumsum.default, (x, 1), {}, want)
    compare(call, evaluate(lower(call), [x]), want, 1e-7, 1e-6)


def test_operands_of_any_layout() -> None:
    for x in (X.permute(2, 0, 1), X[:, ::2], X[:1].expand(3, 3, 4)):
        check(aten.sum.dim_IntList, x, [1])
        check(aten.argmax.default, x)
        check(aten.amax.default, x, [0, 2])


def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.sum(1),
            x.mean([0, 2], True),
            x.amax(-1),
            x.argmax(),
            x.any(1),
            *aten.max.dim(x, 1),
            x.cumsum(2),
            x.prod(0),
            x.bfloat16().mean(1),
        ]

    assert len(check_symbolic(f, torch.randn(3, 5, 7))) == 9


@pytest.mark.parametrize("op", [aten.max.dim, aten.min.dim, aten.amax.default, aten.amin.default, aten.argmax.default])
def test_no_elements_have_no_extreme(op: torch._ops.OpOverload) -> None:
    """Eager raises; the result of an empty reduction is not an element."""
    x, dim = torch.empty(3, 0), [1] if "am" in op.name().split("::")[1][:2] else 1
    out = torch.empty(3)
    call = call_of(op, (x, dim), {}, (out, out.long()) if "dim" in op.name() else out)
    assert "an empty dimension" in str(lower(call))
