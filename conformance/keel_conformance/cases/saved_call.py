"""A call as plain data: which overload, and of each argument what must stay while its tensors are drawn again.

A float tensor keeps its type and the range of its values, one of indices or truth values its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch

from keel.loops import DTYPE_NAMES

from . import layout_classes
from .values import SeededValues, fill, kinds_of, with_outliers

NAMED = {name: dtype for dtype, name in DTYPE_NAMES.items()}
Path = tuple[int | str, ...]
"""Where an argument stands: its place or its name, then the places in lists."""
OUTLIERS = "salted"
"""A class of values for calls whose elements do not touch each other: random ones with others among them."""
SEVERAL = (list, tuple)  # as a tuple it is looked up faster than as a union
OWN = "the dtype that it is drawn in"
"""Stands where an argument names that dtype."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument. ``own`` says that its dtype is that of the case, others stay. ``values`` has those that must
    stay, in row-major order; without them anything from ``low`` to ``high`` serves, sorted along the last dimension if
    ``ordered``.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    own: bool = False
    low: float = -4.0
    high: float = 4.0
    ordered: bool = False
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class SavedCall:
    """``args`` and ``kwargs`` with a Part for each tensor."""

    overload: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[torch.dtype, ...] = ()

    @property
    def tensor_specs(self) -> Iterator[tuple[Path, TensorSpec]]:
        for path, leaf in walk((self.args, self.kwargs)):
            if isinstance(leaf, TensorSpec):
                yield path, leaf


