"""Operators that take or move elements by index: sizes around the widths of vectors, indices of every kind.

Indices are drawn again at every call: all different, many equal, all equal, from the end where that is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod

import torch

from keel.opset import About, Op

from .. import layout_classes
from ..case import Inputs
from ..domain import DTYPES, Domain, InvalidCall, Levels, Rule, dtype_names
from ..values import KINDS, SeededValues, fill, kinds_of, with_outliers
from .index_forms import PLACED, CallInputs, Placed

SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "7": ((7,), 0),
    "33": ((33,), 0),
    "1025": ((1025,), 0),
    "3x33": ((3, 33), 1),
    "65x5": ((65, 5), 0),
    "17x129": ((17, 129), 1),
    "2x9x7": ((2, 9, 7), 1),
    "4x1x8": ((4, 1, 8), 1),
    "2x3x16x5": ((2, 3, 16, 5), 2),
    "300x257": ((300, 257), 0),
    "1x1": ((1, 1), 0),
    "17x17": ((17, 17), 1),
    "16x16": ((16, 16), 0),
    "9x3x9": ((9, 3, 9), 0),
    "70001": ((70001,), 0),
}
"""Sizes of the operand, and the dimension that is indexed."""
HUGE, LAST = "16777221", "last"
"""More places than float32 has numbers for, of which the last few are taken."""
INDEX_KINDS = ("different", "equal", "one", "few", "none", "many")
"""Kinds of indices: each once, many equal, all the same, fewer than there are, none, more than there are."""


def build(op: Op) -> Domain | None:
    placed = PLACED.declared.get(op.name)
    if placed is None:
        return None
    here = {str(t) for t in op.targets}
    return _domain(op, replace(placed, forms={n: f for n, f in placed.forms.items() if f[0] in here}))


def _domain(op: Op, placed: Placed) -> Domain:
    dtypes = [d for d in placed.dtypes if not op.dtypes or d in op.dtypes]
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    index_kinds = (
        ("all",)
        if placed.all_places
        else tuple(
            t for t in INDEX_KINDS if not (placed.unique and not placed.sums) or t in ("different", "few", "none")
        )
    )
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(placed.forms),
        "shape": tuple(SHAPES),
        "layout": layout_classes.LAYOUTS,
        "taken": index_kinds,
        "values": kinds,
    }
    rules = (
        Rule(("dtype", "values"), lambda dtype, values: values in kinds_of(DTYPES[dtype])),
        Rule(("shape", "layout"), lambda shape, layout: _lies(placed, layout, *SHAPES[shape])),
        Rule(
            ("form", "taken"),
            lambda form, indices: (
                not placed.unique or form.startswith("add") or indices in ("different", "few", "none")
            ),
        ),
        Rule(("form", "shape"), lambda form, shape: form != "cut" or min(SHAPES[shape][0]) > 1),
    )
    domain = Domain(
        op,
        factors,
        lambda levels, dtype, draw: _make(placed, levels, dtype, draw),
        rules,
        overload=lambda levels: placed.forms[levels["form"]][0],
    )
    huge = {
        "dtype": placed.huge,
        "form": next(iter(placed.forms)),
        "shape": HUGE,
        "layout": "contiguous",
        "taken": LAST,
        "values": "random",
    }
    return replace(
        domain,
        priority=_telling(domain, placed),
        added=tuple(
            {"dtype": "f32", "form": form, "shape": "2x9x7", "layout": "contiguous", "taken": "equal"}
            | {"values": "specials"}
            for form in placed.special
        ),
        invalid_calls=_outside(op, placed),
        extra=(huge,) if placed.huge else (),
    )


def _outside(op: Op, placed: Placed) -> tuple[InvalidCall, ...]:
    """An index below the first place or past the last, where a clause says that it is an error."""
    clause = next((c.text for c in op.clauses if About.OUTSIDE in c.about), None)
    if clause is None:
        return ()

    def make(draw: SeededValues, *, past: bool) -> Inputs:
        levels = {"form": "one", "shape": "17x129", "layout": "contiguous", "taken": "different", "values": "random"}
        inputs = _make(placed, levels, torch.float32, draw)
        size, index = inputs.args[0].shape[SHAPES["17x129"][1]], inputs.args[1][-1]
        index[int(draw.integers(1, 0, len(index)))] = size if past else -size - 1
        return inputs

    return tuple(
        InvalidCall(
            f"an index {'past' if past else 'below'}", clause, partial(make, past=past), placed.forms["one"][0], "f32"
        )
        for past in (True, False)
    )


def _lies(placed: Placed, layout: str, shape: tuple[int, ...], dim: int) -> bool:
    """True if the operand can have this layout. The indexed dimension must not be expanded: its elements would all be
    equal, and a wrong index would not be noticed.
    """
    same = {"expanded": 0, "expanded_last": len(shape) - 1}.get(layout, -1) == dim
    return layout_classes.fits(layout, shape) and not (same and len(shape) > 1)


def _make(placed: Placed, levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    shape, dim = SHAPES[levels["shape"]] if levels["shape"] != HUGE else ((int(HUGE),), 0)
    terms = 2 * prod(shape) if placed.sums else 1

    def like(sizes: tuple[int, ...]) -> torch.Tensor:
        if levels["shape"] == HUGE:
            return (torch.arange(prod(sizes)) * 7 + draw.call).to(dtype)
        alone = not placed.sums or not (dtype.is_floating_point or dtype.is_complex)
        if levels["values"] == "random" and alone:
            return with_outliers(draw, dtype, prod(sizes)).reshape(sizes)
        return fill(draw, levels["values"], dtype, prod(sizes), terms=terms).reshape(sizes)

    def along(negative: bool) -> torch.Tensor:
        places = draw_indices(levels["taken"], shape[dim], draw)
        return torch.where(places % 2 == 1, places - shape[dim], places) if negative else places

    x = layout_classes.with_layout(like(shape), levels["layout"])
    args, kwargs = placed.forms[levels["form"]][1](CallInputs(x, dim, along, like, levels["layout"]))
    return Inputs(
        args, kwargs, frozenset({"exact"} if levels["values"] == "exact" and levels["form"] != "fraction" else ())
    )


def draw_indices(kind: str, size: int, draw: SeededValues) -> torch.Tensor:
    """Indices below ``size``, of one kind."""
    if not size or kind == "none":
        return torch.zeros(0, dtype=torch.int64)
    match kind:
        case "different":
            return torch.randperm(size, generator=draw.fresh)
        case "few":
            return torch.randperm(size, generator=draw.fresh)[: (size + 1) // 2]
        case "last":
            return size - 1 - torch.randperm(7, generator=draw.fresh)
        case "one":
            return draw.integers(1, 0, size).expand(size).contiguous()
        case "many":
            return draw.integers(2 * size + 1, 0, size)
    return draw.integers(size, 0, max(1, size // 2))


def _telling(domain: Domain, placed: Placed) -> tuple[Levels, ...]:
    names, forms, kinds = domain.factors["dtype"], domain.factors["form"], domain.factors["taken"]
    first = "f32" if "f32" in names else names[0]
    equal = "equal" if "equal" in kinds else kinds[0]
    third = forms[2 % len(forms)]
    wishes = (
        (first, forms[0], "17x17", "transposed", equal, "random"),
        (
            first,
            forms[1 % len(forms)],
            "2x9x7",
            "contiguous",
            equal if all(domain.allows({"form": forms[1 % len(forms)], "taken": k}) for k in kinds) else kinds[0],
            "specials",
        ),
        (first, third, "9x3x9", "contiguous", equal, "random"),
        (*placed.telling, "9x3x9", "contiguous", equal, "random"),
    )
    results = [dict(zip(domain.factors, wish, strict=True)) for wish in wishes if all(wish)]
    return tuple(levels for levels in results if domain.allows(levels))
