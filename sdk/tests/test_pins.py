"""Operators pinned to a backend, by order and by cost, and pins that say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import keel
from keel import Backend, Cost, KeelError
from keel.settings import read_settings

from .line import takes

SHEET = Cost(flops={torch.float32: 1e9}, scalars=1e9, bandwidth=1e10)
X = torch.ones(16, 16) / 16


def both(*more: str) -> list[Backend]:
    """Two that take the same, one a second slower in each call."""
    quick = takes("mm", "sin", *more, name="quick", cost=SHEET)
    return [quick, replace(takes("mm", "sin", "add", name="slow"), cost=replace(SHEET, call=1.0))]


def owners(**options: Any) -> dict[str, str]:
    torch.compiler.reset()
    found = keel.explain(lambda x: (x @ x).sin(), X, strict=True, **options)
    return {op: part.owner for graph in found.graphs for part in graph.parts for op in part.operators}


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["auto", "order", "cost"])
@pytest.mark.parametrize("name", ["sin", "aten.sin", "aten.sin.default"])
def test_what_is_pinned_goes_there_whatever_it_costs(placement: str, name: str) -> None:
    assert set(owners(backends=both(), placement=placement).values()) == {"quick"}
    pinned = owners(backends=both(), placement=placement, pins={name: "slow"})
    assert pinned == {"aten.mm.default": "quick", "aten.sin.default": "slow"}


def test_others_refuse_in_words_and_results_are_the_same() -> None:
    found = keel.explain(lambda x: x.sin(), X, backends=both(), pins={"sin": "slow"})
    assert {(r.backend, r.reason) for r in found.graphs[0].refused} >= {
        ("quick", "aten.sin.default is pinned to slow.")
    }
    run = keel.compile(lambda x: (x @ x).sin(), backends=both(), pins={"sin": "slow"})
    torch.testing.assert_close(run(X), (X @ X).sin())


def test_a_composite_that_is_refused_where_it_is_pinned_descends() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.addmm(x, x, x)

    torch.compiler.reset()
    found = keel.explain(fn, X, backends=both("addmm"), pins={"addmm": "slow"})
    assert sum(found.taken.values()) > 1 and not any(
        op.startswith("aten.addmm") for part in found.graphs[0].parts for op in part.operators
    )


def test_a_primitive_that_is_refused_where_it_is_pinned_is_an_error() -> None:
    with pytest.raises(Exception, match="no backend takes") as raised:
        keel.compile(lambda x: x.cos(), backends=both(), pins={"cos": "quick"})(X)
    assert "quick has no aten.cos.default" in str(raised.value)


def test_equal_pins_are_equal_settings() -> None:
    backends = both()

    def settings(**pins: str) -> Any:
        return read_settings(None, {"backends": backends, "pins": pins})

    assert settings(sin="slow") == settings(sin="slow") != settings(sin="quick")
    assert settings() == read_settings(None, {"backends": backends})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("sine", "'sin'"),
        ("aten.sinn", "'aten.sin"),
        ("aten.sin.defualt", "'aten.sin.default'"),
        ("", "aten.mm"),
        (3, "aten.mm"),
    ],
)
def test_pins_of_no_operator_are_an_error(name: Any, instead: str) -> None:
    with pytest.raises(KeelError, match="no such operator") as raised:
        read_settings(None, {"backends": both(), "pins": {name: "slow"}})
    assert raised.value.code == "bad-option" and instead in (raised.value.do or "")


@pytest.mark.parametrize(
    "name", ["softmax", "softmax.int", "aten._softmax", "acme.fused", "acme.fused.default", "prims.sin", "cond"]
)
def test_pins_of_operators_that_exist_or_may_be_registered_later(name: str) -> None:
    read_settings(None, {"backends": both(), "pins": {name: "slow"}})


def test_pins_to_nobody_are_an_error() -> None:
    with pytest.raises(KeelError, match="cannot be pinned to 'acme'"):
        read_settings(None, {"backends": both(), "pins": {"sin": "acme"}})
