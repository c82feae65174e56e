"""The domain of a member that has none of its own: calls that are known to be valid, their tensors drawn anew.

Such calls are the samples of its declaration, and those of PyTorch's OpInfos for its other overloads. Sizes and
attributes stay, and so do indices and truth values; floats keep their range where a class of values does not say
otherwise.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from keel import DTYPE_NAMES, Op
from keel_conformance.cases import layouts
from keel_conformance.cases.case import Trial
from keel_conformance.cases.domain import DTYPES, Domain, Levels, Rule, dtype_names
from keel_conformance.cases.harvest import KEPT, harvested
from keel_conformance.cases.skeleton import Part, Path, Skeleton, rebuilt, skeleton_of, walk
from keel_conformance.cases.values import Draw, fill, kinds_of

MOST = 24
"""Calls of a member: further samples are left out, evenly."""
LARGE = 20_000
"""Elements of a sample that is too large to be drawn in each dtype and layout."""
FREE = ("pointwise", "reduction", "view", "scan")
"""Tags of operators that are defined for any values."""
TAME = ("random", "duplicates", "exact")
"""Classes of values for the others: those within the range that the sample has."""


def generic(op: Op) -> Domain | None:
    """None for a member that no call is known of."""
    calls = known(op)
    if not calls:
        return None
    free = bool(op.tags.intersection(FREE))
    kinds = [*dict.fromkeys(k for d in _dtypes(calls) for k in kinds_of(d))] if free else list(TAME)
    if op.profile in KEPT or not any(_drawn_parts(s) for s in calls):
        kinds = ["own"]
    factors = {"dtype": dtype_names(_dtypes(calls)), "sample": tuple(f"s{i}" for i in range(len(calls))),
               "layout": layouts.LAYOUTS, "values": tuple(kinds)}
    return Domain(
        op, factors, lambda levels, dtype, draw: _make(calls, levels, dtype, draw),
        rules=(Rule(("dtype", "sample"), lambda dtype, sample: DTYPES[dtype] in calls[int(sample[1:])].dtypes),
               Rule(("dtype", "values"), lambda dtype, values: values == "own" or values in kinds_of(DTYPES[dtype])),
               Rule(("sample", "layout"), lambda sample, layout: _lies(calls[int(sample[1:])], layout))),
        overload=lambda levels: calls[int(levels["sample"][1:])].overload)


# -- which calls ------------------------------------------------------------------------------------------------------

def known(op: Op) -> tuple[Skeleton, ...]:
    """Different calls of the member, each with the dtypes it is valid in."""
    own = _of_samples(op) if op.samples is not None and op.targets else []
    here = {str(t) for t in op.targets}
    more = [s for s in harvested().get(op.name, ()) if s.overload in here and s.dtypes]
    return (*_spread(own, max(MOST - len(more), MOST // 2)), *_spread(more, MOST))


def _of_samples(op: Op) -> list[Skeleton]:
    """Its samples, equal but for values and layout taken once, with the dtypes that each is given for."""
    assert op.samples is not None
    dtypes = op.dtypes or (torch.float32,)
    first = torch.float32 if torch.float32 in dtypes else dtypes[0]
    found: dict[str, tuple[Skeleton, list[torch.dtype]]] = {}
    data = set[Path]()
    for dtype in (first, *(d for d in dtypes if d != first)):
        for sample in op.samples(dtype):
            if any(v.numel() > LARGE or not v.dtype.itemsize for _, v in walk((sample.args, sample.kwargs))
                   if isinstance(v, torch.Tensor)):
                continue
            made = skeleton_of(str(op.targets[0]), sample.args, sample.kwargs, keep=op.profile in KEPT)
            if dtype == first:
                data |= {path for path, p in made.parts if p.dtype == first}
            kind = _kind(made, dtype)
            made = _as(made, dtype, first, data)
            if kind in found:
                if dtype not in found[kind][1]:
                    found[kind][1].append(dtype)
            else:
                found[kind] = made, [dtype]
    return [Skeleton(s.overload, s.args, s.kwargs, tuple(d)) for s, d in found.values()]


def _as(made: Skeleton, dtype: torch.dtype, first: torch.dtype, data: set[Path]) -> Skeleton:
    """The call as one of the first dtype: what was drawn in ``dtype`` there is to be drawn."""
    def replace(path: Path, leaf: Any) -> Any:
        if isinstance(leaf, Part) and path in data and leaf.dtype == dtype:
            if leaf.values is None or (dtype == first and first.is_floating_point):
                return Part(first, leaf.shape, leaf.strides, leaf.low, leaf.high, leaf.ordered, leaf.values)
            return Part(first, leaf.shape, leaf.strides, *_range(leaf))
        return leaf
    return Skeleton(made.overload, *rebuilt((made.args, made.kwargs), replace))


def _range(part: Part) -> tuple[float, float]:
    numbers = [float(v) for v in part.values or () if not isinstance(v, complex)]
    return (min(numbers), max(numbers)) if numbers else (-4.0, 4.0)


def _kind(made: Skeleton, dtype: torch.dtype) -> str:
    """What tells a sample from another: sizes, and attributes; the dtype does not."""
    def bare(leaf: Any) -> Any:
        return (leaf.shape, "own" if leaf.dtype == dtype else leaf.dtype) if isinstance(leaf, Part) else leaf
    return repr([(p, bare(v)) for p, v in walk((made.args, made.kwargs))])


def _spread(calls: list[Skeleton], most: int) -> list[Skeleton]:
    return calls if len(calls) <= most else [calls[i * len(calls) // most] for i in range(most)]


def _dtypes(calls: tuple[Skeleton, ...]) -> list[torch.dtype]:
    found = {d for s in calls for d in s.dtypes}
    return [d for d in DTYPE_NAMES if d in found]


def _drawn_parts(made: Skeleton) -> list[Part]:
    return [p for _, p in made.parts if p.values is None]


def _lies(made: Skeleton, layout: str) -> bool:
    """Whether a tensor of the call can lie so."""
    return layout == "contiguous" or any(layouts.fits(layout, p.shape) for _, p in made.parts)


# -- their arguments --------------------------------------------------------------------------------------------------

def _make(calls: tuple[Skeleton, ...], levels: Levels, dtype: torch.dtype, draw: Draw) -> Trial | None:
    made = calls[int(levels["sample"][1:])]
    args, kwargs = redrawn(made, dtype, draw, levels["values"], levels["layout"])
    return Trial(args, kwargs, frozenset({"exact"} if levels["values"] == "exact" else ()))


def redrawn(made: Skeleton, dtype: torch.dtype, draw: Draw | None = None, values: str = "random",
            layout: str = "contiguous") -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with the tensors that are drawn in ``dtype``; in ``layout`` those that fit it."""
    draw = draw or Draw("")
    homes = {p.dtype for _, p in made.parts if p.values is None}
    home = next((d for d in (torch.float32, torch.float64) if d in homes), next(iter(homes), None))

    def replace(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, Part):
            return leaf
        x = tensor_of(leaf, dtype if leaf.dtype == home and leaf.values is None else leaf.dtype, draw, values)
        return layouts.place(x, layout) if layouts.fits(layout, leaf.shape) else x.clone()
    return rebuilt((made.args, made.kwargs), replace)


def tensor_of(part: Part, dtype: torch.dtype, draw: Draw, values: str) -> torch.Tensor:
    """A row-major tensor of the part's sizes."""
    n = 1
    for size in part.shape:
        n *= size
    if part.values is not None:
        x = torch.tensor(list(part.values), dtype=part.dtype).to(dtype)
        if dtype.is_floating_point or dtype.is_complex:       # other values with the same structure
            x = x * 0.5 ** (draw.call % 3)
        return x.reshape(part.shape)
    kind = values if values in kinds_of(dtype) else "random"
    x = fill(draw, kind, dtype, n, low=part.low, high=part.high, terms=max(n, 1)).reshape(part.shape)
    return x.sort(-1).values if part.ordered else x


def attributes(made: Skeleton) -> Mapping[str, Any]:
    """The arguments that are no tensors, by path."""
    return {".".join(map(str, p)): v for p, v in walk((made.args, made.kwargs)) if not isinstance(v, Part)}
