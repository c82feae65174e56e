"""Calls of an operator along one dimension, as a domain.

The size of the dimension that counts goes around the widths of vectors and tiles; it stands first, last, in the middle
or alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from keel.opset import Op

from .. import layout_classes, shapes
from ..case import Inputs
from ..domain import DTYPES, Domain, Levels, Rule, dtype_names
from ..values import KINDS, SeededValues, kinds_of
from .row_values import RISING, counted, filled, rising

PLACES: Mapping[str, Callable[[int], tuple[tuple[int, ...], int]]] = {
    "last": lambda n: ((3, n), 1),
    "first": lambda n: ((n, 5), 0),
    "middle": lambda n: ((2, n, 7), 1),
    "alone": lambda n: ((n,), 0),
    "rank4": lambda n: ((2, 3, n, 4), 2),
    "wide": lambda n: ((n, 40), 0),
    "square": lambda n: ((n, n), 0),
    "cube": lambda n: ((n, n, n), 1),
}
"""Sizes with the dimension of size n, and which it is; where all are equal, another one gives the same sizes."""
LIMITS: Mapping[str, int] = {"square": 129, "cube": 17}
"""The largest n of those that grow with it."""
LONG, HUGE = "70001", "16777221"
"""More places than 16 bits count, alone and last only; more than float32 does, where a few elements say so."""
EXTENTS = (*map(str, shapes.EXTENTS), "0", "0d", LONG)


Arguments = Callable[[torch.Tensor, int, torch.dtype], tuple[tuple[Any, ...], dict[str, Any]]]
"""Returns the arguments of a call, from the tensor, the dimension that it runs along and the dtype."""


_ALL_ELEMENTS = ("all", "two", "two_keep", "unlisted")
"""Forms that may reduce all elements."""
_HALF_TO_FLOAT = ("softmax", "log_softmax")


@dataclass(frozen=True)
class Along:
    """The calls of one member. ``forms`` has the overload and arguments of each, by name; ``all_elements`` names those
    that go over all elements. ``empty`` says that a dimension without elements will do, ``terms`` that elements are
    summed; ``telling`` names a dtype, a form and values that tell most; ``no_overlap`` says that no two elements share
    memory, ``even`` that of random values all rows are, because their errors are judged together; ``truth`` that only
    zeros make a difference, and of which kinds a single row is in turn; ``huge`` has the dtypes, forms and values of
    calls on more elements than float32 counts. ``added`` has the dtypes, forms, sizes and values of
    cases on top of the few of tier smoke.
    """

    forms: Mapping[str, tuple[str, Arguments]]
    all_elements: frozenset[str] = frozenset()
    empty: bool = True
    terms: bool = False
    products: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    least: int = 0
    many: int = 1
    telling: tuple[str, str, str] = ("", "", "")
    no_overlap: bool = False
    even: bool = False
    truth: tuple[int, int] | None = None
    huge: tuple[tuple[str, str, str], ...] = ()
    added: tuple[tuple[str, str, str, str], ...] = ()


def domain_of(op: Op, along: Along) -> Domain:
    dtypes = along.dtypes or op.dtypes
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(along.forms),
        "extent": EXTENTS,
        "place": tuple(PLACES),
        "layout": tuple(n for n in layout_classes.LAYOUTS if not (along.no_overlap and n.startswith("expanded"))),
        "values": kinds,
    }
    rules = (
        Rule(("dtype", "values"), lambda dtype, values: values in kinds_of(DTYPES[dtype])),
        Rule(
            ("extent", "place"),
            lambda extent, place: (
                place == "alone"
                if extent == "0d"
                else place in ("alone", "last")
                if extent == LONG
                else int(extent) <= LIMITS.get(place, 1 << 20)
            ),
        ),
        Rule(("extent", "form"), lambda extent, form: _sized(along, extent, form)),
        Rule(
            ("extent", "place", "layout"),
            lambda extent, place, layout: layout_classes.fits(layout, shape_of(extent, place)[0]),
        ),
    )
    domain = Domain(
        op,
        factors,
        lambda levels, dtype, draw: _make(op, along, levels, dtype, draw),
        rules,
        overload=lambda levels: along.forms[levels["form"]][0],
    )
    added = tuple(
        {"dtype": dtype, "form": form, "extent": extent, "place": "last", "layout": "contiguous", "values": values}
        for dtype, form, extent, values in along.added
    )
    return replace(
        domain,
        priority=_telling(domain, along),
        added=added,
        required=_each(domain),
        extra=(
            *(
                {"dtype": dtype, "form": form, "extent": HUGE, "place": "alone"}
                | {"layout": "contiguous", "values": values}
                for dtype, form, values in along.huge
            ),
            *(levels for levels in added if levels["values"] == RISING),
        ),
    )


def _sized(along: Along, extent: str, form: str) -> bool:
    return extent != "0" or (along.empty and form != "large")


def shape_of(extent: str, place: str) -> tuple[tuple[int, ...], int]:
    """Sizes, and which dimension counts."""
    return ((), 0) if extent == "0d" else PLACES[place](int(extent))


def _make(op: Op, along: Along, levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    shape, dim = shape_of(levels["extent"], levels["place"])
    over = prod(shape) if levels["form"] in _ALL_ELEMENTS else shape[dim] if shape else 1
    kind = levels["values"]
    if levels["extent"] == HUGE:
        x = counted(kind, dtype, over, op.name.startswith(("argmin", "min_")), draw)
    elif kind == RISING:
        x = rising(dtype, shape, dim, draw)
    else:
        about = (along.products, along.even, along.truth)
        x = filled(kind, dtype, shape, dim, over, draw, *about).reshape(shape)
    x = layout_classes.with_layout(x, levels["layout"])
    args, kwargs = along.forms[levels["form"]][1](x, dim, dtype)
    if op.name in _HALF_TO_FLOAT:
        args = (*args, False)
    exact = kind == "exact" and (along.terms or along.products)
    return Inputs(args, kwargs, frozenset({"exact"} if exact else ()))


def _each(domain: Domain) -> tuple[Levels, ...]:
    """Each form on special values and on others, of floats and of integers, along either end."""
    wishes = [
        dict(zip(domain.factors, (dtype, form, *rest), strict=True))
        for form in domain.factors["form"]
        for dtype, *rest in (
            ("f32", "129", "last", "contiguous", "specials"),
            ("f32", "33", "middle", "gapped", "random"),
            ("f32", LONG, "alone", "contiguous", "random"),
            ("f16", "65", "first", "contiguous", "specials"),
            ("i64", "65", "first", "contiguous", "wide"),
        )
    ]
    return tuple(w for w in wishes if all(w[f] in domain.factors[f] for f in w) and domain.allows(w))


def _telling(domain: Domain, along: Along) -> tuple[Levels, ...]:
    """Special values in the last dimension; exact terms in the first, transposed; what the member says."""
    names, forms = domain.factors["dtype"], domain.factors["form"]
    first = "f32" if "f32" in names else names[0]
    dtype, form, values = along.telling
    wishes = (
        (first, forms[0], "129", "last", "contiguous", "specials"),
        (first, forms[1 % len(forms)], "1025", "first", "transposed", "exact"),
        (dtype, form, "257", "middle", "gapped", values),
    )
    wishes = (wishes[2], *wishes[:2]) if dtype == "b8" else wishes  # of floats hardly any is false
    results = [dict(zip(domain.factors, wish, strict=True)) for wish in wishes if all(wish)]
    return tuple(levels for levels in results if domain.allows(levels))
