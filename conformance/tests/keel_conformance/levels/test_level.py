"""Levels contain those below them, and follow from the measured needs of models alone."""

from __future__ import annotations

import pytest

from keel import KeelError
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.layout_classes import LAYOUTS
from keel_conformance.levels.level import levels, measured, model_profile, profile_of
from keel_conformance.levels.needs import Needs


def test_each_level_contains_the_one_below_it() -> None:
    for mode in ("inference", "training"):
        one, two, three = (levels()[f"{mode}-{k}"] for k in (1, 2, 3))
        assert one.needs.pairs < two.needs.pairs < three.needs.pairs
        assert one.includes <= two.includes < three.includes
        assert all(levels()[f"inference-{k}"].needs.pairs < levels()[f"training-{k}"].needs.pairs for k in (1, 2, 3))


def test_a_level_asks_for_what_its_models_call() -> None:
    line = measured()["line inference"].pairs
    assert {("convolution", "f32"), ("softmax", "f32"), ("embedding", "f32")} & line
    assert line == levels()["inference-1"].needs.pairs
    assert ("convolution", "bf16") in levels()["inference-3"].needs.pairs - levels()["inference-2"].needs.pairs
    assert levels()["inference-3"].needs.calls["convolution"]["f32"] == frozenset(LAYOUTS)


def test_whatever_a_level_asks_for_can_be_judged() -> None:
    wanted = levels()["training-2"].needs.pairs | levels()["inference-2"].needs.pairs
    assert not {(op, dtype) for op, dtype in wanted if not (d := domain_of(op)) or dtype not in d.factors["dtype"]}


def test_a_models_profile_names_its_needs() -> None:
    needs = Needs({"add": {"f32": frozenset({"contiguous"})}})
    name = model_profile("acme:model", needs)
    assert (level := profile_of(name, needs).level) is not None and level.exact and level.needs == needs
    with pytest.raises(KeelError, match="is of a model"):
        profile_of(name)
    with pytest.raises(KeelError, match="is of a model"):
        profile_of(name, Needs({"mul": {"f32": frozenset({"contiguous"})}}))


def test_a_profile_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeelError, match="no profile 'inference-9'"):
        profile_of("inference-9")
