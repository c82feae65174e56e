"""Operators that read and write at places that are data. Every index is checked unless the operator is unsafe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from keel_pjrt.sites import Lowering, Site, in_float32, is_float, widened


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    """The coordinates of the elements that an index along a dimension names."""
    grid = [lax.broadcasted_iota(jnp.int64, index.shape, d) for d in range(index.ndim)]
    grid[dim] = index
    return tuple(grid)


def _gather(site: Site, self: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    x, at = jnp.atleast_1d(self), jnp.atleast_1d(index)
    at = site.inside(at.astype(jnp.int64), x.shape[dim])
    return x.at[_places(at, dim % x.ndim)].get(mode="clip").reshape(site.shape)


def _scatter(site: Site, self: Array, dim: int, index: Array, src: Any = None, value: Any = None) -> Array:
    return _written(site, self, dim, index, value if src is None else src, "set")


def _scatter_add(site: Site, self: Array, dim: int, index: Array, src: Array) -> Array:
    return _written(site, widened(self), dim, index, widened(src), "max" if self.dtype == bool else "add")


def _written(site: Site, self: Array, dim: int, index: Array, src: Any, how: str) -> Array:
    """The operand with the elements of ``src``, or one number, written, added or otherwise combined at an index."""
    x, at = jnp.atleast_1d(self), jnp.atleast_1d(index)
    if not at.size:
        return self
    at = site.inside(at.astype(jnp.int64), x.shape[dim])
    values = jnp.atleast_1d(jnp.asarray(src).astype(x.dtype))
    if jnp.ndim(src):
        values = values[tuple(slice(n) for n in at.shape)]
    write = getattr(x.at[_places(at, dim % x.ndim)], how)
    result: Array = write(jnp.broadcast_to(values, at.shape), mode="drop").reshape(self.shape)
    return result


REDUCTIONS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}


def _scatter_reduce(
    site: Site, self: Array, dim: int, index: Array, src: Array, reduce: str, include_self: bool = True
) -> Array:
    if self.dtype == bool:
        self, src = self.astype(jnp.int32), src.astype(jnp.int32)
    start, how = self, REDUCTIONS[reduce]
    if not include_self:
        start = _written(site, self, dim, index, _neutral(self, reduce), "set")
    result = _written(site, start, dim, index, src, how)
    if reduce != "mean":
        return result
    count = jnp.full(self.shape, int(include_self), jnp.int64)
    count = jnp.maximum(_written(site, count, dim, index, jnp.ones(index.shape, jnp.int64), "add"), 1)
    return result / count.astype(self.dtype) if is_float(self) else jnp.floor_divide(result, count.astype(self.dtype))


def _neutral(x: Array, reduce: str) -> Any:
    """A value that changes no result of a reduction."""
    if reduce in ("amax", "amin"):
        lowest, highest = (-jnp.inf, jnp.inf) if is_float(x) else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return lowest if reduce == "amax" else highest
    return 1 if reduce == "prod" else 0


def _coordinates(site: Site, x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    """The indices, not negative, and full slices of the other dimensions."""
    places: list[Any] = []
    for size, index in zip(x.shape, indices, strict=False):
        if index is None:
            places.append(slice(None))
        elif "unsafe" in site.overload:
            places.append(jnp.where(index < 0, index + size, index).astype(jnp.int64))
        else:
            places.append(site.inside(index.astype(jnp.int64), size, -size))
    return tuple(places)


def _index(site: Site, self: Array, indices: Sequence[Array | None]) -> Array:
    return self.at[_coordinates(site, self, indices)].get(mode="clip", wrap_negative_indices=False)


def _index_put(
    site: Site, self: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    if any(index is not None and not index.size for index in indices):
        return self
    x, new = (widened(self), widened(values)) if accumulate else (self, values)
    at = x.at[_coordinates(site, self, indices)]
    if not accumulate:
        return at.set(new.astype(x.dtype), mode="drop", wrap_negative_indices=False)
    write = at.max if x.dtype == bool else at.add
    return write(new.astype(x.dtype), mode="drop", wrap_negative_indices=False)


def _searchsorted(
    site: Site, sorted_sequence: Array, self: Any, right: bool = False, side: Any = None, sorter: Any = None, **_: Any
) -> Array:
    rows, x = sorted_sequence, jnp.asarray(self)
    if sorter is not None:
        rows = jnp.take_along_axis(rows, sorter, -1, mode="clip")
    dtype = jnp.promote_types(rows.dtype, x.dtype)
    from_left = side == "left" if side is not None else not right

    def places(row: Array, values: Array) -> Array:
        return jnp.searchsorted(row, values, side="left" if from_left else "right")

    for _dim in range(rows.ndim - 1):
        places = jax.vmap(places)
    return places(rows.astype(dtype), x.astype(dtype))


def _nonzero_static(site: Site, self: Array, size: int, fill_value: int = -1) -> Array:
    if not self.ndim:
        return jnp.zeros(site.shape, jnp.int64)
    if not self.size:
        return jnp.full(site.shape, fill_value)
    return jnp.stack(jnp.nonzero(self, size=size, fill_value=fill_value), -1)


TABLE: Mapping[str, Lowering] = {
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": in_float32(_scatter_reduce),
    "index": _index,
    "index_put": _index_put,
    "searchsorted": _searchsorted,
    "nonzero_static": _nonzero_static,
}
