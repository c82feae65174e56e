"""Metamorphic oracles of what clauses promise without saying which: any of equal elements, any order of equals.

Each function gets the arguments by name, the results and eager's; it says in a sentence what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from .tracked_tensor import inexact

Named = Mapping[str, Any]
Property = Callable[[Named, Sequence[Any], Sequence[Any]], str]
promise: ByMember[Property] = ByMember()
applies: ByMember[Callable[[Named], bool]] = ByMember()
"""Of members whose property holds for some arguments only: whether it does for these."""


def same(a: Tensor, b: Tensor) -> Tensor:
    """Equal numbers, NaN to NaN, zeros of any sign."""
    return (a == b) | (a.isnan() & b.isnan()) if inexact(a.dtype) else a == b


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """The same, signs of zeros too."""
    result = same(a, b)
    return result & (a.isnan() | (a.signbit() == b.signbit())) if a.dtype.is_floating_point else result


def _first(wrong: Tensor) -> list[int]:
    return [int(i) for i in wrong.nonzero()[0]]


def _values(got: Tensor, want: Tensor) -> str:
    wrong = ~same(got, want)
    if not wrong.any():
        return ""
    at = _first(wrong)
    return f"Value {at} is {got[tuple(at)].item()}, not {want[tuple(at)].item()}."


def picked(x: Tensor, dim: int, values: Tensor, indices: Tensor) -> str:
    """``values`` are the elements of ``x`` at ``indices`` along ``dim``, bits kept."""
    if not x.dim():
        return "" if bool((indices == 0).all()) else "The index of a scalar is not 0."
    size = x.shape[dim]
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= size):
        return f"An index lies outside of 0 to {size - 1}."
    there = x.gather(dim, indices)
    wrong = ~same_bits(there, values)
    if not wrong.any():
        return ""
    at = _first(wrong)
    return f"Value {at} is {values[tuple(at)].item()}, and the element at its index {there[tuple(at)].item()}."


def _distinct(indices: Tensor, dim: int) -> str:
    if not indices.dim() or indices.shape[dim] < 2:
        return ""
    ordered = indices.sort(dim)[0]
    n = ordered.shape[dim]
    twice = ordered.narrow(dim, 1, n - 1) == ordered.narrow(dim, 0, n - 1)
    return f"An index comes twice, at {_first(twice)} of the sorted ones." if twice.any() else ""


@promise("sort")
def sort(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A permutation of the operand, in order; with stable the one that keeps equals in order."""
    x, dim = named["self"], named["dim"]
    if named.get("stable"):
        wrong = results[1] != eager[1]
        if wrong.any():
            at = _first(wrong)
            return f"Index {at} is {results[1][tuple(at)].item()}, not {eager[1][tuple(at)].item()}."
    return _values(results[0], eager[0]) or picked(x, dim, *results) or _distinct(results[1], dim)


