"""Operators that take or move elements by index: sizes around the widths of vectors, indices of every kind.

Indices are drawn anew at every call: all different, many equal, one and the same, from the end where that is allowed.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from keel import Op
from keel_conformance.cases import layouts
from keel_conformance.cases.case import Trial
from keel_conformance.cases.domain import DTYPES, Domain, Levels, Rule, dtype_names
from keel_conformance.cases.values import KINDS, Draw, fill, kinds_of

SHAPES: Mapping[str, tuple[tuple[int, ...], int]] = {
    "7": ((7,), 0), "33": ((33,), 0), "1025": ((1025,), 0), "3x33": ((3, 33), 1), "65x5": ((65, 5), 0),
    "17x129": ((17, 129), 1), "2x9x7": ((2, 9, 7), 1), "4x1x8": ((4, 1, 8), 1), "2x3x16x5": ((2, 3, 16, 5), 2),
    "300x257": ((300, 257), 0), "1x1": ((1, 1), 0),
}
"""Sizes of the operand, and the dimension that is indexed."""
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
        """An index of the operand's rank, as long as the places along the dimension."""
        places = self.along(False)
        shape = [*self.x.shape]
        shape[self.dim] = len(places)
        view = [1] * self.x.dim()
        view[self.dim] = -1
        return places.reshape(view).expand(shape).contiguous()

    def sized(self, n: int) -> tuple[int, ...]:
        return (*self.x.shape[:self.dim], n, *self.x.shape[self.dim + 1:])


