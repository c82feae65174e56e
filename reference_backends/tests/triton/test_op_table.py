"""The tables say what they can and how, to the letter of the dtype."""

from __future__ import annotations

import pytest
import torch

from keel.loops import MONOIDS, SCALARS
from keel_triton import op_table
from keel_triton.combiners import function, identities


def test_every_scalar_op_but_one_is_there() -> None:
    assert set(op_table.SCALARS) <= set(SCALARS)
    assert set(SCALARS) - set(op_table.SCALARS) == {"digamma"}


def test_every_monoid_can_be_folded() -> None:
    assert set(op_table.REDUCTIONS) <= set(MONOIDS)
    for name, monoid in MONOIDS.items():
        floats = (torch.float32, torch.int64)[: monoid.arity] if "arg" in name else (torch.float32,) * monoid.arity
        dtypes = (torch.bool,) if name in ("any", "all") else (torch.int32,) if name == "xor" else floats
        assert function(name, dtypes).startswith("@triton.jit\ndef ")


@pytest.mark.parametrize("name", op_table.REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8, torch.int64, torch.bool], ids=str)
def test_identities_are_those_of_the_monoids(name: str, dtype: torch.dtype) -> None:
    (text,) = identities(name, (dtype,))
    (value,) = MONOIDS[name].identity((dtype,))
    inner = text.removeprefix("tl.full([], ").rpartition(",")[0]
    assert eval(inner) == value and text.endswith(f"{op_table.DTYPES[dtype]})")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, torch.float32, "tl.full([], 0.1, tl.float32)"),
        (True, torch.bool, "tl.full([], True, tl.int1)"),
        (-(2**63), torch.int64, "tl.full([], -9223372036854775808, tl.int64)"),
        (float("-inf"), torch.float64, 'tl.full([], float("-inf"), tl.float64)'),
        (float("nan"), torch.float32, 'tl.full([], float("nan"), tl.float32)'),
        (-0.0, torch.float32, "tl.full([], -2147483648, tl.int32).to(tl.float32, bitcast=True)"),
        (-0.0, torch.float64, "tl.full([], -9223372036854775808, tl.int64).to(tl.float64, bitcast=True)"),
    ],
)
def test_literals(value: float, dtype: torch.dtype, text: str) -> None:
    assert op_table.literal(value, dtype) == text


@pytest.mark.parametrize(
    ("source", "result", "text"),
    [
        (torch.bfloat16, torch.float32, "v.to(tl.float32)"),
        (torch.float16, torch.bfloat16, "v.to(tl.float32).to(tl.bfloat16)"),
        (torch.int64, torch.float16, "v.to(tl.float32).to(tl.float16)"),
        (torch.float32, torch.uint8, "v.to(tl.int32).to(tl.uint8)"),
        (torch.bfloat16, torch.bool, "v != 0"),
        (torch.float32, torch.float32, "v"),
    ],
)
def test_casts(source: torch.dtype, result: torch.dtype, text: str) -> None:
    assert op_table.apply("cast", ("v",), source, result) == text


def test_what_triton_rounds_loosely_is_not_used() -> None:
    assert op_table.apply("div", ("a", "b"), torch.float32, torch.float32) == "tl.div_rn(a, b)"
    assert op_table.apply("div", ("a", "b"), torch.float64, torch.float64) == "a / b"
    assert op_table.apply("sqrt", ("a",), torch.float32, torch.float32) == "tl.sqrt_rn(a)"
