"""Operators that compute element by element: any sizes that broadcast, any layout, any values.

Which tensors, numbers and other arguments there are is read off the samples (the *form*); sizes, layouts and values are
chosen independently. Every value of an 8- or 16-bit dtype is tried at once where there is one operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from math import isfinite, prod
from typing import Any
from zlib import crc32

import torch

from keel.loops import DTYPE_NAMES
from keel.opset import MEMBERS, Op

from .. import layout_classes, shapes
from ..collect_calls import with_dtypes
from ..diversity import facets, select_diverse
from ..domain import DTYPES, Domain, Levels, Rule, dtype_names
from ..from_samples import known_calls
from ..saved_call import Path, SavedCall, TensorSpec, rebuilt, walk
from ..values import KINDS, kinds_of
from .pointwise_operands import ALL, EVERY, SCALARS, make, slots

PARTNERS = ("alike", "dense", "row", "column", "0d", "outer", "middle", "first", "turns")
"""What the other operands are beside the first: of its sizes and layout, row-major, its last row, its first column, of
no dimension, or crossed with it; with ones in the middle, or everywhere but first; with ones where the first has none.
"""
EACH = (
    (ALL, "contiguous", "alike", ALL),
    ("1025", "contiguous", "alike", "random"),
    ("17x65", "transposed", "alike", "random"),
    ("17x17", "contiguous", "row", "random"),
)
"""Sizes, layout, partner and values that are tried with each dtype, in the form of most operands of that dtype."""
MOST, MOST_CONVERSIONS = 16, 64
"""Forms of a member at most."""
PAIRED = ((ALL, ALL), ("1025", "random"), ("257", "wide"))
"""The sizes and values of those that are tried with each dtype and form of such a member."""
KINDS_OF_DTYPES = (("f32", "f64", "bf16", "f16"), ("i64",), ("i32", "i16", "i8"), ("u8",), ("c64", "c128"))
"""Groups of similar dtypes. In each form of a member, the first dtype of each group that the form takes is tried on all
combinations of special values.
"""
CASTS = (
    ("f32", "bf16"),
    ("f32", "b8"),
    ("f64", "f16"),
    ("i64", "f32"),
    ("f32", "i32"),
    ("i64", "i32"),
    ("f64", "f32"),
    ("f64", "bf16"),
    ("i32", "u8"),
    ("f32", "f16"),
    ("bf16", "f32"),
    ("u8", "i32"),
    ("i64", "f64"),
    ("c64", "b8"),
    ("f32", "f8e4m3fn"),
    ("f32", "f8e5m2"),
)
"""From and to which dtypes a cast tells most."""
SIZES_AND_PARTNERS = (("17x65", "column"), ("2x17x8", "middle"), ("17x17", "row"), ("2x17x8", "turns"))
"""Sizes and what is beside them; of each operator one is tried where few cases are."""
MANY_DIMENSIONS, CROSSED = "2x3x2x4x3x2", "turns"
"""More dimensions than the loops of many kernels have, and operands that keep these dimensions from being joined."""
RARE = ("u8", "i32", "c64", "i16", "f64", "i8")
LAID = ("contiguous", "transposed", "gapped", "offset")
NOT_HERE = ("random", "contraction", "lists")
"""Tags and families whose operands do not broadcast."""


def build(op: Op) -> Domain | None:
    if "pointwise" not in op.tags or op.family in NOT_HERE or op.tags.intersection(NOT_HERE) or not op.broadcasts:
        return None
    forms = forms_of(op.name)
    return _domain(op, forms) if forms and all(slots(f) for f in forms) else None


@cache
def forms_of(name: str) -> tuple[SavedCall, ...]:
    """What tensors and numbers the samples have, each kind once, in sizes that say nothing."""
    calls_by_key: dict[str, SavedCall] = {}
    for call in known_calls(MEMBERS[name]):
        args, kwargs = rebuilt((call.args, call.kwargs), lambda _, v: _bare(v) if isinstance(v, TensorSpec) else v)
        key = repr((call.overload, args, kwargs))
        dtypes = tuple(dict.fromkeys((*(calls_by_key[key].dtypes if key in calls_by_key else ()), *call.dtypes)))
        calls_by_key[key] = SavedCall(call.overload, args, kwargs, dtypes)
    forms = list(calls_by_key.values())
    most = MOST_CONVERSIONS if MEMBERS[name].numerics.converts else MOST
    return tuple(select_diverse(forms, [facets(f) for f in forms])[:most])


def _bare(part: TensorSpec) -> TensorSpec:
    return replace(
        part, shape=(), strides=(), low=0.0, high=0.0, ordered=False, values=None if part.values is None else ()
    )


def _domain(op: Op, forms: tuple[SavedCall, ...]) -> Domain:
    dtypes = [d for d in DTYPES.values() if any(d in f.dtypes for f in forms)]
    counts = [len(slots(f)) for f in forms]
    broadcasts = _broadcasts(op.name, counts.index(max(counts))) if max(counts) > 1 else False
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    dims: tuple[str, ...] = (*shapes.SHAPES, ALL)
    values: tuple[str, ...] = (*kinds, ALL)
    if any([p.own for _, p in slots(f)] == [True] for f in forms) and any(d.itemsize <= 2 for d in dtypes):
        dims, values = (*dims, EVERY), (*values, EVERY)
    rules = _rules(forms, broadcasts)
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(f"f{i}" for i in range(len(forms))),
        "shape": dims,
        "layout": layout_classes.LAYOUTS,
        "partner": PARTNERS if broadcasts else ("alike", "dense") if max(counts) > 1 else ("alike",),
        "values": values,
    }
    every = _whole_dtypes(op, factors, forms)
    domain = Domain(
        op,
        factors,
        lambda levels, dtype, draw: make(op, forms, levels, dtype, draw),
        rules,
        required=every
        if op.numerics.converts
        else (*every[:8], *_each(factors, forms, rules), *_forms(factors, forms, rules)),
        overload=lambda levels: forms[int(levels["form"][1:])].overload,
        facets={f"f{i}": facets(f) for i, f in enumerate(forms)},
    )
    many = _of_many_dimensions(domain)
    return replace(
        domain,
        priority=_casts(domain, forms) if op.numerics.converts else _telling(domain),
        added=() if op.numerics.converts else (*_promoted(domain, forms), *_digits(domain, forms), *many),
        extra=many,
    )


def _unary(forms: tuple[SavedCall, ...]) -> Mapping[str, bool]:
    """Whether a form has one operand, of the case's dtype, which can hold all values that the dtype has."""
    return {f"f{i}": [p.own for _, p in slots(f)] == [True] for i, f in enumerate(forms)}


