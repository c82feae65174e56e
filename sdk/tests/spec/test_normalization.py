"""Normalizations give what the composites give: values, dtypes of statistics, gradients, types elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from keel.spec import decomposition_of

from .agreement import agree

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
DTYPES = [(F32, F32), (F64, F64), (BF16, BF16), (BF16, F32), (F32, None), (BF16, None)]
MASKS = [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def parameters(n: int, dtype: torch.dtype | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    return (None, None) if dtype is None else (torch.randn(n).to(dtype), torch.randn(n).to(dtype))


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "inner"), [((6, 33), [33]), ((2, 3, 4, 5), [4, 5]), ((7,), [7]), ((0, 8), [8])], ids=str
)
def test_layer_norm(dtypes: tuple[torch.dtype, torch.dtype | None], shape: tuple[int, ...], inner: list[int]) -> None:
    x = (torch.randn(shape) * 3 + 5).to(dtypes[0])
    weight, bias = (None if p is None else p.reshape(inner) for p in parameters(torch.Size(inner).numel(), dtypes[1]))
    agree(aten.native_layer_norm.default, x, inner, weight, bias, 1e-5)
    if dtypes[1] is None:
        return
    _, mean, rstd = aten.native_layer_norm(x, inner, weight, bias, 1e-5)
    for mask in MASKS:
        agree(aten.native_layer_norm_backward.default, torch.randn_like(x), x, inner, mean, rstd, weight, bias, mask)


def test_layer_norm_without_parameters_has_a_gradient() -> None:
    x, grad = torch.randn(5, 9), torch.randn(5, 9)
    _, mean, rstd = aten.native_layer_norm(x, [9], None, None, 1e-5)
    agree(aten.native_layer_norm_backward.default, grad, x, [9], mean, rstd, None, None, [True, False, False])


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_special_values_stay_in_their_row(special: float) -> None:
    x = torch.randn(3, 5)
    x[1, 2] = special
    agree(aten.native_layer_norm.default, x, [5], None, None, 1e-5)


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_special_values_in_other_normalizations(special: float) -> None:
    x = torch.randn(2, 4, 5)
    x[1, 2, 3] = special
    agree(aten.native_group_norm.default, x, None, None, 2, 4, 5, 2, 1e-5)
    agree(aten._fused_rms_norm.default, x, [5], None, 1e-5)
    rows = decomposition_of(aten._fused_rms_norm.default)(x, [5], None, 1e-5)[0]
    assert rows[1, 2].isnan().sum() == (5 if special != special else 1) and rows[1, 3].isfinite().all()


def test_layer_norm_far_from_zero() -> None:
    agree(aten.native_layer_norm.default, torch.randn(4, 1024) + 1e4, [1024], None, None, 1e-5)


@pytest.mark.parametrize("dtypes", [(F32, F32), (F64, F64), (BF16, F32), (BF16, BF16), (F32, None)], ids=str)
@pytest.mark.parametrize("shape", [(3, 6, 5, 7), (4, 6, 9), (5, 6)], ids=str)
def test_batch_norm(dtypes: tuple[torch.dtype, torch.dtype | None], shape: tuple[int, ...]) -> None:
    x = (torch.randn(shape) * 3 + 2).to(dtypes[0])
    weight, bias = parameters(6, dtypes[1])
    running = BF16 if dtypes == (BF16, BF16) else F64 if dtypes[0] == F64 else F32
    mean, var = torch.randn(6).to(running), (torch.rand(6) + 0.5).to(running)
    for training in (True, False):
        agree(aten._native_batch_norm_legit_functional.default, x, weight, bias, mean, var, training, 0.1, 1e-5)
    agree(aten._native_batch_norm_legit_no_training.default, x, weight, bias, mean, var, 0.1, 1e-5)
    agree(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-5)
    agree(aten._batch_norm_with_update_functional.default, x, weight, bias, mean, var, 0.1, 1e-5)
    agree(aten._batch_norm_no_update.default, x, weight, bias, mean, var, 0.1, 1e-5)
    _, kept, deviation, _, _ = aten._native_batch_norm_legit_functional(x, weight, bias, mean, var, True, 0.1, 1e-5)
    for train, mask in [(True, m) for m in MASKS] + [(False, MASKS[0])]:
        if weight is None and mask != (True, False, False):
            mask = (True, False, False)
        agree(
            aten.native_batch_norm_backward.default,
            torch.randn_like(x),
            x,
            weight,
            mean,
            var,
            kept,
            deviation,
            train,
            1e-5,
            list(mask),
        )


def test_batch_norm_backward_with_a_reserve() -> None:
    x, weight, mean, var = torch.randn(3, 4, 5), torch.randn(4), torch.randn(4), torch.rand(4) + 0.5
    _, kept, deviation, reserve, _, _ = aten._batch_norm_with_update_functional(x, weight, weight, mean, var, 0.1, 1e-5)
    agree(
        aten.batch_norm_backward.default,
        torch.randn_like(x),
        x,
        weight,
        mean,
        var,
        kept,
        deviation,
        True,
        1e-5,
        [True, True, True],
        reserve,
    )


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(dtypes: tuple[torch.dtype, torch.dtype | None], groups: int) -> None:
    x = (torch.randn(3, 6, 4, 5) * 3 + 2).to(dtypes[0])
    weight, bias = parameters(6, dtypes[1])
    agree(aten.native_group_norm.default, x, weight, bias, 3, 6, 20, groups, 1e-5)
    _, mean, rstd = aten.native_group_norm(x, weight, bias, 3, 6, 20, groups, 1e-5)
    for mask in MASKS if weight is not None else [(True, False, False)]:
        agree(
            aten.native_group_norm_backward.default, torch.randn_like(x), x, mean, rstd, weight, 3, 6, 20, groups, mask
        )


def test_group_norm_of_channels_last() -> None:
    x = torch.randn(3, 6, 4, 5).to(memory_format=torch.channels_last)
    agree(aten.native_group_norm.default, x, None, None, 3, 6, 20, 2, 1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm(dtype: torch.dtype, eps: float | None) -> None:
    x, weight = torch.randn(6, 33).to(dtype), torch.randn(33).to(dtype)
    agree(aten._fused_rms_norm.default, x, [33], weight, eps)
    agree(aten._fused_rms_norm.default, x, [33], None, eps)


def test_rms_norm_backward_is_the_gradient() -> None:
    # Eager has no such kernel on CPU: autograd of the definition in float64 is the reference.
    x, weight = torch.randn(6, 33, dtype=F64, requires_grad=True), torch.randn(33, dtype=F64, requires_grad=True)
    grad = torch.randn(6, 33, dtype=F64)
    out, rstd = decomposition_of(aten._fused_rms_norm.default)(x, [33], weight, 1e-6)
    want = torch.autograd.grad(out, (x, weight), grad)
    backward = decomposition_of(aten._fused_rms_norm_backward.default)
    for got, w in zip(
        backward(grad, x.detach(), [33], rstd.detach(), weight.detach(), [True, True]), want, strict=True
    ):
        torch.testing.assert_close(got, w)
    assert backward(grad, x.detach(), [33], rstd.detach(), weight.detach(), [False, True])[0] is None


@pytest.mark.parametrize("dtypes", [(F32, F32), (BF16, BF16), (BF16, F32)], ids=str)
def test_types_on_an_accelerator_are_those_promised(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    def types(results: Any) -> list[Any]:
        return [None if r is None else (r.dtype, r.shape, r.device) for r in results]

    mixed = dtypes[0] != dtypes[1]
    with FakeTensorMode():
        x = torch.empty(3, 4, 5, dtype=dtypes[0], device="cuda")
        w, running = torch.empty(4, dtype=dtypes[1], device="cuda"), torch.empty(4, device="cuda")
        rows, last = torch.empty(3, 4, dtype=dtypes[0], device="cuda"), torch.empty(3, 1, device="cuda")
        for op, args in [
            (aten._native_batch_norm_legit_functional.default, (x, w, w, running, running, True, 0.1, 1e-5)),
            (aten._native_batch_norm_legit_functional.default, (x, w, w, running, running, False, 0.1, 1e-5)),
            (aten._native_batch_norm_legit_no_training.default, (x, w, w, running, running, 0.1, 1e-5)),
            (
                aten.native_batch_norm_backward.default,
                (x, x, w, running, running, running, running, True, 1e-5, [True] * 3),
            ),
            *(
                []
                if mixed
                else [  # refused, from PyTorch 2.15 on by the fake kernel, too
                    (aten.native_layer_norm.default, (rows, [4], w, w, 1e-5)),
                    (aten.native_layer_norm_backward.default, (rows, rows, [4], last, last, w, w, [True] * 3)),
                ]
            ),
            (aten._fused_rms_norm.default, (rows, [4], w, None)),
        ]:
            assert types(decomposition_of(op)(*args)) == types(op(*args)), op
