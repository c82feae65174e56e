"""Activations and their gradients give what eager gives, corners and special values first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from keel.loops.lower import lower
from keel.spec import decomposition_of

from .calls import INF, NAN, SPECIAL, call_of, check, check_symbolic, compare, one_by_one
from .evaluate import evaluate

aten = torch.ops.aten
CORNERS = (*SPECIAL, -3.0, 3.0, -0.5, 6.0, 20.0, -20.0, 0.25, 5.9999, -2.9999, 1.5)

ONE = [
    (aten.relu.default,),
    (aten.hardtanh.default,),
    (aten.hardtanh.default, 0.0, 6.0),
    (aten.leaky_relu.default,),
    (aten.leaky_relu.default, 0.2),
    (aten.elu.default,),
    (aten.elu.default, 1.5, 0.7, 2.0),
    (aten.hardshrink.default,),
    (aten.softshrink.default,),
    (aten.hardsigmoid.default,),
    (aten.hardswish.default,),
    (aten.silu.default,),
    (aten.softplus.default,),
    (aten.softplus.default, 2.0, 5.0),
    (aten.mish.default,),
    (aten.gelu.default,),
    (aten.threshold.default, 0.5, 7.0),
    (aten.log_sigmoid_forward.default,),
]
TWO = [
    (aten.threshold_backward.default, 0),
    (aten.hardtanh_backward.default, -1.0, 1.0),
    (aten.leaky_relu_backward.default, 0.1, False),
    (aten._prelu_kernel.default,),
    (aten._prelu_kernel_backward.default,),
    (aten.hardshrink_backward.default, 0.5),
    (aten.softshrink_backward.default, 0.5),
    (aten.hardsigmoid_backward.default,),
    (aten.hardswish_backward.default,),
    (aten.sigmoid_backward.default,),
    (aten.tanh_backward.default,),
    (aten.silu_backward.default,),
    (aten.softplus_backward.default, 2.0, 5.0),
    (aten.mish_backward.default,),
    (aten.gelu_backward.default,),
    (aten.logit_backward.default,),
    (aten.logit_backward.default, 0.1),
    (aten.logit_backward.default, -0.25),
]


def named(row: tuple[object, ...]) -> str:
    return "-".join(map(str, row))


def check_one_by_one(op: Any, *tensors: torch.Tensor, parameters: Sequence[Any]) -> None:
    want = one_by_one(op, *tensors, parameters=parameters)
    call = call_of(op, (*tensors, *parameters), {}, want)
    compare(call, evaluate(lower(call), tensors), want)


@pytest.mark.parametrize("row", ONE, ids=named)
def test_functions(row: tuple) -> None:
    op, *parameters = row
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        check_one_by_one(op, torch.tensor(CORNERS, dtype=torch.float64).to(dtype), parameters=parameters)
    check(op, torch.linspace(-8, 8, 101), *parameters)
    check(op, torch.zeros(3, 0), *parameters)


@pytest.mark.parametrize("row", TWO, ids=named)
def test_gradients(row: tuple) -> None:
    op, *parameters = row
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(CORNERS, dtype=torch.float64).to(dtype)
        given = [x, x, x] if op is aten._prelu_kernel_backward.default else [x]
        grad = torch.linspace(-2, 2, len(x), dtype=torch.float64).to(dtype)
        check_one_by_one(op, grad, *given[:2], parameters=parameters)
    check(op, torch.ones(101), *[torch.linspace(-8, 8, 101)] * len(given[:2]), *parameters, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(CORNERS, dtype=torch.float64).to(dtype)
        moderate = x[x.abs() < 1e3]
        check(aten.gelu.default, moderate, approximate=approximate)
        check(aten.gelu_backward.default, torch.ones_like(moderate), moderate, approximate=approximate)
        ends = torch.tensor([INF, -INF, NAN, 3e38], dtype=torch.float64).to(dtype)
        gelu = partial(aten.gelu.default, approximate=approximate)
        call = call_of(aten.gelu.default, (ends,), {"approximate": approximate}, ends)
        compare(call, evaluate(lower(call), [ends]), one_by_one(gelu, ends))


@pytest.mark.parametrize(
    ("op", "parameters"),
    [
        (aten.silu_backward.default, {}),
        (aten.mish_backward.default, {}),
        (aten.gelu_backward.default, {"approximate": "tanh"}),
        (aten.gelu_backward.default, {}),
    ],
    ids=["silu", "mish", "tanh", "gelu"],
)
def test_gradients_keep_their_digits(op: Any, parameters: dict[str, Any]) -> None:
    """Also where they are nearly 0, in ulps of the gradient and of what a rounding of x makes of it; as those that the
    operator set writes them out as.
    """
    x = torch.linspace(-12, 30, 20_001)
    exact, eps = decomposition_of(op), torch.finfo(torch.float32).eps

    def true(x: torch.Tensor) -> torch.Tensor:
        return exact(torch.ones_like(x), x, **parameters)

    want = true(x.double())
    room = eps * (want.abs() + (true(x.double() * (1 + 1e-6)) - want).abs() / 1e-6)
    (got,) = evaluate(lower(call_of(op, (torch.ones_like(x), x), parameters, x)), [torch.ones_like(x), x])
    mine, theirs = (((found.double() - want).abs() / room)[want.abs() > 1e-30].max() for found in (got, true(x)))
    assert mine <= 4 and mine <= 2 * theirs, f"{mine:.1f} ulps against {theirs:.1f}"


def test_integers_that_eager_takes() -> None:
    x = torch.tensor([-5, 0, 3, 100])
    check(aten.relu.default, x)
    check(aten.hardtanh.default, x, 0, 50)
    check(aten.threshold.default, x, 1, 20)
    check(aten.threshold_backward.default, x, x, 1)
    check(aten.relu.default, torch.tensor([3, 200], dtype=torch.uint8))


@pytest.mark.parametrize("is_result", [False, True])
def test_elu_backward(is_result: bool) -> None:
    x = torch.linspace(-0.9, 3, 21)
    check(aten.elu_backward.default, torch.ones(21), 1.0, 1.0, 1.0, is_result, x)
    check(aten.elu_backward.default, torch.ones(21), 1.5, 0.5, 2.0, is_result, x)
    numbers = torch.tensor([x for x in SPECIAL if x == x])  # at NaN eager gives NaN in whole vectors, else 1
    check(aten.elu_backward.default, torch.ones_like(numbers), 1.0, 1.0, 1.0, is_result, numbers)


@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_glu(dim: int) -> None:
    check(aten.glu.default, torch.randn(4, 6), dim)
    check(aten.glu.default, torch.randn(4, 6).bfloat16(), dim)


def test_log_sigmoid_backward() -> None:
    x = torch.tensor(CORNERS)
    buffer = aten.log_sigmoid_forward.default(x)[1]
    check(aten.log_sigmoid_backward.default, torch.ones_like(x), x, buffer)


def test_a_buffer_of_another_shape_is_refused() -> None:
    x = torch.randn(3)
    call = call_of(aten.log_sigmoid_forward.default, (x,), {}, (x, torch.empty(0)))
    assert lower(call) == "aten.log_sigmoid_forward.default returns a buffer of another shape here."


def test_symbolic_sizes() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return aten.gelu_backward(aten.silu(x), y, approximate="tanh") + aten.threshold_backward(x, y, 0) + aten.mish(x)

    assert len(check_symbolic(f, torch.randn(3, 5), torch.randn(3, 5))) == 6