def _planes(forms: tuple[SavedCall, ...]) -> Mapping[str, bool]:
    """Whether a form asks for channels-last, which only tensors of four dimensions have."""
    return {f"f{i}": any(v is torch.channels_last for _, v in walk((f.args, f.kwargs))) for i, f in enumerate(forms)}


def _rules(forms: tuple[SavedCall, ...], broadcasts: bool) -> tuple[Rule, ...]:
    number = {f"f{i}": len(slots(f)) for i, f in enumerate(forms)}
    takes = {f"f{i}": f.dtypes for i, f in enumerate(forms)}
    unary, planes = _unary(forms), _planes(forms)
    return (
        Rule(("dtype", "form"), lambda dtype, form: DTYPES[dtype] in takes[form]),
        Rule(
            ("dtype", "values"),
            lambda dtype, values: (
                values == ALL
                or (
                    DTYPES[dtype].itemsize <= 2 and dtype != "b8"
                    if values == EVERY
                    else values in kinds_of(DTYPES[dtype])
                )
            ),
        ),
        Rule(
            ("shape", "values"),
            lambda shape, values: (shape in (ALL, EVERY) or values in (ALL, EVERY)) <= (shape == values),
        ),
        Rule(
            ("shape", "layout"),
            lambda shape, layout: (
                layout in ("contiguous", "offset", "gapped")
                if shape in (ALL, EVERY)
                else layout_classes.fits(layout, shapes.shape_of(shape))
            ),
        ),
        Rule(
            ("form", "partner"),
            lambda form, partner: partner == "alike" or (number[form] > 1 and (broadcasts or partner == "dense")),
        ),
        Rule(("form", "shape"), lambda form, shape: shape != EVERY or unary[form]),
        Rule(("shape", "partner"), _partners),
        Rule(("form", "shape"), lambda form, shape: not planes[form] or shape.count("x") == 3),
    )


