"""Operators along dimensions: reductions, scans, sorting, selection, softmax. Dimensions are named from both ends,
several, all or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain
from .along_dimension import Along, Arguments, domain_of
from .row_values import BUT_ONE, EVERY, FEW, LONE, NO, RISING


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
    """Two dimensions where there are two, and two that are not adjacent where there are more."""

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
    """Norms of each power: along a dimension from either end, along two, and over all."""
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
        added=(("f32", "large", "2", "random"),),
        **more,
    )


def _indexed(overload: str, **more: Any) -> Along:
    return Along({"one": _dim(overload), "end": _end(overload), "keep": _dim(overload, True)}, empty=False, **more)


def _scan(overload: str, **more: Any) -> Along:
    return Along({"one": _dim(overload), "end": _end(overload), **more.pop("forms", {})}, many=2, **more)


def _bytes(form: str = "one") -> tuple[tuple[str, str, str, str], ...]:
    """Bytes of all values, whose order is another one if they count as signed."""
    return (("u8", form, "65", "wide"),)


def _rising(form: str = "one") -> tuple[tuple[str, str, str, str], ...]:
    """Rows of several blocks, the greatest elements last."""
    return (("f32", form, "4097", RISING),)


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
declare("amax", _several("amax.default", "amax.default", empty=False, added=_bytes()))
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
        truth=(LONE, NO),
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
        truth=(BUT_ONE, EVERY),
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
declare("max_with_index", _indexed("max.dim", huge=(("u8", "one", FEW),), added=_bytes()))
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
declare("cummax", _scan("cummax.default", added=_bytes()))
declare("cummin", _scan("cummin.default"))
declare("logcumsumexp", _scan("logcumsumexp.default", added=_rising()))
declare("logsumexp", _several("logsumexp.default", dtypes=_FLOATS, added=_rising()))
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
        added=_bytes(),
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
            "forty": _of_size(_TOPK, lambda n: min(n, 40)),
        },
        empty=False,
        many=2,
        added=(*_bytes("half"), *_rising("forty")),
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
declare("median", _indexed("median.dim", dtypes=_REALS, no_overlap=True, added=_bytes()))
declare("nanmedian", _indexed("nanmedian.dim", dtypes=_REALS, no_overlap=True))
declare("mode", _indexed("mode.default", dtypes=(*_REALS, torch.bool), many=2))
declare("median_all", Along({"all": _none("median.default")}, _NONE, empty=False, dtypes=_REALS))
declare("nanmedian_all", Along({"all": _none("nanmedian.default")}, _NONE, empty=False, dtypes=_REALS))
declare("softmax", _scan("_softmax.default", dtypes=_FLOATS, forms={}, added=_rising()))
declare("log_softmax", _scan("_log_softmax.default", dtypes=_FLOATS, added=_rising()))
declare("safe_softmax", _scan("_safe_softmax.default", dtypes=_FLOATS, added=_rising()))


def build(op: Op) -> Domain | None:
    along = ALONG.declared.get(op.name)
    if along is None:
        return None
    here = {str(t) for t in op.targets}
    forms = {name: form for name, form in along.forms.items() if form[0] in here}
    return domain_of(op, replace(along, forms=forms))
