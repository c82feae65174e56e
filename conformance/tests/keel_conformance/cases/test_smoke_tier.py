"""The few cases of tier smoke: each attribute's levels, special values, layouts and dtypes all stand in some."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.diversity import facets, select_diverse
from keel_conformance.cases.domains import domain_of
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import cases_of
from keel_conformance.cases.saved_call import SavedCall, TensorSpec
from keel_conformance.cases.smoke_tier import LEAST, MANY, select_smoke

DOMAINS = ("add", "gelu", "sum", "var", "cat", "convolution", "avg_pool2d", "addmm", "slice", "layer_norm", "mse_loss")


@pytest.mark.parametrize("name", DOMAINS)
def test_each_choice_is_one_and_another(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    chosen = select_smoke(domain, 0)
    assert chosen == select_smoke(domain, 0)
    assert LEAST <= len(chosen) <= MANY and len({tuple(c.items()) for c in chosen}) == len(chosen)
    assert all(list(c) == list(domain.factors) and domain.allows(c) for c in chosen)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("gelu", "form"),
        ("sum", "form"),
        ("avg_pool2d", "divisor"),
        ("avg_pool2d", "ceil"),
        ("nll_loss", "reduction"),
        ("sdpa", "mask"),
        ("addmm", "scale"),
        ("embedding", "form"),
        ("cat", "form"),
    ],
)
def test_every_level_of_an_attribute_stands_in_one(name: str, factor: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    assert {c[factor] for c in select_smoke(domain, 0)} == set(domain.factors[factor])


@pytest.mark.parametrize("name", ["add", "mul", "exp", "amax", "cumsum"])
def test_special_values_other_dtypes_and_layouts_stand_in_some(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    chosen = select_smoke(domain, 0)
    assert any(c["values"] in ("specials", "all") for c in chosen) and any(c["values"] == "random" for c in chosen)
    assert {"f32"} < {c["dtype"] for c in chosen} and len({c["layout"] for c in chosen} - {"contiguous"}) >= 2


@pytest.mark.parametrize("name", ["add", "mul", "where", "maximum", "le"])
def test_an_operand_may_not_have_the_dtype_that_is_computed_in(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    dtypes = [[x.dtype for x in draw_inputs(c, 0).tensors] for c in cases_of(domain, "smoke", 0) if c.kind == "op"]
    assert any({torch.int32, torch.int64} <= set(found) for found in dtypes)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "lerp", "leaky_relu"])
def test_a_number_beside_float64_is_one_that_float32_does_not_have(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None
    inputs = [draw_inputs(c, 0) for c in cases_of(domain, "smoke", 0) if c.kind == "op" and c.dtype == "f64"]
    numbers = [v for t in inputs for v in (*t.args, *t.kwargs.values()) if isinstance(v, float)]
    assert any(v != torch.tensor(v).item() for v in numbers)


def test_a_convolution_differs_in_its_dimensions() -> None:
    domain = domain_of("convolution")
    assert domain is not None
    settings = [draw_inputs(c, 0).args for c in cases_of(domain, "smoke", 0) if c.kind == "op"]
    assert any(len(set(stride)) > 1 or len(set(padding)) > 1 for _, _, _, stride, padding, *_ in settings)
    assert any(max(dilation) > 1 for *_, dilation, _, _, _ in settings)


def test_rows_of_special_values_do_not_hide_each_other() -> None:
    """Of rows that are reduced some have no NaN, some nothing but -inf, over the calls of one case."""
    domain = domain_of("amax")
    assert domain is not None
    case = next(c for c in cases_of(domain, "smoke", 0) if c.levels.get("values") == "specials" and c.dtype == "f32")
    rows = torch.cat([draw_inputs(case, call).args[0] for call in (0, 1)])
    assert rows.isnan().any(1).any() and (~rows.isnan().any(1)).any() and torch.isneginf(rows).all(1).any()


def test_calls_that_differ_most_come_first() -> None:
    x = TensorSpec(torch.float32, (2, 3), (3, 1), own=True)
    calls = [SavedCall("o", (x, 2)), SavedCall("o", (x, 3)), SavedCall("o", (x, -1)), SavedCall("o", (x, 0.5))]
    assert select_diverse(calls, [facets(c) for c in calls]) == [calls[0], calls[2], calls[3], calls[1]]


def test_casts_are_those_that_lose_something() -> None:
    domain = domain_of("convert")
    assert domain is not None
    chosen = {
        (c.dtype, str(draw_inputs(c, 0).kwargs.get("dtype"))) for c in cases_of(domain, "smoke", 0) if c.kind == "op"
    }
    assert {
        ("f32", "torch.bfloat16"),
        ("f32", "torch.bool"),
        ("f64", "torch.float16"),
        ("i64", "torch.int32"),
        ("i64", "torch.float32"),
    } <= chosen
    assert len({c.levels["layout"] for c in cases_of(domain, "smoke", 0) if c.kind == "op"}) >= 4
