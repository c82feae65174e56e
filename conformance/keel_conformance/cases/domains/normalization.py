"""Normalization: large means, tiny variances, constant rows, few elements, with weights or none, backward members."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import CallTemplate, DerivedArg, TensorArg, domain, usual, when

aten = torch.ops.aten
ROWS: Mapping[str, tuple[tuple[int, ...], int]] = {
    "3x33": ((3, 33), 1),
    "2x1": ((2, 1), 1),
    "5x8": ((5, 8), 1),
    "2x129": ((2, 129), 1),
    "2x3x4x5": ((2, 3, 4, 5), 2),
    "1025": ((1025,), 1),
    "7x1x65": ((7, 1, 65), 2),
    "0x9": ((0, 9), 1),
    "17x16": ((17, 16), 1),
    "1x1000": ((1, 1000), 1),
    "520x129": ((520, 129), 1),
}
"""Sizes, and how many of the last are normalized over."""
IMAGES = shapes("2x6x4x5", "3x4", "2x8x9", "1x6x1x1", "2x2x3x2x3", "4x12x17", "5x1x33", "2x32x2x2", "2x6x97x71")
MANY_ROWS, MANY_IMAGES = "520x129", "2x6x97x71"
DATA = ("plain", "large_mean", "tiny", "constant", "nonfinite", "large", "exact")
"""What the elements are like; with a large mean, sums of squares alone lose the variance."""
AFFINE = ("both", "neither", "weight", "bias")
EPS: Mapping[str, float] = {"1e-5": 1e-5, "1e-3": 1e-3, "0": 0.0, "1": 1.0}


def _elements(data: str) -> Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]:
    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n, mean = prod(shape), 100.0 if dtype.itemsize == 2 else 1000.0
        x = draw.uniform(n, -2.0, 2.0)
        match data:
            case "large_mean":
                x = x + mean
            case "tiny":
                x = x * 1e-4
            case "constant":
                x = torch.full((n,), 3.0, dtype=torch.float64)
            case "large":
                x = x * mean
            case "exact":
                x = x.round()
            case "nonfinite":
                few = torch.tensor([float("nan"), float("inf"), float("-inf")], dtype=torch.float64)
                x = torch.where(draw.integers(n, 0, 24) == 0, few[draw.integers(n, 0, 3)], x)
        return x.to(dtype)

    return drawn


def _x(shape: tuple[int, ...], levels: Levels, lies: str = "dense") -> TensorArg:
    return TensorArg(shape, draw=_elements(levels["data"]), lies=lies)


def _divides(levels: Levels) -> bool:
    """Whether a variance is not 0 where eps is."""
    return levels["eps"] != "0" or (levels["data"] in ("plain", "large") and levels["size"] not in ("2x1", "1x6x1x1"))


def _pair(shape: tuple[int, ...], levels: Levels) -> tuple[TensorArg | None, TensorArg | None]:
    """Weight and bias."""
    which = levels["affine"]
    weight = TensorArg(shape, 0.5, 2.0, kind="random", lies="none") if which in ("both", "weight") else None
    return weight, TensorArg(shape, -1.0, 1.0, kind="random", lies="none") if which in ("both", "bias") else None


def _layer(levels: Levels) -> CallTemplate | None:
    shape, rank = ROWS[levels["size"]]
    if not _divides(levels):
        return None
    last = shape[-rank:]
    return CallTemplate(
        "aten.native_layer_norm.default", (_x(shape, levels), list(last), *_pair(last, levels), EPS[levels["eps"]])
    )


def _rms(levels: Levels) -> CallTemplate | None:
    shape, rank = ROWS[levels["size"]]
    if 0 in shape:
        return None
    last = shape[-rank:]
    eps = None if levels["eps"] == "none" else EPS[levels["eps"]]
    return CallTemplate("aten._fused_rms_norm.default", (_x(shape, levels), list(last), _pair(last, levels)[0], eps))


MASKS: Mapping[str, list[bool]] = {
    "all": [True, True, True],
    "input": [True, False, False],
    "others": [False, True, True],
    "no_bias": [True, True, False],
}


def _statistics(of: Callable[[torch.Tensor], Sequence[torch.Tensor]], which: int) -> DerivedArg:
    return DerivedArg(lambda drawn, dtype: of(drawn[1])[which])


def _layer_back(levels: Levels) -> CallTemplate | None:
    shape, rank = ROWS[levels["size"]]
    last, mask = list(shape[-rank:]), MASKS[levels["mask"]]
    if 0 in shape:
        return None

    def forward(x: torch.Tensor) -> Sequence[torch.Tensor]:
        return aten.native_layer_norm.default(x, last, None, None, 1e-5)  # type: ignore[no-any-return]

    weight, bias = _pair(tuple(last), levels)
    return CallTemplate(
        "aten.native_layer_norm_backward.default",
        (
            TensorArg(shape, -2, 2, kind="random", lies="dense"),
            _x(shape, levels),
            last,
            _statistics(forward, 1),
            _statistics(forward, 2),
            weight,
            bias,
            [mask[0], mask[1] and weight is not None, mask[2] and bias is not None],
        ),
    )


def _grouped(levels: Levels) -> tuple[tuple[int, ...], tuple[int, int, int, int]] | None:
    shape, groups = IMAGES[levels["size"]], int(levels["groups"])
    return None if shape[1] % groups else (shape, (shape[0], shape[1], prod(shape[2:]), groups))


def _group(levels: Levels) -> CallTemplate | None:
    if (grouped := _grouped(levels)) is None or not _divides(levels):
        return None
    shape, counts = grouped
    weight, bias = _pair(shape[1:2], levels)
    return CallTemplate(
        "aten.native_group_norm.default", (_x(shape, levels), weight, bias, *counts, EPS[levels["eps"]])
    )


def _group_back(levels: Levels) -> CallTemplate | None:
    if (grouped := _grouped(levels)) is None:
        return None
    shape, counts = grouped

    def forward(x: torch.Tensor) -> Sequence[torch.Tensor]:
        return aten.native_group_norm.default(x, None, None, *counts, 1e-5)  # type: ignore[no-any-return]

    weight, _ = _pair(shape[1:2], levels)
    mask = [enabled and (k == 0 or weight is not None) for k, enabled in enumerate(MASKS[levels["mask"]])]
    return CallTemplate(
        "aten.native_group_norm_backward.default",
        (
            TensorArg(shape, -2, 2, kind="random", lies="dense"),
            _x(shape, levels),
            _statistics(forward, 1),
            _statistics(forward, 2),
            weight,
            *counts,
            mask,
        ),
    )


# -- batch norm -------------------------------------------------------------------------------------------------------


def _running(shape: tuple[int, ...]) -> tuple[TensorArg, TensorArg]:
    return (
        TensorArg(shape, -1.0, 1.0, kind="random", lies="dense"),
        TensorArg(shape, 0.25, 4.0, kind="random", lies="dense"),
    )


MOMENTA: Mapping[str, float] = {"0.1": 0.1, "0": 0.0, "1": 1.0}


def _batch(overload: str, *, running: bool = True) -> Callable[[Levels], CallTemplate | None]:
    """Calls of an overload of batch norm, with ``running`` statistics or without; "training" is a level of those that
    may be called in either mode, and without statistics there is no other mode.
    """

    def ask(levels: Levels) -> CallTemplate | None:
        shape = IMAGES[levels["size"]]
        channels = shape[1:2]
        if shape[0] * prod(shape[2:]) < 2 or not _divides(levels):
            return None
        mode = (levels["training"] == "training",) if "training" in levels else () if running else (True,)
        statistics = _running(channels) if running else ()
        ends = (MOMENTA[levels["momentum"]], EPS[levels["eps"]])
        return CallTemplate(
            f"aten.{overload}", (_x(shape, levels), *_pair(channels, levels), *statistics, *mode, *ends)
        )

    return ask


def _batch_back(reserve: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        shape, training = IMAGES[levels["size"]], levels["training"] == "training"
        if shape[0] * prod(shape[2:]) < 2:
            return None

        def forward(x: torch.Tensor) -> Sequence[torch.Tensor]:
            return aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)  # type: ignore[no-any-return]

        channels = shape[1:2]
        weight = (
            TensorArg(channels, 0.5, 2.0, kind="random") if reserve or levels["affine"] in ("both", "weight") else None
        )
        common = (
            TensorArg(shape, -2, 2, kind="random", lies="dense"),
            _x(shape, levels),
            weight,
            *_running(channels),
            _statistics(forward, 1),
            _statistics(forward, 2),
            training,
            EPS[levels["eps"]],
            MASKS[levels["mask"]],
        )
        if reserve:
            empty = TensorArg((0,), dtype=torch.uint8, lies="none")
            return CallTemplate("aten.batch_norm_backward.default", (*common, empty))
        return CallTemplate("aten.native_batch_norm_backward.default", common)

    return ask


# -- their domains ----------------------------------------------------------------------------------------------------

_NAN = when(data="nonfinite")
_OF = {"data": DATA, "affine": AFFINE, "eps": tuple(EPS)}
_MASKED = {"data": DATA[:4], "affine": AFFINE, "mask": tuple(MASKS)}
_LAY = ("contiguous", "transposed", "offset", "gapped", "rows_apart", "channels_last", "odd_ones")


def _telling(size: str, *sizes: str) -> Sequence[Levels]:
    return (
        {"dtype": "f32", "size": size, "data": "large_mean", "affine": "both"},
        {"dtype": "f32", "size": sizes[0], "data": "constant", "affine": "weight", "layout": "transposed"},
        {"dtype": "f32", "size": sizes[-1], "data": "nonfinite", "affine": "neither", "training": "training"},
        {"dtype": "bf16", "size": size, "data": "plain", "affine": "both", "layout": "gapped"},
    )


def _rows(
    op: Op,
    ask: Callable[[Levels], CallTemplate | None],
    factors: Mapping[str, tuple[str, ...]],
    cites: Mapping[str, Callable[[Levels], bool]],
    **many: str,
) -> Domain:
    return domain(
        op,
        {"size": usual(ROWS, MANY_ROWS), **factors},
        ask,
        kinds=("own",),
        covers=cites,
        lay=_LAY,
        priority=_telling("3x33", "5x8", "2x129"),
        many={"size": MANY_ROWS, "data": "plain", **many},
    )


def _images(
    op: Op,
    ask: Callable[[Levels], CallTemplate | None],
    factors: Mapping[str, tuple[str, ...]],
    cites: Mapping[str, Callable[[Levels], bool]] | None = None,
    **more: Any,
) -> Domain:
    """Eager PyTorch's own group norm takes row-major tensors alone."""
    return domain(
        op,
        {"size": usual(IMAGES, MANY_IMAGES), **factors},
        ask,
        kinds=("own",),
        covers=cites,
        priority=_telling("2x6x4x5", "2x8x9", "4x12x17"),
        many={"size": MANY_IMAGES, "data": "plain"},
        **{"lay": _LAY, **more},
    )


