"""Operators that compute element by element: any sizes that broadcast, any layout, any values.

Which tensors, numbers and other arguments there are is read off the samples (the *form*); sizes, layouts and values are
chosen anew. Every value of an 8- or 16-bit dtype is tried at once where there is one operand.
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

from .. import layouts, shapes
from ..case import Inputs
from ..collect_calls import with_dtypes
from ..diversity import facets, select_diverse
from ..domain import DTYPES, Domain, Levels, Rule, dtype_names
from ..from_samples import known_calls
from ..saved_call import OWN, Path, SavedCall, TensorSpec, rebuilt, walk
from ..values import KINDS, SeededValues, crossed, fill, kinds_of, specials, with_outliers

PARTNERS = ("alike", "dense", "row", "column", "0d", "outer", "middle", "first", "turns")
"""What the other operands are beside the first: of its sizes and layout, row-major, its last row, its first column, of
no dimension, or crossed with it; with ones in the middle, or everywhere but first; with ones where the first has none.
"""
ALL, EVERY = "all", "every"
"""Sizes that follow from values: all combinations of special values; all values that a dtype has."""
EACH = (
    (ALL, "contiguous", "alike", ALL),
    ("1025", "contiguous", "alike", "random"),
    ("17x65", "transposed", "alike", "random"),
    ("17x17", "contiguous", "row", "random"),
)
"""Sizes, layout, partner and values that are tried with each dtype, in the form of most operands of that dtype."""
MOST = 16
WHOLE: Mapping[str, int] = {"convert": 64}
"""Forms of a member at most."""
PAIRED = ((ALL, ALL), ("1025", "random"), ("257", "wide"))
"""The sizes and values of those that are tried with each dtype and form of such a member."""
KINDS_OF_DTYPES = (("f32", "f64", "bf16", "f16"), ("i64",), ("i32", "i16", "i8"), ("u8",), ("c64", "c128"))
"""Of each the first that a form takes is tried in that form, on all combinations of special values."""
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
BESIDE = (("17x65", "column"), ("2x17x8", "middle"), ("17x17", "row"), ("2x17x8", "turns"))
"""Sizes and what is beside them; of each operator one is tried where few cases are."""
RARE = ("u8", "i32", "c64", "i16", "f64", "i8")
LAID = ("contiguous", "transposed", "gapped", "offset")
NOT_HERE = ("random", "contraction", "lists")
"""Tags and families whose operands do not broadcast."""
SAME_SIZES = ("glu", "glu_backward", "prelu", "prelu_backward")

SCALARS: Mapping[str, tuple[Path, ...]] = {"masked_fill": ((2,),)}
"""Operands that have no dimensions."""
SUMMED_UP = frozenset({"zeta", "polygamma"})
"""A negative argument is summed up to a positive one, in steps of 1."""


def build(op: Op) -> Domain | None:
    if "pointwise" not in op.tags or op.family in NOT_HERE or op.tags.intersection(NOT_HERE) or op.name in SAME_SIZES:
        return None
    forms = forms_of(op.name)
    return _domain(op, forms) if forms and all(slots(f) for f in forms) else None


@cache
def forms_of(name: str) -> tuple[SavedCall, ...]:
    """What tensors and numbers the samples have, each kind once, in sizes that say nothing."""
    found: dict[str, SavedCall] = {}
    for call in known_calls(MEMBERS[name]):
        args, kwargs = rebuilt((call.args, call.kwargs), lambda _, v: _bare(v) if isinstance(v, TensorSpec) else v)
        key = repr((call.overload, args, kwargs))
        dtypes = tuple(dict.fromkeys((*(found[key].dtypes if key in found else ()), *call.dtypes)))
        found[key] = SavedCall(call.overload, args, kwargs, dtypes)
    forms = list(found.values())
    return tuple(select_diverse(forms, [facets(f) for f in forms])[: WHOLE.get(name, MOST)])


def _bare(part: TensorSpec) -> TensorSpec:
    return replace(
        part, shape=(), strides=(), low=0.0, high=0.0, ordered=False, values=None if part.values is None else ()
    )


def slots(form: SavedCall) -> list[tuple[Path, TensorSpec]]:
    return list(form.tensor_specs)


def _domain(op: Op, forms: tuple[SavedCall, ...]) -> Domain:
    dtypes = [d for d in DTYPES.values() if any(d in f.dtypes for f in forms)]
    counts = [len(slots(f)) for f in forms]
    broadcasts = _broadcasts(op.name, counts.index(max(counts))) if max(counts) > 1 else False
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    dims, values = (*shapes.SHAPES, ALL), (*kinds, ALL)
    if any([p.own for _, p in slots(f)] == [True] for f in forms) and any(d.itemsize <= 2 for d in dtypes):
        dims, values = (*dims, EVERY), (*values, EVERY)
    number = {f"f{i}": c for i, c in enumerate(counts)}
    takes = {f"f{i}": f.dtypes for i, f in enumerate(forms)}
    whole = {f"f{i}": [p.own for _, p in slots(f)] == [True] for i, f in enumerate(forms)}
    planes = {f"f{i}": any(v is torch.channels_last for _, v in walk((f.args, f.kwargs))) for i, f in enumerate(forms)}
    rules = (
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
                else layouts.fits(layout, shapes.shape_of(shape))
            ),
        ),
        Rule(
            ("form", "partner"),
            lambda form, partner: partner == "alike" or (number[form] > 1 and (broadcasts or partner == "dense")),
        ),
        Rule(("form", "shape"), lambda form, shape: shape != EVERY or whole[form]),
        Rule(("shape", "partner"), _partners),
        Rule(("form", "shape"), lambda form, shape: not planes[form] or shape.count("x") == 3),
    )
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(number),
        "shape": dims,
        "layout": layouts.LAYOUTS,
        "partner": PARTNERS if broadcasts else ("alike", "dense") if max(counts) > 1 else ("alike",),
        "values": values,
    }
    every = [
        {"dtype": d, "form": form, "shape": EVERY, "layout": "contiguous", "partner": "alike", "values": EVERY}
        for d in factors["dtype"]
        if DTYPES[d].itemsize <= 2 and d != "b8"
        for form in number
        if whole[form] and not planes[form] and DTYPES[d] in takes[form]
    ]
    if op.name in WHOLE:  # of each dtype to each other one: what it is about
        every += [
            {"dtype": d, "form": form, "shape": shape, "layout": "contiguous", "partner": "alike", "values": kind}
            for d in factors["dtype"]
            for form in number
            for shape, kind in PAIRED
            if DTYPES[d] in takes[form] and not planes[form] and kind in (ALL, *kinds_of(DTYPES[d]))
        ]
    domain = Domain(
        op,
        factors,
        lambda levels, dtype, draw: _make(op, forms, levels, dtype, draw),
        rules,
        required=tuple(every)
        if op.name in WHOLE
        else (*every[:8], *_each(factors, forms, rules), *_forms(factors, forms, rules)),
        overload=lambda levels: forms[int(levels["form"][1:])].overload,
        facets={f"f{i}": facets(f) for i, f in enumerate(forms)},
    )
    return replace(
        domain,
        priority=_casts(domain, forms) if op.name in WHOLE else _telling(domain),
        added=() if op.name in WHOLE else (*_promoted(domain, forms), *_digits(domain, forms)),
    )


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
        {"dtype": found[0], "form": f"f{i}", "shape": ALL, "layout": "contiguous", "partner": "alike", "values": ALL}
        for i, form in enumerate(forms)
        for kind in KINDS_OF_DTYPES
        if (found := [d for d in kind if d in factors["dtype"] and DTYPES[d] in form.dtypes])
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
    found = [_completed(domain, wish) for wish in wishes if wish["dtype"] in domain.factors["dtype"]]
    return tuple(levels for levels in found if levels is not None)


def _partners(shape: str, partner: str) -> bool:
    if shape in (ALL, EVERY):
        return partner == "alike"
    given = shapes.shape_of(shape)
    match partner:
        case "row" | "column" | "first":
            return len(given) >= 2
        case "middle":
            return len(given) >= 3
        case "outer" | "turns":
            return len(given) >= (2 if partner == "outer" else 3) and 0 not in given and prod(given) < 2000
        case "0d":
            return len(given) >= 1
    return True


def _telling(domain: Domain) -> tuple[Levels, ...]:
    """Special values in float32 and in a whole dtype, of 16 bits where there is none; a transposed operand beside a
    row.
    """
    names = domain.factors["dtype"]
    floats = [n for n in ("f32", "f64", "f16", "bf16") if n in names] or [*names]
    other = next((n for n in ("i64", "i32", "u8", "bf16", "b8", "c64") if n in names and n != floats[0]), floats[0])
    forms = domain.factors["form"]
    shape, partner = BESIDE[crc32(domain.op.name[::-1].encode()) % len(BESIDE)]
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
    found = []
    for wish, tries in wishes:
        completed = (_completed(domain, {**wish, "form": form}) for form in tries)
        found += [next((levels for levels in completed if levels is not None), None)]
    return tuple(levels for levels in found if levels is not None)


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


def _first_of(domain: Domain, found: Iterable[tuple[str, int]]) -> tuple[Levels, ...]:
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
        for dtype, i in found
    )
    return tuple(islice(filter(domain.allows, wishes), 1))


def _rare(op: Op, names: tuple[str, ...], usual: str) -> str:
    """Of operators that whole numbers have, another dtype for each, so that a few of them have tried them all."""
    found = [n for n in RARE if n in names]
    return found[crc32(op.name.encode()) % len(found)] if "i64" in names and found else usual


def _completed(domain: Domain, wish: Levels) -> Levels | None:
    """The wish with the first levels that go with it; a partner or value that it cannot have is given up."""
    levels = dict[str, str]()
    for factor in ("dtype", "form", "shape", "layout", "partner", "values"):
        tries = [*([wish[factor]] if factor in wish else []), *domain.factors[factor]]
        found = next((t for t in tries if t in domain.factors[factor] and domain.allows({**levels, factor: t})), None)
        if found is None or (factor in ("dtype", "shape") and factor in wish and found != wish[factor]):
            return None
        levels[factor] = found
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


# -- arguments --------------------------------------------------------------------------------------------------------


def _make(op: Op, forms: tuple[SavedCall, ...], levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    form = forms[int(levels["form"][1:])]
    places = slots(form)
    tensors = operands(levels, [dtype if p.own else p.dtype for _, p in places], draw, *op.numerics.interval)
    tensors = [
        x.reshape(-1)[:1].reshape(())
        if path in SCALARS.get(op.name, ()) and x.numel()
        else x.new_ones(())
        if path in SCALARS.get(op.name, ())
        else x
        for x, (path, _) in zip(tensors, places, strict=True)
    ]
    tensors = mended(op, tensors, next((i for i, (path, _) in enumerate(places) if path == (1,)), 9))
    laid = _laid(levels, tensors)
    given = dict(zip((path for path, _ in places), laid, strict=True))

    def put(path: Path, leaf: Any) -> Any:
        return given[path] if isinstance(leaf, TensorSpec) else dtype if isinstance(leaf, str) and leaf == OWN else leaf

    args, kwargs = rebuilt((form.args, form.kwargs), put)
    return Inputs(args, kwargs, frozenset({"exact"} if levels["values"] == "exact" else ()))


def operands(
    levels: Levels, dtypes: list[torch.dtype], draw: SeededValues, low: float = -4.0, high: float = 4.0
) -> list[torch.Tensor]:
    """Row-major tensors, one of each dtype, of the sizes and values that the levels say."""
    if levels["shape"] == EVERY:
        return [draw.shuffled(every(dtypes[0])) if not draw.bare else torch.ones(2**8, dtype=dtypes[0])]
    if levels["shape"] == ALL:
        return combinations(dtypes, draw)
    shape, found = shapes.shape_of(levels["shape"]), list[torch.Tensor]()
    for i, dtype in enumerate(dtypes):
        own = _beside(shape, levels["partner"]) if i else _crossed(shape, levels["partner"])
        kind = levels["values"] if levels["values"] in kinds_of(dtype) else "random"
        made = (
            with_outliers(draw, dtype, prod(own), low=low, high=high)
            if levels["values"] == "random"
            else (fill(draw, kind, dtype, prod(own), low=low, high=high))
        )
        found.append(made.reshape(own))
    return crossed(draw, found) if levels["values"] == "random" else found


def every(dtype: torch.dtype) -> torch.Tensor:
    """All values of a dtype of 8 or 16 bits, NaNs of all bits among them."""
    bits = 8 * dtype.itemsize
    numbers = torch.arange(2**bits, dtype=torch.int32)
    return (
        (numbers - (numbers >= 2 ** (bits - 1)).int() * 2**bits)
        .to(torch.int8 if bits == 8 else torch.int16)
        .view(dtype)
    )


def combinations(dtypes: list[torch.dtype], draw: SeededValues) -> list[torch.Tensor]:
    """All combinations of special values, a few of each where there are three operands or more, in a drawn order."""
    if draw.bare:
        return [torch.ones(1, dtype=d) for d in dtypes]
    values = [specials(d) for d in dtypes]
    if len(dtypes) > 2:
        few = max(2, int(4096 ** (1 / len(dtypes))))
        values = [draw.shuffled(v)[:few] for v in values]
    counts = [len(v) for v in values]
    order = torch.randperm(prod(counts), generator=draw.fresh) if len(dtypes) <= 2 else torch.arange(prod(counts))
    found = []
    for i, v in enumerate(values):
        found.append(v[order // prod(counts[i + 1 :]) % counts[i]])
    return found


def _crossed(shape: tuple[int, ...], partner: str) -> tuple[int, ...]:
    if partner == "turns":
        return tuple(1 if d % 2 else n for d, n in enumerate(shape))
    return (*shape[:-1], 1) if partner == "outer" else shape


def _beside(shape: tuple[int, ...], partner: str) -> tuple[int, ...]:
    match partner:
        case "row":
            return shape[-1:]
        case "column":
            return (*shape[:-1], 1)
        case "outer":
            return (*(1 for _ in shape[:-1]), shape[-1])
        case "middle":
            return (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
        case "first":
            return (shape[0], *(1 for _ in shape[1:]))
        case "turns":
            return tuple(n if d % 2 else 1 for d, n in enumerate(shape))
        case "0d":
            return ()
    return shape


def _laid(levels: Levels, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors where the levels say that they lie: the others as the first where they are alike and it fits."""
    layout, partner = levels["layout"], levels["partner"]
    found = []
    for i, x in enumerate(tensors):
        if i == 0 or partner != "dense":
            x = layouts.with_layout(x, layout) if layouts.fits(layout, x.shape) else x
        found.append(x)
    return found