def _whole_dtypes(op: Op, factors: Mapping[str, tuple[str, ...]], forms: tuple[SavedCall, ...]) -> tuple[Levels, ...]:
    """The levels on which an operand holds every value of a dtype; for an operator about dtypes, all pairs of these."""
    takes = {f"f{i}": f.dtypes for i, f in enumerate(forms)}
    unary, planes = _unary(forms), _planes(forms)
    every = [
        {"dtype": d, "form": form, "shape": EVERY, "layout": "contiguous", "partner": "alike", "values": EVERY}
        for d in factors["dtype"]
        if DTYPES[d].itemsize <= 2 and d != "b8"
        for form in takes
        if unary[form] and not planes[form] and DTYPES[d] in takes[form]
    ]
    if op.numerics.converts:  # of each dtype to each other one: what it is about
        every += [
            {"dtype": d, "form": form, "shape": shape, "layout": "contiguous", "partner": "alike", "values": kind}
            for d in factors["dtype"]
            for form in takes
            for shape, kind in PAIRED
            if DTYPES[d] in takes[form] and not planes[form] and kind in (ALL, *kinds_of(DTYPES[d]))
        ]
    return tuple(every)


def _each(
    factors: Mapping[str, tuple[str, ...]],
    forms: tuple[SavedCall, ...],
    rules: tuple[Rule, ...],
) -> list[Levels]:
    own = [sum(p.own for _, p in slots(f)) for f in forms]
    order = sorted(range(len(forms)), key=lambda i: -own[i])
    wishes = [
        {"dtype": d, "form": f"f{i}", "shape": shape, "layout": layout, "partner": partner, "values": values}
        for d in factors["dtype"]
        for i in [next(i for i in order if DTYPES[d] in forms[i].dtypes)]
        for shape, layout, partner, values in EACH
    ]
    return [
        w
        for w in wishes
        if all(w[f] in factors[f] for f in w) and all(r.holds(*(w[f] for f in r.factors)) for r in rules)
    ]


def _forms(
    factors: Mapping[str, tuple[str, ...]],
    forms: tuple[SavedCall, ...],
    rules: tuple[Rule, ...],
) -> list[Levels]:
    wishes = [
        {"dtype": dtypes[0], "form": f"f{i}", "shape": ALL, "layout": "contiguous", "partner": "alike", "values": ALL}
        for i, form in enumerate(forms)
        for kind in KINDS_OF_DTYPES
        if (dtypes := [d for d in kind if d in factors["dtype"] and DTYPES[d] in form.dtypes])
    ]
    return [w for w in wishes if all(r.holds(*(w[f] for f in r.factors)) for r in rules)]


def _casts(domain: Domain, forms: tuple[SavedCall, ...]) -> tuple[Levels, ...]:
    """Each in another layout."""
    target = {
        DTYPE_NAMES[v]: f"f{i}"
        for i, f in reversed([*enumerate(forms)])
        for v in f.kwargs.values()
        if isinstance(v, torch.dtype) and v in DTYPE_NAMES
    }
    wishes = [
        {
            "dtype": one,
            "form": target[other],
            "shape": "17x65",
            "partner": "alike",
            "values": "random",
            "layout": LAID[k % len(LAID)],
        }
        for k, (one, other) in enumerate(CASTS)
        if other in target
    ]
    results = [_completed(domain, wish) for wish in wishes if wish["dtype"] in domain.factors["dtype"]]
    return tuple(levels for levels in results if levels is not None)


def _partners(shape: str, partner: str) -> bool:
    if shape in (ALL, EVERY):
        return partner == "alike"
    sizes = shapes.shape_of(shape)
    match partner:
        case "row" | "column" | "first":
            return len(sizes) >= 2
        case "middle":
            return len(sizes) >= 3
        case "outer" | "turns":
            return len(sizes) >= (2 if partner == "outer" else 3) and 0 not in sizes and prod(sizes) < 2000
        case "0d":
            return len(sizes) >= 1
    return True


def _telling(domain: Domain) -> tuple[Levels, ...]:
    """Special values in float32 and in an integer dtype (a 16-bit float if the member takes no integers), and a
    transposed operand next to a row.
    """
    names = domain.factors["dtype"]
    floats = [str(n) for n in ("f32", "f64", "f16", "bf16") if n in names] or [*names]
    other = next((n for n in ("i64", "i32", "u8", "bf16", "b8", "c64") if n in names and n != floats[0]), floats[0])
    forms = domain.factors["form"]
    shape, partner = SIZES_AND_PARTNERS[crc32(domain.op.name[::-1].encode()) % len(SIZES_AND_PARTNERS)]
    wishes = (
        ({"dtype": floats[0], "shape": ALL, "values": ALL, "layout": "contiguous"}, forms),
        ({"dtype": other, "shape": ALL, "values": ALL, "layout": "offset"}, forms),
        (
            {
                "dtype": _rare(domain.op, names, floats[0]),
                "shape": shape,
                "layout": "transposed",
                "partner": partner,
                "values": "random",
            },
            (*forms[1:], forms[0]),
        ),
    )
    results = []
    for wish, tries in wishes:
        completed = (_completed(domain, {**wish, "form": form}) for form in tries)
        results += [next((levels for levels in completed if levels is not None), None)]
    return tuple(levels for levels in results if levels is not None)


