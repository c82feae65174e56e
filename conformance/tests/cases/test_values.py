from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.values import EXACT_BITS, Draw, fill, kinds_of, specials

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64,
          torch.bool, torch.complex64, torch.float8_e4m3fn)


def bits(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x).view(torch.int32) if x.is_complex() else x.view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_call_has_the_same_bits_in_every_process_and_the_next_call_others(dtype: torch.dtype) -> None:
    for kind in kinds_of(dtype):
        one, again = (fill(Draw("case", 0), kind, dtype, 300) for _ in range(2))
        assert one.dtype == dtype and len(one) == 300
        assert torch.equal(bits(one), bits(again))
        assert not torch.equal(bits(one), bits(fill(Draw("case", 1), kind, dtype, 300)))
        assert not torch.equal(bits(one), bits(fill(Draw("other", 0), kind, dtype, 300)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_special_values_have_both_zeros_subnormals_infinities_extremes_and_nan(dtype: torch.dtype) -> None:
    x, facts = fill(Draw("case"), "specials", dtype, 200), torch.finfo(dtype)
    zeros = x[x == 0]
    assert zeros.signbit().any() and not zeros.signbit().all()
    assert x.isnan().any() and (x == float("inf")).any() and (x == -float("inf")).any()
    assert (x == facts.max).any() and (x == facts.min).any()
    assert ((x.abs() > 0) & (x.abs() < facts.smallest_normal)).any()
    assert len(specials(dtype)) < 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("terms", [1, 7, 33, 257, 1025, 70001])
def test_sums_of_exact_values_are_representable_in_any_order(dtype: torch.dtype, terms: int) -> None:
    for call in range(3):
        x = fill(Draw("case", call), "exact", dtype, terms, terms=terms).double()
        assert (x == x.round()).all()
        assert x.abs().sum() <= 2 ** EXACT_BITS[dtype]
        assert terms < 300 or x.count_nonzero() > 20


def test_magnitudes() -> None:
    facts = torch.finfo(torch.float32)
    assert (fill(Draw("case"), "huge", torch.float32, 99).abs() >= facts.max / 4).all()
    assert (fill(Draw("case"), "tiny", torch.float32, 99).abs() <= 2 * facts.smallest_normal).all()
    wide = fill(Draw("case"), "wide", torch.float32, 4000).abs()
    assert wide.min() < 1e-30 and wide.max() > 1e30
    cancels = fill(Draw("case"), "cancel", torch.float32, 98).reshape(-1, 2)
    assert (cancels.sum(1).abs() <= 1e-5 * cancels[:, 0].abs()).all()
    assert len(fill(Draw("case"), "duplicates", torch.float32, 99).unique()) <= 4


def test_integers_go_from_end_to_end() -> None:
    x = fill(Draw("case"), "wide", torch.int8, 4000)
    assert x.min() == -128 and x.max() == 127
    assert (fill(Draw("case"), "specials", torch.int64, 99) == torch.iinfo(torch.int64).min).any()
