"""Matrix products: the size summed over around vectors and tiles, nothing to sum, operands ignored, scales, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, InvalidCall, Levels
from ..values import SeededValues, fill
from .call_templates import FLOATS, NAN, CallTemplate, TensorArg, domain, invalid_call, when

FINITE_AND_NOT = ("random", "nonfinite", "cancel", "duplicates", "exact")
LAID = ("contiguous", "transposed")
KS = ("64", "1", "7", "8", "9", "17", "0", "63", "65", "127", "128", "129", "1000", "4096")
SIZES = ("3x5", "1x1", "17x17", "17x9", "33x31", "65x7", "1x129", "128x1", "0x4", "8x16")
KINDS = ("random", "nonfinite", "cancel", "duplicates", "exact", "tiny")
ALL = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.complex64,
    torch.complex128,
)
SCALES: Mapping[str, tuple[float, float]] = {
    "plain": (1, 1),
    "ignored": (0, 1),
    "nan_ignored": (0, 1),
    "half": (0.5, 2),
    "minus": (2, -1),
    "thrice": (3, 1),
}
"""beta and alpha."""
BESIDES = ("full", "row", "rows", "column", "scalar")
NOTHING = when(k="0")
MANY, MANY_ROWS = {"k": "4096", "size": "17x2"}, {"rows": "17", "k": "4096"}
"""Sizes of calls with more than 65,536 elements."""


def _sizes(levels: Levels) -> tuple[int, int, int] | None:
    """m, k, n; not more than a few rows where k is large."""
    m, n = map(int, levels["size"].split("x"))
    k = int(levels["k"])
    return None if k >= 1000 and m * n > 40 else (m, k, n)


def _batched(levels: Levels) -> tuple[int, int, int, int] | None:
    """The number of matrices, m, k, n; a few matrices where these are large."""
    sizes, b = _sizes(levels), int(levels["batch"])
    if sizes is None or (b > 3 and (sizes[1] >= 1000 or sizes[0] * sizes[2] > 200)):
        return None
    return b, *sizes


def _scales(levels: Levels) -> dict[str, Any]:
    """beta and alpha, whole numbers where they are, as integers ask for."""
    return dict(zip(("beta", "alpha"), SCALES[levels["scale"]], strict=True))


def _added(shape: tuple[int, ...], levels: Levels) -> TensorArg:
    """What is added: of the result's sizes, or broadcast; NaN where it is ignored."""
    sizes = {"full": shape, "row": shape[-1:], "rows": (1, *shape[1:]), "column": (*shape[:-1], 1), "scalar": ()}
    return TensorArg(sizes[levels["beside"]], kind=NAN if levels["scale"] == "nan_ignored" else "")


def _mm(levels: Levels) -> CallTemplate | None:
    if (sizes := _sizes(levels)) is None:
        return None
    m, k, n = sizes
    return CallTemplate("aten.mm.default", (TensorArg((m, k), products=k), TensorArg((k, n), products=k)), exact=True)


def _bmm(levels: Levels) -> CallTemplate | None:
    if (sizes := _batched(levels)) is None:
        return None
    b, m, k, n = sizes
    return CallTemplate(
        "aten.bmm.default", (TensorArg((b, m, k), products=k), TensorArg((b, k, n), products=k)), exact=True
    )


def _addmm(name: str) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        if (sizes := _sizes(levels)) is None:
            return None
        m, k, n = sizes
        more = {"use_gelu": levels["gelu"] == "gelu"} if "gelu" in levels else {}
        return CallTemplate(
            name,
            (_added((m, n), levels), TensorArg((m, k), products=k), TensorArg((k, n), products=k)),
            {**_scales(levels), **more},
        )

    return ask


def _baddbmm(levels: Levels) -> CallTemplate | None:
    if (sizes := _batched(levels)) is None:
        return None
    b, m, k, n = sizes
    return CallTemplate(
        "aten.baddbmm.default",
        (_added((b, m, n), levels), TensorArg((b, m, k), products=k), TensorArg((b, k, n), products=k)),
        _scales(levels),
    )


def _addbmm(levels: Levels) -> CallTemplate | None:
    if (sizes := _batched(levels)) is None:
        return None
    b, m, k, n = sizes
    return CallTemplate(
        "aten.addbmm.default",
        (_added((m, n), levels), TensorArg((b, m, k), products=b * k), TensorArg((b, k, n), products=b * k)),
        _scales(levels),
    )


