"""Elements are drawn around the steps of the scales and zero points that the same call has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from keel_conformance.cases.case import Inputs
from keel_conformance.cases.domain import DTYPES
from keel_conformance.cases.domains import domain_of, quantization_params
from keel_conformance.cases.plan import choices
from keel_conformance.cases.values import SeededValues


def made(name: str, call: int = 0, **levels: str) -> tuple[dict[str, str], Inputs]:
    """A choice with these levels, and a call of it."""
    domain = domain_of(name)
    assert domain is not None
    chosen = next(c for c in ({**c, **levels} for c in choices(domain, "standard", 0)) if domain.allows(c))
    inputs = domain.make(chosen, DTYPES[chosen["dtype"]], SeededValues("some case", call))
    assert inputs is not None
    return dict(chosen), inputs


@pytest.mark.parametrize(
    ("name", "groups"),
    [("quantize_per_token", {"size": "33x65"}), ("quantize_per_group", {"size": "33x64", "group": "2"})],
)
def test_ties_fall_on_other_sides_by_odd_zero_points(name: str, groups: dict[str, str]) -> None:
    _, inputs = made(name, dtype="f32", values="ties", scale="powers", point="odd", range="i8", **groups)
    x, scales, points, low, high, *_ = inputs.args
    rows = x.reshape(scales.numel(), -1).double()
    steps = rows / scales.reshape(-1, 1)
    assert bool((steps * 2 == (steps * 2).round()).all()) and bool((steps != steps.round()).any())
    before = (steps + points.reshape(-1, 1)).round()
    assert bool((before != steps.round() + points.reshape(-1, 1)).any())
    assert bool((before < low).any()) and bool((before > high).any())


def test_other_calls_have_other_scales() -> None:
    levels, first = made("quantize_per_token", dtype="f32", scale="any", size="33x65")
    second = domain_of("quantize_per_token").make(levels, torch.float32, SeededValues("some case", 1))  # type: ignore[union-attr]
    assert second is not None
    for a, b in zip(first.args[:2], second.args[:2], strict=True):
        assert a.shape == b.shape and not torch.equal(a, b)


@pytest.mark.parametrize("data", quantization_params.DATA)
def test_data_are_what_they_say(data: str) -> None:
    _, inputs = made("choose_scale", data=data, dtype="f32", size="17x17")
    x: Any = inputs.args[0]
    match data:
        case "positive" | "negative":
            assert bool((x.sign() == (1 if data == "positive" else -1)).all())
        case "equal":
            assert x.unique().numel() == 1
        case "zeros":
            assert not x.any() and x.signbit().any() and not x.signbit().all()
        case "tiny":
            assert x.abs().max() < 2.0**-14
        case "symmetric":
            assert x.max() == -x.min()
        case _:
            assert x.min() < 0 < x.max()


def test_nothing_that_is_differentiated_is_at_a_bound() -> None:
    """There an ulp of the scale's reciprocal decides whether the gradient goes through."""
    _, inputs = made(
        "learned_fake_quantize_per_channel_backward",
        values="random",
        scale="any",
        axis="first",
        range="i8",
        size="33x65",
    )
    _, x, scales, points, axis, low, high, _ = inputs.args
    along = [n if d == axis else 1 for d, n in enumerate(x.shape)]
    steps = x.double() / scales.double().view(along) + points.double().round().clamp(low, high).view(along)
    assert bool(((steps - low).abs() > 1).all()) and bool(((steps - high).abs() > 1).all())
    assert bool((steps < low).any()) and bool((steps > high).any())