Call = Callable[[Given], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Placed:
    """``forms`` of the calls; ``unique`` says that equal indices leave open what stands there, ``sums`` that elements
    are added up; ``some`` that there has to be an index.
    """

    forms: Mapping[str, tuple[str, Call]]
    dtypes: tuple[torch.dtype, ...] = _ALL
    unique: bool = False
    sums: bool = False
    whole: bool = False


def _gather(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.full()), {}


def _scatter(*more: Any, **keywords: Any) -> Call:
    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.full()
        return (g.x, g.dim, index, g.like(tuple(index.shape)), *more), keywords
    return call


def _scatter_value(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.full(), True if g.x.dtype == torch.bool else 3), {}


def _select(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.index()), {}


def _slices(**keywords: Any) -> Call:
    def call(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.index()
        return (g.x, g.dim, index, g.like(g.sized(len(index)))), keywords
    return call


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


def _take(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.index(True)), {}


def _filled(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.index(), True if g.x.dtype == torch.bool else 3), {}


def _flipped(*dims: int) -> Call:
    return lambda g: ((g.x, [d for d in dims if d < g.x.dim()]), {})


def _rolled(shift: int) -> Call:
    return lambda g: ((g.x, [shift], [g.dim]), {})


def _joined(count: int) -> Call:
    return lambda g: (([g.x, *[g.like(g.sized(g.x.shape[g.dim] + i)) for i in range(count)]], g.dim), {})


def _stacked(g: Given) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ([g.x, g.like(tuple(g.x.shape))], g.dim), {}


def _padded(low: int, high: int, value: float | None = None) -> Call:
    return lambda g: ((g.x, [low, high, *([1, 0] if g.x.dim() > 1 else [])], *([] if value is None else [value])), {})


_ADD = Placed({"one": ("aten.scatter_add.default", _scatter())}, sums=True)
_REDUCES = ("sum", "prod", "mean", "amax", "amin")
PLACED: Mapping[str, Placed] = {
    "gather": Placed({"one": ("aten.gather.default", _gather)}),
    "scatter": Placed({"src": ("aten.scatter.src", _scatter()), "value": ("aten.scatter.value", _scatter_value)},
                      unique=True),
    "scatter_add": _ADD,
    "scatter_reduce": Placed(
        {f"{r}{'' if own else ' without self'}": ("aten.scatter_reduce.two", _scatter(r, include_self=own))
         for r in _REDUCES for own in (True, False)}, dtypes=_REALS, sums=True),
    "index": Placed({"one": ("aten.index.Tensor", _lists(False)), "negative": ("aten.index.Tensor", _lists(True)),
                     "mask": ("aten.index.Tensor", _mask), "all": ("aten.index.Tensor", _both),
                     "unsafe": ("aten._unsafe_index.Tensor", _lists(False))}),
    "index_put": Placed({"one": ("aten.index_put.default", _put(False)),
                         "negative": ("aten.index_put.default", _put(True)),
                         "broadcast": ("aten.index_put.default", _put_one),
                         "add": ("aten.index_put.default", _put(False, True)),
                         "unsafe": ("aten._unsafe_index_put.default", _put(False))}, unique=True, sums=True),
    "index_select": Placed({"one": ("aten.index_select.default", _select)}),
    "index_add": Placed({"one": ("aten.index_add.default", _slices()),
                         "alpha": ("aten.index_add.default", _slices(alpha=2))}, dtypes=_REALS, sums=True),
    "index_copy": Placed({"one": ("aten.index_copy.default", _slices())}, unique=True),
    "index_fill": Placed({"one": ("aten.index_fill.int_Scalar", _filled)}),
    "embedding": Placed({"one": ("aten.embedding.default", _embedding)}, dtypes=_FLOATS),
    "take": Placed({"one": ("aten.take.default", _take)}),
    "flip": Placed({"first": ("aten.flip.default", _flipped(0)), "last": ("aten.flip.default", _flipped(1)),
                    "both": ("aten.flip.default", _flipped(0, 1, 2)), "none": ("aten.flip.default", _flipped())},
                   whole=True),
    "roll": Placed({str(n): ("aten.roll.default", _rolled(n)) for n in (1, -1, 3, 0, 5000)}, whole=True),
    "cat": Placed({"two": ("aten.cat.default", _joined(1)), "one": ("aten.cat.default", _joined(0)),
                   "four": ("aten.cat.default", _joined(3))}, whole=True),
    "stack": Placed({"two": ("aten.stack.default", _stacked)}, whole=True),
    "pad": Placed({"both": ("aten.constant_pad_nd.default", _padded(1, 2, 3)),
                   "zero": ("aten.constant_pad_nd.default", _padded(0, 5)),
                   "cut": ("aten.constant_pad_nd.default", _padded(-1, 2, 1))}, whole=True),
}


def build(op: Op) -> Domain | None:
    placed = PLACED.get(op.name)
    if placed is None:
        return None
    here = {str(t) for t in op.targets}
    return _domain(op, replace(placed, forms={n: f for n, f in placed.forms.items() if f[0] in here}))


def _domain(op: Op, placed: Placed) -> Domain:
    dtypes = [d for d in placed.dtypes if not op.dtypes or d in op.dtypes]
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    taken = ("all",) if placed.whole else tuple(t for t in TAKEN if not (placed.unique and not placed.sums)
                                                or t in ("different", "few", "none"))
    factors = {"dtype": dtype_names(dtypes), "form": tuple(placed.forms), "shape": tuple(SHAPES),
               "layout": layouts.LAYOUTS, "taken": taken, "values": kinds}
    rules = (
        Rule(("dtype", "values"), lambda dtype, values: values in kinds_of(DTYPES[dtype])),
        Rule(("shape", "layout"), lambda shape, layout: layouts.fits(layout, SHAPES[shape][0])),
        Rule(("form", "taken"), lambda form, taken: not placed.unique or form == "add"
             or taken in ("different", "few", "none")),
        Rule(("form", "shape"), lambda form, shape: form != "cut" or min(SHAPES[shape][0]) > 1),
    )
    domain = Domain(op, factors, lambda levels, dtype, draw: _make(placed, levels, dtype, draw), rules,
                    overload=lambda levels: placed.forms[levels["form"]][0])
    return replace(domain, telling=_telling(domain))


def _make(placed: Placed, levels: Levels, dtype: torch.dtype, draw: Draw) -> Trial:
    shape, dim = SHAPES[levels["shape"]]
    terms = 2 * prod(shape) if placed.sums else 1

    def like(sizes: tuple[int, ...]) -> torch.Tensor:
        return fill(draw, levels["values"], dtype, prod(sizes), terms=terms).reshape(sizes)

    def along(negative: bool) -> torch.Tensor:
        places = taken(levels["taken"], shape[dim], draw)
        return torch.where(places % 2 == 1, places - shape[dim], places) if negative else places
    x = layouts.place(like(shape), levels["layout"])
    args, kwargs = placed.forms[levels["form"]][1](Given(x, dim, along, like, levels["layout"]))
    return Trial(args, kwargs, frozenset({"exact"} if levels["values"] == "exact" else ()))


def taken(kind: str, size: int, draw: Draw) -> torch.Tensor:
    """Indices below ``size``, of one kind."""
    if not size or kind == "none":
        return torch.zeros(0, dtype=torch.int64)
    match kind:
        case "different":
            return torch.randperm(size, generator=draw.fresh)
        case "few":
            return torch.randperm(size, generator=draw.fresh)[:(size + 1) // 2]
        case "one":
            return draw.integers(1, 0, size).expand(size).contiguous()
        case "many":
            return draw.integers(2 * size + 1, 0, size)
    return draw.integers(size, 0, max(1, size // 2))


def _telling(domain: Domain) -> tuple[Levels, ...]:
    names, forms, kinds = domain.factors["dtype"], domain.factors["form"], domain.factors["taken"]
    first = "f32" if "f32" in names else names[0]
    other = next((n for n in ("i64", "bf16") if n in names), first)
    third = next((n for n in ("b8", "u8", "f16") if n in names), first)
    equal = "equal" if "equal" in kinds else kinds[0]
    wishes = ((first, forms[0], "17x129", "transposed", equal, "random"),
              (first, forms[-1], "2x9x7", "contiguous", kinds[0], "specials"),
              (other, forms[len(forms) // 2], "1025", "gapped", "few" if "few" in kinds else kinds[0], "exact"),
              (third, forms[0], "65x5", "offset", kinds[0], "random"))
    found = [dict(zip(domain.factors, wish, strict=True)) for wish in wishes]
    return tuple(levels for levels in found if domain.allows(levels))