def _vector(name: str, added: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        m, k = int(levels["rows"]), int(levels["k"])
        product = (TensorArg((m, k), products=k), TensorArg((k,), products=k))
        if not added:
            return CallTemplate(name, product, exact=True)
        return CallTemplate(
            name, (TensorArg((m,), kind=NAN if levels["scale"] == "nan_ignored" else ""), *product), _scales(levels)
        )

    return ask


def _dot(name: str) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        k = int(levels["k"])
        return CallTemplate(name, (TensorArg((k,), products=k), TensorArg((k,), products=k)), exact=True)

    return ask


def _addr(levels: Levels) -> CallTemplate:
    m, n = map(int, levels["size"].split("x"))
    return CallTemplate(
        "aten.addr.default", (_added((m, n), levels), TensorArg((m,)), TensorArg((n,))), _scales(levels)
    )


_EXPANDED: Mapping[
    str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[int], list[int], list[int], list[int]]
] = {
    "bilinear": ((3, 7), (5, 7, 9), (3, 9), [1, 3], [0], [1, 2], [2, 3]),
    "outer": ((4,), (5,), (6,), [1, 2], [0, 2], [0, 1], []),
    "all": ((2, 17), (2, 17), (2, 17), [], [], [], [0, 1]),
    "one": ((1, 1), (1, 1), (1, 1), [], [], [], [1]),
    "middle": ((3, 33, 2), (33, 2), (3, 33), [], [0], [2], [1]),
    "long": ((2, 129), (129,), (2, 129), [], [0], [], [1]),
    "none": ((2, 0), (2, 0), (2, 0), [], [], [], [1]),
}


def _trilinear(levels: Levels) -> CallTemplate:
    a, b, c, *lists = _EXPANDED[levels["form"]]
    return CallTemplate(
        "aten._trilinear.default", (TensorArg(a, -2, 2), TensorArg(b, -2, 2), TensorArg(c, -2, 2), *lists)
    )


def _int_mm(levels: Levels) -> CallTemplate | None:
    if (sizes := _sizes(levels)) is None:
        return None
    m, k, n = sizes
    return CallTemplate(
        "aten._int_mm.default", (TensorArg((m, k), -128, 127), TensorArg((k, n), -128, 127)), exact=True
    )


