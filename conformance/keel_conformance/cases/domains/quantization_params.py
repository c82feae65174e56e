"""Quantization whose scales are given per token and per group, chosen from the data, or learned.

Elements are drawn around the steps of the scale at their place: on them, on ties between two, beyond both ends.
"""

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
from .call_templates import OWN, CallTemplate, TensorArg, always, domain, when
from .quantize import RANGES, around, integers

Spread = Callable[[torch.Tensor], torch.Tensor]
"""One value per scale, as one for each element, in row-major order."""
_Drawn = Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]

TOKENS = shapes("3x5", "17", "2x3x4x5", "33x65", "1x1", "1x1025", "0x4", "129x8", "17x17", "5x5x5", "7x1", "4x257")
"""Sizes whose last dimension is a token."""
MATRICES = shapes("3x8", "17x32", "1x128", "5x6", "33x64", "2x256", "0x8", "16x16")
GROUPS = ("2", "8", "32", "128", "3", "long")
"""Elements of a group; ``long`` is more than a row has, which is one group then."""
SCALES = ("powers", "any", "wide")
POINTS = ("zero", "odd", "ends")
PARAM_DTYPES: Mapping[str, tuple[torch.dtype, torch.dtype]] = {
    "narrow": (torch.float32, torch.int32),
    "wide": (torch.float64, torch.int64),
}
"""The dtypes of scales and zero points."""


# -- scales and zero points, and what is drawn around them -------------------------------------------------------------


def _shared_draw(draw: SeededValues, what: str) -> SeededValues:
    """Chance that several arguments of a call have in common."""
    return SeededValues(f"{draw.text} {what}", draw.call, draw.bare, draw.turn)


def _scales(draw: SeededValues, n: int, kind: str) -> torch.Tensor:
    """``n`` scales in float64, which float32 holds: powers of two, by which steps are exact; any; of all magnitudes."""
    own = _shared_draw(draw, "scales")
    if kind == "powers":
        return 2.0 ** own.integers(n, -6, 2).double()
    return (own.uniform(n, 0.05, 0.5) if kind == "any" else 10.0 ** own.uniform(n, -5.0, 3.0)).float().double()


def _points(draw: SeededValues, n: int, kind: str, low: int, high: int) -> torch.Tensor:
    """``n`` zero points within bounds: 0, small odd ones, by which ties fall on the other side, or the ends."""
    own = _shared_draw(draw, "points")
    if kind == "ends":
        return torch.where(own.integers(n, 0, 2) == 0, low, high)
    return (torch.zeros(n, dtype=torch.int64) if kind == "zero" else 2 * own.integers(n, -4, 5) + 1).clamp(low, high)


def _steps(draw: SeededValues, n: int, values: str, low: int, high: int) -> torch.Tensor:
    """What elements are before they are rounded and brought within bounds; one in five is beyond them."""
    beyond = 3.0 + (high - low) / 8
    match values:
        case "ties":
            return draw.integers(n, max(low, -1000) - 3, min(high, 1000) + 4) + 0.5 * draw.integers(n, 0, 2)
        case "huge":
            return draw.uniform(n, -40.0, 40.0) * min(high - low, 2000)
        case "exact":
            return draw.integers(n, low, high + 1).double()
        case "duplicates":
            return draw.uniform(4, low - beyond, high + beyond)[draw.integers(n, 0, 4)]
    return draw.uniform(n, low - beyond, high + beyond)


def _around(levels: Levels, count: int, spread: Spread, *, clear: bool = False) -> _Drawn:
    """Elements around the steps of ``count`` scales; where it must be ``clear`` what is within bounds, none at them."""
    low, high, _ = RANGES[levels["range"]]

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        scale = spread(_scales(draw, count, levels["scale"]))
        zero = spread(_points(draw, count, levels["point"], low, high).double())
        steps = _steps(draw, prod(shape), values, low, high)
        if clear:
            for end, inwards in ((low, 2.5), (high, -2.5)):
                steps = torch.where((steps - end).abs() < 1.25, steps + inwards, steps)
        return ((steps - zero) * scale).to(dtype)

    return drawn


