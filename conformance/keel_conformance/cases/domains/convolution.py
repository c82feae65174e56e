"""Convolutions: strides, padding, dilation, groups, transposed ones, kernels larger than the input, all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from keel.opset import MEMBERS, Op

from ...by_member import ByMember
from ..domain import Domain, InvalidCall, Levels, Rule
from ..shapes import shapes
from .call_templates import FLOATS, CallTemplate, TensorArg, domain, invalid_call, when

KINDS = ("random", "nonfinite", "cancel", "exact", "duplicates")
SIZES = shapes("7x9", "13", "5x4x6", "33", "1x1", "8x8", "17x5", "1", "129", "2x3x3", "3x3", "4x33", "97x71")
"""Of planes."""
MANY = {"plane": "97x71-k3p1", "channels": "16to32"}


@dataclass(frozen=True)
class Kernel:
    """One geometry, the same in all dimensions but for ``size``, which is that of the last, the others having 1 less
    where ``oblong``; where ``uneven`` the others have a stride that is 1 more, and 1 less padding, or more dilation.
    """

    size: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    more: int = 0
    oblong: bool = False
    uneven: bool = False

    def at(self, rest: bool) -> tuple[int, int, int]:
        """Stride, padding and dilation of the last dimension, or of the ``rest``."""
        if not (rest and self.uneven):
            return self.stride, self.padding, self.dilation
        return self.stride + 1, max(self.padding - 1, 0), self.dilation + (self.padding == 0)


KERNELS: Mapping[str, Kernel] = {
    "k3p1": Kernel(3, padding=1),
    "k1": Kernel(1),
    "k3": Kernel(3),
    "k3s2p1": Kernel(3, 2, 1),
    "k2s2": Kernel(2, 2),
    "k3d2p2": Kernel(3, padding=2, dilation=2),
    "k5p2": Kernel(5, padding=2),
    "k4x3s2p1": Kernel(4, 2, 1, oblong=True),
    "k7s3p3": Kernel(7, 3, 3),
    "k3p4": Kernel(3, padding=4),
    "k1s3": Kernel(1, 3),
    "k1s2": Kernel(1, 2),
    "k2d3s2p3": Kernel(2, 2, 3, 3),
    "k3s3p1o2": Kernel(3, 3, 1, 1, 2),
    "k4s2p1o1": Kernel(4, 2, 1, 1, 1),
    "k2x1": Kernel(2, oblong=True),
    "k3s1p2u": Kernel(3, 1, 2, uneven=True),
    "k2x1s2u": Kernel(3, 2, oblong=True, uneven=True),
}
CHANNELS: Mapping[str, tuple[int, int, int, int]] = {
    "4to6": (2, 4, 6, 1),
    "1to1": (1, 1, 1, 1),
    "3to8": (3, 3, 8, 1),
    "groups2": (2, 4, 6, 2),
    "depthwise": (1, 5, 5, 5),
    "depthwise2": (2, 3, 6, 3),
    "17to3": (1, 17, 3, 1),
    "16to32": (1, 16, 32, 1),
    "no_batch": (0, 4, 6, 1),
    "33to2": (1, 33, 2, 1),
}
"""Batch, channels of the input and of the result, groups."""
PLANES = (
    "7x9-k3p1",
    "13-k3p1",
    "5x4x6-k3p1",
    "33-k1",
    "8x8-k1",
    "1x1-k1",
    "7x9-k3",
    "129-k3",
    "5x4x6-k3",
    "3x3-k3",
    "8x8-k3s2p1",
    "17x5-k3s2p1",
    "2x3x3-k3s2p1",
    "8x8-k2s2",
    "33-k2s2",
    "4x33-k3d2p2",
    "13-k3d2p2",
    "5x4x6-k3d2p2",
    "17x5-k5p2",
    "1-k5p2",
    "7x9-k4x3s2p1",
    "4x33-k7s3p3",
    "33-k7s3p3",
    "3x3-k3p4",
    "1x1-k3p4",
    "7x9-k1s3",
    "33-k1s2",
    "5x4x6-k1s2",
    "17x5-k2d3s2p3",
    "8x8-k3s3p1o2",
    "13-k3s3p1o2",
    "2x3x3-k4s2p1o1",
    "7x9-k4s2p1o1",
    "1-k4s2p1o1",
    "8x8-k2x1",
    "5x4x6-k2x1",
    "7x9-k3s1p2u",
    "17x5-k3s1p2u",
    "8x8-k2x1s2u",
    "5x4x6-k3s1p2u",
)
"""Sizes and kernels that go together."""


@dataclass(frozen=True)
class Geometry:
    """What the sizes of a call follow from."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    outs: tuple[int, ...]
    x: tuple[int, ...]
    weight: tuple[int, ...]
    out: tuple[int, ...]
    settings: tuple[Any, ...]


