"""Losses: reductions, ignored targets, weights, thresholds met exactly, and what is far out; their backward members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import FLOATS, CallTemplate, DerivedArg, TensorArg, domain, usual, when

aten = torch.ops.aten
REDUCTIONS: Mapping[str, int] = {"each": 0, "mean": 1, "sum": 2}
SHAPES = shapes("3x5", "17", "0d", "2x3x4x5", "1", "33x65", "1025", "300x257")
MANY, MANY_CLASSES = "300x257", "600of129"
_Drawn = Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]


def _between(low: float, high: float, *ends: float) -> _Drawn:
    """Numbers between, of which some are the ends."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = prod(shape)
        x = draw.uniform(n, low, high)
        few = torch.tensor(ends or (low,), dtype=torch.float64)
        return torch.where(draw.integers(n, 0, 6) == 0, few[draw.integers(n, 0, len(few))], x).to(dtype)

    return drawn


def _signs(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    return (draw.integers(prod(shape), 0, 2) * 2 - 1).to(dtype)


_Of = Callable[[tuple[int, ...], Levels], tuple[tuple[Any, ...], tuple[Any, ...]]]
"""The operands of a loss, and what comes behind the reduction."""
FAR: Mapping[str, tuple[float, float]] = {"near": (-4.0, 4.0), "far": (-200.0, 200.0), "tiny": (-1e-4, 1e-4)}
DELTAS: Mapping[str, float] = {"1": 1.0, "0.5": 0.5, "2": 2.0}
BETAS: Mapping[str, float] = {**DELTAS, "0": 0.0}


def _pair(shape: tuple[int, ...], levels: Levels) -> tuple[TensorArg, TensorArg]:
    low, high = FAR[levels["reach"]]
    return TensorArg(shape, low, high), TensorArg(shape, low, high)


def _elementwise(name: str, operands_of: _Of, back: bool) -> Callable[[Levels], CallTemplate]:
    def ask(levels: Levels) -> CallTemplate:
        shape, reduction = SHAPES[levels["shape"]], REDUCTIONS[levels["reduction"]]
        operands, more = operands_of(shape, levels)
        if not back:
            return CallTemplate(f"aten.{name}.default", (*operands, reduction, *more))
        gradient = TensorArg(shape if reduction == 0 else (), -2, 2, kind="random")
        return CallTemplate(f"aten.{name}_backward.default", (gradient, *operands, reduction, *more))

    return ask


def _logits(levels: Levels) -> CallTemplate:
    shape = SHAPES[levels["shape"]]
    weight = TensorArg(shape, 0.0, 2.0, kind="random") if "weight" in levels["weight"].split("_") else None
    positive = TensorArg(shape[-1:], 0.5, 3.0, kind="random", lies="none") if "positive" in levels["weight"] else None
    return CallTemplate(
        "aten.binary_cross_entropy_with_logits.default",
        (
            TensorArg(shape, *FAR[levels["reach"]]),
            TensorArg(shape, draw=_between(0.0, 1.0, 0.0, 1.0)),
            weight,
            positive,
            REDUCTIONS[levels["reduction"]],
        ),
    )


# -- of classes -------------------------------------------------------------------------------------------------------

CLASSES: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "5of7": (5, 7, ()),
    "1of2": (1, 2, ()),
    "33of17": (33, 17, ()),
    "3of1": (3, 1, ()),
    "17of129": (17, 129, ()),
    "2of5at3x4": (2, 5, (3, 4)),
    "1of3at1x1": (1, 3, (1, 1)),
    "3of9at7x5": (3, 9, (7, 5)),
    "lone": (0, 6, ()),
    "600of129": (600, 129, ()),
}
"""Samples, classes, sizes of an image."""


def _targets(classes: int, ignored: str, index: int) -> _Drawn:
    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = prod(shape)
        x = draw.integers(n, 0, classes)
        if ignored == "all":
            x = torch.full((n,), index)
        elif ignored == "some":
            x = torch.where(draw.integers(n, 0, 3) == 0, index, x)
        return x

    return drawn


INDICES: Mapping[str, int] = {"-100": -100, "0": 0, "-1": -1}


