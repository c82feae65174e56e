"""Quantization: ties of rounding, what saturates, zero points at the ends, scales per channel, token and group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import About, Op

from ...by_member import ByMember
from ..domain import Domain, Levels
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import CallTemplate, TensorArg, domain, when

SIZES = shapes("3x5", "17", "2x3x4x5", "33x65", "1x1", "1025", "0x4", "129x8", "17x17", "5x5x5")
RANGES: Mapping[str, tuple[int, int, torch.dtype]] = {
    "i8": (-128, 127, torch.int8),
    "u8": (0, 255, torch.uint8),
    "narrow": (-127, 127, torch.int8),
    "four": (-8, 7, torch.int8),
    "i16": (-32768, 32767, torch.int16),
}
SCALES: Mapping[str, float] = {"0.1": 0.1, "1": 1.0, "2^-5": 0.03125, "0.7": 0.7}
POINTS = ("zero", "middle", "low", "high")
_Drawn = Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]


def _point(levels: Levels) -> int:
    low, high, _ = RANGES[levels["range"]]
    return {"zero": max(low, 0), "middle": (low + high) // 2 + 3, "low": low, "high": high}[levels["point"]]


def around(scale: float, zero: int, low: int, high: int, clear: bool = False) -> _Drawn:
    """Multiples of the scale, ties between two, numbers in between, and what saturates; where it must be ``clear``
    whether something is within bounds, nothing at them.
    """

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n, reach = prod(shape), min(high - low, 2000)
        if values == "ties":
            steps = draw.integers(n, -reach, reach) + 0.5 * draw.integers(n, 0, 2)
        elif values == "huge":
            steps = draw.uniform(n, -40.0, 40.0) * reach
        elif values == "exact":
            steps = draw.integers(n, low - zero, high - zero + 1).double()
        else:
            steps = draw.uniform(n, low - zero - 3.0, high - zero + 3.0)
        if clear:
            for end, inwards in ((low - zero, 2.5), (high - zero, -2.5)):
                steps = torch.where((steps - end).abs() < 1.25, steps + inwards, steps)
        return (steps * scale).to(dtype)

    return drawn


def integers(low: int, high: int) -> _Drawn:
    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x = draw.integers(prod(shape), low, high + 1)
        ends = draw.integers(len(x), 0, 8)
        return torch.where(ends == 0, low, torch.where(ends == 1, high, x)).to(dtype)

    return drawn


def _x(levels: Levels, scale: float | None = None, clear: bool = False) -> TensorArg:
    low, high, _ = RANGES[levels["range"]]
    drawn = around(SCALES[levels["scale"]] if scale is None else scale, _point(levels), low, high, clear)
    return TensorArg(SIZES[levels["size"]], draw=drawn, lies="dense")


def _number(value: float, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> TensorArg:
    return TensorArg(shape, dtype=dtype, lies="none", draw=lambda draw, d, s, values: torch.full(s, value).to(d))


def _vector(n: int, low: float, high: float, dtype: torch.dtype, *shape: int) -> TensorArg:
    return TensorArg(shape or (n,), low, high, dtype, kind="random", lies="none")


def _per_tensor(levels: Levels) -> CallTemplate:
    low, high, dtype = RANGES[levels["range"]]
    scale, zero = SCALES[levels["scale"]], _point(levels)
    match levels["given"]:
        case "numbers":
            return CallTemplate(
                "quantized_decomposed.quantize_per_tensor.default", (_x(levels), scale, zero, low, high, dtype)
            )
    return CallTemplate(
        "quantized_decomposed.quantize_per_tensor.tensor",
        (_x(levels), _number(scale, torch.float64), _number(zero, torch.int64), low, high, dtype),
    )


def _back_per_tensor(levels: Levels) -> CallTemplate:
    low, high, dtype = RANGES[levels["range"]]
    scale, zero = SCALES[levels["scale"]], _point(levels)
    x = TensorArg(SIZES[levels["size"]], dtype=dtype, draw=integers(low, high), lies="dense")
    if levels["given"] == "numbers":
        return CallTemplate("quantized_decomposed.dequantize_per_tensor.default", (x, scale, zero, low, high, dtype))
    return CallTemplate(
        "quantized_decomposed.dequantize_per_tensor.tensor",
        (x, _number(scale, torch.float64), _number(zero, torch.int64), low, high, dtype),
    )


def _channels(levels: Levels) -> tuple[int, int] | None:
    """Which dimension has scales, and how many."""
    shape, axis = SIZES[levels["size"]], {"first": 0, "last": -1, "second": 1}[levels["axis"]]
    if (levels["axis"] == "second" and len(shape) < 3) or 0 in shape:
        return None
    return axis % len(shape), shape[axis]


def _per_channel(levels: Levels) -> CallTemplate | None:
    if (channels := _channels(levels)) is None:
        return None
    axis, n = channels
    low, high, dtype = RANGES[levels["range"]]
    return CallTemplate(
        "quantized_decomposed.quantize_per_channel.default",
        (
            _x(levels, scale=0.2),
            _vector(n, 0.05, 0.5, torch.float32),
            TensorArg((n,), dtype=torch.int64, draw=integers(max(low, -9), 9), lies="none"),
            axis,
            low,
            high,
            dtype,
        ),
    )


def _back_per_channel(levels: Levels) -> CallTemplate | None:
    if (channels := _channels(levels)) is None:
        return None
    axis, n = channels
    low, high, dtype = RANGES[levels["range"]]
    points = (
        None
        if levels["given"] == "none"
        else TensorArg((n,), dtype=torch.int64, draw=integers(max(low, -9), 9), lies="none")
    )
    return CallTemplate(
        "quantized_decomposed.dequantize_per_channel.default",
        (
            TensorArg(SIZES[levels["size"]], dtype=dtype, draw=integers(low, high), lies="dense"),
            _vector(n, 0.05, 0.5, torch.float32),
            points,
            axis,
            low,
            high,
            dtype,
        ),
    )


def _fake(levels: Levels) -> CallTemplate:
    low, high, _ = RANGES[levels["range"]]
    return CallTemplate(
        "aten.fake_quantize_per_tensor_affine_cachemask.default",
        (_x(levels, clear=True), SCALES[levels["scale"]], _point(levels), low, high),
    )


def _fake_by_tensors(levels: Levels) -> CallTemplate:
    low, high, _ = RANGES[levels["range"]]
    return CallTemplate(
        "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
        (
            _x(levels, clear=True),
            _number(SCALES[levels["scale"]], torch.float32, (1,)),
            _number(_point(levels), torch.int32, (1,)),
            _number(0 if levels["enabled"] == "off" else 1, torch.int64, (1,)),
            low,
            high,
        ),
    )


def _fake_per_channel(levels: Levels) -> CallTemplate | None:
    if (channels := _channels(levels)) is None:
        return None
    axis, n = channels
    low, high, _ = RANGES[levels["range"]]
    return CallTemplate(
        "aten.fake_quantize_per_channel_affine_cachemask.default",
        (
            _x(levels, 0.04, True),
            _vector(n, 0.05, 0.5, torch.float32),
            TensorArg((n,), dtype=torch.int32, draw=integers(max(low, 0), min(high, 9)), lies="none"),
            axis,
            low,
            high,
        ),
    )


_BASE = {"size": tuple(SIZES), "range": tuple(RANGES), "scale": tuple(SCALES), "point": POINTS}
_AXES: dict[str, tuple[str, ...]] = {
    "size": tuple(SIZES),
    "range": tuple(RANGES),
    "point": ("zero",),
    "axis": ("first", "last", "second"),
}
_KINDS = ("random", "ties", "huge", "exact")
_FLOAT = (torch.float32,)
_NAN = "What is not specified has no witness."


def _made(
    factors: Mapping[str, tuple[str, ...]],
    ask: Callable[[Levels], CallTemplate | None],
    kinds: tuple[str, ...] = _KINDS,
    cites: Mapping[str, Any] | None = None,
) -> Callable[[Op], Domain]:
    return lambda op: domain(
        op,
        factors,
        ask,
        dtypes=_FLOAT,
        kinds=kinds,
        covers=cites,
        untested={f"C{i}": _NAN for i, c in enumerate(op.clauses, 1) if About.UNSPECIFIED in c.about},
        priority=(
            {"size": "3x5", "range": "i8", "values": "ties", "scale": "1"},
            {"size": "33x65", "range": "u8", "values": "huge", "point": "middle", "layout": "transposed"},
            {"size": "2x3x4x5", "range": "four", "values": "random", "point": "high", "layout": "gapped"},
        ),
    )


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare("quantize_per_tensor", _made({**_BASE, "given": ("numbers", "tensors")}, _per_tensor))
declare("dequantize_per_tensor", _made({**_BASE, "given": ("numbers", "tensors")}, _back_per_tensor, ("own",)))
declare("quantize_per_channel", _made(_AXES, _per_channel))
declare(
    "dequantize_per_channel",
    _made({**_AXES, "given": ("points", "none")}, _back_per_channel, ("own",), {"C3": when(given="none")}),
)
declare("fake_quantize_per_tensor", _made(_BASE, _fake, ("random", "huge")))
declare(
    "fake_quantize_by_tensors",
    _made({**_BASE, "enabled": ("on", "off")}, _fake_by_tensors, ("random", "huge"), {"C3": when(enabled="off")}),
)
declare(
    "fake_quantize_per_channel",
    _made({**_AXES, "range": ("i8", "narrow", "i16")}, _fake_per_channel, ("random", "huge")),
)