_HALF = when(dtype=("f16", "bf16"))
_TRAINING = when(training="training")
_NEVER_TRAINS = "This member does not train."
_ONLY_TRAINS = "This member has no running statistics that stay."
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare("layer_norm", lambda op: _rows(op, _layer, _OF, {"C3": _NAN, "C4": _HALF}))
declare(
    "rms_norm",
    lambda op: _rows(
        op, _rms, {"data": DATA, "affine": AFFINE[1:3], "eps": (*EPS, "none")}, {"C2": when(eps="none"), "C3": _NAN}
    ),
)
declare("layer_norm_backward", lambda op: _rows(op, _layer_back, _MASKED, {}, dtype="f32"))
declare(
    "group_norm",
    lambda op: _images(
        op,
        _group,
        {**_OF, "groups": ("1", "2", "3", "6", "4")},
        {"C2": _HALF, "C3": _NAN},
        lay=("contiguous", "channels_last"),
        added=(
            {"dtype": "f32", "size": "2x6x4x5", "data": "plain", "affine": "both", "groups": "2"}
            | {"layout": "channels_last"},
        ),
    ),
)
declare(
    "group_norm_backward",
    lambda op: _images(op, _group_back, {**_MASKED, "groups": ("1", "2", "3", "4")}, lay=("contiguous",)),
)
declare(
    "batch_norm_functional",
    lambda op: _images(
        op,
        _batch("_native_batch_norm_legit_functional.default"),
        {**_OF, "training": ("training", "not"), "momentum": tuple(MOMENTA)},
        {"C1": _TRAINING, "C2": _TRAINING, "C3": when(training="not"), "C4": _HALF},
    ),
)
declare(
    "batch_norm_no_stats",
    lambda op: _images(
        op,
        _batch("_native_batch_norm_legit.no_stats", running=False),
        {**_OF, "momentum": ("0.1",)},
        {"C4": _HALF},
        untested={"C2": _ONLY_TRAINS, "C3": _ONLY_TRAINS},
    ),
)
declare(
    "batch_norm_no_training",
    lambda op: _images(
        op,
        _batch("_native_batch_norm_legit_no_training.default"),
        {**_OF, "momentum": ("0.1",)},
        {"C4": _HALF},
        untested={"C1": _NEVER_TRAINS, "C2": _NEVER_TRAINS},
    ),
)
declare(
    "batch_norm_with_update",
    lambda op: _images(
        op,
        _batch("_batch_norm_with_update_functional.default"),
        {**_OF, "momentum": tuple(MOMENTA)},
        {"C4": _HALF},
        untested={"C3": _ONLY_TRAINS},
    ),
)
declare(
    "batch_norm_no_update",
    lambda op: _images(
        op,
        _batch("_batch_norm_no_update.default"),
        {**_OF, "momentum": ("0.1",)},
        {"C4": _HALF},
        untested={"C1": _NEVER_TRAINS, "C2": _NEVER_TRAINS},
    ),
)
declare(
    "batch_norm_backward",
    lambda op: _images(op, _batch_back(False), {**_MASKED, "training": ("training", "not"), "eps": ("1e-5", "1e-3")}),
)
declare(
    "batch_norm_backward_with_reserve",
    lambda op: _images(op, _batch_back(True), {**_MASKED, "training": ("training", "not"), "eps": ("1e-5", "1e-3")}),
)