def _nll(back: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        samples, classes, image = CLASSES[levels["size"]]
        index, reduction = INDICES[levels["index"]], REDUCTIONS[levels["reduction"]]
        rank = "2d" if image else ""
        batch = (samples,) if samples else ()
        if levels["size"] == "lone" and image:
            return None
        x = TensorArg((*batch, classes, *image))
        targets = _targets(classes, levels["ignored"], index)
        target = TensorArg((*batch, *image), dtype=torch.int64, draw=targets, lies="dense")
        weight = TensorArg((classes,), 0.25, 2.0, kind="random", lies="none") if levels["weight"] == "weight" else None
        if not back:
            return CallTemplate(f"aten.nll_loss{rank}_forward.default", (x, target, weight, reduction, index))
        forward = getattr(aten, f"nll_loss{rank}_forward").default

        def total(drawn: Any, dtype: torch.dtype) -> Any:
            return forward(drawn[1], drawn[2], drawn[3] if weight else None, reduction, index)[1]

        gradient = TensorArg((*batch, *image) if reduction == 0 else (), -2, 2, kind="random", lies="none")
        return CallTemplate(
            f"aten.nll_loss{rank}_backward.default", (gradient, x, target, weight, reduction, index, DerivedArg(total))
        )

    return ask


def _of_image(image: bool, back: bool) -> dict[str, tuple[str, ...]]:
    sizes = tuple(s for s in usual(CLASSES, MANY_CLASSES) if not back or (("at" in s) == image))
    return {
        "size": sizes,
        "reduction": tuple(REDUCTIONS),
        "ignored": ("some", "none", "all"),
        "index": tuple(INDICES),
        "weight": ("weight", "none"),
    }


def _margin(back: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        samples, classes, image = CLASSES[levels["size"]]
        if image:
            return None
        batch, reduction = (samples,) if samples else (), REDUCTIONS[levels["reduction"]]
        weight = TensorArg((classes,), 0.25, 2.0, kind="random", lies="none") if levels["weight"] == "weight" else None
        more = (
            TensorArg((*batch, classes)),
            TensorArg(batch, dtype=torch.int64, draw=_targets(classes, "none", 0), lies="none"),
            int(levels["p"]),
            float(levels["margin"]),
            weight,
            reduction,
        )
        if not back:
            return CallTemplate("aten.multi_margin_loss.default", more)
        return CallTemplate(
            "aten.multi_margin_loss_backward.default",
            (TensorArg(batch if reduction == 0 else (), -2, 2, kind="random", lies="none"), *more),
        )

    return ask


def _lists(classes: int) -> _Drawn:
    """Classes, some twice, then -1, and others that count no more."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x = draw.integers(prod(shape), 0, classes).reshape(-1, classes)
        ends = draw.integers(len(x), 0, classes + 1)
        return torch.where(torch.arange(classes) == ends[:, None], -1, x)

    return drawn


def _multilabel(back: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        samples, classes, image = CLASSES[levels["size"]]
        if image:
            return None
        batch, reduction = (samples,) if samples else (), REDUCTIONS[levels["reduction"]]
        shape = (*batch, classes)
        x, target = (
            TensorArg(shape, lies="dense"),
            TensorArg(shape, dtype=torch.int64, draw=_lists(classes), lies="none"),
        )
        if not back:
            return CallTemplate("aten.multilabel_margin_loss_forward.default", (x, target, reduction))
        if len(batch) == 0 and reduction == 0:
            return None
        is_target = DerivedArg(
            lambda drawn, dtype: aten.multilabel_margin_loss_forward.default(drawn[1], drawn[2], reduction)[1]
        )
        return CallTemplate(
            "aten.multilabel_margin_loss_backward.default",
            (
                TensorArg(batch if reduction == 0 else (), -2, 2, kind="random", lies="none"),
                TensorArg(shape, lies="none"),
                target,
                reduction,
                is_target,
            ),
        )

    return ask


# -- their domains ----------------------------------------------------------------------------------------------------

_KINDS = ("random", "nonfinite", "duplicates", "exact")
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare


def _declare(
    name: str, operands: _Of, untested: Mapping[str, str] = MappingProxyType({}), **more: tuple[str, ...]
) -> None:
    """A loss of each element, and its gradient."""
    factors = {"shape": usual(SHAPES, MANY), "reduction": tuple(REDUCTIONS), **more}
    declare(
        name,
        lambda op: domain(
            op, factors, _elementwise(name, operands, False), kinds=_KINDS, untested=untested, many={"shape": MANY}
        ),
    )
    declare(
        f"{name}_backward",
        lambda op: domain(
            op,
            factors,
            _elementwise(name, operands, True),
            kinds=_KINDS,
            covers={"C2": when(reduction="mean")},
            many={"shape": MANY},
        ),
    )


_declare("mse_loss", lambda shape, levels: (_pair(shape, levels), ()), reach=tuple(FAR))
_declare(
    "huber_loss",
    lambda shape, levels: (_pair(shape, levels), (DELTAS[levels["delta"]],)),
    reach=tuple(FAR),
    delta=tuple(DELTAS),
)
_declare(
    "smooth_l1_loss",
    lambda shape, levels: (_pair(shape, levels), (BETAS[levels["delta"]],)),
    reach=tuple(FAR),
    delta=tuple(BETAS),
)


def _nearer(low: float, high: float) -> tuple[float, float]:
    """Bounds of which those beyond 11 are divided by 20."""
    return low if abs(low) < 11 else low / 20, high if abs(high) < 11 else high / 20


_declare(
    "soft_margin_loss",
    lambda shape, levels: (
        (
            TensorArg(shape, *_nearer(*FAR[levels["reach"]])),
            TensorArg(shape, draw=_signs, lies="dense"),
        ),
        (),
    ),
    reach=tuple(FAR),
)
_declare(
    "binary_cross_entropy",
    lambda shape, levels: (
        (
            TensorArg(shape, draw=_between(0.0, 1.0, 0.0, 1.0, 1e-6)),
            TensorArg(shape, draw=_between(0.0, 1.0, 0.0, 1.0)),
            TensorArg(shape, 0.0, 2.0, kind="random") if levels["weight"] == "weight" else None,
        ),
        (),
    ),
    {"C3": "Eager PyTorch raises for it."},
    weight=("weight", "none"),
)
declare(
    "binary_cross_entropy_with_logits",
    lambda op: domain(
        op,
        {
            "shape": tuple(s for s in usual(SHAPES, MANY) if s != "0d"),
            "reduction": tuple(REDUCTIONS),
            "reach": tuple(FAR),
            "weight": ("weight", "positive", "none", "weight_positive"),
        },
        _logits,
        kinds=_KINDS,
        covers={"C2": when(reach="far")},
        many={"shape": MANY},
    ),
)
declare(
    "nll_loss",
    lambda op: domain(
        op,
        _of_image(False, False),
        _nll(False),
        kinds=_KINDS,
        covers={
            "C1": when(ignored=("some", "all")),
            "C3": when(weight="weight"),
            "C4": lambda levels: levels["ignored"] == "all" and levels["reduction"] == "mean",
        },
        untested={"C5": "Eager PyTorch ends the process in some builds, or raises."},
        many={"size": MANY_CLASSES},
        priority=(
            {"dtype": "f32", "size": "5of7", "reduction": "mean", "ignored": "some", "index": "0", "weight": "weight"},
            {
                "dtype": "f32",
                "size": "3of9at7x5",
                "reduction": "sum",
                "ignored": "some",
                "index": "-100",
                "weight": "weight",
                "layout": "channels_last",
            },
            {"dtype": "f32", "size": "33of17", "reduction": "mean", "ignored": "all", "index": "-1"},
        ),
    ),
)
declare(
    "nll_loss_backward",
    lambda op: domain(
        op,
        _of_image(False, True),
        _nll(True),
        kinds=_KINDS,
        covers={"C2": when(reduction="mean")},
        many={"size": MANY_CLASSES},
    ),
)
declare(
    "nll_loss2d_backward", lambda op: domain(op, _of_image(True, True), _nll(True), kinds=_KINDS, lay=("contiguous",))
)
_MARGIN = {
    "size": usual(CLASSES, MANY_CLASSES),
    "reduction": tuple(REDUCTIONS),
    "p": ("1", "2"),
    "margin": ("1", "0.5", "2"),
    "weight": ("weight", "none"),
}
declare(
    "multi_margin_loss",
    lambda op: domain(
        op,
        _MARGIN,
        _margin(False),
        dtypes=FLOATS[:2],
        many={"size": MANY_CLASSES},
        kinds=_KINDS[::2],
        covers={"C2": lambda levels: True, "C4": when(size="lone")},
    ),
)
declare(
    "multi_margin_loss_backward",
    lambda op: domain(
        op,
        _MARGIN,
        _margin(True),
        dtypes=FLOATS[:2],
        many={"size": MANY_CLASSES},
        kinds=("random", "duplicates"),
    ),
)
declare(
    "multilabel_margin_loss",
    lambda op: domain(
        op,
        {"size": usual(CLASSES, MANY_CLASSES), "reduction": tuple(REDUCTIONS)},
        _multilabel(False),
        dtypes=FLOATS[:2],
        kinds=("random", "duplicates", "exact"),
    ),
)
declare(
    "multilabel_margin_loss_backward",
    lambda op: domain(
        op,
        {"size": usual(CLASSES, MANY_CLASSES), "reduction": tuple(REDUCTIONS)},
        _multilabel(True),
        dtypes=FLOATS[:2],
        kinds=("random", "duplicates"),
        lay=("contiguous",),
        why_few="It is tried in one layout alone.",
    ),
)
