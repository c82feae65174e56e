"""Checks that give their token: conditions and numbers that hold, at their bounds too, and such that do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import DTYPES, Domain, InvalidCall, Levels, Rule
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import CallTemplate, TensorArg, always, domain, invalid_call, when

TOKENS = shapes("3", "2x3x4", "0", "0d", "17x5", "1025", "1x7x1")
OF: Mapping[str, torch.dtype] = {"f32": torch.float32, "i64": torch.int64, "bf16": torch.bfloat16, "b8": torch.bool}
"""Dtypes of a token beside a condition."""
ONE = shapes("0d", "1", "1x1")
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
_MESSAGE = "it holds"


# -- conditions --------------------------------------------------------------------------------------------------------


def _condition(kind: str) -> Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]:
    """One element that is not zero."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = prod(shape)
        inexact = dtype.is_floating_point or dtype.is_complex
        ends = torch.finfo(dtype) if inexact else torch.iinfo(dtype) if dtype != torch.bool else None
        match kind:
            case "nan":
                x = torch.full((n,), float("nan"))
            case "least" if isinstance(ends, torch.finfo):
                return torch.full((n,), ends.smallest_normal * ends.eps, dtype=torch.float64).to(dtype)
            case "end" if isinstance(ends, torch.finfo):
                x = torch.full((n,), float("inf") if draw.call % 2 else float("-inf"))
            case "end" if ends is not None:
                x = torch.full((n,), ends.max if draw.call % 2 or not ends.min else ends.min)
            case "negative":
                x = -draw.integers(n, 1, 5)
            case _:
                x = draw.integers(n, 1, 5)
        return x.to(dtype)

    return drawn


def _checked(condition: TensorArg, token: TensorArg) -> CallTemplate:
    return CallTemplate("aten._functional_assert_async.msg", (condition, _MESSAGE, token))


def _assertion(levels: Levels) -> CallTemplate:
    return _checked(
        TensorArg(ONE[levels["rank"]], draw=_condition(levels["condition"]), lies="none"),
        TensorArg(TOKENS[levels["shape"]], dtype=OF[levels["of"]], kind="random"),
    )


def _zero(value: float) -> TensorArg:
    return TensorArg((), lies="none", draw=lambda draw, dtype, shape, values: torch.full(shape, value).to(dtype))


def _of_conditions(op: Op) -> Domain:
    stops, zero, _ = (c.text for c in op.clauses)
    token = TensorArg((5,), dtype=torch.float32, kind="random")
    negatives = tuple(
        invalid_call(name, clause, _checked(_zero(value), token), dtype)
        for name, clause, value, dtype in (
            ("a zero", stops, 0.0, torch.float32),
            ("a false one", stops, 0.0, torch.bool),
            ("an integer zero", stops, 0.0, torch.int64),
            ("a negative zero", zero, -0.0, torch.float32),
        )
    )
    floats = Rule(
        ("dtype", "condition"),
        lambda dtype, condition: condition != "nan" or DTYPES[dtype].is_floating_point or DTYPES[dtype].is_complex,
    )
    return domain(
        op,
        {
            "condition": ("plain", "nan", "least", "end", "negative"),
            "rank": tuple(ONE),
            "shape": tuple(TOKENS),
            "of": tuple(OF),
        },
        _assertion,
        dtypes=op.dtypes,
        kinds=("own",),
        rules=(floats,),
        covers={**always(op), "C2": when(condition="nan")},
        invalid_calls=negatives,
        priority=(
            {"dtype": "f32", "condition": "nan", "shape": "2x3x4"},
            {"dtype": "f32", "condition": "least", "shape": "17x5", "layout": "transposed"},
        ),
    )


# -- numbers on the host -----------------------------------------------------------------------------------------------

NUMBERS: Mapping[str, bool | int | float] = {"1": 1, "true": True, "5": 5, "large": 2**40, "negative": -3, "half": 0.5}
BOUNDS: Mapping[str, tuple[int, int | None, int | None]] = {
    "within": (7, 3, 20),
    "at_lower": (3, 3, 20),
    "at_upper": (20, 3, 20),
    "above": (7, 3, None),
    "below": (7, None, 20),
    "free": (7, None, None),
    "one": (9, 9, 9),
    "far": (2**40, 0, None),
}
"""A number, and the bounds of it."""
OUTSIDE: Mapping[str, tuple[int, int | None, int | None]] = {
    "too small": (2, 3, 20),
    "too large": (21, 3, 20),
    "below one bound": (-4, -3, None),
    "above one bound": (8, None, 7),
}


def _number(levels: Levels) -> CallTemplate:
    return CallTemplate(
        "aten._functional_assert_scalar.default",
        (NUMBERS[levels["number"]], _MESSAGE, TensorArg(TOKENS[levels["shape"]])),
    )


def _of_numbers(op: Op) -> Domain:
    token, clause = TensorArg((5,), kind="random"), op.clauses[0].text
    negatives = tuple(
        invalid_call(name, clause, CallTemplate("aten._functional_assert_scalar.default", (value, _MESSAGE, token)))
        for name, value in (("a zero", 0), ("a false one", False))
    )
    return _tokens(op, {"number": tuple(NUMBERS)}, _number, negatives)


def _range(levels: Levels) -> CallTemplate:
    form = "_for_size" if levels["form"] == "size" else ""
    return CallTemplate(
        f"aten._functional_sym_constrain_range{form}.default",
        (*BOUNDS[levels["bounds"]], TensorArg(TOKENS[levels["shape"]])),
    )


def _of_ranges(op: Op) -> Domain:
    token, clause = TensorArg((5,), kind="random"), op.clauses[1].text
    negatives = tuple(
        invalid_call(name, clause, CallTemplate("aten._functional_sym_constrain_range.default", (*bounds, token)))
        for name, bounds in OUTSIDE.items()
    )
    return _tokens(op, {"bounds": tuple(BOUNDS), "form": ("number", "size")}, _range, negatives)


def _tokens(
    op: Op,
    factors: Mapping[str, tuple[str, ...]],
    ask: Callable[[Levels], CallTemplate],
    negatives: tuple[InvalidCall, ...],
) -> Domain:
    wishes: tuple[Mapping[str, Any], ...] = (
        {"dtype": "f32", "shape": "2x3x4", "values": "random", "bounds": "at_upper"},
        {"dtype": "bf16", "shape": "17x5", "values": "specials", "layout": "transposed", "bounds": "at_lower"},
    )
    return domain(
        op,
        {**factors, "shape": tuple(TOKENS)},
        ask,
        dtypes=_DTYPES,
        kinds=("random", "specials", "wide"),
        covers=always(op),
        invalid_calls=negatives,
        priority=wishes,
    )


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare("assert_async", _of_conditions)
declare("assert_number_token", _of_numbers)
declare("constrain_range_token", _of_ranges)
