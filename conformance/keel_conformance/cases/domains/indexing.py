"""Operators that take or move elements by index: sizes around the widths of vectors, indices of every kind.

Indices are drawn anew at every call: all different, many equal, one and the same, from the end where that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch

from keel.opset import About, Op

from ...by_member import ByMember
from .. import layouts
from ..case import Inputs
from ..domain import DTYPES, Domain, InvalidCall, Levels, Rule, dtype_names
from ..values import KINDS, SeededValues, fill, kinds_of, with_outliers

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
TAKEN = ("different", "equal", "one", "few", "none", "many")
"""Kinds of indices: each once, many equal, all the same, fewer than there are, none, more than there are."""

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_REALS = (*_FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_ALL = (*_REALS, torch.complex64, torch.complex128, torch.bool)


@dataclass(frozen=True)
class Given:
    """What a call is made of: the operand, its dimension, places along it, and more values like the operand's."""

    x: torch.Tensor
    dim: int
    along: Callable[[bool], torch.Tensor]
    like: Callable[[tuple[int, ...]], torch.Tensor]
    layout: str

    def index(self, negative: bool = False) -> torch.Tensor:
        """One index for each of the places, in one dimension."""
        return self.along(negative)

    def full(self) -> torch.Tensor:
        """An index of the operand's rank, as long as the places along the dimension; turned on from line to line."""
        places, size = self.along(False), self.x.shape[self.dim]
        shape = [*self.x.shape]
        shape[self.dim] = len(places)
        found = torch.zeros(shape, dtype=torch.int64)
        for d, n in enumerate(shape):
            view = [1] * d + [-1] + [1] * (len(shape) - d - 1)
            found += (places if d == self.dim else (d + 1) * torch.arange(n)).reshape(view)
        return found % max(size, 1)

    def sized(self, n: int) -> tuple[int, ...]:
        return (*self.x.shape[: self.dim], n, *self.x.shape[self.dim + 1 :])


Call = Callable[[Given], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Placed:
    """``forms`` of the calls; ``unique`` says that equal indices leave open what stands there, ``sums`` that elements
    are added up; ``huge`` is the dtype in which the first form is tried on very many places.
    """

    forms: Mapping[str, tuple[str, Call]]
    dtypes: tuple[torch.dtype, ...] = _ALL
    unique: bool = False
    sums: bool = False
    whole: bool = False
    huge: str = ""


def _fewer(g: Given, index: torch.Tensor) -> torch.Tensor:
    """An index with fewer elements in the other dimensions, where they have more than one."""
    return index[tuple(slice(None) if d == g.dim else slice(0, max(1, n - 1)) for d, n in enumerate(index.shape))]


def _narrow(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim - g.x.dim(), _fewer(g, g.full())), {}


def _gather(end: bool = False) -> Call:
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.full()), {})


def _scatter(*more: Any, end: bool = False, **keywords: Any) -> Call:
    """The dimension may be counted from the ``end``."""

    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.full()
        return (g.x, g.dim - g.x.dim() * end, index, g.like(tuple(index.shape)), *more), keywords

    return call


def _wider() -> Call:
    """Of values beyond the index none is taken; the dimension is counted from the end."""

    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.full()
        return (g.x, g.dim - g.x.dim(), _fewer(g, index), g.like(tuple(index.shape))), {}

    return call


def _scatter_value(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.full(), True if g.x.dtype == torch.bool else 3), {}


def _select(dtype: torch.dtype = torch.int64, end: bool = False) -> Call:
    """The dimension may be counted from the ``end``."""
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.index().to(dtype)), {})


def _slices(end: bool = False, **keywords: Any) -> Call:
    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.index()
        return (g.x, g.dim - g.x.dim() * end, index, g.like(g.sized(len(index)))), keywords

    return call


