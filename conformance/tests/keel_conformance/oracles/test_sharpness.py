"""Planted errors are found: just above the bound, in one element, in the order of arguments, in the last block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from judge_helpers import verdict
from torch import Tensor

aten = torch.ops.aten


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off_by_one(x: Tensor) -> Tensor:
    return x.flatten().roll(1).reshape(x.shape)


def lost(x: Tensor) -> Tensor:
    found = x.clone()
    found.flatten()[-x.numel() // 7 or -1 :] = 0
    return found


def halved(x: Tensor) -> Tensor:
    return x.half().to(x.dtype)


CALLS: Mapping[str, tuple[str, Any, tuple[Any, ...]]] = {
    "exp": ("exp", aten.exp.default, (draw(40),)),
    "sub": ("sub", aten.sub.Tensor, (draw(40), draw(40, seed=1))),
    "mm": ("mm", aten.mm.default, (draw(9, 64), draw(64, 9, seed=1))),
    "sum": ("sum", aten.sum.dim_IntList, (draw(30, 130), [1])),
    "softmax": ("softmax", aten._softmax.default, (draw(7, 65), -1, False)),
    "layer_norm": ("layer_norm", aten.native_layer_norm.default, (draw(7, 65), [65], None, None, 1e-5)),
    "gelu": ("gelu", aten.gelu.default, (draw(70),)),
    "convolution": (
        "convolution",
        aten.convolution.default,
        (draw(1, 2, 9, 9), draw(3, 2, 3, 3, seed=1), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
    "cumsum": ("cumsum", aten.cumsum.default, (draw(5, 40), 1)),
    "gather": ("gather", aten.gather.default, (draw(5, 6), 1, torch.arange(5).expand(5, 5).contiguous())),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("change", [off_by_one, lost, halved, torch.zeros_like, torch.ones_like, torch.neg])
def test_a_wrong_result_fails(name: str, change: Callable[[Tensor], Tensor]) -> None:
    member, op, args = CALLS[name]
    out = op(*args)
    first, *rest = out if isinstance(out, tuple) else (out,)
    assert verdict(member, op, args, [first, *rest]).status == "pass"
    assert verdict(member, op, args, [change(first), *rest]).status == "fail"


def test_operands_in_the_wrong_order_fail() -> None:
    x, y = draw(6), draw(6, seed=1)
    for name in ("sub", "div", "pow", "atan2"):
        op = {
            "sub": aten.sub.Tensor,
            "div": aten.div.Tensor,
            "pow": aten.pow.Tensor_Tensor,
            "atan2": aten.atan2.default,
        }[name]
        assert verdict(name, op, (x.abs(), y.abs()), [op(y.abs(), x.abs())]).status == "fail"


def test_one_ulp_beyond_the_budget_fails() -> None:
    x = draw(50).abs() + 1
    for name, ulps in (("sqrt", 1), ("exp", 4)):
        op = getattr(aten, name).default
        right = op(x.double())
        step = 2.0 ** (torch.frexp(right)[1] - 24).double()
        assert verdict(name, op, (x,), [(right + (ulps - 0.5) * step).float()]).status == "pass"
        assert verdict(name, op, (x,), [(right + (ulps + 1.5) * step).float()]).status == "fail"


def test_an_accumulator_of_16_bits_fails() -> None:
    x = draw(3, 2000).half()
    total = torch.zeros(3, dtype=torch.float16)
    for column in x.T:
        total = total + column
    assert verdict("sum", aten.sum.dim_IntList, (x, [1]), [total]).status == "fail"


def test_truncated_sums_are_biased() -> None:
    """Each partial sum cut towards zero stays within the worst case, and is found in the mean."""
    x = draw(400, 60).abs()
    total = torch.zeros(400)
    for column in x.T:
        best = total.double() + column.double()
        near = best.float()
        total = torch.where(near.double() > best, torch.nextafter(near, torch.tensor(0.0)), near)
    args = (x, [1])
    assert verdict("sum", aten.sum.dim_IntList, args, [total]).status == "pass"
    found = verdict("sum", aten.sum.dim_IntList, args, [total], choice=(("values", "random"),))
    assert found.status == "fail" and "biased" in found.sentence


@pytest.mark.parametrize(
    ("got", "what"),
    [
        (torch.tensor([0.0, float("nan")]), "nan for a number"),
        (torch.tensor([-0.0, 2.0]), "the sign of zero"),
        (torch.tensor([0.0, float("inf")]), "infinity"),
        (torch.tensor([0.0, 2.0], dtype=torch.float64), "dtype"),
        (torch.tensor([[0.0, 2.0]]), "sizes"),
    ],
)
def test_classes_and_the_contract_count(got: Tensor, what: str) -> None:
    args = (torch.tensor([0.0, 1.0]), 2.0)
    assert (
        verdict(
            "mul", aten.mul.Scalar if hasattr(aten.mul, "Scalar") else aten.mul.Tensor, args, [torch.tensor([0.0, 2.0])]
        ).status
        == "pass"
    )
    assert verdict("mul", aten.mul.Scalar, args, [got]).status == "fail", what


def test_strides_count() -> None:
    x = draw(3, 4).t()
    right = aten.exp.default(x)
    assert verdict("exp", aten.exp.default, (x,), [right]).status == "pass"
    found = verdict("exp", aten.exp.default, (x,), [right.contiguous()])
    assert found.oracle == "contract" and "strides" in found.sentence


def test_what_eager_has_as_wrong_is_a_warning_and_others_fail() -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    op = aten.hardsigmoid_backward.default
    args = (torch.ones(9, dtype=torch.float64), x)
    assert verdict("hardsigmoid_backward", op, args, [op(*args)]).status == "quality warning"
    assert verdict("hardsigmoid_backward", op, args, [torch.full_like(x, 1 / 6)]).status == "pass"
    assert verdict("hardsigmoid_backward", op, args, [op(*args) * 1.001]).status == "fail"


def test_conversions_out_of_range_are_open_and_others_are_not() -> None:
    x = torch.tensor([1.5, 3e9, float("nan"), -2.5])
    op = aten._to_copy.default
    got = torch.tensor([1, 5, 6, -2], dtype=torch.int32)
    assert verdict("convert", op, (x,), [got], dtype=torch.int32).status == "pass"
    got[3] = -3
    assert verdict("convert", op, (x,), [got], dtype=torch.int32).status == "fail"


def test_wrong_factors_fail() -> None:
    a = draw(4, 4)
    q, r = torch.linalg.qr(a)
    for bad in ([q * 1.001, r], [q, r * 1.001], [q.flip(1), r]):
        layout = [b.mT.contiguous().mT for b in bad]
        assert verdict("linalg_qr", aten.linalg_qr.default, (a,), layout).status == "fail"


def test_wrong_order_statistics_fail() -> None:
    x = draw(3, 9)
    values, where = x.sort(1)
    assert verdict("sort", aten.sort.default, (x, 1), [values, where.roll(1, 1)]).status == "fail"
    assert (
        verdict("topk", aten.topk.default, (x, 3), [values[:, :3].contiguous(), where[:, :3].contiguous()]).status
        == "fail"
    )
    twice = where.clone()
    twice[:, 1] = twice[:, 0]
    assert verdict("sort", aten.sort.default, (x, 1), [x.gather(1, twice), twice]).status == "fail"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_16_bits_that_are_all_cut_off_fail(dtype: torch.dtype) -> None:
    """Each by itself is within an ulp; to the nearest, to the nearest with ties away, and to either side pass."""
    x, y = draw(400).to(dtype), draw(400, seed=1).to(dtype)
    exact = x.double() * y.double()
    near = exact.to(dtype)
    step = torch.where(near.double().abs() > exact.abs(), -1.0, 0.0)
    cut = torch.nextafter(near, torch.zeros_like(near)).where(step < 0, near)
    beside = torch.nextafter(near, torch.where(exact > near, torch.inf, -torch.inf).to(dtype)).where(
        (exact != near) & (torch.arange(400) % 2 == 0), near
    )
    assert verdict("mul", aten.mul.Tensor, (x, y), [near]).status == "pass"
    assert verdict("mul", aten.mul.Tensor, (x, y), [beside]).status == "pass"
    found = verdict("mul", aten.mul.Tensor, (x, y), [cut])
    assert found.status == "fail" and "toward zero" in found.sentence


def test_a_number_that_is_rounded_before_it_is_multiplied_puts_all_results_off_alike() -> None:
    x, number = draw(1025).half(), torch.tensor(-3.7469, dtype=torch.float64)
    early, late = x * number.half(), (x.double() * number).half()
    for got in (early, late):
        assert verdict("mul", aten.mul.Tensor, (x, number), [got]).status == "pass"


def test_what_lies_beside_a_pole_of_digamma_is_exact_in_large_tensors_too() -> None:
    x = draw(1025).double()
    x[7] = -1 + 2.0**-53
    right = aten.digamma.default(x)
    assert right[7] > -6e15, "this PyTorch keeps the digits: LOSSY can go"
    for found, status in ((float(right[7]), "quality warning"), (-(2.0**53), "pass"), (2.0**53, "fail")):
        got = right.clone()
        got[7] = found
        assert verdict("digamma", aten.digamma.default, (x,), [got]).status == status


def test_whole_numbers_and_their_parts_are_summed_without_rounding() -> None:
    """So that what is taken from where floor and a step say is known: most of a grid's samples are."""
    x, y = torch.tensor([1.0, 2.5, -3.0625, 1.0]), torch.tensor([1.0, 0.25, 7.0, 2.0**-25])
    ulp = torch.tensor([2.0**-22, 2.0**-22, 2.0**-21, 2.0**-23])
    for n, status in ((0, "fail"), (1, "fail"), (2, "fail"), (3, "pass")):
        off = torch.where(torch.arange(4) == n, ulp, 0.0)
        assert verdict("add", aten.add.Tensor, (x, y), [x + y + off]).status == status
    plane, grid = draw(1, 2, 6, 7), draw(1, 4, 5, 2, seed=1)
    call = (plane, grid, 0, 0, False)
    assert (
        verdict("grid_sampler", aten.grid_sampler_2d.default, call, [aten.grid_sampler_2d.default(*call)]).figures[
            "masked"
        ]
        == 0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_determinant_follows_from_its_factors(dtype: torch.dtype, scale: float) -> None:
    """As a product in any order; where eager PyTorch is its own reference, too."""
    a = (torch.randn(3, 7, 7, dtype=dtype, generator=torch.Generator().manual_seed(1)) * scale).mT
    det, lu, pivots = aten._linalg_det.default(a)
    order = lu.diagonal(0, -2, -1).flip(-1).cumprod(-1)[..., -1] / lu.diagonal(0, -2, -1).prod(-1) * det
    for results, status in (
        ([det, lu, pivots], "pass"),
        ([order, lu, pivots], "pass"),
        ([-det, lu, pivots], "fail"),
        ([det * (1 + 100 * torch.finfo(dtype).eps), lu, pivots], "fail"),
        ([det, lu.roll(1, 0), pivots], "fail"),
        ([det, lu, pivots.roll(1, 0)], "fail"),
    ):
        assert verdict("linalg_det", aten._linalg_det.default, (a,), results).status == status
    sign, logs, lu, pivots = aten._linalg_slogdet.default(a)
    for results, status in (
        ([sign, logs, lu, pivots], "pass"),
        ([-sign, logs, lu, pivots], "fail"),
        ([sign, logs + 1e-3, lu, pivots], "fail"),
    ):
        assert verdict("linalg_slogdet", aten._linalg_slogdet.default, (a,), results).status == status


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_the_magnitude_of_complex_numbers_is_held_to_its_digits(dtype: torch.dtype) -> None:
    x = torch.randn(40, dtype=dtype, generator=torch.Generator().manual_seed(1))
    right = aten.abs.default(x)
    assert verdict("abs", aten.abs.default, (x,), [right]).status == "pass"
    assert verdict("abs", aten.abs.default, (x,), [right * (1 + 64 * torch.finfo(dtype).eps)]).status == "fail"
