"""Contractions: products and sums as eager gives them, and what the quantized ones mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel.spec import decomposition_of

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
SCALES: list[dict[str, Any]] = [{}, {"beta": 0.5, "alpha": 2.0}, {"beta": 0}]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("scales", SCALES, ids=str)
def test_a_product_and_a_sum(dtype: torch.dtype, scales: dict[str, Any]) -> None:
    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(dtype)

    for x in (drawn(5, 6), drawn(6), drawn(5, 1)):
        agree(aten.addmm.default, x, drawn(5, 7), drawn(7, 6), **scales)
    agree(aten.addmm.default, drawn(6), drawn(5, 0), drawn(0, 6), **scales)
    agree(aten.baddbmm.default, drawn(2, 5, 6), drawn(2, 5, 7), drawn(2, 7, 6), **scales)
    agree(aten.addbmm.default, drawn(5, 6), drawn(2, 5, 7), drawn(2, 7, 6), **scales)
    agree(aten.addmv.default, drawn(5), drawn(5, 7), drawn(7), **scales)
    agree(aten.addr.default, drawn(5, 6), drawn(5), drawn(6), **scales)
    agree(aten._addmm_activation.default, drawn(5, 6), drawn(5, 7), drawn(7, 6), **scales)
    agree(aten._addmm_activation.default, drawn(6), drawn(5, 7), drawn(7, 6), use_gelu=True, **scales)


def test_with_beta_zero_x_is_not_read() -> None:
    x = torch.full((2, 2), float("nan"))
    for op, shapes in ((aten.addmm.default, ((2, 3), (3, 2))), (aten.addbmm.default, ((4, 2, 3), (4, 3, 2)))):
        assert not decomposition_of(op)(x, *map(torch.randn, shapes), beta=0).isnan().any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64], ids=str)
def test_integers_wrap_around_in_their_dtype(dtype: torch.dtype) -> None:
    a, b = torch.randint(-128, 127, (5, 9)).to(dtype), torch.randint(-128, 127, (9,)).to(dtype)
    for op, args in (
        (aten.mv.default, (a, b)),
        (aten.dot.default, (b, b)),
        (aten.addmv.default, (b[:5], a, b)),
        (aten.addmm.default, (b[:5], a, a.t().contiguous())),
    ):
        assert torch.equal(decomposition_of(op)(*args), op(*args))


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
def test_sums_of_products(dtype: torch.dtype) -> None:
    a, b = torch.randn(5, 333).to(dtype), torch.randn(333).to(dtype)
    agree(aten.mv.default, a, b)
    agree(aten.mv.default, a[:, :0], b[:0])
    agree(aten.dot.default, b, b.flip(0))
    agree(
        aten._trilinear.default,
        torch.randn(4, 3).to(dtype),
        torch.randn(5, 3, 2).to(dtype),
        torch.randn(4, 2).to(dtype),
        [1, 3],
        [0],
        [1, 2],
        [2, 3],
        1,
    )


def test_vdot_conjugates_its_first() -> None:
    a, b = torch.randn(5, dtype=torch.complex64), torch.randn(5, dtype=torch.complex64)
    torch.testing.assert_close(decomposition_of(aten.vdot.default)(a, b), torch.vdot(a, b))


@pytest.mark.parametrize("beta", [0, 1])
def test_an_outer_product_of_bools(beta: int) -> None:
    given = (torch.tensor([[True, False]]), torch.tensor([True, False]), torch.tensor([True, True]))
    assert torch.equal(decomposition_of(aten.addr.default)(*given, beta=beta), aten.addr(*given, beta=beta))


def test_int8_weights() -> None:
    x, scales = torch.randn(6, 64).to(BF16), torch.randn(32).to(BF16)
    weight = torch.randint(-128, 127, (32, 64), dtype=torch.int8)
    eager, ours = (
        f(x, weight, scales) for f in (aten._weight_int8pack_mm, decomposition_of(aten._weight_int8pack_mm.default))
    )
    want = (x.double() @ weight.double().t()) * scales.double()
    assert ours.dtype == BF16 and (ours - want).abs().max() <= (eager - want).abs().max()


def test_scales_of_float8() -> None:
    a, b = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(64, 32).to(torch.float8_e4m3fn).t()
    for rows, columns in ((torch.rand(1), torch.rand(1)), (torch.rand(16, 1), torch.rand(1, 64))):
        try:
            got = aten._scaled_mm(a, b, rows, columns, out_dtype=F32)
        except RuntimeError as e:  # PyTorch 2.11 has no more on a CPU
            assert rows.numel() > 1 and "only supports per-tensor scaling" in str(e)
            continue
        want = (a.double() * rows) @ (b.double() * columns)
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def test_groups_of_rows() -> None:
    a, b, ends = torch.randn(6, 16).to(BF16), torch.randn(2, 16, 8).to(BF16), torch.tensor([2, 6], dtype=torch.int32)
    got = aten._grouped_mm(a, b, ends)
    want = torch.cat([a[:2].double() @ b[0].double(), a[2:].double() @ b[1].double()])
    torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=5e-2)


@pytest.mark.slow
def test_written_out_with_symbols_for_sizes() -> None:
    x, a, b = torch.randn(5, 6), torch.randn(5, 7), torch.randn(7, 6)
    for op, *args in (
        (aten.addmm.default, x, a, b),
        (aten.addmm.default, torch.randn(6), a, b),
        (aten.baddbmm.default, torch.randn(2, 5, 6), torch.randn(2, 5, 7), torch.randn(2, 7, 6)),
        (aten.addbmm.default, x, torch.randn(2, 5, 7), torch.randn(2, 7, 6)),
        (aten.addmv.default, torch.randn(5), a, torch.randn(7)),
        (aten.mv.default, a, torch.randn(7)),
        (aten.addr.default, x.t().contiguous().t(), torch.randn(5), torch.randn(6)),
        (aten.dot.default, torch.randn(9), torch.randn(9)),
    ):
        same_written_out(op, *args)