def _fraction(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Scaled by no whole number, where the dtype has others."""
    return _slices(alpha=1.5 if g.x.dtype.is_floating_point else -3)(g)


def _lists(negative: bool) -> Call:
    """Whole dimensions before the one that is indexed."""
    return lambda g: ((g.x, [*[None] * g.dim, g.index(negative)]), {})


def _mask(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    mask = torch.arange(g.x.shape[g.dim]) % 3 != 1
    return (g.x, [*[None] * g.dim, mask]), {}


def _both(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All dimensions indexed at once, the indices broadcast."""
    index = g.index()
    rest = [torch.arange(n).reshape(-1, 1)[:1] if n else torch.zeros(1, 1, dtype=torch.int64) for n in g.x.shape]
    return (g.x, [index if d == g.dim else rest[d] for d in range(g.x.dim())]), {}


def _apart(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first and the last dimension indexed, those between whole."""
    if g.x.dim() < 3:
        return (g.x, [*[None] * g.dim, g.index()]), {}
    index = g.index()
    last = (torch.arange(len(index)) * 2 + 1) % g.x.shape[-1]
    first = index % g.x.shape[0]
    return (g.x, [first, *[None] * (g.x.dim() - 2), last - g.x.shape[-1]]), {}


def _pairs(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Two indices that are broadcast to a matrix."""
    if g.x.dim() < 2:
        return (g.x, [g.index().reshape(-1, 1)]), {}
    index, other = g.index(), 1 if g.dim == 0 else g.dim - 1
    beside = torch.arange(min(3, g.x.shape[other])).reshape(-1, 1)
    return (g.x, [index if d == g.dim else beside if d == other else None for d in range(g.x.dim())]), {}


def _put(negative: bool, *more: Any) -> Call:
    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.index(negative)
        return (g.x, [*[None] * g.dim, index], g.like(g.sized(len(index))), *more), {}

    return call


def _put_one(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A value that is broadcast."""
    return (g.x, [*[None] * g.dim, g.index()], g.like(())), {}


def _embedding(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    table = g.x.reshape(g.x.shape[0], -1) if g.x.dim() != 2 else g.x
    return (table, g.index() % max(table.shape[0], 1)), {}


def _padded_embedding(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With a row that gets no gradient, and is read like any other."""
    (table, index), _ = _embedding(g)
    return (table, index, int(min(1, table.shape[0] - 1))), {}


def _narrow_embedding(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With a matrix of 32-bit indices."""
    (table, index), _ = _embedding(g)
    return (table, torch.stack([index, index.flip(0)], 1).to(torch.int32)), {}


def _take(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.index(True)), {}


def _filled(end: bool, negative: bool = False) -> Call:
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.index(negative), True if g.x.dtype == torch.bool else 3), {})


def _flipped(*dims: int) -> Call:
    return lambda g: ((g.x, [d for d in dims if -g.x.dim() <= d < g.x.dim()]), {})


def _rolled(shift: int) -> Call:
    return lambda g: ((g.x, [shift], [g.dim]), {})


def _rolled_flat(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [2]), {}


def _rolled_twice(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [1, -2][: g.x.dim()], [-1, 0][: g.x.dim()]), {}


def _rolled_again(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [1, 3][: 2 * g.x.dim()], [g.dim, g.dim][: 2 * g.x.dim()]), {}


def _joined(count: int, end: bool = False) -> Call:
    """With others that are longer; the dimension is counted from the ``end``."""
    return lambda g: (
        ([g.x, *[g.like(g.sized(g.x.shape[g.dim] + i)) for i in range(count)]], g.dim - g.x.dim() * end),
        {},
    )


def _joined_mixed(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With one of no elements that has no dimension but one, and one of a wider dtype after it."""
    wide = torch.complex128 if g.x.dtype.is_complex else torch.float64
    return ([g.x, torch.empty(0, dtype=g.x.dtype), g.like(tuple(g.x.shape)).to(wide)], g.dim), {}


def _stacked(end: bool = False) -> Call:
    """The new dimension stands before the one that counts, or last."""
    return lambda g: (([g.x, g.like(tuple(g.x.shape))], -1 if end else g.dim), {})


def _padded(low: int, high: int, value: float | None = None) -> Call:
    return lambda g: ((g.x, [low, high, *([1, 0] if g.x.dim() > 1 else [])], *([] if value is None else [value])), {})


_ADD = Placed(
    {"one": ("aten.scatter_add.default", _scatter()), "wider": ("aten.scatter_add.default", _wider())}, sums=True
)
_REDUCES = (
    ("sum", True),
    ("mean", False),
    ("amax", True),
    ("prod", False),
    ("amin", False),
    ("sum", False),
    ("mean", True),
    ("amax", False),
    ("prod", True),
    ("amin", True),
)
PLACED: ByMember[Placed] = ByMember()
declare = PLACED.declare
declare(
    "gather",
    Placed(
        {
            "one": ("aten.gather.default", _gather()),
            "end": ("aten.gather.default", _gather(True)),
            "narrow": ("aten.gather.default", _narrow),
        },
        huge="u8",
    ),
)
declare(
    "scatter",
    Placed(
        {
            "src": ("aten.scatter.src", _scatter()),
            "value": ("aten.scatter.value", _scatter_value),
            "wider": ("aten.scatter.src", _wider()),
        },
        unique=True,
    ),
)
declare("scatter_add", _ADD)
declare(
    "scatter_reduce",
    Placed(
        {
            f"{r}{'' if own else ' without self'}": ("aten.scatter_reduce.two", _scatter(r, include_self=own))
            for r, own in _REDUCES
        }
        | {"sum end": ("aten.scatter_reduce.two", _scatter("sum", end=True))},
        dtypes=_REALS,
        sums=True,
    ),
)
declare(
    "index",
    Placed(
        {
            "one": ("aten.index.Tensor", _lists(False)),
            "negative": ("aten.index.Tensor", _lists(True)),
            "apart": ("aten.index.Tensor", _apart),
            "pairs": ("aten.index.Tensor", _pairs),
            "mask": ("aten.index.Tensor", _mask),
            "all": ("aten.index.Tensor", _both),
            "unsafe": ("aten._unsafe_index.Tensor", _lists(False)),
        },
        huge="u8",
    ),
)
declare(
    "index_put",
    Placed(
        {
            "one": ("aten.index_put.default", _put(False)),
            "negative": ("aten.index_put.default", _put(True)),
            "broadcast": ("aten.index_put.default", _put_one),
            "add": ("aten.index_put.default", _put(False, True)),
            "add_negative": ("aten.index_put.default", _put(True, True)),
            "unsafe": ("aten._unsafe_index_put.default", _put(False)),
            "unsafe_add": ("aten._unsafe_index_put.default", _put(False, True)),
        },
        unique=True,
        sums=True,
    ),
)
declare(
    "index_select",
    Placed(
        {
            "one": ("aten.index_select.default", _select()),
            "end": ("aten.index_select.default", _select(end=True)),
            "narrow": ("aten.index_select.default", _select(torch.int32)),
        },
        huge="u8",
    ),
)
declare(
    "index_add",
    Placed(
        {
            "one": ("aten.index_add.default", _slices()),
            "alpha": ("aten.index_add.default", _slices(True, alpha=2)),
            "fraction": ("aten.index_add.default", _fraction),
        },
        dtypes=_REALS,
        sums=True,
    ),
)
declare(
    "index_copy",
    Placed(
        {"one": ("aten.index_copy.default", _slices()), "end": ("aten.index_copy.default", _slices(True))}, unique=True
    ),
)
declare(
    "index_fill",
    Placed(
        {
            "one": ("aten.index_fill.int_Scalar", _filled(False)),
            "end": ("aten.index_fill.int_Scalar", _filled(True)),
            "negative": ("aten.index_fill.int_Scalar", _filled(False, True)),
        }
    ),
)
declare(
    "embedding",
    Placed(
        {
            "one": ("aten.embedding.default", _embedding),
            "padded": ("aten.embedding.default", _padded_embedding),
            "narrow": ("aten.embedding.default", _narrow_embedding),
        },
        dtypes=_FLOATS,
    ),
)
declare("take", Placed({"one": ("aten.take.default", _take)}, huge="u8"))
declare(
    "flip",
    Placed(
        {
            "both": ("aten.flip.default", _flipped(0, 1, 2)),
            "first": ("aten.flip.default", _flipped(0)),
            "last": ("aten.flip.default", _flipped(-1)),
            "none": ("aten.flip.default", _flipped()),
        },
        whole=True,
    ),
)
declare(
    "roll",
    Placed(
        {
            "1": ("aten.roll.default", _rolled(1)),
            "flat": ("aten.roll.default", _rolled_flat),
            "twice": ("aten.roll.default", _rolled_twice),
            "again": ("aten.roll.default", _rolled_again),
            **{str(n): ("aten.roll.default", _rolled(n)) for n in (-1, 3, 0, 5000)},
        },
        whole=True,
    ),
)
declare(
    "cat",
    Placed(
        {
            "two": ("aten.cat.default", _joined(1)),
            "four": ("aten.cat.default", _joined(3, True)),
            "mixed": ("aten.cat.default", _joined_mixed),
            "one": ("aten.cat.default", _joined(0)),
        },
        whole=True,
    ),
)
declare(
    "stack",
    Placed({"two": ("aten.stack.default", _stacked()), "end": ("aten.stack.default", _stacked(True))}, whole=True),
)
declare(
    "pad",
    Placed(
        {
            "both": ("aten.constant_pad_nd.default", _padded(1, 2, 3)),
            "zero": ("aten.constant_pad_nd.default", _padded(0, 5)),
            "cut": ("aten.constant_pad_nd.default", _padded(-1, 2, 1)),
        },
        whole=True,
    ),
)


def build(op: Op) -> Domain | None:
    placed = PLACED.declared.get(op.name)
    if placed is None:
        return None
    here = {str(t) for t in op.targets}
    return _domain(op, replace(placed, forms={n: f for n, f in placed.forms.items() if f[0] in here}))


def _domain(op: Op, placed: Placed) -> Domain:
    dtypes = [d for d in placed.dtypes if not op.dtypes or d in op.dtypes]
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    taken = (
        ("all",)
        if placed.whole
        else tuple(t for t in TAKEN if not (placed.unique and not placed.sums) or t in ("different", "few", "none"))
    )
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(placed.forms),
        "shape": tuple(SHAPES),
        "layout": layouts.LAYOUTS,
        "taken": taken,
        "values": kinds,
    }
    rules = (
        Rule(("dtype", "values"), lambda dtype, values: values in kinds_of(DTYPES[dtype])),
        Rule(("shape", "layout"), lambda shape, layout: _lies(placed, layout, *SHAPES[shape])),
        Rule(
            ("form", "taken"),
            lambda form, taken: not placed.unique or form.startswith("add") or taken in ("different", "few", "none"),
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
        domain, priority=_telling(domain), invalid_calls=_outside(op, placed), extra=(huge,) if placed.huge else ()
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
    """Whether the operand can lie so; where all places of the dimension have one value, nothing tells them apart."""
    same = {"expanded": 0, "expanded_last": len(shape) - 1}.get(layout, -1) == dim
    return layouts.fits(layout, shape) and not (same and len(shape) > 1)


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
        places = taken(levels["taken"], shape[dim], draw)
        return torch.where(places % 2 == 1, places - shape[dim], places) if negative else places

    x = layouts.with_layout(like(shape), levels["layout"])
    args, kwargs = placed.forms[levels["form"]][1](Given(x, dim, along, like, levels["layout"]))
    return Inputs(
        args, kwargs, frozenset({"exact"} if levels["values"] == "exact" and levels["form"] != "fraction" else ())
    )


def taken(kind: str, size: int, draw: SeededValues) -> torch.Tensor:
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


def _telling(domain: Domain) -> tuple[Levels, ...]:
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
    )
    found = [dict(zip(domain.factors, wish, strict=True)) for wish in wishes]
    return tuple(levels for levels in found if domain.allows(levels))