def geometry(levels: Levels) -> Geometry | None:
    plane = levels["plane"].split("-")
    size, k = SIZES[plane[0]], KERNELS[plane[1]]
    transposed = levels.get("transposed") == "transposed"
    batch, inputs, outputs, groups = CHANNELS[levels["channels"]]
    rank = len(size)
    kernel = tuple(max(1, k.size - (k.oblong and i < rank - 1)) for i in range(rank))
    rest = [i < rank - 1 for i in range(rank)]
    outs = tuple(_out(n, m, k, transposed, r) for n, m, r in zip(size, kernel, rest, strict=True))
    if min(outs) < 1 or (k.more and not transposed) or (k.size > 5 and (transposed or rank > 2)):
        return None
    strides, paddings, dilations = ([k.at(r)[i] for r in rest] for i in range(3))
    if transposed and (
        any(p > d * (m - 1) for p, d, m in zip(paddings, dilations, kernel, strict=True))
        or k.more >= max(k.stride, k.dilation)
    ):
        return None
    weight = (inputs, outputs // groups, *kernel) if transposed else (outputs, inputs // groups, *kernel)
    settings = (strides, paddings, dilations, transposed, [k.more] * rank, groups)
    return Geometry(size, kernel, outs, (batch, inputs, *size), weight, (batch, outputs, *outs), settings)


def _out(n: int, kernel: int, k: Kernel, transposed: bool, rest: bool) -> int:
    stride, padding, dilation = k.at(rest)
    span = dilation * (kernel - 1)
    if transposed:
        return (n - 1) * stride - 2 * padding + span + k.more + 1
    return (n + 2 * padding - span - 1) // stride + 1 if n + 2 * padding > span else 0


def _terms(g: Geometry) -> int:
    return g.weight[0] * g.weight[1] * prod(g.kernel)


def _convolution(levels: Levels) -> CallTemplate | None:
    g = geometry(levels)
    if g is None:
        return None
    n = _terms(g)
    bias = TensorArg((g.out[1],)) if levels["bias"] == "bias" else None
    return CallTemplate(
        "aten.convolution.default", (TensorArg(g.x, products=n), TensorArg(g.weight, products=n), bias, *g.settings)
    )


def _told_how(levels: Levels) -> CallTemplate | None:
    plain = _convolution(levels)
    return (
        None
        if plain is None
        else CallTemplate(
            "aten._convolution.default",
            (*plain.args, False, levels["bias"] == "bias", True, levels["plane"] == "7x9-k3"),
        )
    )


MASKS = {
    "all": [True, True, True],
    "input": [True, False, False],
    "weight": [False, True, False],
    "no_weight": [True, False, True],
    "no_input": [False, True, True],
}


def _masked(dtype: str, mask: str) -> bool:
    """Some kernels of eager PyTorch give the weight's gradient with the bias's, asked for or not; not in float64."""
    return dtype == "f64" or mask in ("all", "input", "no_input")


def _backward(levels: Levels) -> CallTemplate | None:
    g = geometry(levels)
    if g is None or 0 in g.x:
        return None
    n = prod(g.out) + _terms(g)
    mask = MASKS[levels["mask"]]
    return CallTemplate(
        "aten.convolution_backward.default",
        (
            TensorArg(g.out, products=n),
            TensorArg(g.x, products=n),
            TensorArg(g.weight, products=n),
            [g.out[1]],
            *g.settings,
            mask,
        ),
    )


def _backward_2d(levels: Levels) -> CallTemplate | None:
    g = geometry(levels)
    if g is None or len(g.size) != 2 or 0 in g.x or g.settings[5] != 1 or g.settings[2] != [1, 1]:
        return None
    return CallTemplate(
        "aten._slow_conv2d_backward.output_mask",
        (
            TensorArg(g.out, lies="none"),
            TensorArg(g.x, lies="none"),
            TensorArg(g.weight, lies="none"),
            list(g.kernel),
            *g.settings[:2],
            MASKS[levels["mask"]],
        ),
    )


def _tbc(levels: Levels) -> CallTemplate | None:
    time, batch, inputs, outputs = (int(v) for v in levels["size"].split("x"))
    kernel, pad = int(levels["kernel"]), int(levels["pad"])
    if time + 2 * pad < kernel:
        return None
    return CallTemplate(
        "aten.conv_tbc.default",
        (
            TensorArg((time, batch, inputs)),
            TensorArg((kernel, inputs, outputs), lies="none"),
            TensorArg((outputs,), lies="none"),
            pad,
        ),
    )


def _settings(overload: str, g: Geometry, bias: TensorArg | None) -> tuple[Any, ...] | None:
    """What comes after input and weight, by the overload's parameters; None where it has no dilation and needs one."""
    stride, padding, dilation, _, output_padding, _ = g.settings
    arguments = {
        "kernel_size": list(g.kernel),
        "bias": bias,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "output_padding": output_padding,
    }
    target = next(t for t in MEMBERS["direct_convolution"].targets if str(t) == overload)
    names = [a.name for a in target._schema.arguments[2:]]  # type: ignore[attr-defined]
    return tuple(arguments[n] for n in names) if "dilation" in names or set(dilation) == {1} else None


def _direct(levels: Levels) -> CallTemplate | None:
    name = levels["overload"]
    transposed = "transpose" in name
    g = geometry({**levels, "transposed": "transposed" if transposed else "plain"})
    if g is None or len(g.size) != (2 if "2d" in name else 3) or 0 in g.x or g.settings[5] != 1:
        return None
    settings = _settings(name, g, TensorArg((g.out[1],), lies="none") if levels["bias"] == "bias" else None)
    if settings is None:
        return None
    return CallTemplate(name, (TensorArg(g.x, lies="none"), TensorArg(g.weight, lies="none"), *settings))


def _facets() -> Mapping[str, frozenset[str]]:
    """For each plane, what its kernel has that not all kernels have."""
    results = {}
    for plane in PLANES:
        k = KERNELS[plane.partition("-")[2]]
        has = {
            "stride": k.stride > 1,
            "padding": k.padding > 0,
            "dilation": k.dilation > 1,
            "more": k.more > 0,
            "oblong": k.oblong,
            "uneven": k.uneven,
            f"rank {plane.partition('-')[0].count('x')}": True,
        }
        results[plane] = frozenset(what for what, holds in has.items() if holds)
    return results


# -- their domains ----------------------------------------------------------------------------------------------------

_FACTORS = {"plane": PLANES, "channels": tuple(CHANNELS), "transposed": ("plain", "transposed")}
_LAY = ("contiguous", "channels_last", "transposed", "reversed", "offset", "gapped", "odd_ones")
_TELLING = (
    {"dtype": "f32", "plane": "13-k3d2p2", "channels": "depthwise", "values": "random"},
    {"dtype": "f32", "plane": "17x5-k3s1p2u", "channels": "4to6", "transposed": "plain", "values": "random"},
    {
        "dtype": "f32",
        "plane": "17x5-k3s2p1",
        "channels": "groups2",
        "transposed": "plain",
        "values": "exact",
        "layout": "channels_last",
    },
    {"dtype": "f32", "plane": "7x9-k4s2p1o1", "channels": "4to6", "transposed": "transposed", "values": "random"},
    {"dtype": "bf16", "plane": "5x4x6-k3p1", "channels": "3to8", "transposed": "plain", "values": "random"},
)
_USUAL = (
    {"dtype": "f32", "plane": "7x9-k3p1", "channels": "3to8", "transposed": "plain", "values": "random"},
    {"dtype": "f32", "plane": "7x9-k3p1", "channels": "depthwise2", "transposed": "plain", "values": "random"},
)
"""What convolutions of most models are, and have kernels of their own for: 3 x 3 in steps of 1, for sizes that no tile
divides, and the same with several filters for each channel.
"""
_CITES = {
    "C1": when(transposed="plain"),
    "C2": when(transposed="transposed"),
    "C3": when(values=("random", "exact")),
    "C4": when(values="nonfinite"),
    "C5": when(dtype=("f16", "bf16")),
}
_DOWN: tuple[Any, ...] = (None, [1, 1], [0, 0], [1, 1], False, [0, 0])


def _negatives() -> tuple[InvalidCall, ...]:
    name = "aten.convolution.default"
    return (
        invalid_call(
            "ranks",
            "input has 3, 4 or 5 dimensions, and weight as many.",
            CallTemplate(name, (TensorArg((2, 3, 8, 8)), TensorArg((4, 3, 3)), *_DOWN, 1)),
        ),
        invalid_call(
            "dtypes",
            "input and weight have the same dtype.",
            CallTemplate(name, (TensorArg((2, 3, 8, 8)), TensorArg((4, 3, 3, 3), dtype=torch.float64), *_DOWN, 1)),
        ),
        invalid_call(
            "channels",
            "The channels of input are groups times weight.size(1); transposed, weight.size(0).",
            CallTemplate(name, (TensorArg((2, 3, 8, 8)), TensorArg((4, 2, 3, 3)), *_DOWN, 1)),
        ),
    )


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "convolution",
    lambda op: domain(
        op,
        {**_FACTORS, "bias": ("bias", "none")},
        _convolution,
        kinds=KINDS,
        dtypes=FLOATS,
        lay=_LAY,
        priority=_TELLING,
        added=_USUAL,
        covers=_CITES,
        invalid_calls=_negatives(),
        facets=_facets(),
        many=MANY,
    ),
)
declare(
    "convolution_told_how",
    lambda op: domain(
        op,
        {"plane": PLANES[:9], "channels": ("4to6", "depthwise"), "bias": ("bias", "none")},
        _told_how,
        kinds=KINDS[:1] + KINDS[3:4],
        lay=_LAY,
    ),
)
declare(
    "convolution_backward",
    lambda op: domain(
        op,
        {**_FACTORS, "mask": tuple(MASKS)},
        _backward,
        kinds=("random", "cancel", "exact", "duplicates"),
        lay=_LAY,
        priority=_TELLING,
        added=_USUAL,
        facets=_facets(),
        rules=(Rule(("dtype", "mask"), _masked),),
        covers={"C2": lambda levels: levels["mask"] != "all", "C3": when(dtype=("f16", "bf16"))},
        many=MANY,
    ),
)
declare(
    "convolution_2d_backward",
    lambda op: domain(
        op,
        {**_FACTORS, "transposed": ("plain",), "mask": ("all", "input")},
        _backward_2d,
        dtypes=FLOATS[:2],
        kinds=("random", "exact", "cancel"),
    ),
)
declare(
    "conv_tbc",
    lambda op: domain(
        op,
        {"size": ("5x2x3x4", "1x1x1x1", "9x3x7x5", "17x1x8x2"), "kernel": ("3", "1", "5"), "pad": ("0", "1", "3")},
        _tbc,
        dtypes=FLOATS[:2],
        kinds=("random", "exact", "cancel"),
        lay=("contiguous", "offset", "gapped"),
    ),
)
declare(
    "direct_convolution",
    lambda op: domain(
        op,
        {
            "overload": tuple(str(t) for t in op.targets if "slow_conv" in str(t)),
            "plane": PLANES,
            "channels": ("4to6", "3to8", "1to1"),
            "bias": ("bias", "none"),
        },
        _direct,
        dtypes=FLOATS[:2],
        kinds=("random", "exact", "cancel"),
    ),
)
