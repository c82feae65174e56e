"""Pooling: windows that reach over the edge, into padding and beyond, ties, planes of one element, places chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, InvalidCall, Levels
from ..layout_classes import LAYOUTS
from ..values import SeededValues
from .call_templates import FLOATS, CallTemplate, DerivedArg, TensorArg, domain, invalid_call, usual, when

aten = torch.ops.aten
MAXIMA = ("random", "specials", "duplicates", "ties", "exact", "wide")
MEANS = ("random", "nonfinite", "cancel", "exact", "duplicates")
PLANES: Mapping[int, Mapping[str, tuple[int, ...]]] = {
    2: {
        "8x9": (2, 3, 8, 9),
        "1x1": (1, 1, 1, 1),
        "7x5": (2, 5, 7, 5),
        "no_batch": (3, 6, 11),
        "33x17": (1, 2, 33, 17),
        "3x129": (1, 1, 3, 129),
        "none": (0, 2, 4, 4),
        "257x129": (1, 2, 257, 129),
    },
    3: {
        "6x5x7": (2, 3, 6, 5, 7),
        "1x1x1": (1, 1, 1, 1, 1),
        "no_batch": (2, 4, 5, 9),
        "3x8x17": (1, 2, 3, 8, 17),
        "41x41x41": (1, 1, 41, 41, 41),
    },
}
MANY = {2: "257x129", 3: "41x41x41"}


@dataclass(frozen=True)
class Window:
    """The same in all dimensions; ``oblong`` ones are 1 less in all but the last, ``uneven`` ones have a stride that is
    1 more there, and no padding.
    """

    size: int
    stride: int = 0
    padding: int = 0
    dilation: int = 1
    oblong: bool = False
    uneven: bool = False

    def along(self, rank: int) -> tuple[list[int], list[int], list[int]]:
        """Kernel, stride (of the kernel's size where it is 0) and padding of each dimension."""
        rest = [i < rank - 1 for i in range(rank)]
        kernel = [max(1, self.size - (self.oblong and r)) for r in rest]
        stride = [(self.stride or k) + (self.uneven and r) for k, r in zip(kernel, rest, strict=True)]
        return kernel, stride, [0 if self.uneven and r else self.padding for r in rest]


WINDOWS: Mapping[str, Window] = {
    "k3s2p1": Window(3, 2, 1),
    "k2": Window(2),
    "k3s1p1": Window(3, 1, 1),
    "k1": Window(1),
    "k3s2": Window(3, 2),
    "k4s3p2": Window(4, 3, 2),
    "k3x2s2p1": Window(3, 2, 1, oblong=True),
    "k3x2s1p1u": Window(3, 1, 1, oblong=True, uneven=True),
    "k2s3": Window(2, 3),
    "k5s1p2": Window(5, 1, 2),
    "k3s2p1d2": Window(3, 2, 1, 2),
    "k2s1d3": Window(2, 1, 0, 3),
}


def _settings(levels: Levels, rank: int) -> tuple[list[int], list[int], list[int], list[int], bool] | None:
    """Kernel, stride, padding, dilation, ceil_mode; None where no window fits."""
    w, plane = WINDOWS[levels["window"]], PLANES[rank][levels["plane"]][-rank:]
    kernel, stride, padding = w.along(rank)
    if any(2 * p > k or n + 2 * p <= w.dilation * (k - 1) for n, k, p in zip(plane, kernel, padding, strict=True)):
        return None
    return kernel, stride if w.stride else [], padding, [w.dilation] * rank, levels["ceil"] == "ceil"


def _max(rank: int) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        settings = _settings(levels, rank)
        return settings and CallTemplate(
            f"aten.max_pool{rank}d_with_indices.default", (TensorArg(PLANES[rank][levels["plane"]]), *settings)
        )

    return ask


_DIVISORS: Mapping[str, tuple[bool, int | None]] = {
    "counted": (True, None),
    "without": (False, None),
    "by_3": (True, 3),
    "by_1": (False, 1),
}


def _avg(rank: int, back: bool = False) -> Callable[[Levels], CallTemplate | None]:
    name = f"aten.avg_pool{rank}d"
    forward = getattr(aten, f"avg_pool{rank}d")

    def ask(levels: Levels) -> CallTemplate | None:
        window, shape = _settings(levels, rank), PLANES[rank][levels["plane"]]
        if window is None or window[3][0] != 1 or (rank == 3 and min(shape[-3:]) < max(window[0])):
            return None
        settings = (*window[:3], window[4], *_DIVISORS[levels["divisor"]])
        if not back:
            return CallTemplate(f"{name}.default", (TensorArg(shape, products=64), *settings))
        if 0 in shape:
            return None
        out = tuple(forward(torch.empty(shape, device="meta"), *settings).shape)
        return CallTemplate(f"{name}_backward.default", (TensorArg(out), TensorArg(shape), *settings))

    return ask


def _max_back(rank: int) -> Callable[[Levels], CallTemplate | None]:
    forward = getattr(aten, f"max_pool{rank}d_with_indices")

    def ask(levels: Levels) -> CallTemplate | None:
        settings, shape = _settings(levels, rank), PLANES[rank][levels["plane"]]
        if settings is None or 0 in shape:
            return None
        out = tuple(forward(torch.empty(shape, device="meta"), *settings)[0].shape)
        places = DerivedArg(lambda drawn, dtype: forward(drawn[1], *settings)[1])
        stride = settings[1] or settings[0]
        return CallTemplate(
            f"aten.max_pool{rank}d_with_indices_backward.default",
            (TensorArg(out, lies="dense"), TensorArg(shape, lies="none"), settings[0], stride, *settings[2:], places),
        )

    return ask


OUTS: Mapping[int, Mapping[str, list[int]]] = {
    2: {"3x4": [3, 4], "1x1": [1, 1], "5x7": [5, 7], "2x1": [2, 1], "9x9": [9, 9], "7x5": [7, 5]},
    3: {"2x3x4": [2, 3, 4], "1x1x1": [1, 1, 1], "5x5x5": [5, 5, 5], "1x2x3": [1, 2, 3], "6x5x7": [6, 5, 7]},
}


def _adaptive(kind: str, rank: int) -> Callable[[Levels], CallTemplate | None]:
    name = f"aten.{'_' if kind == 'avg' else ''}adaptive_{kind}_pool{rank}d"

    def ask(levels: Levels) -> CallTemplate | None:
        shape = PLANES[rank][levels["plane"]]
        return CallTemplate(f"{name}.default", (TensorArg(shape, products=64), OUTS[rank][levels["outs"]]))

    return ask


def _adaptive_back(kind: str, rank: int) -> Callable[[Levels], CallTemplate | None]:
    name = f"aten.{'_' if kind == 'avg' else ''}adaptive_{kind}_pool{rank}d_backward.default"

    def ask(levels: Levels) -> CallTemplate | None:
        shape, outs = PLANES[rank][levels["plane"]], OUTS[rank][levels["outs"]]
        if 0 in shape:
            return None
        tensors = (
            TensorArg((*shape[:-rank], *outs), lies="dense"),
            TensorArg(shape, lies="dense" if kind == "avg" else "none"),
        )
        if kind == "avg":
            return CallTemplate(name, tensors)
        forward = getattr(aten, f"adaptive_max_pool{rank}d")
        return CallTemplate(name, (*tensors, DerivedArg(lambda drawn, dtype: forward(drawn[1], outs)[1])))

    return ask


def _fractional(rank: int, back: bool = False) -> Callable[[Levels], CallTemplate | None]:
    name, forward = f"aten.fractional_max_pool{rank}d", getattr(aten, f"fractional_max_pool{rank}d")

    def samples(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        return draw.uniform(prod(shape), 0.0, 0.999).to(dtype)

    def ask(levels: Levels) -> CallTemplate | None:
        shape, outs, k = PLANES[rank][levels["plane"]], OUTS[rank][levels["outs"]], int(levels["window"])
        if 0 in shape or any(o + k > n for o, n in zip(outs, shape[-rank:], strict=True)):
            return None
        kernel = [k] * rank
        batch = shape[:-rank] if len(shape) == rank + 2 else (1, *shape[:-rank])
        places = TensorArg((*batch, rank), draw=samples, lies="none")
        if not back:
            return CallTemplate(f"{name}.default", (TensorArg(shape), kernel, outs, places))
        middle = torch.full((*batch, rank), 0.4)
        indices = DerivedArg(lambda drawn, dtype: forward(drawn[1], kernel, outs, middle.to(dtype))[1])
        return CallTemplate(
            f"{name}_backward.default",
            (TensorArg((*shape[:-rank], *outs), lies="none"), TensorArg(shape, lies="none"), kernel, outs, indices),
        )

    return ask


def _unpool(rank: int) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        shape, grown = PLANES[rank][levels["plane"]], int(levels["grown"])
        if 0 in shape:
            return None
        size = [grown * n + grown - 1 for n in shape[-rank:]]

        def places(draw: SeededValues, dtype: torch.dtype, sizes: tuple[int, ...], values: str) -> torch.Tensor:
            n = prod(sizes[-rank:])
            rows = [draw.shuffled(torch.arange(prod(size)))[:n] for _ in range(prod(sizes) // n)]
            return torch.stack(rows)

        more = ([grown] * rank, [0] * rank) if rank == 3 else ()
        return CallTemplate(
            f"aten.max_unpool{rank}d.default",
            (
                TensorArg(shape, lies="dense"),
                TensorArg(shape, dtype=torch.int64, draw=places, lies="dense"),
                size,
                *more,
            ),
        )

    return ask


def _columns(back: bool) -> Callable[[Levels], CallTemplate | None]:
    def ask(levels: Levels) -> CallTemplate | None:
        shape, w = PLANES[2][levels["plane"]], WINDOWS[levels["window"]]
        if 0 in shape:
            return None
        kernel, stride, padding = w.along(2)
        counts = [
            (n + 2 * p - w.dilation * (k - 1) - 1) // s + 1
            for n, k, s, p in zip(shape[-2:], kernel, stride, padding, strict=True)
        ]
        if min(counts) < 1:
            return None
        settings = (kernel, [w.dilation] * 2, padding, stride)
        if not back:
            return CallTemplate("aten.im2col.default", (TensorArg(shape), *settings))
        return CallTemplate(
            "aten.col2im.default",
            (
                TensorArg((*shape[:-3], shape[-3] * prod(kernel), prod(counts)), products=64),
                list(shape[-2:]),
                *settings,
            ),
        )

    return ask


# -- their domains ----------------------------------------------------------------------------------------------------

_CEIL = ("floor", "ceil")


def _windows(rank: int) -> dict[str, tuple[str, ...]]:
    return {"plane": usual(PLANES[rank], MANY[rank]), "window": tuple(WINDOWS), "ceil": _CEIL}


def _places(rank: int) -> dict[str, tuple[str, ...]]:
    return {"plane": usual(PLANES[rank], MANY[rank]), "outs": tuple(OUTS[rank])}


def _too_much(name: str, rank: int, *more: Any) -> tuple[InvalidCall, ...]:
    shape = PLANES[rank][next(iter(PLANES[rank]))]
    return (
        invalid_call(
            "padding",
            "padding is at most half the kernel.",
            CallTemplate(name, (TensorArg(shape), [2] * rank, [2] * rank, [2] * rank, *more)),
        ),
    )


def _telling(rank: int) -> Sequence[Levels]:
    first = next(iter(PLANES[rank]))
    return (
        {
            "dtype": "f32",
            "plane": first,
            "window": "k3x2s1p1u",
            "ceil": "ceil",
            "values": "random",
            "divisor": "without",
        },
        {
            "dtype": "f32",
            "plane": first,
            "window": "k3s2p1",
            "ceil": "ceil",
            "values": "specials",
            "divisor": "without",
        },
        {
            "dtype": "f32",
            "plane": first,
            "window": "k4s3p2",
            "ceil": "ceil",
            "values": "duplicates",
            "layout": "channels_last",
        },
        {"dtype": "bf16", "plane": first, "window": "k3s1p1", "values": "random", "layout": "transposed"},
    )


_TIED = when(values=("duplicates", "ties", "exact"))
_DTYPES = (*FLOATS, torch.int64)
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "im2col",
    lambda op: domain(
        op,
        {"plane": usual(PLANES[2], MANY[2]), "window": tuple(WINDOWS)},
        _columns(False),
        kinds=("random", "specials"),
        many={"plane": MANY[2]},
    ),
)
declare(
    "col2im",
    lambda op: domain(
        op,
        {"plane": usual(PLANES[2], MANY[2]), "window": tuple(WINDOWS)},
        _columns(True),
        kinds=("random", "exact", "cancel"),
        many={"plane": MANY[2]},
    ),
)


def _pools(rank: int) -> Mapping[str, Callable[[Op], Domain]]:
    d = f"{rank}d"
    divided = {**_windows(rank), "divisor": tuple(_DIVISORS)}
    return {
        f"max_pool{d}_with_indices": lambda op: domain(
            op,
            _windows(rank),
            _max(rank),
            dtypes=_DTYPES,
            kinds=MAXIMA,
            priority=_telling(rank),
            lay=LAYOUTS if rank == 2 else [x for x in LAYOUTS if x != "channels_last"],
            covers={"C2": _TIED},
            invalid_calls=_too_much(f"aten.max_pool{d}_with_indices.default", rank),
            many={"plane": MANY[rank]},
        ),
        f"avg_pool{d}": lambda op: domain(
            op,
            divided,
            _avg(rank),
            kinds=MEANS,
            priority=_telling(rank),
            dtypes=FLOATS if rank == 2 else FLOATS[:2],
            covers={"C1": when(window=("k3s2p1", "k4s3p2"))},
            invalid_calls=_too_much(f"aten.avg_pool{d}.default", rank),
            many={"plane": MANY[rank]},
        ),
        f"avg_pool{d}_backward": lambda op: domain(
            op,
            divided,
            _avg(rank, True),
            kinds=("random", "exact", "cancel"),
            priority=_telling(rank),
            many={"plane": MANY[rank]},
            dtypes=FLOATS if rank == 2 else FLOATS[:2],
        ),
        f"max_pool{d}_with_indices_backward": lambda op: domain(
            op,
            _windows(rank),
            _max_back(rank),
            kinds=("random", "exact", "duplicates"),
            priority=_telling(rank),
            many={"plane": MANY[rank]},
            lay=("contiguous",) if rank == 3 else ("contiguous", "offset", "gapped"),
        ),
    }


def _adaptive_pools(rank: int) -> Mapping[str, Callable[[Op], Domain]]:
    d = f"{rank}d"
    return {
        f"adaptive_avg_pool{d}": lambda op: domain(
            op, _places(rank), _adaptive("avg", rank), kinds=MEANS, many={"plane": MANY[rank]}
        ),
        f"adaptive_max_pool{d}": lambda op: domain(
            op,
            _places(rank),
            _adaptive("max", rank),
            kinds=MAXIMA,
            covers={"C3": _TIED},
            many={"plane": MANY[rank]},
        ),
        f"adaptive_avg_pool{d}_backward": lambda op: domain(
            op,
            _places(rank),
            _adaptive_back("avg", rank),
            kinds=("random", "exact", "cancel"),
            many={"plane": MANY[rank]},
        ),
        f"adaptive_max_pool{d}_backward": lambda op: domain(
            op,
            _places(rank),
            _adaptive_back("max", rank),
            kinds=("random", "exact", "duplicates"),
            lay=("contiguous",),
        ),
    }


def _fractional_pools(rank: int) -> Mapping[str, Callable[[Op], Domain]]:
    d = f"{rank}d"
    return {
        f"fractional_max_pool{d}": lambda op: domain(
            op,
            {**_places(rank), "window": ("2", "1", "3")},
            _fractional(rank),
            kinds=("random", "duplicates", "ties"),
            covers={"C4": _TIED},
            untested={"C5": "What eager PyTorch does with NaN here depends on the layout."},
        ),
        f"fractional_max_pool{d}_backward": lambda op: domain(
            op,
            {**_places(rank), "window": ("2", "1", "3")},
            _fractional(rank, True),
            lay=("contiguous",),
            kinds=("random", "exact", "duplicates"),
            why_few="It is tried in one layout alone.",
        ),
        f"max_unpool{d}": lambda op: domain(
            op,
            {"plane": usual(PLANES[rank], MANY[rank]), "grown": ("2", "1", "3")},
            _unpool(rank),
            kinds=("random", "specials", "exact"),
            untested={
                "C2": "Which of several is kept is open, and no other oracle speaks of it.",
                "C3": "Eager PyTorch raises for some of them only.",
            },
        ),
    }


for _rank in (2, 3):
    for _name, _build in {**_pools(_rank), **_adaptive_pools(_rank), **_fractional_pools(_rank)}.items():
        declare(_name, _build)
