"""The forms in which operators that take or move elements by index are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...by_member import ByMember

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
REALS = (*FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ALL = (*REALS, torch.complex64, torch.complex128, torch.bool)


@dataclass(frozen=True)
class CallInputs:
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
        result = torch.zeros(shape, dtype=torch.int64)
        for d, n in enumerate(shape):
            view = [1] * d + [-1] + [1] * (len(shape) - d - 1)
            result += (places if d == self.dim else (d + 1) * torch.arange(n)).reshape(view)
        return result % max(size, 1)

    def sized(self, n: int) -> tuple[int, ...]:
        return (*self.x.shape[: self.dim], n, *self.x.shape[self.dim + 1 :])


Call = Callable[[CallInputs], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Placed:
    """``forms`` of the calls; ``unique`` says that equal indices leave open what stands there, ``sums`` that elements
    are added up; ``huge`` is the dtype in which the first form is tried on very many places; ``telling`` names a dtype
    and a form that tell more; ``special`` are forms that are tried on special values even where few cases are.
    """

    forms: Mapping[str, tuple[str, Call]]
    dtypes: tuple[torch.dtype, ...] = ALL
    unique: bool = False
    sums: bool = False
    all_places: bool = False
    huge: str = ""
    telling: tuple[str, str] = ("", "")
    special: tuple[str, ...] = ()


def _fewer(g: CallInputs, index: torch.Tensor) -> torch.Tensor:
    """An index with fewer elements in the other dimensions, where they have more than one."""
    return index[tuple(slice(None) if d == g.dim else slice(0, max(1, n - 1)) for d, n in enumerate(index.shape))]


def _narrow(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim - g.x.dim(), _fewer(g, g.full())), {}


def _gather(end: bool = False) -> Call:
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.full()), {})


def _scatter(*more: Any, end: bool = False, **keywords: Any) -> Call:
    """The dimension may be counted from the ``end``."""

    def call(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.full()
        return (g.x, g.dim - g.x.dim() * end, index, g.like(tuple(index.shape)), *more), keywords

    return call


def _wider() -> Call:
    """Of values beyond the index none is taken; the dimension is counted from the end."""

    def call(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.full()
        return (g.x, g.dim - g.x.dim(), _fewer(g, index), g.like(tuple(index.shape))), {}

    return call


def _scatter_value(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.dim, g.full(), True if g.x.dtype == torch.bool else 3), {}


def _select(dtype: torch.dtype = torch.int64, end: bool = False) -> Call:
    """The dimension may be counted from the ``end``."""
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.index().to(dtype)), {})


def _slices(end: bool = False, **keywords: Any) -> Call:
    def call(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.index()
        return (g.x, g.dim - g.x.dim() * end, index, g.like(g.sized(len(index)))), keywords

    return call


def _fraction(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Scaled by no whole number, where the dtype has others."""
    return _slices(alpha=1.5 if g.x.dtype.is_floating_point else -3)(g)


def _lists(negative: bool) -> Call:
    """Whole dimensions before the one that is indexed."""
    return lambda g: ((g.x, [*[None] * g.dim, g.index(negative)]), {})


def _mask(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    mask = torch.arange(g.x.shape[g.dim]) % 3 != 1
    return (g.x, [*[None] * g.dim, mask]), {}


def _both(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All dimensions indexed at once, the indices broadcast."""
    index = g.index()
    rest = [torch.arange(n).reshape(-1, 1)[:1] if n else torch.zeros(1, 1, dtype=torch.int64) for n in g.x.shape]
    return (g.x, [index if d == g.dim else rest[d] for d in range(g.x.dim())]), {}


def _first_and_last(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The first and the last dimension indexed, those between whole."""
    if g.x.dim() < 3:
        return (g.x, [*[None] * g.dim, g.index()]), {}
    index = g.index()
    last = (torch.arange(len(index)) * 2 + 1) % g.x.shape[-1]
    first = index % g.x.shape[0]
    return (g.x, [first, *[None] * (g.x.dim() - 2), last - g.x.shape[-1]]), {}


def _pairs(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Two indices that are broadcast to a matrix."""
    if g.x.dim() < 2:
        return (g.x, [g.index().reshape(-1, 1)]), {}
    index, other = g.index(), 1 if g.dim == 0 else g.dim - 1
    neighbor = torch.arange(min(3, g.x.shape[other])).reshape(-1, 1)
    return (g.x, [index if d == g.dim else neighbor if d == other else None for d in range(g.x.dim())]), {}


def _put(negative: bool, *more: Any) -> Call:
    def call(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        index = g.index(negative)
        return (g.x, [*[None] * g.dim, index], g.like(g.sized(len(index))), *more), {}

    return call


def _put_one(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A value that is broadcast."""
    return (g.x, [*[None] * g.dim, g.index()], g.like(())), {}


def _embedding(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    table = g.x.reshape(g.x.shape[0], -1) if g.x.dim() != 2 else g.x
    return (table, g.index() % max(table.shape[0], 1)), {}


def _padded_embedding(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With a row that gets no gradient, and is read like any other."""
    (table, index), _ = _embedding(g)
    return (table, index, int(min(1, table.shape[0] - 1))), {}


def _narrow_embedding(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With a matrix of 32-bit indices."""
    (table, index), _ = _embedding(g)
    return (table, torch.stack([index, index.flip(0)], 1).to(torch.int32)), {}


def _take(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, g.index(True)), {}


def _filled(end: bool, negative: bool = False) -> Call:
    return lambda g: ((g.x, g.dim - g.x.dim() * end, g.index(negative), True if g.x.dtype == torch.bool else 3), {})


def _flipped(*dims: int) -> Call:
    return lambda g: ((g.x, [d for d in dims if -g.x.dim() <= d < g.x.dim()]), {})


def _rolled(shift: int) -> Call:
    return lambda g: ((g.x, [shift], [g.dim]), {})


def _rolled_flat(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [2]), {}


def _rolled_twice(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [1, -2][: g.x.dim()], [-1, 0][: g.x.dim()]), {}


def _rolled_again(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (g.x, [1, 3][: 2 * g.x.dim()], [g.dim, g.dim][: 2 * g.x.dim()]), {}


def _joined(count: int, end: bool = False) -> Call:
    """With others that are longer; the dimension is counted from the ``end``."""
    return lambda g: (
        ([g.x, *[g.like(g.sized(g.x.shape[g.dim] + i)) for i in range(count)]], g.dim - g.x.dim() * end),
        {},
    )


def _joined_mixed(g: CallInputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
        dtypes=REALS,
        sums=True,
        telling=("i64", "mean"),
        special=("amax", "amin"),
    ),
)
declare(
    "index",
    Placed(
        {
            "one": ("aten.index.Tensor", _lists(False)),
            "negative": ("aten.index.Tensor", _lists(True)),
            "apart": ("aten.index.Tensor", _first_and_last),
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
        dtypes=REALS,
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
        dtypes=FLOATS,
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
        all_places=True,
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
        all_places=True,
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
        all_places=True,
    ),
)
declare(
    "stack",
    Placed({"two": ("aten.stack.default", _stacked()), "end": ("aten.stack.default", _stacked(True))}, all_places=True),
)
declare(
    "pad",
    Placed(
        {
            "both": ("aten.constant_pad_nd.default", _padded(1, 2, 3)),
            "zero": ("aten.constant_pad_nd.default", _padded(0, 5)),
            "cut": ("aten.constant_pad_nd.default", _padded(-1, 2, 1)),
        },
        all_places=True,
    ),
)
