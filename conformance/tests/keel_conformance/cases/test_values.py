"""The values of operands are the same in every process and different in each call."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.values import EXACT_BITS, SeededValues, crossed, fill, kinds_of, specials, with_outliers

DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
)


def bits(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x).view(torch.int32) if x.is_complex() else x.view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_call_has_the_same_bits_in_every_process_and_the_next_call_others(dtype: torch.dtype) -> None:
    for kind in kinds_of(dtype):
        one, again = (fill(SeededValues("case", 0), kind, dtype, 300) for _ in range(2))
        assert one.dtype == dtype and len(one) == 300
        assert torch.equal(bits(one), bits(again))
        assert not torch.equal(bits(one), bits(fill(SeededValues("case", 1), kind, dtype, 300)))
        assert not torch.equal(bits(one), bits(fill(SeededValues("other", 0), kind, dtype, 300)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_special_values_have_both_zeros_subnormals_infinities_extremes_and_nan(dtype: torch.dtype) -> None:
    x, facts = fill(SeededValues("case"), "specials", dtype, 200), torch.finfo(dtype)
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
        x = fill(SeededValues("case", call), "exact", dtype, terms, terms=terms).double()
        assert (x == x.round()).all()
        assert x.abs().sum() <= 2 ** EXACT_BITS[dtype]
        assert terms < 300 or x.count_nonzero() > 20


def test_magnitudes() -> None:
    facts = torch.finfo(torch.float32)
    assert (fill(SeededValues("case"), "huge", torch.float32, 99).abs() >= facts.max / 4).all()
    assert (fill(SeededValues("case"), "tiny", torch.float32, 99).abs() <= 2 * facts.smallest_normal).all()
    wide = fill(SeededValues("case"), "wide", torch.float32, 4000).abs()
    assert wide.min() < 1e-30 and wide.max() > 1e30
    cancels = fill(SeededValues("case"), "cancel", torch.float32, 98).reshape(-1, 2)
    assert (cancels.sum(1).abs() <= 1e-5 * cancels[:, 0].abs()).all()
    assert len(fill(SeededValues("case"), "duplicates", torch.float32, 99).unique()) <= 4


def test_integers_go_from_end_to_end() -> None:
    x = fill(SeededValues("case"), "wide", torch.int8, 4000)
    assert x.min() == -128 and x.max() == 127
    assert (fill(SeededValues("case"), "specials", torch.int64, 99) == torch.iinfo(torch.int64).min).any()


def test_random_values_have_others_among_them_where_elements_do_not_touch() -> None:
    x = with_outliers(SeededValues("case"), torch.float32, 1105)
    zeros = x[x == 0]
    assert x.isnan().any() and x.isinf().any() and zeros.signbit().any() and not zeros.signbit().all()
    assert ((x.abs() > 0) & (x.abs() < torch.finfo(x.dtype).smallest_normal)).any() and (x % 1 == 0.5).any()
    assert (x.abs() <= 4).float().mean() > 0.7
    whole = torch.stack([with_outliers(SeededValues("case", call), torch.int32, 1105) for call in range(4)])
    assert (whole.long().sum(1) != whole.sum(1, dtype=torch.int32)).any() and (whole.abs() <= 4).float().mean() > 0.6


def test_rows_of_random_values_are_plain_or_special() -> None:
    """Of reductions some rows have NaN and infinities and some not; of sums, whose errors are judged together, none."""
    for name, spoiled in (("amax", True), ("linalg_vector_norm", True), ("sum", False)):
        domain = domain_of(name)
        assert domain is not None
        levels = {
            "dtype": "f32",
            "form": domain.factors["form"][0],
            "extent": "129",
            "place": "last",
            "layout": "contiguous",
            "values": "random",
        }
        inputs = [domain.make(levels, torch.float32, SeededValues("case", call)) for call in (0, 1)]
        rows = torch.cat([t.args[0] for t in inputs if t is not None]).isfinite().all(1)
        assert rows.any() and bool(rows.all()) != spoiled


def test_of_operands_special_values_stand_beside_any_others() -> None:
    x, y, row = crossed(SeededValues("case"), [torch.ones(17, 65), torch.ones(17, 65), torch.ones(65)])
    assert (x.isnan() & y.isnan()).any() and (x.isinf() & (y == 0)).any() and (x.isnan() & (y == 1)).any()
    assert (row == 1).all() and (x == 1).float().mean() > 0.85
    i, j = crossed(SeededValues("case"), [torch.ones(1105, dtype=torch.int64), torch.ones(1105, dtype=torch.uint8)])
    assert ((i == torch.iinfo(i.dtype).min) & (j == 255)).any()


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
def test_numbers_halfway_between_those_of_narrower_dtypes_stand_among_random_ones(narrow: torch.dtype) -> None:
    """Cut off to float32 first they go to another side; rounded to that first they do not."""
    x = with_outliers(SeededValues("case"), torch.float64, 4000)
    x = x[x.isfinite() & (x.abs() < 1000)]
    cut = torch.where(x.float().double().abs() > x.abs(), torch.nextafter(x.float(), torch.zeros(())), x.float())
    assert (cut.to(narrow) != x.float().to(narrow)).any()
    assert x.float().to(narrow).equal(x.to(narrow))
