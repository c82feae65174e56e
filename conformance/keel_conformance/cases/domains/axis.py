"""Operators along dimensions: reductions, scans, sorting, selection, softmax.

The size of the dimension that counts goes around the widths of vectors and tiles; it stands first, last, in the middle
or alone; dimensions are named from both ends, several, all or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from keel.opset import Op
from keel_conformance.by_member import ByMember
from keel_conformance.cases import layouts, sizes
from keel_conformance.cases.case import Trial
from keel_conformance.cases.domain import DTYPES, Domain, Levels, Rule, dtype_names
from keel_conformance.cases.values import EXACT_BITS, KINDS, Draw, fill, kinds_of, salted

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
FEW = "few"
"""The class of values of which all but one are the same, at a place that float32 has no number for."""
_EVERY, _NO, _LONE, _BUT_ONE = range(4)
"""Kinds of rows, by which elements of theirs are true."""
EXTENTS = (*map(str, sizes.EXTENTS), "0", "0d", LONG)

Arguments = Callable[[torch.Tensor, int, torch.dtype], tuple[tuple[Any, ...], dict[str, Any]]]
"""Of a tensor, its dimension that counts and its dtype, the arguments of a call."""


@dataclass(frozen=True)
class Along:
    """The calls of one member. ``forms`` has the overload and arguments of each, by name; ``whole`` names those that go
    over all elements. ``empty`` says that a dimension without elements will do, ``terms`` that elements are summed;
    ``telling`` names a dtype, a form and values that tell most; ``apart`` says that no two elements share memory,
    ``even`` that of random values all rows are, because their errors are judged together; ``truth`` that only zeros
    make a difference, and of which kinds a single row is in turn; ``huge`` has the dtypes, forms and values of calls on
    more elements than float32 counts.
    """

    forms: Mapping[str, tuple[str, Arguments]]
    whole: frozenset[str] = frozenset()
    empty: bool = True
    terms: bool = False
    products: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    least: int = 0
    many: int = 1
    telling: tuple[str, str, str] = ("", "", "")
    apart: bool = False
    even: bool = False
    truth: tuple[int, int] | None = None
    huge: tuple[tuple[str, str, str], ...] = ()


def _dim(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    return f"aten.{overload}", lambda x, dim, dtype: ((x, dim, *more), keywords)


def _end(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    """The same dimension, counted from the end."""
    return f"aten.{overload}", lambda x, dim, dtype: ((x, dim - max(x.dim(), 1), *more), keywords)


def _dims(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    return f"aten.{overload}", lambda x, dim, dtype: ((x, [dim], *more), keywords)


def _last(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    """A list of one, counted from the end."""
    return f"aten.{overload}", lambda x, dim, dtype: ((x, [dim - max(x.dim(), 1)], *more), keywords)


def _two(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    """Two dimensions where there are, of many two that are no neighbours."""

    def dims(x: torch.Tensor, dim: int) -> list[int]:
        return [dim] if x.dim() < 2 else [dim, -1] if dim != x.dim() - 1 and x.dim() < 4 else [dim, 0]

    return f"aten.{overload}", lambda x, dim, dtype: ((x, dims(x, dim), *more), keywords)


def _none(overload: str, *more: Any, **keywords: Any) -> tuple[str, Arguments]:
    return f"aten.{overload}", lambda x, dim, dtype: ((x, *more), keywords)


def _cast(overload: str) -> tuple[str, Arguments]:
    """In another dtype, which is named."""

    def arguments(x: torch.Tensor, dim: int, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
        other = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.float32
        return (x, [dim] if "List" in overload or overload.startswith("mean") else dim), {"dtype": other}

    return f"aten.{overload}", arguments


def _norms(overload: str, powers: tuple[float, ...]) -> Mapping[str, tuple[str, Arguments]]:
    """Of each power, along a dimension from either end, along two, and over all."""
    full = f"aten.{overload}"
    _, two = _two(overload)

    def norm(power: float, *more: Any) -> tuple[str, Arguments]:
        return full, lambda x, dim, dtype: ((x, power, [dim], *more), {})

    return {
        **{f"ord{p}": norm(p) for p in powers},
        "keep": norm(2, True),
        "end": (full, lambda x, dim, dtype: ((x, 3, [dim - max(x.dim(), 1)]), {})),
        "two": (full, lambda x, dim, dtype: ((x, 1, two(x, dim, dtype)[0][1], True), {})),
        "all": _none(overload, 2),
    }


def _of_size(overload: str, size: Callable[[int], int], *more: Any, end: bool = False) -> tuple[str, Arguments]:
    """With a number of elements that follows from the size of the dimension, which may be counted from the ``end``."""
    return f"aten.{overload}", lambda x, dim, dtype: (
        (x, size(x.shape[dim] if x.dim() else 1), dim - max(x.dim(), 1) * end, *more),
        {},
    )


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_REALS = (*_FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_ALL = (*_REALS, torch.complex64, torch.complex128, torch.bool)
_NONE = frozenset({"none", "all"})


def _several(overload: str, plain: str | None = None, **more: Any) -> Along:
    """A reduction of listed dimensions, ``plain`` over all."""
    forms = {
        "one": _dims(overload),
        "keep": _last(overload, True),
        "two": _two(overload),
        "two_keep": _two(overload, True),
        **({"all": _none(plain)} if plain else {}),
    }
    return Along({**dict([*forms.items()][:2]), **more.pop("forms", {}), **forms}, _NONE, **more)


def _named(name: str, **more: Any) -> Along:
    """One whose keepdim and correction are given by name."""
    o = f"{name}.correction"
    return Along(
        {
            "one": _dims(o),
            "keep": _last(o, keepdim=True),
            "two": _two(o, correction=0),
            "all": _none(o),
            "corrected": _dims(o, correction=0, keepdim=True),
            "large": _dims(o, correction=3.0),
            "half": _dims(o, correction=0.5),
        },
        _NONE,
        terms=True,
        dtypes=(*_FLOATS, torch.complex64),
        telling=("f32", "two", "shifted"),
        **more,
    )


def _indexed(overload: str, **more: Any) -> Along:
    return Along({"one": _dim(overload), "end": _end(overload), "keep": _dim(overload, True)}, empty=False, **more)


def _scan(overload: str, **more: Any) -> Along:
    return Along({"one": _dim(overload), "end": _end(overload), **more.pop("forms", {})}, many=2, **more)


_SORT = "sort.stable"
_TOPK = "topk.default"
_KTH = "kthvalue.default"
ALONG: ByMember[Along] = ByMember()
declare = ALONG.declare
declare(
    "sum",
    _several(
        "sum.dim_IntList",
        "sum.default",
        terms=True,
        even=True,
        forms={"cast": _cast("sum.dim_IntList")},
        huge=(("b8", "all", "true"), ("u8", "one", "true")),
        telling=("i32", "all", "wide"),
    ),
)
declare(
    "mean",
    _several(
        "mean.dim",
        "mean.default",
        terms=True,
        forms={"cast": _cast("mean.dim")},
        dtypes=(*_FLOATS, torch.complex64, torch.complex128),
    ),
)
declare("nansum", _several("nansum.default", terms=True, dtypes=_REALS))
declare(
    "prod",
    Along(
        {
            "one": _dim("prod.dim_int"),
            "keep": _dim("prod.dim_int", True),
            "end": _end("prod.dim_int"),
            "cast": _cast("prod.dim_int"),
        },
        products=True,
        telling=("u8", "end", "wide"),
    ),
)
declare("prod_all", Along({"all": _none("prod.default")}, _NONE, products=True, dtypes=_ALL))
declare("amax", _several("amax.default", "amax.default", empty=False))
declare("amin", _several("amin.default", "amin.default", empty=False))
declare(
    "any",
    Along(
        {
            "one": _dim("any.dim"),
            "keep": _dim("any.dim", True),
            "all": _none("any.default"),
            "two": _two("any.dims"),
            "list": _last("any.dims", True),
            "end": _end("any.dim"),
            "unlisted": _none("any.dims", []),
        },
        _NONE,
        truth=(_LONE, _NO),
        telling=("b8", "two", "random"),
    ),
)
declare(
    "all",
    Along(
        {
            "one": _dim("all.dim"),
            "keep": _dim("all.dim", True),
            "all": _none("all.default"),
            "two": _two("all.dims"),
            "list": _last("all.dims", True),
            "end": _end("all.dim"),
            "unlisted": _none("all.dims", []),
        },
        _NONE,
        truth=(_BUT_ONE, _EVERY),
        dtypes=_ALL,
        telling=("b8", "two", "random"),
    ),
)
for _name in ("argmax", "argmin"):
    declare(
        _name,
        Along(
            {
                "one": _dim(f"{_name}.default"),
                "end": _end(f"{_name}.default"),
                "keep": _dim(f"{_name}.default", True),
                "all": _none(f"{_name}.default"),
            },
            _NONE,
            empty=False,
            huge=(("u8", "all", FEW), ("i8", "end", FEW)),
        ),
    )
declare("max_with_index", _indexed("max.dim", huge=(("u8", "one", FEW),)))
declare("min_with_index", _indexed("min.dim", huge=(("u8", "one", FEW),)))
declare("max_all", Along({"all": _none("max.default")}, _NONE, empty=False, dtypes=(*_REALS, torch.bool)))
declare("min_all", Along({"all": _none("min.default")}, _NONE, empty=False, dtypes=(*_REALS, torch.bool)))
declare(
    "aminmax",
    Along(
        {
            "one": ("aten.aminmax.default", lambda x, dim, dtype: ((x,), {"dim": dim})),
            "keep": ("aten.aminmax.default", lambda x, dim, dtype: ((x,), {"dim": dim, "keepdim": True})),
            "end": ("aten.aminmax.default", lambda x, dim, dtype: ((x,), {"dim": dim - max(x.dim(), 1)})),
            "all": _none("aminmax.default"),
        },
        _NONE,
        empty=False,
        dtypes=(*_REALS, torch.bool),
    ),
)
declare(
    "reduce_xor",
    Along(
        {
            "one": _dims("hash_tensor.default"),
            "keep": _dims("hash_tensor.default", keepdim=True),
            "all": _none("hash_tensor.default"),
        },
        _NONE,
        empty=False,
    ),
)
declare(
    "count_nonzero",
    Along(
        {
            "one": _dims("count_nonzero.dim_IntList"),
            "two": _two("count_nonzero.dim_IntList"),
            "end": _last("count_nonzero.dim_IntList"),
            "given": _dim("count_nonzero.default"),
            "all": _none("count_nonzero.default"),
        },
        _NONE,
        dtypes=_ALL,
        huge=(("b8", "all", "true"), ("u8", "one", "true")),
    ),
)
declare("var", _named("var"))
declare("std", _named("std"))
declare("var_mean", _named("var_mean"))
declare("std_mean", _named("std_mean"))
declare(
    "cumsum",
    _scan(
        "cumsum.default",
        terms=True,
        even=True,
        telling=("bf16", "end", "random"),
        forms={"cast": _cast("cumsum.default")},
    ),
)
declare("cumprod", _scan("cumprod.default", products=True, forms={"cast": _cast("cumprod.default")}))
declare("cummax", _scan("cummax.default"))
declare("cummin", _scan("cummin.default"))
declare("logcumsumexp", _scan("logcumsumexp.default"))
declare("logsumexp", _several("logsumexp.default", dtypes=_FLOATS))
declare(
    "linalg_vector_norm",
    Along(
        _norms("linalg_vector_norm.default", (2, 1, 0, 3, -1, 0.5, float("inf"), float("-inf"))),
        _NONE,
        empty=False,
        dtypes=_FLOATS,
    ),
)
declare("linalg_powsum", Along(_norms("linalg__powsum.default", (2, 1, 0, 3, -1, 0.5)), _NONE, dtypes=_FLOATS))
declare(
    "sort",
    Along(
        {
            "one": (f"aten.{_SORT}", lambda x, dim, dtype: ((x,), {"stable": True, "dim": dim})),
            "down": (f"aten.{_SORT}", lambda x, dim, dtype: ((x,), {"stable": True, "dim": dim, "descending": True})),
            "loose": _dim("sort.default"),
            "loose_down": _end("sort.default", True),
            "end": (
                f"aten.{_SORT}",
                lambda x, dim, dtype: ((x,), {"stable": True, "dim": dim - max(x.dim(), 1), "descending": True}),
            ),
        },
        many=2,
    ),
)
declare(
    "topk",
    Along(
        {
            "one": _of_size(_TOPK, lambda n: 1),
            "half": _of_size(_TOPK, lambda n: (n + 1) // 2),
            "whole": _of_size(_TOPK, lambda n: n),
            "least": _of_size(_TOPK, lambda n: min(n, 3), False),
            "unsorted": _of_size(_TOPK, lambda n: min(n, 3), True, False),
            "end": _of_size(_TOPK, lambda n: min(n, 3), end=True),
            "none": _of_size(_TOPK, lambda n: 0),
        },
        empty=False,
        many=2,
    ),
)
declare(
    "kthvalue",
    Along(
        {
            "first": _of_size(_KTH, lambda n: 1),
            "last": _of_size(_KTH, lambda n: n, True),
            "half": _of_size(_KTH, lambda n: (n + 1) // 2, end=True),
        },
        empty=False,
        dtypes=_REALS,
        many=2,
    ),
)
# of an expanded operand PyTorch reads what lies behind its one element (see docs/findings.md)
declare("median", _indexed("median.dim", dtypes=_REALS, apart=True))
declare("nanmedian", _indexed("nanmedian.dim", dtypes=_REALS, apart=True))
declare("mode", _indexed("mode.default", dtypes=(*_REALS, torch.bool), many=2))
declare("median_all", Along({"all": _none("median.default")}, _NONE, empty=False, dtypes=_REALS))
declare("nanmedian_all", Along({"all": _none("nanmedian.default")}, _NONE, empty=False, dtypes=_REALS))
declare("softmax", _scan("_softmax.default", dtypes=_FLOATS, forms={}))
declare("log_softmax", _scan("_log_softmax.default", dtypes=_FLOATS))
declare("safe_softmax", _scan("_safe_softmax.default", dtypes=_FLOATS))
_WHOLE = ("all", "two", "two_keep", "unlisted")
"""Forms that may reduce all elements."""
_HALF_TO_FLOAT = ("softmax", "log_softmax")


def build(op: Op) -> Domain | None:
    along = ALONG.found.get(op.name)
    if along is None:
        return None
    here = {str(t) for t in op.targets}
    forms = {name: form for name, form in along.forms.items() if form[0] in here}
    return _domain(op, replace(along, forms=forms))


def _domain(op: Op, along: Along) -> Domain:
    dtypes = along.dtypes or op.dtypes
    kinds = tuple(k for k in KINDS if any(k in kinds_of(d) for d in dtypes))
    factors = {
        "dtype": dtype_names(dtypes),
        "form": tuple(along.forms),
        "extent": EXTENTS,
        "place": tuple(PLACES),
        "layout": tuple(n for n in layouts.LAYOUTS if not (along.apart and n.startswith("expanded"))),
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
            lambda extent, place, layout: layouts.fits(layout, shape_of(extent, place)[0]),
        ),
    )
    domain = Domain(
        op,
        factors,
        lambda levels, dtype, draw: _make(op, along, levels, dtype, draw),
        rules,
        overload=lambda levels: along.forms[levels["form"]][0],
    )
    return replace(
        domain,
        telling=_telling(domain, along),
        must=_each(domain),
        beyond=tuple(
            {"dtype": dtype, "form": form, "extent": HUGE, "place": "alone", "layout": "contiguous", "values": values}
            for dtype, form, values in along.huge
        ),
    )


def _sized(along: Along, extent: str, form: str) -> bool:
    return extent != "0" or (along.empty and form != "large")


def shape_of(extent: str, place: str) -> tuple[tuple[int, ...], int]:
    """Sizes, and which dimension counts."""
    return ((), 0) if extent == "0d" else PLACES[place](int(extent))


def _make(op: Op, along: Along, levels: Levels, dtype: torch.dtype, draw: Draw) -> Trial:
    shape, dim = shape_of(levels["extent"], levels["place"])
    over = prod(shape) if levels["form"] in _WHOLE else shape[dim] if shape else 1
    x = (
        _counted(levels["values"], dtype, over, op.name.startswith(("argmin", "min_")), draw)
        if (levels["extent"] == HUGE)
        else _filled(along, levels["values"], dtype, shape, dim, over, draw).reshape(shape)
    )
    x = layouts.place(x, levels["layout"])
    args, kwargs = along.forms[levels["form"]][1](x, dim, dtype)
    if op.name in _HALF_TO_FLOAT:
        args = (*args, False)
    exact = levels["values"] == "exact" and (along.terms or along.products)
    return Trial(args, kwargs, frozenset({"exact"} if exact else ()))


def _filled(
    along: Along, kind: str, dtype: torch.dtype, shape: tuple[int, ...], dim: int, over: int, draw: Draw
) -> torch.Tensor:
    n = prod(shape)
    if kind == "exact" and along.products and (dtype.is_floating_point or dtype.is_complex):
        return _powers(dtype, n, over, draw).reshape(shape)
    if kind == "random" and not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool):
        x = salted(draw, dtype, n).reshape(shape)  # integers wrap, in any order
    else:
        x = fill(draw, kind, dtype, n, terms=over).reshape(shape)
    scarce = along.truth is not None and dtype != torch.bool and kind != "specials"
    mixed = kind == "random" and dtype.is_floating_point and not along.even
    special = not dtype.is_complex and (mixed or kind == "specials" or (kind, dtype) == ("random", torch.bool))
    if not n or draw.bare or not (scarce or special):
        return x
    if over == n:  # of all elements there is one result
        x, shape, dim = x.reshape(-1), (n,), 0
    rows = x.movedim(dim, -1)
    single = along.truth or (_LONE, _BUT_ONE)
    if scarce:  # zeros where bools are false
        if mixed:  # and NaN is true
            rows = torch.where(_turns(rows, draw, 3) == 1, torch.nan, rows)
        rows = torch.where(
            _true_rows(torch.ones_like(rows, dtype=torch.bool), single, draw), rows, torch.zeros_like(rows)
        )
    elif dtype == torch.bool:
        rows = _true_rows(rows, single, draw)
    elif mixed:
        other = fill(draw, "specials", dtype, n).reshape(rows.shape)
        rows = torch.where(_turns(rows, draw, 4) >= 2, _rows(other, draw), rows)
    elif dtype.is_floating_point:
        rows = _rows(rows, draw)
    return rows.movedim(-1, dim).contiguous()


def _counted(kind: str, dtype: torch.dtype, n: int, least: bool, draw: Draw) -> torch.Tensor:
    """Ones; or zeros and, at one of the last odd places, a one, the other way round where the ``least`` is looked
    for.
    """
    x = torch.ones(n, dtype=dtype)
    if kind == FEW:
        x = x if least else torch.zeros_like(x)
        x[n - 2 - 2 * (draw.call % 2)] = 0 if least else 1
    return x


def _turns(rows: torch.Tensor, draw: Draw, kinds: int) -> torch.Tensor:
    """Which of so many kinds each row is of; others at each call."""
    count = rows.numel() // rows.shape[-1]
    return ((torch.arange(count) + (count == 1) + 3 * draw.call) % kinds).reshape(*rows.shape[:-1], 1)


def _rows(x: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Special values, not all in each of the rows that are reduced, where one would hide the others: all of them; no
    NaN; small ones; small ones and NaN, without zeros; nothing but one infinity; one among zeros.
    """
    which, rows = _turns(x, draw, 6), x.numel() // x.shape[-1]
    plain = draw.uniform(x.numel(), -4.0, 4.0).to(x.dtype).reshape(x.shape)
    small = (which == 2) | (which == 3)
    x = torch.where(((which == 1) | (which == 2)) & x.isnan(), plain, x)
    x = torch.where(small & (x.abs() > 1000), plain, x)
    x = torch.where((which == 3) & (x == 0), plain, x)
    x = torch.where((which == 3) & (torch.arange(x.shape[-1]) == int(draw.integers(1, 0, x.shape[-1]))), torch.nan, x)
    few = torch.tensor([torch.nan, -torch.inf, torch.finfo(x.dtype).smallest_normal, torch.nan], dtype=torch.float64)
    lone = few[draw.integers(rows, 0, len(few))].reshape(which.shape).to(x.dtype)
    place = torch.arange(x.shape[-1]) == draw.integers(rows, 0, x.shape[-1]).reshape(which.shape)
    x = torch.where(which == 5, torch.where(place, lone, torch.zeros_like(x)), x)
    return torch.where(which == 4, torch.inf if draw.call % 2 == 0 else -torch.inf, x)


def _true_rows(x: torch.Tensor, single: tuple[int, int], draw: Draw) -> torch.Tensor:
    """Rows in which all are true, none, one, all but one, some; a ``single`` row is one of two kinds in turn."""
    which, n = _turns(x, draw, 5), x.shape[-1]
    which = which if len(which) > 1 else torch.full_like(which, single[draw.call % 2])
    one = torch.arange(n) == int(draw.integers(1, 0, n))
    x = torch.where(which == _EVERY, True, torch.where(which == _NO, False, x))
    return torch.where(which == _LONE, one, torch.where(which == _BUT_ONE, ~one, x))


def _powers(dtype: torch.dtype, n: int, over: int, draw: Draw) -> torch.Tensor:
    """1 and -1, and so few twos that no product of ``over`` leaves the powers of two that fit."""
    signs = draw.integers(n, 0, 2) * 2 - 1
    twos = draw.uniform(n) < min(1.0, 0.5 * (EXACT_BITS[dtype] - 2) / max(4 * over, 1))
    return torch.where(twos, 2 * signs, signs).to(dtype)


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
    found = [dict(zip(domain.factors, wish, strict=True)) for wish in wishes if all(wish)]
    return tuple(levels for levels in found if domain.allows(levels))
