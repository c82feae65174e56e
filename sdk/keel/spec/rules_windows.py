"""Type rules of what moves windows over the last dimensions: how many fit, and where channels lie in memory.

PyTorch keeps images either row-major or with channels innermost; which of the two a result has follows from the strides
of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy

from keel.spec.rules import Args, LayoutRule, Shape, ShapeRule, number, sizes, typical
from keel.types import Dim, TensorType, as_dim, contiguous_strides


def spread(values: Any, n: int) -> list[Any]:
    """One number per dimension: the same for all if one is given."""
    listed = list(sizes(values)) if isinstance(values, list | tuple) else [number(values)]
    return listed * n if len(listed) == 1 else listed


def fitting(size: Any, kernel: Any, padding: Any, stride: Any, dilation: Any = 1, ceil: bool = False) -> Dim:
    """How many windows fit into ``size`` elements with ``padding`` on both sides; under ``ceil`` the last may stand
    out, but it begins before the padding on the right.
    """
    extent = dilation * (kernel - 1) + 1
    last = size + 2 * padding - extent
    if not ceil:
        return as_dim(_floordiv(last, stride) + 1)
    result = _floordiv(last + stride - 1, stride) + 1
    begin = _floordiv(size + padding - 1, stride) + 1  # windows that begin before the padding
    inside = padding - extent + stride - 1 < 0  # those that stand out all do
    return as_dim(result if inside is True or inside is sympy.true else _least(result, begin))


def transposed_size(size: Any, kernel: Any, padding: Any, stride: Any, dilation: Any, more: Any) -> Dim:
    """The size from which that many windows come, and ``more`` elements."""
    return as_dim((size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1)


def _floordiv(a: Any, b: Any) -> Any:
    return a // b if isinstance(a, int) and isinstance(b, int) else sympy.floor(sympy.sympify(a) / b)


def _least(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else sympy.Min(a, b)


def pooled(n: int, name: str = "self") -> ShapeRule:
    """The sizes of a pooling of the last ``n`` dimensions."""

    def of(args: Args) -> Shape:
        shape = args[name].shape
        kernel = spread(args["kernel_size"], n)
        stride = spread(args["stride"], n) if args["stride"] else kernel
        padding, dilation = spread(args["padding"], n), spread(args.get("dilation", 1), n)
        return (
            *shape[:-n],
            *(
                fitting(s, k, p, step, d, bool(args["ceil_mode"]))
                for s, k, p, step, d in zip(shape[-n:], kernel, padding, stride, dilation, strict=True)
            ),
        )

    return ShapeRule(
        f"windows of the last {n} dimensions of {name}: floor((size + 2 padding - dilation (kernel - 1) - "
        f"1) / stride) + 1, under ceil_mode rounded up as long as the window begins in front of the "
        f"padding on the right",
        of,
    )


# -- where channels lie -----------------------------------------------------------------------------------------------


def is_channels_last(t: TensorType) -> bool:
    """Whether a tensor of 4 or 5 dimensions has its channels (dimension 1) innermost (``suggest_memory_format``)."""
    if t.rank not in (4, 5):
        return False
    least = 0
    if typical(t.strides[1]) == 0:
        return False
    for d in (1, *range(t.rank - 1, 1, -1), 0):
        size, stride = typical(t.shape[d]), typical(t.strides[d])
        if size == 0 or stride < least or (d == 0 and least == typical(t.strides[1])):
            return False
        least = stride * max(size, 1)
    return True


def channels_last_strides(shape: Shape) -> Shape:
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for d in order:
        strides[d] = step
        step = as_dim(step * shape[d])
    return tuple(strides)


def as_image(*names: str, ranks: Sequence[int] = (4, 5)) -> LayoutRule:
    """Channels innermost if those of one of the arguments are, else row-major; the former for ``ranks`` only."""

    def of(args: Args, shape: Shape) -> Shape:
        images = [args[n] for n in names if isinstance(args[n], TensorType)]
        last = len(shape) in ranks and any(map(is_channels_last, images))
        return channels_last_strides(shape) if last else contiguous_strides(shape)

    limit = "" if len(ranks) > 1 else f" and has {ranks[0]} dimensions"
    return LayoutRule(f"channels last if {' or '.join(names)} is{limit}, else row-major", of)
