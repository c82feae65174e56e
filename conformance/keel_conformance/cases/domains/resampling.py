"""Resampling: larger and smaller, odd sizes, one element, scales given or not, corners aligned or not; grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import MEMBERS, About, Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import FLOATS, CallTemplate, TensorArg, domain, usual, when

RESIZED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "7to10": ((7,), (10,)),
    "5to3": ((5,), (3,)),
    "1to4": ((1,), (4,)),
    "9to9": ((9,), (9,)),
    "33to65": ((33,), (65,)),
    "4x5to8x10": ((4, 5), (8, 10)),
    "7x9to5x4": ((7, 9), (5, 4)),
    "3x3to7x1": ((3, 3), (7, 1)),
    "8x8to3x5": ((8, 8), (3, 5)),
    "1x1to3x2": ((1, 1), (3, 2)),
    "17x5to6x33": ((17, 5), (6, 33)),
    "6x7to6x11": ((6, 7), (6, 11)),
    "2x3x4to4x5x6": ((2, 3, 4), (4, 5, 6)),
    "5x4x3to2x3x1": ((5, 4, 3), (2, 3, 1)),
    "1x2x3to2x2x7": ((1, 2, 3), (2, 2, 7)),
    "3x5x7to5x8x4": ((3, 5, 7), (5, 8, 4)),
    "129x257to65x300": ((129, 257), (65, 300)),
}
MANY = "129x257to65x300"
BATCH = shapes("2x3", "1x1", "1x17")
SCALES = ("none", "ratio", "other")
"""No scales, those that sizes have, and ones near them, as a caller that rounds gives them."""


def _scales(levels: Levels, size: tuple[int, ...], outs: tuple[int, ...]) -> list[float | None]:
    match levels["scales"]:
        case "ratio":
            return [o / n for n, o in zip(size, outs, strict=True)]
        case "other":
            return [(o + 0.5) / n for n, o in zip(size, outs, strict=True)]
    return [None] * len(size)


def _undecided(levels: Levels, size: tuple[int, ...], outs: tuple[int, ...], half: bool) -> bool:
    """Whether a place falls where one element gives way to the next, and a ratio that has to be rounded decides."""
    for n, o, scale in zip(size, outs, _scales(levels, size, outs), strict=True):
        ratio = 1 / scale if scale else n / o
        places = [(k + half / 2) * ratio for k in range(o)]
        if (ratio * 16) % 1 and any(p > 0.5 and abs(p - round(p)) < 1e-4 for p in places):
            return True
    return False


def _resized(names: Mapping[int, str], back: bool, aligned: bool) -> Callable[[Levels], CallTemplate | None]:
    jumps, filters, half = not aligned, "_aa" in names.get(2, ""), "exact" in names.get(2, "")

    def ask(levels: Levels) -> CallTemplate | None:
        size, outs = RESIZED[levels["size"]]
        if len(size) not in names or (jumps and _undecided(levels, size, outs, half)):
            return None
        if filters and outs[-1] == 1:  # of which eager PyTorch has the rows wrong
            return None
        if size == outs and (levels["scales"], levels["batch"]) != ("none", "1x1"):
            return None  # it is the argument: a case of each dtype will do
        if prod(size) == 1 and levels["batch"] == "1x1":  # as it is, again and again, of one element
            return None
        batch = BATCH[levels["batch"]]
        if levels["scales"] == "other" and (
            levels.get("corners") == "aligned" or any(o in (n, 2 * n) for n, o in zip(size, outs, strict=True))
        ):
            return None  # eager PyTorch takes such sizes for what they look like
        more = ([levels["corners"] == "aligned"] if aligned else []) + _scales(levels, size, outs)
        name = f"aten.{names[len(size)]}{'_backward' if back else ''}.default"
        if back:
            return CallTemplate(name, (TensorArg((*batch, *outs)), list(outs), [*batch, *size], *more))
        return CallTemplate(name, (TensorArg((*batch, *size)), list(outs), *more))

    return ask


def _grid(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    """Places inside and outside, none of them where one element gives way to the next."""
    return draw.uniform(prod(shape), -1.6, 1.6).to(dtype)


PLANES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "4x5": ((2, 3, 4, 5), (2, 3, 7, 2)),
    "1x1": ((1, 1, 1, 1), (1, 2, 2, 2)),
    "7x3": ((1, 2, 7, 3), (1, 5, 4, 2)),
    "9x17": ((3, 1, 9, 17), (3, 1, 33, 2)),
    "3x4x5": ((2, 2, 3, 4, 5), (2, 2, 3, 4, 3)),
    "1x2x3": ((1, 1, 1, 2, 3), (1, 3, 2, 2, 3)),
}
MODES = {"linear": 0, "nearest": 1, "cubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


def _sampled(back: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        x, grid = PLANES[levels["plane"]]
        rank = len(x) - 2
        if rank == 3 and levels["mode"] == "cubic":
            return None
        settings: tuple[Any, ...] = (MODES[levels["mode"]], PADDINGS[levels["padding"]], levels["corners"] == "aligned")
        places = TensorArg(grid, draw=_grid, lies="dense")
        if not back:
            return CallTemplate(f"aten.grid_sampler_{rank}d.default", (TensorArg(x), places, *settings))
        out = (*x[:2], *grid[1:-1])
        return CallTemplate(
            f"aten.grid_sampler_{rank}d_backward.default",
            (TensorArg(out, -2, 2), TensorArg(x), places, *settings, [levels["mask"] == "both", True]),
        )

    return ask


def _affine(levels: Levels) -> CallTemplate:
    size = tuple(map(int, levels["size"].split("x")))
    rank = len(size) - 2
    return CallTemplate(
        "aten.affine_grid_generator.default",
        (TensorArg((size[0], rank, rank + 1)), list(size), levels["corners"] == "aligned"),
    )


def _shuffled(overload: str, shapes: Mapping[str, tuple[tuple[int, ...], int]]) -> Callable[[Op], Domain]:
    def ask(levels: Levels) -> CallTemplate:
        shape, by = shapes[levels["size"]]
        return CallTemplate(f"aten.{overload}.default", (TensorArg(shape), by))

    return lambda op: domain(op, {"size": tuple(shapes)}, ask, dtypes=_EXACT, kinds=("random", "specials"))


_EXACT = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.complex64)
_KINDS = ("random", "exact", "duplicates", "cancel")


def _build_resized(op: Op) -> Domain:
    back = op.name.endswith("_backward")
    packets = [str(t).split(".")[1].removesuffix("_backward") for t in op.targets if str(t).endswith(".default")]
    names = {k: name for name in packets for k in (1, 2, 3) if f"{k}d" in name}
    aligned = "nearest" not in op.name
    nearest, aa = "nearest" in op.name, op.name.endswith(("_aa", "_aa_backward"))
    sizes = tuple(s for s in usual(RESIZED, MANY) if len(RESIZED[s][0]) in names)
    factors = {
        "size": sizes,
        "batch": tuple(BATCH),
        "scales": SCALES,
        **({"corners": ("not", "aligned")} if aligned else {}),
    }
    more = () if back or "lanczos" in op.name else (torch.uint8,)
    dtypes = FLOATS[:2] if aa else FLOATS
    kinds = (*_KINDS, "specials") if nearest and not back else (*_KINDS, "wide") if more and nearest else _KINDS
    why = "Eager PyTorch has no such kernel, or is off by more."
    untested = (
        {}
        if nearest
        else {
            f"C{i}": why
            for i, c in enumerate(op.clauses, 1)
            if c.about & (About.UINT8 | About.HALF if aa else About.UINT8)
        }
    )
    return domain(
        op,
        factors,
        _resized(names, back, aligned),
        dtypes=(*dtypes, *(more if nearest else ())),
        kinds=kinds,
        untested=untested,
        covers={"C1": lambda levels: True},
        many={"size": MANY, "batch": "2x3", "scales": "none"} if 2 in names else None,
        priority=(
            {"dtype": "f32", "size": "7x9to5x4", "scales": "none", "corners": "not", "values": "random"},
            {
                "dtype": "f32",
                "size": "17x5to6x33",
                "scales": "other",
                "corners": "not",
                "values": "exact",
                "layout": "channels_last",
            },
            {"dtype": "f32", "size": "4x5to8x10", "scales": "none", "corners": "aligned", "values": "random"},
            {"dtype": "f32", "size": "3x3to7x1", "scales": "none", "corners": "aligned", "values": "random"},
        ),
    )


_FACTORS = {"plane": tuple(PLANES), "mode": tuple(MODES), "padding": tuple(PADDINGS), "corners": ("not", "aligned")}
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
for _name in MEMBERS:
    if _name.startswith("upsample_"):
        declare(_name, _build_resized)
# of a tensor without elements eager PyTorch's pixel_unshuffle gives the sizes it was given
declare(
    "pixel_shuffle",
    _shuffled(
        "pixel_shuffle",
        {
            "8by2": ((2, 8, 3, 5), 2),
            "9by3": ((1, 9, 4, 2), 3),
            "4by2": ((4, 7, 1), 2),
            "by1": ((2, 3, 5, 4), 1),
            "64by4": ((1, 64, 3, 3), 4),
            "none": ((0, 4, 3, 3), 2),
        },
    ),
)
declare(
    "pixel_unshuffle",
    _shuffled(
        "pixel_unshuffle",
        {
            "by2": ((2, 3, 8, 10), 2),
            "by3": ((1, 1, 9, 6), 3),
            "rank3": ((3, 4, 6), 2),
            "by1": ((2, 3, 5, 4), 1),
            "by4": ((1, 2, 8, 12), 4),
        },
    ),
)
declare(
    "channel_shuffle",
    _shuffled(
        "channel_shuffle",
        {
            "6by3": ((2, 6, 4, 5), 3),
            "6by2": ((1, 6, 3, 3), 2),
            "8by4": ((3, 8, 7), 4),
            "by1": ((2, 5, 4, 3), 1),
            "whole": ((2, 5, 3, 2), 5),
            "17x2": ((1, 34, 3, 2), 17),
        },
    ),
)
declare(
    "grid_sampler",
    lambda op: domain(
        op,
        _FACTORS,
        _sampled(False),
        dtypes=FLOATS[:2],
        kinds=_KINDS,
        covers={"C2": lambda levels: True},
        untested={
            "C4": "What is not specified has no witness.",
            "C5": "Eager PyTorch has no such kernel on a processor.",
        },
    ),
)
declare(
    "grid_sampler_backward",
    lambda op: domain(
        op,
        {**_FACTORS, "mask": ("both", "grid")},
        _sampled(True),
        dtypes=FLOATS[:2],
        kinds=("random", "exact"),
        covers={"C3": when(mask="grid")},
    ),
)
declare(
    "affine_grid_generator",
    lambda op: domain(
        op,
        {"size": ("2x3x4x5", "1x1x1x1", "3x2x7x9", "1x2x3x4x5", "2x1x2x1x3"), "corners": ("not", "aligned")},
        _affine,
        dtypes=FLOATS[:2],
        kinds=_KINDS,
    ),
)