def _scale_and_point(
    levels: Levels, shape: tuple[int, ...], dtypes: tuple[torch.dtype, torch.dtype]
) -> tuple[TensorArg, TensorArg]:
    """Scales and zero points of a shape."""
    low, high, _ = RANGES[levels["range"]]
    return (
        TensorArg(
            shape,
            dtype=dtypes[0],
            lies="none",
            draw=lambda draw, dtype, s, values: _scales(draw, prod(s), levels["scale"]).to(dtype),
        ),
        TensorArg(
            shape,
            dtype=dtypes[1],
            lies="none",
            draw=lambda draw, dtype, s, values: _points(draw, prod(s), levels["point"], low, high).to(dtype),
        ),
    )


# -- per token and per group -------------------------------------------------------------------------------------------


def _per_token(levels: Levels) -> CallTemplate:
    shape, (low, high, dtype) = TOKENS[levels["size"]], RANGES[levels["range"]]
    rows = prod(shape[:-1])
    x = TensorArg(shape, draw=_around(levels, rows, lambda v: v.repeat_interleave(shape[-1])), lies="dense")
    return CallTemplate(
        "quantized_decomposed.quantize_per_token.default",
        (x, *_scale_and_point(levels, (*shape[:-1], 1), PARAM_DTYPES[levels["given"]]), low, high, dtype),
    )


def _back_per_token(levels: Levels) -> CallTemplate:
    shape, (low, high, dtype) = TOKENS[levels["size"]], RANGES[levels["range"]]
    return CallTemplate(
        "quantized_decomposed.dequantize_per_token.default",
        (
            TensorArg(shape, dtype=dtype, draw=integers(low, high), lies="dense"),
            *_scale_and_point(levels, (*shape[:-1], 1), PARAM_DTYPES[levels["given"]]),
            low,
            high,
            dtype,
            OWN,
        ),
    )


def _grouped(levels: Levels) -> tuple[tuple[int, ...], int, int] | None:
    """Sizes, elements of a group, and the number that is given for it."""
    shape, named = MATRICES[levels["size"]], levels["group"]
    size = shape[1] if named == "long" else int(named)
    return None if shape[1] % size or size < 2 else (shape, size, 1000 if named == "long" else size)


