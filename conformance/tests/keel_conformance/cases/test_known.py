"""Calls that are drawn are calls that PyTorch does, and that the operator set speaks of."""

from __future__ import annotations

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.attribute_variants import spoken_of
from keel_conformance.cases.collect_calls import FILES, load_calls
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.invalid_calls import violated
from keel_conformance.cases.saved_call import SavedCall, TensorSpec, redrawn
from keel_conformance.cases.values import SeededValues


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize("values", ["random", "duplicates"])
def test_a_range_without_zero_is_kept_in_integers_and_bools(dtype: torch.dtype, values: str) -> None:
    made = SavedCall("aten.any.default", (TensorSpec(torch.float32, (99,), (1,), True, 1.0, 1.0),))
    (x,), _ = redrawn(made, dtype, SeededValues("any", 0), values)
    assert bool((x != 0).all())


@pytest.mark.parametrize("values", ["random", "specials", "duplicates"])
def test_what_is_searched_is_in_order(values: str) -> None:
    domain = domain_of("searchsorted")
    assert domain is not None
    for sample in domain.factors["sample"]:
        for layout in ("contiguous", "transposed", "expanded"):
            levels = {"dtype": "f32", "sample": sample, "layout": layout, "values": values}
            if (
                domain.allows(levels)
                and (inputs := domain.make(levels, torch.float32, SeededValues(sample, 0))) is not None
            ):
                rows, sorter = inputs.args[0], inputs.kwargs.get("sorter")
                rows = rows if sorter is None else rows.gather(-1, sorter)
                assert bool((rows[..., 1:] >= rows[..., :-1]).all())


def test_slices_that_are_told_apart_have_no_nan() -> None:
    domain = domain_of("unique_dim")
    assert domain is not None
    for sample in domain.factors["sample"]:
        for layout in ("contiguous", "transposed"):
            levels = {"dtype": "f32", "sample": sample, "layout": layout, "values": "specials"}
            if (
                domain.allows(levels)
                and (inputs := domain.make(levels, torch.float32, SeededValues(sample, 0))) is not None
            ):
                assert not bool(inputs.args[0].isnan().any())


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_are_not_asked_of_elements_that_share_memory(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None and not {"expanded", "expanded_last"} & {*domain.factors["layout"]}


def test_what_only_the_kernel_takes_is_no_call() -> None:
    data, lengths = TensorSpec(torch.float32, (4,), (1,), True), TensorSpec(torch.int64, (2,), (1,), values=(1, 3))
    op = MEMBERS["segment_reduce"]
    for reduce, good in (("max", True), ("amax", False)):
        made = SavedCall("aten.segment_reduce.default", (data, reduce), {"lengths": lengths})
        assert spoken_of(op, made, torch.float32) == good


def test_no_kept_call_breaks_a_precondition() -> None:
    for file in FILES:
        for name, calls in load_calls(file).items():
            for made in calls:
                known = any(str(t) == made.overload for t in MEMBERS[name].targets)
                assert not known or not violated(MEMBERS[name], made, made.dtypes[0]), (file, name, made)