def _promoted(domain: Domain, forms: tuple[SavedCall, ...]) -> tuple[Levels, ...]:
    """An operand of a dtype that another one's holds, so that what both are computed in is not that dtype."""
    return _first_of(
        domain,
        (
            (name, i)
            for i, form in enumerate(forms)
            for name in ("i32", "f32", "u8")
            if DTYPES[name] in form.dtypes
            and any(p.own for _, p in slots(form))
            and any(
                not p.own and DTYPES[name] != p.dtype == torch.promote_types(DTYPES[name], p.dtype)
                for _, p in slots(form)
            )
        ),
    )


def _digits(domain: Domain, forms: tuple[SavedCall, ...]) -> tuple[Levels, ...]:
    """float64 beside a number that float32 does not have."""
    return _first_of(
        domain,
        (
            ("f64", i)
            for i, form in enumerate(forms)
            if torch.float64 in form.dtypes
            and any(
                isinstance(v, float) and isfinite(v) and v != torch.tensor(v).item()
                for _, v in walk((form.args, form.kwargs))
            )
        ),
    )


def _of_many_dimensions(domain: Domain) -> tuple[Levels, ...]:
    """Six dimensions that stay six, for the first dtype and form that have operands to broadcast: each operand repeats
    along every second one.
    """
    if CROSSED not in domain.factors["partner"]:
        return ()
    dtype = next((d for d in ("f32", *domain.factors["dtype"]) if d in domain.factors["dtype"]), "")
    wishes = (
        {
            "dtype": dtype,
            "form": form,
            "shape": MANY_DIMENSIONS,
            "layout": "reversed",
            "partner": CROSSED,
            "values": "random",
        }
        for form in domain.factors["form"]
    )
    return tuple(islice(filter(domain.allows, wishes), 1))


def _first_of(domain: Domain, pairs: Iterable[tuple[str, int]]) -> tuple[Levels, ...]:
    """The first of these dtypes and forms that the domain allows, with random values."""
    wishes = (
        {
            "dtype": dtype,
            "form": f"f{i}",
            "shape": "257",
            "layout": "contiguous",
            "partner": "alike",
            "values": "random",
        }
        for dtype, i in pairs
    )
    return tuple(islice(filter(domain.allows, wishes), 1))


def _rare(op: Op, names: tuple[str, ...], usual: str) -> str:
    """Of operators that whole numbers have, another dtype for each, so that a few of them have tried them all."""
    results = [n for n in RARE if n in names]
    return results[crc32(op.name.encode()) % len(results)] if "i64" in names and results else usual


def _completed(domain: Domain, wish: Levels) -> Levels | None:
    """The wish with the first levels that go with it; a partner or value that it cannot have is given up."""
    levels = dict[str, str]()
    for factor in ("dtype", "form", "shape", "layout", "partner", "values"):
        tries = [*([wish[factor]] if factor in wish else []), *domain.factors[factor]]
        level = next((t for t in tries if t in domain.factors[factor] and domain.allows({**levels, factor: t})), None)
        if level is None or (factor in ("dtype", "shape") and factor in wish and level != wish[factor]):
            return None
        levels[factor] = level
    return levels


@cache
def _broadcasts(name: str, form: int) -> bool:
    """Whether operands of other sizes serve; eager PyTorch tells."""
    op, made = MEMBERS[name], forms_of(name)[form]
    count = len(slots(made))
    shapes, scalars = iter([(2, 3), *[(3,)] * (count - 1)]), SCALARS.get(name, ())

    def sized(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec):
            return leaf
        return replace(leaf, shape=() if path in scalars else next(shapes), values=None)

    args, kwargs = rebuilt((made.args, made.kwargs), sized)
    return bool(with_dtypes(op, SavedCall(made.overload, args, kwargs), made.dtypes[:1]).dtypes)
