"""The operands of elementwise calls: sizes, values and layouts, and only values for which the operator is defined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import MEMBERS, Op

from ...by_member import ByMember
from .. import layout_classes, shapes
from ..case import Inputs
from ..domain import Levels
from ..saved_call import OWN, Path, SavedCall, TensorSpec, rebuilt
from ..values import SeededValues, crossed, fill, kinds_of, specials, with_outliers

ALL, EVERY = "all", "every"
"""Sizes that follow from values: all combinations of special values; all values that a dtype has."""
SCALARS: Mapping[str, tuple[Path, ...]] = {"masked_fill": ((2,),)}
"""Operands that have no dimensions."""


def slots(form: SavedCall) -> list[tuple[Path, TensorSpec]]:
    return list(form.tensor_specs)


def make(op: Op, forms: tuple[SavedCall, ...], levels: Levels, dtype: torch.dtype, draw: SeededValues) -> Inputs:
    form = forms[int(levels["form"][1:])]
    places = slots(form)
    tensors = operands(levels, [dtype if p.own else p.dtype for _, p in places], draw, *op.numerics.interval)
    tensors = [
        x.reshape(-1)[:1].reshape(())
        if path in SCALARS.get(op.name, ()) and x.numel()
        else x.new_ones(())
        if path in SCALARS.get(op.name, ())
        else x
        for x, (path, _) in zip(tensors, places, strict=True)
    ]
    tensors = mended(op, tensors, next((i for i, (path, _) in enumerate(places) if path == (1,)), 9))
    laid = _laid(levels, tensors)
    by_path = dict(zip((path for path, _ in places), laid, strict=True))

    def put(path: Path, leaf: Any) -> Any:
        return (
            by_path[path] if isinstance(leaf, TensorSpec) else dtype if isinstance(leaf, str) and leaf == OWN else leaf
        )

    args, kwargs = rebuilt((form.args, form.kwargs), put)
    return Inputs(args, kwargs, frozenset({"exact"} if levels["values"] == "exact" else ()))


def operands(
    levels: Levels, dtypes: list[torch.dtype], draw: SeededValues, low: float = -4.0, high: float = 4.0
) -> list[torch.Tensor]:
    """Row-major tensors, one of each dtype, of the sizes and values that the levels say."""
    if levels["shape"] == EVERY:
        return [draw.shuffled(every(dtypes[0])) if not draw.bare else torch.ones(2**8, dtype=dtypes[0])]
    if levels["shape"] == ALL:
        return combinations(dtypes, draw)
    shape, result = shapes.shape_of(levels["shape"]), list[torch.Tensor]()
    for i, dtype in enumerate(dtypes):
        own = _partner_shape(shape, levels["partner"]) if i else _crossed(shape, levels["partner"])
        kind = levels["values"] if levels["values"] in kinds_of(dtype) else "random"
        made = (
            with_outliers(draw, dtype, prod(own), low=low, high=high)
            if levels["values"] == "random"
            else (fill(draw, kind, dtype, prod(own), low=low, high=high))
        )
        result.append(made.reshape(own))
    return crossed(draw, result) if levels["values"] == "random" else result


def every(dtype: torch.dtype) -> torch.Tensor:
    """All values of a dtype of 8 or 16 bits, NaNs of all bits among them."""
    bits = 8 * dtype.itemsize
    numbers = torch.arange(2**bits, dtype=torch.int32)
    numbers = numbers - (numbers >= 2 ** (bits - 1)).int() * 2**bits
    values: torch.Tensor = numbers.to(torch.int8 if bits == 8 else torch.int16).view(dtype)
    return values


def combinations(dtypes: list[torch.dtype], draw: SeededValues) -> list[torch.Tensor]:
    """All combinations of special values, a few of each where there are three operands or more, in a drawn order."""
    if draw.bare:
        return [torch.ones(1, dtype=d) for d in dtypes]
    values = [specials(d) for d in dtypes]
    if len(dtypes) > 2:
        few = max(2, int(4096 ** (1 / len(dtypes))))
        values = [draw.shuffled(v)[:few] for v in values]
    counts = [len(v) for v in values]
    order = torch.randperm(prod(counts), generator=draw.fresh) if len(dtypes) <= 2 else torch.arange(prod(counts))
    results = []
    for i, v in enumerate(values):
        results.append(v[order // prod(counts[i + 1 :]) % counts[i]])
    return results


def _crossed(shape: tuple[int, ...], partner: str) -> tuple[int, ...]:
    if partner == "turns":
        return tuple(1 if d % 2 else n for d, n in enumerate(shape))
    return (*shape[:-1], 1) if partner == "outer" else shape


def _partner_shape(shape: tuple[int, ...], partner: str) -> tuple[int, ...]:
    match partner:
        case "row":
            return shape[-1:]
        case "column":
            return (*shape[:-1], 1)
        case "outer":
            return (*(1 for _ in shape[:-1]), shape[-1])
        case "middle":
            return (shape[0], *(1 for _ in shape[1:-1]), shape[-1])
        case "first":
            return (shape[0], *(1 for _ in shape[1:]))
        case "turns":
            return tuple(n if d % 2 else 1 for d, n in enumerate(shape))
        case "0d":
            return ()
    return shape


def _laid(levels: Levels, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors where the levels say that they lie: the others as the first where they are alike and it fits."""
    layout, partner = levels["layout"], levels["partner"]
    results = []
    for i, x in enumerate(tensors):
        if i == 0 or partner != "dense":
            x = layout_classes.with_layout(x, layout) if layout_classes.fits(layout, x.shape) else x
        results.append(x)
    return results


