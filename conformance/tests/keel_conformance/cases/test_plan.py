"""The plan of a run depends on the seed, the tier, the profile and the operators alone."""

from __future__ import annotations

import pytest
import torch

from keel import KeelError
from keel.opset import MEMBERS
from keel_conformance.cases.covering_array import covering
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.drop_trivial import passer
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import PROFILES, TIERS, plan

FEW = ("add", "sum", "convert", "gather", "foreach_add", "sort")


def test_ids_are_unique_and_the_same_in_the_same_order_each_time() -> None:
    cases = plan(ops=FEW)
    assert cases == plan(ops=FEW)
    assert len({c.id for c in cases}) == len({c.digest for c in cases}) == len(cases)
    assert {c.op for c in cases} == set(FEW)


def test_a_seed_changes_the_cases_and_a_tier_how_many_there_are() -> None:
    smoke, standard, full = (plan(ops=("exp", "amax"), tier=t) for t in TIERS)
    assert 0 < len(smoke) <= 12 < 400 < len(standard) < len(full)
    assert not {c.digest for c in plan(ops=("exp",), seed=1)} & {c.digest for c in plan(ops=("exp",))}


def test_profiles_include_what_they_say() -> None:
    assert {c.profile for c in plan(ops=("exp", "fft_c2c"))} == {"core"}
    assert {c.profile for c in plan(ops=("exp", "fft_c2c"), profile="inference", tier="smoke")} == {"core", "fft"}
    assert PROFILES["core"] < PROFILES["inference"] < PROFILES["training"] < PROFILES["strict"]


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(KeelError, match="Profiles are core"):
        plan(profile="everything")
    with pytest.raises(KeelError, match="No case is about soft_max") as raised:
        plan(ops=("soft_max",))
    assert "softmax" in (raised.value.do or "")
    for overload in ("aten.logical_and.default", "logical_and.default"):
        with pytest.raises(KeelError, match="Did you mean logical_and"):
            plan(ops=(overload,))


def test_a_member_that_this_pytorch_lacks_has_no_cases() -> None:
    for name in ("upsample_lanczos_aa", "linear_cross_entropy"):  # PyTorch 2.11 has neither
        assert (domain_of(name) is not None) == bool(MEMBERS[name].targets)


@pytest.mark.parametrize("name", ["add", "gelu", "argmax", "cat"])
def test_standard_covers_every_pair_of_levels(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    chosen = [{**c.levels, "dtype": c.dtype} for c in plan(ops=(name,)) if c.kind == "op"]
    rows = [
        {f: row[f] for f in domain.factors}
        for row in chosen
        if all(row[f] in domain.factors[f] for f in domain.factors)
    ]
    others = [c for c in domain.extra if any(c[f] not in domain.factors[f] for f in domain.factors)]
    assert len(chosen) == len(rows) + len(others)
    passing = passer(domain)  # few trivial choices are needed
    assert len([levels for levels in covering(domain.factors, domain.rules, earlier=rows) if not passing(levels)]) < 3


@pytest.mark.parametrize("name", ["exp", "convert"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_value_of_a_16_bit_dtype_is_tried(name: str, dtype: str) -> None:
    cases = [c for c in plan(ops=(name,)) if c.dtype == dtype and c.levels.get("values") == "every"]
    assert len(cases) > (12 if name == "convert" else 0)
    x = draw_inputs(cases[0], 1).args[0]
    assert len(x.view(torch.int16).unique()) == 65_536


@pytest.mark.parametrize("name", ["convert", "masked_fill", "geometric"])
def test_every_case_has_arguments(name: str) -> None:
    for case in plan(ops=(name,), profile="inference"):
        assert draw_inputs(case, 0).args


def test_a_cast_is_tried_from_each_dtype_to_each_other_several_times() -> None:
    cases = [c for c in plan(ops=("convert",)) if c.kind == "op" and c.dtype == "f32"]
    targets = [draw_inputs(c, 0).kwargs.get("dtype") for c in cases]
    assert all(targets.count(d) >= 3 for d in (torch.bfloat16, torch.float16, torch.int32, torch.bool))


def test_a_mask_is_broadcast() -> None:
    cases = [c for c in plan(ops=("masked_fill",)) if c.levels.get("partner") in ("row", "column")]
    assert any(draw_inputs(c, 0).args[0].shape != draw_inputs(c, 0).args[1].shape for c in cases)


def test_a_share_that_is_none_is_refused() -> None:
    broken = [c for c in plan(ops=("geometric",), profile="inference") if c.kind == "negative"]
    assert broken
    for case in broken:
        inputs = draw_inputs(case, 0)
        with pytest.raises(RuntimeError, match="p to be in"):
            torch.ops.aten.geometric.default(*inputs.args, **inputs.kwargs)


@pytest.mark.parametrize("name", ["zeta", "polygamma"])
def test_nothing_is_summed_up_from_far_below(name: str) -> None:
    for case in plan(ops=(name,), profile="inference", tier="smoke"):
        for x in (a for a in draw_inputs(case, 0).args if isinstance(a, torch.Tensor)):
            assert not ((x < -99) & (x > -torch.inf)).any()