@promise("topk")
def topk(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """The k extremes, each from a place of its own; in order if that is asked for."""
    x, dim = named["self"], named["dim"]
    got, want = results[0], eager[0]
    if not named["sorted"] and x.dim():
        got, want = got.sort(dim)[0], want.sort(dim)[0]
    return _values(got, want) or picked(x, dim, *results) or _distinct(results[1], dim)


@promise("median", "nanmedian", "kthvalue")
def statistic(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A value of the order along a dimension, and the index of an element with that value."""
    x, dim = named["self"], named["dim"]
    values, indices = results
    if x.dim() and not named["keepdim"]:
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    wrong = _values(results[0], eager[0])
    if wrong or not x.dim():
        return wrong
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= x.shape[dim]):
        return "An index lies outside."
    right = bool(same(x.gather(dim, indices), values).all())
    return "" if right else "A value is not that of the element at its index."


@promise("mode")
def commonest(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """As ``statistic``; where there is NaN, which is equal to nothing, the least of the values that come most often is
    right too: eager PyTorch sorts there and loses count (docs/findings.md).
    """
    x, dim, values = named["self"], named["dim"], results[0]
    if not x.dim() or not x.is_floating_point() or not bool(x.isnan().any()):
        return statistic(named, results, eager)
    best = eager[0] if named["keepdim"] else eager[0].unsqueeze(dim)
    modes = values if named["keepdim"] else values.unsqueeze(dim)
    wants, rows = best.movedim(dim, -1).clone(), x.movedim(dim, -1)
    for at in rows.isnan().any(-1).nonzero().tolist():
        row = rows[tuple(at)]
        some, counts = row[~row.isnan()].unique(return_counts=True)
        wants[tuple(at)] = some[counts.argmax()] if some.numel() else torch.nan
    right = torch.where(same(modes, best), modes, wants.movedim(-1, dim))
    return statistic(named, results, [right if named["keepdim"] else right.squeeze(dim), *eager[1:]])


@promise("max_pool2d_with_indices", "fractional_max_pool2d", "adaptive_max_pool2d")
def pooled(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """The largest of each window and its first place; of a window with NaN, the place of any of its NaNs."""
    values, indices = results
    wrong = ~same_bits(values, eager[0]) & ~((values == 0) & (eager[0] == 0))
    if wrong.any():
        return _values(values, eager[0]) or f"Value {_first(wrong)} has the wrong sign."
    off = indices != eager[1]
    rank = 2 if "2d" in str(named.get("rank", "2d")) else 3
    planes = named["self"].flatten(named["self"].dim() - rank)
    lanes = indices.flatten(indices.dim() - rank)
    if off.any() and values.dtype.is_floating_point:
        inside = (lanes >= 0) & (lanes < planes.shape[-1])
        there = planes.gather(-1, lanes.clamp(0, planes.shape[-1] - 1)).isnan() & inside
        off &= ~(values.isnan() & there.reshape(values.shape))
    if not off.any():
        return ""
    at = _first(off)
    return f"Index {at} is {indices[tuple(at)].item()}, not {eager[1][tuple(at)].item()}."


@promise("scatter")
def scattered(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """Where several elements are written, one of them stands there; else the one, or the operand's."""
    src, index, dim = named.get("src"), named["index"], named["dim"]
    if not isinstance(src, Tensor) or not index.numel() or not index.dim():
        return _moved(results[0], eager[0])
    cut = src[tuple(slice(n) for n in index.shape)]
    writes = torch.zeros(eager[0].shape, dtype=torch.int64).scatter_add(
        dim, index.long(), torch.ones_like(index, dtype=torch.int64)
    )
    hit = same_bits(results[0].gather(dim, index.long()), cut.to(results[0].dtype)).to(torch.int64)
    hits = torch.zeros(eager[0].shape, dtype=torch.int64).scatter_add(dim, index.long(), hit)
    return _several(results[0], eager[0], writes, hits)


@applies("index_put")
def _overwrites(named: Named) -> bool:
    return not named["accumulate"]


@promise("index_put")
def put(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """As ``scattered``, at places that several indices give."""
    x = named["self"]
    spots = torch.arange(x.numel()).reshape(x.shape)
    indices = list(named["indices"])
    places = torch.ops.aten.index.Tensor(spots, indices)
    values = named["values"].broadcast_to(places.shape).flatten()
    places = places.flatten()
    writes = torch.zeros(x.numel(), dtype=torch.int64).scatter_add(0, places, torch.ones_like(places))
    hit = same_bits(results[0].flatten()[places], values).to(torch.int64)
    hits = torch.zeros(x.numel(), dtype=torch.int64).scatter_add(0, places, hit)
    return _several(results[0], eager[0], writes.reshape(x.shape), hits.reshape(x.shape))


def _several(got: Tensor, want: Tensor, writes: Tensor, hits: Tensor) -> str:
    right = torch.where(writes > 1, hits > 0, same_bits(got, want))
    if bool(right.all()):
        return ""
    at = tuple(_first(~right))
    if int(writes[at]) > 1:
        return f"At {list(at)}, where {int(writes[at])} elements are written, stands none of them but {got[at].item()}."
    return f"At {list(at)} it is {got[at].item()}, not {want[at].item()}."


def _moved(got: Tensor, want: Tensor) -> str:
    wrong = ~same_bits(got, want)
    if not wrong.any():
        return ""
    at = tuple(_first(wrong))
    return f"At {list(at)} it is {got[at].item()}, not {want[at].item()}."


@promise("unique", "unique2")
def unique(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """Each value once, ascending; the inverse leads back; counts count. Which of several NaNs is whose is open."""
    values = results[0]
    if sentence := _moved(values, eager[0]) and _values(values, eager[0]):
        return sentence
    x = named["self"]
    if results[1].numel():
        inverse = results[1]
        if int(inverse.min()) < 0 or int(inverse.max()) >= values.numel():
            return "An inverse index lies outside."
        if not bool(same(values[inverse], x.reshape(inverse.shape)).all()):
            return "An inverse index leads to another value."
    if len(results) > 2 and results[2].numel() and not torch.equal(results[2], eager[2]):
        return "A value is counted wrongly."
    return ""


@applies("unique", "unique2")
def _is_ordered(named: Named) -> bool:
    """Complex numbers have no order."""
    return not named["self"].is_complex()


@promise("fractional_max_pool3d", "adaptive_max_pool3d", "max_pool3d_with_indices")
def pooled_in_3d(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    return pooled({**named, "rank": "3d"}, results, eager)


def property_of(name: str, named: Named) -> Property | None:
    """The metamorphic oracle of a member for these arguments, if it has one."""
    to_these = applies.declared.get(name)
    return promise.declared.get(name) if to_these is None or to_these(named) else None