def _bytes(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    """Signed bytes for weights."""
    return draw.integers(int(torch.Size(shape).numel()), -128, 128).to(torch.int8)


def _weight_int8(levels: Levels) -> CallTemplate | None:
    if (sizes := _sizes(levels)) is None or 0 in sizes:
        return None
    m, k, n = sizes
    return CallTemplate(
        "aten._weight_int8pack_mm.default",
        (
            TensorArg((m, k), -1, 1, lies="none"),
            TensorArg((n, k), dtype=torch.int8, draw=_bytes, lies="none"),
            TensorArg((n,), 0.01, 0.2, kind="random", lies="none"),
        ),
    )


def _column_major(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    n = int(torch.Size(shape).numel())
    return fill(draw, "random", torch.float32, n, low=-2.0, high=2.0).to(dtype).reshape(shape[::-1]).t()


def _eighths(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    n = int(torch.Size(shape).numel())
    return fill(draw, "random", torch.float32, n, low=-2.0, high=2.0).to(dtype)


def _scaled_mm(levels: Levels) -> CallTemplate | None:
    m, n = map(int, levels["size"].split("x"))
    k = int(levels["k"])
    if k % 16 or n % 16 or k > 1000 or not k or not m:
        return None
    rows = levels["scaled"] == "rows"
    scales = ((m, 1), (1, n)) if rows else ((), ())
    out = {"bf16": torch.bfloat16, "f32": torch.float32}[levels["out"]]
    bias = TensorArg((n,), dtype=out, kind="random", lies="none") if levels["bias"] == "bias" else None
    return CallTemplate(
        "aten._scaled_mm.default",
        (
            TensorArg((m, k), draw=_eighths, lies="none"),
            TensorArg((k, n), draw=_column_major, lies="none"),
            *(TensorArg(s, 0.25, 2.0, torch.float32, "random", lies="none") for s in scales),
            bias,
            None,
            out,
        ),
    )


_OFFSETS: Mapping[str, tuple[int, ...]] = {
    "even": (8, 16, 24),
    "empty_group": (8, 8, 24),
    "first_empty": (0, 16, 24),
    "one": (8, 16, 32),
    "uneven": (16, 24, 40),
}


def _grouped(levels: Levels) -> CallTemplate:
    ends, k, n = _OFFSETS[levels["ends"]], int(levels["k"]), int(levels["n"])
    groups, total = len(ends), ends[-1]

    def offs(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        return torch.tensor(ends, dtype=torch.int32)

    listed = TensorArg((groups,), dtype=torch.int32, draw=offs, lies="none")
    shapes = {
        "rows": ((total, k), (groups, k, n)),
        "columns": ((groups, n, k), (k, total)),
        "summed": ((n, total), (total, k)),
        "batch": ((groups, n, k), (groups, k, n)),
    }[levels["grouped"]]
    return CallTemplate(
        "aten._grouped_mm.default",
        (
            *(TensorArg(s, products=total + k, lies="none") for s in shapes),
            None if levels["grouped"] == "batch" else listed,
        ),
        exact=True,
    )


# -- their domains ----------------------------------------------------------------------------------------------------


def _shapes(overload: str, batch: bool = False) -> tuple[InvalidCall, ...]:
    """Ranks, sizes and dtypes that do not go together."""
    b = (2,) if batch else ()
    rank = 2 + len(b)
    pairs = {
        f"self has {rank} dimensions.": ((4,), (*b, 4, 5)),
        f"mat2 has {rank} dimensions.": ((*b, 3, 4), (4,)),
        "The last size of self is the last but one of mat2.": ((*b, 3, 4), (*b, 5, 6)),
    }
    results = [
        invalid_call(f"n{i}", sentence, CallTemplate(overload, (TensorArg(x), TensorArg(y))))
        for i, (sentence, (x, y)) in enumerate(pairs.items())
    ]
    mixed = CallTemplate(overload, (TensorArg((*b, 3, 4)), TensorArg((*b, 4, 5), dtype=torch.float64)))
    return (*results, invalid_call("dtypes", "self and mat2 have the same dtype.", mixed))


def _telling(*more: Levels) -> tuple[Levels, ...]:
    return (
        {
            "dtype": "f32",
            "k": "129",
            "size": "17x9",
            "values": "random",
            "layout": "transposed",
            "which": "rest",
            "scale": "minus",
        },
        {"dtype": "bf16", "k": "1000", "size": "3x5", "values": "random", "scale": "half"},
        {"dtype": "f32", "k": "9", "size": "3x5", "values": "nonfinite", "scale": "nan_ignored"},
        *more,
    )


_K = {"k": KS}
_MN = {**_K, "size": SIZES}
_ADDED = {**_MN, "scale": tuple(SCALES), "beside": BESIDES}
_SUMMED = {"C1": lambda levels: True, "C3": when(values="nonfinite"), "C5": NOTHING}
_ROUNDED = {"C1": when(dtype=("f16", "bf16")), "C3": NOTHING}
_WHOLE_SCALES = {"C2": "Eager PyTorch raises if the scale of an integer product is not an integer."}


def _mv_like(op: Op, ask: Callable[[Levels], CallTemplate | None], factors: Mapping[str, tuple[str, ...]]) -> Domain:
    return domain(
        op,
        factors,
        ask,
        dtypes=ALL,
        kinds=KINDS,
        covers={**_ROUNDED, "C2": when(dtype=("i64", "i32", "i16", "i8", "u8"))},
        priority=_telling(),
        many=MANY_ROWS if "rows" in factors else None,
    )


def _build_added(
    op: Op,
    ask: Callable[[Levels], CallTemplate | None],
    factors: Mapping[str, tuple[str, ...]],
    untested: Mapping[str, str] = MappingProxyType({}),
) -> Domain:
    floats = FLOATS if "gelu" in factors else tuple(d for d in ALL if d.is_floating_point or d.is_complex)
    made = domain(
        op,
        factors,
        ask,
        dtypes=floats,
        kinds=KINDS,
        priority=_telling(),
        many=MANY if "size" in factors else MANY_ROWS,
        covers={"C1": lambda levels: True, "C3": when(dtype=("f16", "bf16")), "C4": NOTHING},
        untested=untested,
    )
    square = [
        {
            **{f: levels[0] for f, levels in made.factors.items()},
            "dtype": dtype,
            "k": k,
            "size": "17x17",
            "beside": "row",
            "scale": scale,
            "values": "random",
        }
        for dtype, k, scale in (("f32", "9", "plain"), ("f32", "64", "half"), ("bf16", "9", "minus"))
        if "size" in factors
    ]
    return replace(made, required=tuple(levels for levels in square if made.allows(levels)))


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "mm",
    lambda op: domain(
        op,
        _MN,
        _mm,
        dtypes=ALL,
        kinds=(*KINDS, "wide"),
        covers=_SUMMED,
        priority=_telling({"dtype": "i32", "k": "65", "size": "33x31", "values": "wide"}),
        many=MANY,
        invalid_calls=_shapes("aten.mm.default"),
    ),
)
declare(
    "bmm",
    lambda op: domain(
        op,
        {"k": KS, "size": SIZES[:7], "batch": ("3", "1", "2", "0", "17")},
        _bmm,
        dtypes=ALL,
        kinds=(*KINDS, "wide"),
        covers=_SUMMED,
        priority=_telling(),
        many=MANY,
        invalid_calls=_shapes("aten.bmm.default", True),
    ),
)
declare("addmm", lambda op: _build_added(op, _addmm("aten.addmm.default"), _ADDED, _WHOLE_SCALES))
declare(
    "addmm_activation",
    lambda op: _build_added(
        op,
        _addmm("aten._addmm_activation.default"),
        {**_ADDED, "k": ("64", "1", "9", "129"), "size": SIZES[:6], "beside": BESIDES[:2], "gelu": ("relu", "gelu")},
        _WHOLE_SCALES,
    ),
)
declare(
    "baddbmm",
    lambda op: _build_added(
        op,
        _baddbmm,
        {"k": KS[:12], "size": SIZES[:7], "scale": tuple(SCALES), "beside": BESIDES, "batch": ("3", "1", "2")},
        _WHOLE_SCALES,
    ),
)
declare(
    "addbmm",
    lambda op: _build_added(
        op,
        _addbmm,
        {"k": KS[:12], "size": SIZES[:7], "scale": tuple(SCALES), "beside": BESIDES[:2], "batch": ("3", "1", "0")},
    ),
)
declare("mv", lambda op: _mv_like(op, _vector("aten.mv.default", False), {"rows": ("5", "1", "33", "0", "8"), **_K}))
declare(
    "addmv",
    lambda op: _build_added(
        op,
        _vector("aten.addmv.default", True),
        {"rows": ("5", "1", "33", "0", "8"), **_K, "scale": tuple(SCALES), "beside": ("full",)},
        {"C3": "Integers are tried by mv."},
    ),
)
declare("dot", lambda op: _mv_like(op, _dot("aten.dot.default"), {"k": (*KS, "70001")}))
declare("vdot", lambda op: _mv_like(op, _dot("aten.vdot.default"), {"k": (*KS, "70001")}))
declare(
    "addr",
    lambda op: domain(
        op,
        {"size": SIZES, "scale": tuple(SCALES), "beside": BESIDES[:3]},
        _addr,
        kinds=KINDS,
        covers={"C1": lambda levels: True},
        untested={"C2": "Bools have no scales to try; the samples have them."},
    ),
)
declare("trilinear", lambda op: domain(op, {"form": tuple(_EXPANDED)}, _trilinear, kinds=FINITE_AND_NOT))
declare(
    "int_mm",
    lambda op: domain(
        op,
        {"k": KS, "size": SIZES},
        _int_mm,
        dtypes=(torch.int8,),
        kinds=("random", "specials", "wide", "duplicates"),
        lay=LAID,
        covers={"C2": NOTHING},
        invalid_calls=_shapes("aten._int_mm.default")[:3],
    ),
)
declare(
    "weight_int8_mm",
    lambda op: domain(
        op,
        {"k": ("64", "32", "128", "1024"), "size": ("3x16", "1x32", "17x16", "8x64")},
        _weight_int8,
        dtypes=(*FLOATS[:1], *FLOATS[2:]),
        kinds=("random", "exact", "cancel"),
    ),
)
declare(
    "scaled_mm",
    lambda op: domain(
        op,
        {
            "k": ("64", "16", "128", "256"),
            "size": ("3x16", "1x32", "17x16", "16x64"),
            "scaled": ("one", "rows"),
            "out": ("bf16", "f32"),
            "bias": ("bias", "none"),
        },
        _scaled_mm,
        kinds=("own",),
        untested={"C3": "Eager PyTorch on a processor gives no float8.", "C4": "It allows, and asks for nothing."},
    ),
)
declare(
    "grouped_mm",
    lambda op: domain(
        op,
        {
            "grouped": ("rows", "columns", "summed", "batch"),
            "ends": tuple(_OFFSETS),
            "k": ("16", "64", "8"),
            "n": ("16", "8", "32"),
        },
        _grouped,
        dtypes=(torch.bfloat16,),
        kinds=("random", "exact", "cancel"),
        covers={"C2": when(ends=("empty_group", "first_empty"))},
        untested={"C3": "What is unspecified has no witness."},
    ),
)