def _per_group(levels: Levels) -> CallTemplate | None:
    if (grouped := _grouped(levels)) is None:
        return None
    (rows, n), size, named = grouped
    low, high, dtype = RANGES[levels["range"]]
    x = TensorArg((rows, n), draw=_around(levels, rows * n // size, lambda v: v.repeat_interleave(size)), lies="dense")
    return CallTemplate(
        "quantized_decomposed.quantize_per_channel_group.default",
        (x, *_scale_and_point(levels, (rows, n // size), PARAM_DTYPES[levels["given"]]), low, high, dtype, named),
    )


def _back_per_group(levels: Levels) -> CallTemplate | None:
    if (grouped := _grouped(levels)) is None:
        return None
    (rows, n), size, named = grouped
    low, high, dtype = RANGES[levels["range"]]
    scales, points = _scale_and_point(levels, (rows, n // size), PARAM_DTYPES[levels["given"]])
    return CallTemplate(
        "quantized_decomposed.dequantize_per_channel_group.default",
        (
            TensorArg((rows, n), dtype=dtype, draw=integers(low, high), lies="dense"),
            scales,
            None if levels["point"] == "none" else points,
            low,
            high,
            dtype,
            named,
            OWN,
        ),
    )


# -- chosen from the data ----------------------------------------------------------------------------------------------

DATA = ("both", "positive", "negative", "equal", "zeros", "tiny", "large", "one", "symmetric")
"""What the elements are like: of either sign or one, all the same, within eps of 0, one far from all others, from -a to
a.
"""
EPS: Mapping[str, float] = {"2^-23": 2.0**-23, "1e-3": 1e-3, "0.5": 0.5}
CHOSEN = shapes("3x5", "17", "2x3x4x5", "33x65", "1x1", "1025", "0d", "300x257", "17x17", "5x5x5", "129x8")


def _elements(data: str, row: int | None = None) -> _Drawn:
    """Draws data of one kind, for the whole tensor or for each row of ``row`` elements. Every third row has another
    scale.
    """

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = prod(shape)
        size = max(n if row is None else row, 1)
        x = draw.uniform(n, -4.0, 4.0).reshape(-1, size)
        at, sign = draw.integers(len(x), 0, size)[:, None], 1.0 - 2.0 * draw.integers(len(x), 0, 2)[:, None]
        match data:
            case "positive" | "negative":
                x = (x.abs() + 0.25) * (1.0 if data == "positive" else -1.0)
            case "equal":
                x = x[:, :1].expand(x.shape)
            case "zeros":
                x = x * 0.0  # of either sign
            case "tiny":
                x = x * 1e-6
            case "large":
                x = x * (1e3 if dtype == torch.float16 else 1e30)
            case "one":
                x = torch.where(torch.arange(size) == at, 60.0 * sign, x)
            case "symmetric":
                x = torch.where(
                    torch.arange(size) == at,
                    5.0 * sign,
                    torch.where(torch.arange(size) == (at + 1) % size, -5.0 * sign, x),
                )
        return (x * 4.0 ** (draw.integers(len(x), 0, 3)[:, None] % 3 - 1)).reshape(shape).to(dtype)

    return drawn


def _chosen(overload: str) -> Callable[[Levels], CallTemplate]:
    def ask(levels: Levels) -> CallTemplate:
        low, high, dtype = RANGES[levels["range"]]
        x = TensorArg(CHOSEN[levels["size"]], draw=_elements(levels["data"]))
        return CallTemplate(f"quantized_decomposed.{overload}.tensor", (x, low, high, EPS[levels["eps"]], dtype))

    return ask


def _chosen_per_token(levels: Levels) -> CallTemplate:
    shape = TOKENS[levels["size"]]
    x = TensorArg(shape, draw=_elements(levels["data"], shape[-1]))
    return CallTemplate("quantized_decomposed.choose_qparams_per_token_asymmetric.default", (x, torch.int8))


# -- learned -----------------------------------------------------------------------------------------------------------

LEARNED = shapes("3x5", "17", "2x3x4x5", "33x65", "1x1", "1025", "129x8", "17x17", "5x5x5", "7x1")
FACTORS: Mapping[str, float] = {"1": 1.0, "0.25": 0.25}
STEP: Mapping[str, float] = {"0.1": 0.1, "1": 1.0, "2^-5": 0.03125, "0.7": 0.7}


def _learned_point(levels: Levels) -> float:
    """A zero point that is a float: one between two integers is rounded, one beyond the bounds brought within them."""
    low, high, _ = RANGES[levels["range"]]
    return {
        "zero": max(low, 0.0),
        "middle": (low + high) // 2 + 3.0,
        "low": float(low),
        "high": float(high),
        "fraction": 2.75,
        "quarter": 1.25,
        "beyond": high + 40.0,
        "below": low - 40.0,
        "tie": 2.5,
        "other_tie": 3.5,
    }[levels["point"]]


def _number(value: float) -> TensorArg:
    return TensorArg(
        (1,),
        dtype=torch.float32,
        lies="none",
        draw=lambda draw, dtype, shape, values: torch.full(shape, value).to(dtype),
    )


def _learned_tensors(levels: Levels, clear: bool) -> tuple[TensorArg, TensorArg, TensorArg]:
    low, high, _ = RANGES[levels["range"]]
    scale, point = STEP[levels["scale"]], _learned_point(levels)
    zero = min(max(round(point), low), high)
    return (
        TensorArg(LEARNED[levels["size"]], draw=around(scale, zero, low, high, clear), lies="dense"),
        _number(scale),
        _number(point),
    )


def _learned(backward: bool) -> Callable[[Levels], CallTemplate]:
    def ask(levels: Levels) -> CallTemplate:
        low, high, _ = RANGES[levels["range"]]
        tensors = _learned_tensors(levels, clear=backward)
        if not backward:
            return CallTemplate(
                "aten._fake_quantize_learnable_per_tensor_affine.default",
                (*tensors, low, high, FACTORS[levels["factor"]]),
            )
        return CallTemplate(
            "aten._fake_quantize_learnable_per_tensor_affine_backward.default",
            (
                TensorArg(LEARNED[levels["size"]], -2, 2, kind="random", lies="dense"),
                *tensors,
                low,
                high,
                FACTORS[levels["factor"]],
            ),
        )

    return ask


def _along(levels: Levels) -> tuple[tuple[int, ...], int, Spread] | None:
    """Sizes, the dimension that has scales, and how these are spread over all elements."""
    shape = LEARNED[levels["size"]]
    if levels["axis"] == "second" and len(shape) < 3:
        return None
    axis = {"first": 0, "last": len(shape) - 1, "second": 1}[levels["axis"]]
    view = [n if d == axis else 1 for d, n in enumerate(shape)]
    return shape, axis, lambda v: v.reshape(view).expand(shape).reshape(-1)


def _learned_per_channel(backward: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        if (channels := _along(levels)) is None or (backward and len(channels[0]) < 2):
            return None  # of one dimension PyTorch adds all channels up
        shape, axis, spread = channels
        low, high, _ = RANGES[levels["range"]]
        scales, points = _scale_and_point(levels, (shape[axis],), (torch.float32, torch.float32))
        tensors = (
            TensorArg(shape, draw=_around(levels, shape[axis], spread, clear=backward), lies="dense"),
            scales,
            _off(points),
        )
        if not backward:
            return CallTemplate(
                "aten._fake_quantize_learnable_per_channel_affine.default",
                (*tensors, axis, low, high, FACTORS[levels["factor"]]),
            )
        grad = TensorArg(shape, -2, 2, kind="random", lies="dense")
        return CallTemplate(
            "aten._fake_quantize_learnable_per_channel_affine_backward.default",
            (grad, *tensors, axis, low, high, FACTORS[levels["factor"]]),
        )

    return ask


def _off(points: TensorArg) -> TensorArg:
    """Zero points that have to be rounded: some are a quarter off an integer, at the ends beyond them."""
    assert points.draw is not None
    exactly = points.draw

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x = exactly(draw, torch.float64, shape, values)
        return (x + 0.25 * _shared_draw(draw, "fractions").integers(prod(shape), -1, 2).reshape(x.shape)).to(dtype)

    return TensorArg(points.shape, dtype=points.dtype, lies="none", draw=drawn)


# -- their domains -----------------------------------------------------------------------------------------------------

_BASE = {"range": tuple(RANGES), "scale": SCALES, "point": POINTS, "given": tuple(PARAM_DTYPES)}
_KINDS = ("random", "ties", "huge", "exact", "duplicates")
_HALVES = (torch.float32, torch.float16, torch.bfloat16)
_FLOAT = (torch.float32,)
_NAN = "What is not specified has no witness."
_TELLING: tuple[Levels, ...] = (
    {"size": "3x5", "range": "i8", "values": "ties", "scale": "powers", "point": "odd"},
    {"size": "3x8", "group": "2", "range": "i8", "values": "ties", "scale": "powers", "point": "odd"},
    {"size": "33x65", "range": "u8", "values": "huge", "scale": "any", "point": "ends", "layout": "transposed"},
    {"size": "33x64", "group": "8", "range": "four", "scale": "any", "point": "odd", "layout": "transposed"},
    {
        "size": "2x3x4x5",
        "range": "four",
        "values": "random",
        "scale": "any",
        "point": "odd",
        "layout": "gapped",
        "axis": "second",
    },
)
_OF_DATA: tuple[Levels, ...] = (
    {"size": "33x65", "data": "both", "range": "i8", "layout": "transposed"},
    {"size": "17x17", "data": "one", "range": "u8", "eps": "2^-23"},
    {"size": "3x5", "data": "equal", "range": "four"},
    {"size": "5x5x5", "data": "tiny", "eps": "1e-3"},
    {"size": "129x8", "data": "negative", "range": "u8", "layout": "gapped"},
)


def _made(
    factors: Mapping[str, tuple[str, ...]],
    ask: Callable[[Levels], CallTemplate | None],
    *,
    kinds: tuple[str, ...] = _KINDS,
    dtypes: tuple[torch.dtype, ...] = _FLOAT,
    telling: tuple[Levels, ...] = _TELLING,
    cites: Mapping[str, Any] | None = None,
) -> Callable[[Op], Domain]:
    """Every clause is cited by every case but where ``cites`` says when."""

    def build_(op: Op) -> Domain:
        open_ = {f"C{i}": _NAN for i, c in enumerate(op.clauses, 1) if About.UNSPECIFIED in c.about}
        return domain(
            op,
            factors,
            ask,
            dtypes=dtypes,
            kinds=kinds,
            covers={**always(op), **(cites or {})},
            untested=open_,
            priority=telling,
        )

    return build_


_TOKEN, _GROUP = {"size": tuple(TOKENS), **_BASE}, {"size": tuple(MATRICES), "group": GROUPS, **_BASE}
_DATA = {"size": tuple(CHOSEN), "data": DATA, "range": tuple(RANGES), "eps": tuple(EPS)}
_POINTS = ("zero", "middle", "low", "high", "fraction", "quarter", "beyond", "below", "tie", "other_tie")
# the kernel of PyTorch's backward pass cuts zero points off that are below 0, and rounds ties up
_POSITIVE = ("zero", "middle", "high", "fraction", "quarter", "beyond")
_LEARNED = {"size": tuple(LEARNED), "range": tuple(RANGES), "scale": tuple(STEP), "factor": tuple(FACTORS)}
_CHANNELS = {**_LEARNED, "scale": SCALES, "point": POINTS, "axis": ("first", "last", "second")}
_OUTS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare("quantize_per_token", _made(_TOKEN, _per_token, dtypes=_HALVES))
declare("dequantize_per_token", _made(_TOKEN, _back_per_token, kinds=("own",), dtypes=_OUTS))
declare("quantize_per_group", _made(_GROUP, _per_group, dtypes=_HALVES))
declare(
    "dequantize_per_group",
    _made(
        {**_GROUP, "point": (*POINTS, "none")},
        _back_per_group,
        kinds=("own",),
        dtypes=_OUTS,
        cites={"C3": when(point="none")},
    ),
)
declare("choose_scale", _made(_DATA, _chosen("choose_qparams"), kinds=("own",), dtypes=_HALVES, telling=_OF_DATA))
declare(
    "choose_scale_symmetric",
    _made(_DATA, _chosen("choose_qparams_symmetric"), kinds=("own",), dtypes=_HALVES, telling=_OF_DATA),
)
declare(
    "choose_scale_per_token",
    _made({"size": tuple(TOKENS), "data": DATA}, _chosen_per_token, kinds=("own",), dtypes=_HALVES, telling=_OF_DATA),
)
declare("learned_fake_quantize", _made({**_LEARNED, "point": _POINTS}, _learned(False), kinds=_KINDS[:4]))
declare(
    "learned_fake_quantize_backward",
    _made({**_LEARNED, "point": _POSITIVE}, _learned(True), kinds=("random", "huge", "exact")),
)
declare("learned_fake_quantize_per_channel", _made(_CHANNELS, _learned_per_channel(False)))
declare(
    "learned_fake_quantize_per_channel_backward",
    _made(_CHANNELS, _learned_per_channel(True), kinds=("random", "huge", "exact", "duplicates")),
)