def mended(op: Op, tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """The tensors without what an operator is not defined for, or takes for ever: of whole numbers a divisor of 0, the
    least number over -1, or among those whose common multiple is asked for; a polynomial of a large degree, or at
    NaN, of which PyTorch's kernels return what they have not written (``docs/findings``). ``divisor`` is the place of
    the second operand.
    """
    if op.name == "log_sigmoid_backward":  # its last operand is what the forward made of x
        grad, x, *_ = tensors
        return [grad, x, torch.ops.aten.log_sigmoid_forward.default(x)[1]]
    if "_polynomial_" in op.name:
        degree = tensors[divisor] if divisor < len(tensors) else torch.ones((), dtype=torch.bool)
        least = -3 if degree.is_signed() else 0
        small = degree if degree.dtype == torch.bool else degree.nan_to_num(3.0).clamp(least, 9)
        return [small if i == divisor else torch.where(x.isnan(), 0.25, x).to(x.dtype) for i, x in enumerate(tensors)]
    if op.name in SUMMED_UP:
        return [
            x
            if x.dtype == torch.bool or x.is_complex()
            else torch.where((x < -99) & (x > -torch.inf), torch.fmod(x, 99), x).to(x.dtype)
            for x in tensors
        ]
    if op.name == "lcm":
        return [x.clamp(min=torch.iinfo(x.dtype).min + 1) if x.dtype != torch.bool else x for x in tensors]
    floats = any(t.is_floating_point() or t.is_complex() for t in tensors)
    if op.numerics.quotient is None or divisor >= len(tensors) or floats:
        return tensors
    y = tensors[divisor]
    if y.dtype == torch.bool:
        y = torch.ones_like(y)
    else:
        least = any(
            bool((x == torch.iinfo(d).min).any())
            for x in tensors
            for d in {t.dtype for t in tensors}
            if x is not y and d != torch.bool and x.dtype != torch.bool
        )
        y = torch.where((y == 0) | ((y == -1) & least), torch.ones_like(y), y)
    return [y if i == divisor else x for i, x in enumerate(tensors)]