def walk(arguments: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Iterator[tuple[Path, Any]]:
    """The leaves of arguments, each with its path."""
    named: Iterable[tuple[int | str, Any]] = chain(enumerate(arguments[0]), arguments[1].items())
    for key, value in named:
        if isinstance(value, SEVERAL):
            yield from _below((key,), value)
        else:
            yield (key,), value


def _below(path: Path, values: Sequence[Any]) -> Iterator[tuple[Path, Any]]:
    for i, value in enumerate(values):
        if isinstance(value, SEVERAL):
            yield from _below((*path, i), value)
        else:
            yield (*path, i), value


def rebuilt(
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]], replace: Callable[[Path, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with ``replace(path, leaf)`` for each leaf."""

    def below(path: Path, value: Any) -> Any:
        if isinstance(value, SEVERAL):
            made = [below((*path, i), v) for i, v in enumerate(value)]
            return tuple(made) if isinstance(value, tuple) else made
        return replace(path, value)

    return (
        tuple([below((i,), v) for i, v in enumerate(arguments[0])]),
        {k: below((k,), v) for k, v in arguments[1].items()},
    )


def save_call(
    overload: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    own: Callable[[Path, Any], bool],
    keep: bool = False,
) -> SavedCall:
    """That of a call; ``own`` says of a tensor whether it is drawn in the dtype of the case, ``keep`` that the values
    of floats must stay too.
    """
    made = rebuilt(
        (args, kwargs), lambda p, v: tensor_spec_of(v, own(p, v), keep) if isinstance(v, torch.Tensor) else v
    )
    return SavedCall(overload, *made)


def tensor_spec_of(x: torch.Tensor, own: bool, keep: bool = False) -> TensorSpec:
    """What of a tensor must stay."""
    x = x.detach().resolve_conj().resolve_neg()
    shape, strides = tuple(x.shape), x.stride()
    if keep or not (own or x.is_floating_point() or x.is_complex()):
        return TensorSpec(x.dtype, shape, strides, own, values=tuple(map(_short, x.reshape(-1).tolist())))
    plain = (torch.view_as_real(x) if x.is_complex() else x).double()
    finite = plain[plain.isfinite()]
    if not finite.numel():
        return TensorSpec(x.dtype, shape, strides, own)
    low, high = float(finite.min()), float(finite.max())
    ordered = x.dim() > 0 and x.shape[-1] > 2 and not x.is_complex() and bool((x.double().diff(dim=-1) >= 0).all())
    return TensorSpec(x.dtype, shape, strides, own, _short(low), _short(high), ordered)


def _short(value: Any) -> Any:
    """Four digits serve."""
    match value:
        case complex():
            return complex(_short(value.real), _short(value.imag))
        case float() if math.isfinite(value):
            return float(f"{value:.4g}")
    return value


# -- drawn again -----------------------------------------------------------------------------------------------------


def redrawn(
    made: SavedCall,
    dtype: torch.dtype,
    draw: SeededValues | None = None,
    values: str = "random",
    layout: str = "contiguous",
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with the tensors that are drawn in ``dtype``; in ``layout`` those that fit it."""
    draw = draw or SeededValues("")

    def replace(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec):
            return dtype if isinstance(leaf, str) and leaf == OWN else leaf
        x = tensor_of(leaf, dtype if leaf.own else leaf.dtype, draw, values)
        repeats = layout.startswith("expanded") and leaf.values is not None
        return (
            layout_classes.with_layout(x, layout)
            if layout_classes.fits(layout, leaf.shape) and not repeats
            else x.clone()
        )

    return rebuilt((made.args, made.kwargs), replace)


def tensor_of(part: TensorSpec, dtype: torch.dtype, draw: SeededValues, values: str) -> torch.Tensor:
    """A row-major tensor of the part's sizes."""
    n = 1
    for size in part.shape:
        n *= size
    if part.values is not None:
        x = torch.tensor(list(part.values), dtype=part.dtype).to(dtype)
        if dtype.is_floating_point or dtype.is_complex:  # other values with the same structure
            x = x * 0.5 ** (draw.call % 3)
        elif part.dtype == torch.bool and draw.turn:  # a mask whose recorded values made the call trivial
            other = (draw.uniform(x.numel()) < 0.5, ~x.bool(), torch.ones_like(x), torch.zeros_like(x))
            x = other[draw.turn % 4].to(x.dtype)
        return x.reshape(part.shape)
    kind = values if values in kinds_of(dtype) else "random"
    if draw.turn and part.low == part.high:  # all alike in the sample, and nothing was told of it
        part = replace(
            part,
            low=part.low / 2 if part.low > 0 else part.low - 1,
            high=part.high / 2 if part.high < 0 else part.high + 1,
        )
    if values == OUTLIERS and part.low < 0:
        return with_outliers(draw, dtype, n, low=part.low, high=part.high).reshape(part.shape)
    x = fill(draw, kind, dtype, n, low=part.low, high=part.high, terms=max(n, 1)).reshape(part.shape)
    if part.low > 0 and kind in ("random", "duplicates") and not (dtype.is_floating_point or dtype.is_complex):
        x = torch.ones_like(x) if dtype == torch.bool else x.clamp(min=max(1, round(part.low)))
    return x.sort(-1).values if part.ordered and not dtype.is_complex else x


# -- as JSON ----------------------------------------------------------------------------------------------------------


def to_json(saved: SavedCall) -> dict[str, Any]:
    args, kwargs = rebuilt((saved.args, saved.kwargs), lambda _, v: _leaf(v))
    return {
        "overload": saved.overload,
        "args": list(args),
        "kwargs": kwargs,
        "dtypes": [DTYPE_NAMES[d] for d in saved.dtypes],
    }


def from_json(data: Mapping[str, Any]) -> SavedCall:
    args, kwargs = rebuilt((tuple(data["args"]), data["kwargs"]), lambda _, v: _value(v))
    return SavedCall(data["overload"], args, kwargs, tuple(NAMED[d] for d in data["dtypes"]))


def _leaf(value: Any) -> Any:
    match value:
        case TensorSpec():
            known: dict[str, Any] = {
                "tensor": DTYPE_NAMES[value.dtype],
                "shape": list(value.shape),
                "strides": list(value.strides),
                **({"own": True} if value.own else {}),
            }
            if value.values is not None:
                return {**known, "values": [_leaf(v) for v in value.values]}
            return {**known, "range": [value.low, value.high], **({"ordered": True} if value.ordered else {})}
        case torch.dtype():
            return {"dtype": DTYPE_NAMES[value]}
        case torch.memory_format():
            return {"memory_format": str(value).removeprefix("torch.")}
        case torch.layout():
            return {"layout": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
        case complex():
            return {"complex": [_leaf(value.real), _leaf(value.imag)]}
        case float() if not math.isfinite(value):
            return {"float": str(value)}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"{value!r} has no text.")


def _value(leaf: Any) -> Any:
    match leaf:
        case {"tensor": dtype, "shape": shape, "strides": strides, "values": values}:
            return TensorSpec(
                NAMED[dtype], tuple(shape), tuple(strides), leaf.get("own", False), values=tuple(map(_value, values))
            )
        case {"tensor": dtype, "shape": shape, "strides": strides, "range": [low, high]}:
            return TensorSpec(
                NAMED[dtype],
                tuple(shape),
                tuple(strides),
                leaf.get("own", False),
                low,
                high,
                leaf.get("ordered", False),
            )
        case {"dtype": name}:
            return NAMED[name]
        case {"memory_format": name} | {"layout": name}:
            return getattr(torch, name)
        case {"device": name}:
            return torch.device(name)
        case {"complex": [real, imag]}:
            return complex(_value(real), _value(imag))
        case {"float": text}:
            return float(text)
    return leaf
