"""The domain of a member that has none of its own: calls that are known to be valid, with tensors that are drawn again.

Such calls are the samples of its declaration, and those of PyTorch's OpInfos for its other overloads. Sizes and
attributes stay, and so do indices and truth values; floats keep their range where a class of values does not say
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from keel.loops import DTYPE_NAMES
from keel.opset import Op

from . import layout_classes
from .case import Inputs
from .collect_calls import FILES, KEEP_VALUES, load_calls
from .diversity import facets, select_diverse
from .domain import DTYPES, Domain, Levels, Rule, dtype_names
from .saved_call import OUTLIERS, SavedCall, TensorSpec, redrawn
from .values import SeededValues, kinds_of

MOST = 24
"""Calls of a member: of further samples those stay that differ most."""
FREE = ("pointwise", "reduction", "view", "scan")
"""Tags of operators that are defined for any values."""
SEPARATE = ("pointwise", "view", "shape")
"""Tags of operators in which a special value of one element does not reach another element's result, except in
gradients that sum.
"""
WELL_BEHAVED = ("random", "duplicates", "exact", "specials")
"""Classes of values for the others, within the range that the sample has; the last two where that has 1 and -1."""
CALM = ("random", "linalg", "quantized")
"""Profiles of operators that are not tried on special values but where they are elementwise: most refuse them."""


def domain_from_samples(op: Op) -> Domain | None:
    """None for a member that no call is known of."""
    judged = (replace(s, dtypes=tuple(d for d in s.dtypes if _judged(op, d))) for s in known_calls(op))
    calls = tuple(sorted((s for s in judged if s.dtypes), key=_slight))
    if not calls:
        return None
    separate = bool(op.tags.intersection(SEPARATE)) and not op.name.endswith("_backward")
    free = bool(op.tags.intersection(FREE))
    kinds = (
        [*dict.fromkeys(k for d in _dtypes(calls) for k in kinds_of(d))]
        if free
        else list(WELL_BEHAVED[:3] if op.profile in CALM or op.numerics.finite else WELL_BEHAVED)
    )
    if op.profile in KEEP_VALUES or not any(_drawn_parts(s) for s in calls):
        kinds = ["own"]
    factors = {
        "dtype": dtype_names(_dtypes(calls)),
        "sample": tuple(f"s{i}" for i in range(len(calls))),
        "layout": layout_classes.LAYOUTS[:1] if op.row_major is True else layout_classes.LAYOUTS,
        "values": tuple(kinds),
    }
    return Domain(
        op,
        factors,
        lambda levels, dtype, draw: _make(calls, levels, dtype, draw, separate),
        rules=(
            Rule(("dtype", "sample"), lambda dtype, sample: DTYPES[dtype] in calls[int(sample[1:])].dtypes),
            Rule(("dtype", "values"), lambda dtype, values: values == "own" or values in kinds_of(DTYPES[dtype])),
            Rule(
                ("sample", "values"),
                lambda sample, values: (
                    free or separate or values in WELL_BEHAVED[:2] or _holds_small_integers(calls[int(sample[1:])])
                ),
            ),
            Rule(("sample", "layout"), lambda sample, layout: _lies(op, calls[int(sample[1:])], layout)),
        ),
        overload=lambda levels: calls[int(levels["sample"][1:])].overload,
        facets={f"s{i}": facets(call) for i, call in enumerate(calls)},
    )


# -- which calls ------------------------------------------------------------------------------------------------------


def known_calls(op: Op, files: Sequence[str] = FILES) -> tuple[SavedCall, ...]:
    """Different calls of the member, each with the dtypes in which eager PyTorch runs it: from its samples, then those
    of other overloads, and those with other arguments.
    """
    here = {str(t) for t in op.targets}
    own, *others = ([s for s in load_calls(file).get(op.name, ()) if s.overload in here and s.dtypes] for file in files)
    more = [s for calls in others for s in calls]
    return (*_spread(own, max(MOST - len(more), MOST // 2)), *_spread(more, MOST))


def _slight(call: SavedCall) -> bool:
    """Whether a call has so few elements that much may be wrong with it and not be seen: such come last."""
    return max((prod(p.shape) for _, p in call.tensor_specs), default=9) < 4


def _judged(op: Op, dtype: torch.dtype) -> bool:
    """Whether an oracle speaks of results in a dtype: no distribution of complex numbers is held to anything, and
    matrices are factorized in floats.
    """
    if "random" in op.tags:
        return not dtype.is_complex
    return op.profile not in KEEP_VALUES or dtype.is_floating_point or dtype.is_complex


def _spread(calls: list[SavedCall], most: int) -> list[SavedCall]:
    return select_diverse(calls, [facets(call) for call in calls])[:most]


def _dtypes(calls: tuple[SavedCall, ...]) -> list[torch.dtype]:
    results = {d for s in calls for d in s.dtypes}
    return [d for d in DTYPE_NAMES if d in results]


def _drawn_parts(made: SavedCall) -> list[TensorSpec]:
    return [p for _, p in made.tensor_specs if p.values is None]


def _holds_small_integers(made: SavedCall) -> bool:
    """Whether small integers of both signs are in the range of every tensor that is drawn."""
    return all(p.low <= -1 and p.high >= 1 for p in _drawn_parts(made))


def _lies(op: Op, made: SavedCall, layout: str) -> bool:
    """Whether a tensor of the call can lie so."""
    if layout == "contiguous" or op.is_row_major(made.overload):
        return layout == "contiguous"
    return any(layout_classes.fits(layout, p.shape) for _, p in made.tensor_specs)


# -- their arguments --------------------------------------------------------------------------------------------------


def _make(
    calls: tuple[SavedCall, ...], levels: Levels, dtype: torch.dtype, draw: SeededValues, separate: bool
) -> Inputs | None:
    made = calls[int(levels["sample"][1:])]
    values = OUTLIERS if separate and levels["values"] == "random" else levels["values"]
    args, kwargs = redrawn(made, dtype, draw, values, levels["layout"])
    if calls[0].overload.startswith(("aten.searchsorted.", "aten.bucketize.")):
        args, kwargs = _in_order(args, kwargs, 0 if "searchsorted" in made.overload else 1)
    if calls[0].overload == "aten.unique_dim.default":
        args = (_lying_as(args[0], _clean(args[0])), *args[1:])
    return Inputs(args, kwargs, frozenset({"exact"} if levels["values"] == "exact" else ()))


def _clean(x: torch.Tensor) -> torch.Tensor:
    """Zeros for NaN, beside which nothing has an order."""
    return torch.where(x.isnan(), torch.zeros((), dtype=x.dtype), x) if x.is_floating_point() else x


def _lying_as(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the layout of what was given."""
    return layout_classes.with_strides(values, like.stride(), int(like.storage_offset()))


def _in_order(args: tuple[Any, ...], kwargs: Mapping[str, Any], place: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What is searched has no NaN, and is in order, or its sorter brings it there: of others nothing is specified."""
    rows = args[place]
    if rows.is_complex():  # which have no order
        return args, dict(kwargs)
    clean = _clean(rows)
    if isinstance(sorter := kwargs.get("sorter"), torch.Tensor):
        kwargs = {**kwargs, "sorter": _lying_as(sorter, clean.argsort(-1))}
    elif clean.dim():
        clean = clean.sort(-1).values
    return (*args[:place], _lying_as(rows, clean), *args[place + 1 :]), dict(kwargs)