def mended(op: Op, tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """The tensors without values for which an operator is not defined, or takes for ever. ``divisor`` is the place of
    the second operand.
    """
    if (own := mend.declared.get(op.name)) is not None:
        return own(tensors, divisor)
    return tensors if op.numerics.quotient is None else _without_zeros(tensors, divisor)


Mend = Callable[[list[torch.Tensor], int], list[torch.Tensor]]
mend: ByMember[Mend] = ByMember()


@mend("log_sigmoid_backward")
def _with_forward(tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """The last operand is what the forward made of x."""
    grad, x, *_ = tensors
    return [grad, x, torch.ops.aten.log_sigmoid_forward.default(x)[1]]


@mend(*(name for name in MEMBERS if "_polynomial_" in name))
def _of_small_degree(tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """No polynomial of a large degree, nor at NaN, of which PyTorch's kernels return memory that they have not written
    (``docs/findings``).
    """
    degree = tensors[divisor] if divisor < len(tensors) else torch.ones((), dtype=torch.bool)
    least = -3 if degree.is_signed() else 0
    small = degree if degree.dtype == torch.bool else degree.nan_to_num(3.0).clamp(least, 9)
    return [small if i == divisor else torch.where(x.isnan(), 0.25, x).to(x.dtype) for i, x in enumerate(tensors)]


@mend("zeta", "polygamma")
def _not_far_below_zero(tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """A negative argument is summed up to a positive one, in steps of 1."""
    return [
        x
        if x.dtype == torch.bool or x.is_complex()
        else torch.where((x < -99) & (x > -torch.inf), torch.fmod(x, 99), x).to(x.dtype)
        for x in tensors
    ]


@mend("lcm")
def _without_least(tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """The least integer has no absolute value, of which a common multiple is made."""
    return [x.clamp(min=torch.iinfo(x.dtype).min + 1) if x.dtype != torch.bool else x for x in tensors]


def _without_zeros(tensors: list[torch.Tensor], divisor: int) -> list[torch.Tensor]:
    """Of integers no divisor is 0, nor -1 beside the least one."""
    if divisor >= len(tensors) or any(t.is_floating_point() or t.is_complex() for t in tensors):
        return tensors
    y = tensors[divisor]
    if y.dtype == torch.bool:
        y = torch.ones_like(y)
    else:
        least = any(
            bool((x == torch.iinfo(d).min).any())
            for x in tensors
            for d in {t.dtype for t in tensors}
            if x is not y and d != torch.bool and x.dtype != torch.bool
        )
        y = torch.where((y == 0) | ((y == -1) & least), torch.ones_like(y), y)
    return [y if i == divisor else x for i, x in enumerate(tensors)]
