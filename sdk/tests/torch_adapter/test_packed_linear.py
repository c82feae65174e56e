"""Packed products compute what the operators compute, with NaN and infinities at the same elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel import aten_externs
from keel.torch_adapter import pack_linear, packed_linear, packs_linear_dtype, packs_linear_for_speed

CPU = aten_externs("cpu")
DTYPES = [
    d for d in (torch.bfloat16, torch.float16, torch.float32) if packs_linear_dtype(d) or packs_linear_for_speed(d)
]


def drawn(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(result: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor, *added: torch.Tensor | None) -> None:
    expected = rows.double() @ weight.double()
    for each in added:
        expected = expected if each is None else expected + each.double()
    rtol, atol = (2e-2, 6e-2) if rows.dtype != torch.float32 else (1e-5, 1e-4)
    torch.testing.assert_close(result.double(), expected, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 64, 64), (7, 129, 65), (40, 33, 200), (600, 16, 24)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_results_are_the_operators_own(
    dtype: torch.dtype, sizes: tuple[int, int, int], biased: bool, adds: bool
) -> None:
    m, k, n = sizes
    rows, weight = drawn(dtype, m, k), drawn(dtype, k, n, seed=1)
    rows[0, 0], rows[-1, -1] = torch.inf, torch.nan
    bias = drawn(dtype, n, seed=2) if biased else None
    other = drawn(dtype, m, n, seed=3) if adds else None
    packed = pack_linear(weight, rows.shape, ())
    check(packed_linear(rows, packed, bias, (), other, None), rows, weight, bias, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_be_of_another_number_and_layout(dtype: torch.dtype) -> None:
    weight, bias = drawn(dtype, 64, 96, seed=1), drawn(dtype, 96)
    for count in (0, 9):
        packed = pack_linear(weight, (count, 64), ())
        of_nine = drawn(dtype, 64, 9).t(), drawn(dtype, 18, 80)[::2, 8:72]
        for rows in (drawn(dtype, 0, 64), drawn(dtype, 5, 64), drawn(dtype, 9, 64), *of_nine):
            check(packed_linear(rows, packed, bias, (), None, None), rows, weight, bias)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_onednn_can_be_switched_off() -> None:
    assert not packs_linear_dtype(torch.float32) and not packs_linear_for_speed(torch.bfloat16)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not packs_linear_dtype(torch.bfloat16) and not packs_linear_for_speed(torch.float32)


@pytest.mark.parametrize(
    ("shape", "numbers", "worth"),
    [((96,), (1, 1), True), ((5, 96), (1, 1), False), ((96,), (2, 1), False), ((96,), (1, 0.5), False)],
)
def test_a_bias_is_a_number_for_each_column(shape: tuple[int, ...], numbers: tuple[float, float], worth: bool) -> None:
    form = CPU["aten.addmm.default"].packed
    assert form is not None
    args: dict[str, Any] = dict(zip(("beta", "alpha"), numbers, strict=True))
    args |= {"self": torch.empty(shape), "mat1": torch.empty(5, 64), "mat2": torch.empty(64, 96)}
    assert form.facts.worth(args) == worth


def test_a_small_matrix_is_not_worth_it() -> None:
    form = CPU["aten.mm.default"].packed
    assert form is not None
    assert form.facts.worth({"self": torch.empty(5, 64), "mat2": torch.empty(64, 96)})
    assert not form.facts.worth({"self": torch.empty(5, 64), "mat2": torch.empty(64, 8)})
