"""Tensors of nothing but sizes and numbers: constants, the places of a triangle; and complex numbers of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from keel.opset import Op

from ...by_member import ByMember
from .. import layout_classes
from ..domain import Domain, Levels, Rule
from ..shapes import shapes
from .call_templates import OWN, CallTemplate, TensorArg, domain

SHAPES = shapes("0d", "1", "17", "1025", "70001", "3x5", "17x17", "2x3x4", "1x7", "7x1", "2x3x4x5", "0", "3x0", "0x4")
SIDES: Mapping[str, int] = {"0": 0, "1": 1, "2": 2, "5": 5, "8": 8, "17": 17, "65": 65}
OFFSETS = ("none", "0", "1", "-1", "3", "-4", "16", "-70")


def _constant(overload: str) -> Callable[[Op], Domain]:
    def ask(levels: Levels) -> CallTemplate:
        kwargs = {"dtype": OWN} if levels["form"] == "named" else {}
        return CallTemplate(f"aten.{overload}.default", (list(SHAPES[levels["size"]]),), kwargs)

    return lambda op: domain(
        op,
        {"size": tuple(SHAPES), "form": ("named", "default")},
        ask,
        kinds=(),
        rules=(Rule(("dtype", "form"), lambda dtype, form: form == "named" or dtype == "f32"),),
    )


def _places(overload: str) -> Callable[[Op], Domain]:
    def ask(levels: Levels) -> CallTemplate:
        offset = () if levels["offset"] == "none" else (int(levels["offset"]),)
        return CallTemplate(f"aten.{overload}.default", (SIDES[levels["rows"]], SIDES[levels["columns"]], *offset))

    return lambda op: domain(
        op,
        {"rows": tuple(SIDES), "columns": tuple(SIDES), "offset": OFFSETS},
        ask,
        kinds=(),
        priority=({"rows": "5", "columns": "8", "offset": "1"}, {"rows": "17", "columns": "5", "offset": "-4"}),
    )


def _pairs(op: Op) -> Domain:
    def ask(levels: Levels) -> CallTemplate:
        return CallTemplate(
            "aten.view_as_complex_copy.default", (TensorArg((*SHAPES[levels["size"]], 2), lies="none"),)
        )

    return domain(
        op,
        {"size": tuple(SHAPES)},
        ask,
        dtypes=(torch.float32, torch.float64),
        kinds=("random", "specials", "duplicates", "exact", "wide"),
        lay=layout_classes.LAYOUTS[:1],
    )


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare("zeros", _constant("zeros"))
declare("ones", _constant("ones"))
declare("zero_tensor", _constant("_efficientzerotensor"))
declare("tril_indices", _places("tril_indices"))
declare("triu_indices", _places("triu_indices"))
declare("view_as_complex_copy", _pairs)
