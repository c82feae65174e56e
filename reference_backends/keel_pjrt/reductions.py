"""Operators that combine the elements along dimensions: reductions, scans and sorting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from keel_pjrt.sites import Lowering, Site, converted, flushed, in_float32, is_float, ranks_of, widened


def _axes(x: Array, dim: Any) -> tuple[int, ...]:
    """The dimensions reduced along, by numbers that are not negative: all of them for None and ()."""
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
    return tuple(sorted({d % max(x.ndim, 1) for d in dims})) if x.ndim else ()


def _reduced(function: Callable[..., Array]) -> Lowering:
    def lowering(site: Site, self: Array, dim: Any = None, keepdim: bool = False, **_: Any) -> Array:
        return function(self, axis=_axes(self, dim), keepdims=keepdim)

    return lowering


def _summed(function: Callable[..., Array]) -> Lowering:
    """Converted to the result's dtype first; 16-bit floats are added up in float32."""

    def lowering(site: Site, self: Array, dim: Any = None, keepdim: bool = False, **_: Any) -> Array:
        x = widened(converted(self, site.dtype))
        return function(x, axis=_axes(x, dim), keepdims=keepdim)

    return lowering


def _sum(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return jnp.sum(x, axis=axis, keepdims=keepdims)


def _any(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return jnp.any(x != 0, axis=axis, keepdims=keepdims)


def _xor(site: Site, self: Array, dim: Any = (), keepdim: bool = False, mode: int = 0) -> Array:
    x = self.astype(jnp.float64 if is_float(self) else jnp.int64)
    axes = _axes(x, dim)
    bits = lax.reduce_xor(lax.bitcast_convert_type(x, jnp.uint64), axes)
    return jnp.expand_dims(bits, axes) if keepdim else bits


def _arg(function: Callable[..., Array]) -> Lowering:
    def lowering(site: Site, self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is not None and self.ndim:
            return function(self, axis=dim, keepdims=keepdim)
        return function(self.reshape(-1), axis=0).reshape(site.shape)

    return lowering


def _extreme(function: Callable[..., Array]) -> Lowering:
    """The extreme and its index."""

    def lowering(site: Site, self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        x = jnp.atleast_1d(self)
        at = function(x, axis=dim, keepdims=True)
        values = jnp.take_along_axis(x, at, axis=dim)
        return flushed(values).reshape(site.shape), at.reshape(site.shape)

    return lowering


def _scanned(function: Callable[..., Array]) -> Lowering:
    def lowering(site: Site, self: Array, dim: int, dtype: Any = None) -> Array:
        x = widened(converted(self, site.dtype))
        return function(x, axis=dim % x.ndim) if x.ndim else x

    return lowering


def _running(is_nearer: Callable[[Array, Array], Array]) -> Lowering:
    """The extreme so far and the index of the last element that is equal to it."""

    def combine(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        takes = (b[0] != b[0]) | ((a[0] == a[0]) & is_nearer(b[0], a[0]))
        return jnp.where(takes, b[0], a[0]), jnp.where(takes, b[1], a[1])

    def lowering(site: Site, self: Array, dim: int) -> tuple[Array, Array]:
        if not self.ndim:
            return self, jnp.zeros(self.shape, jnp.int64)
        at = lax.broadcasted_iota(jnp.int64, self.shape, dim % self.ndim)
        values, places = lax.associative_scan(combine, (flushed(self), at), axis=dim % self.ndim)
        return values, places

    return lowering


def _log_sums(x: Array, axis: int) -> Array:
    return lax.cumlogsumexp(x, axis=axis)


def _ordered(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Stable. Of integers, the complement has the opposite order."""
    at, ranks = lax.broadcasted_iota(jnp.int64, x.shape, dim), ranks_of(x)
    keys = ~ranks if descending else ranks
    _, values, places = lax.sort((keys, x, at), dimension=dim, is_stable=True, num_keys=1)
    return values, places


def _sort(site: Site, self: Array, dim: int = -1, descending: bool = False, stable: Any = None) -> Sequence[Array]:
    values, places = _ordered(jnp.atleast_1d(self), dim % max(self.ndim, 1), descending)
    return values.reshape(self.shape), places.reshape(self.shape)


def _topk(site: Site, self: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sequence[Array]:
    dim %= max(self.ndim, 1)
    results = _ordered(jnp.atleast_1d(self), dim, largest)
    values, places = (lax.slice_in_dim(each, 0, k, axis=dim) for each in results)
    return values.reshape(site.shape), places.reshape(site.shape)


TABLE: Mapping[str, Lowering] = {
    "sum": _summed(_sum),
    "prod": _summed(jnp.prod),
    "amax": _reduced(lambda x, **along: flushed(jnp.max(x, **along))),
    "amin": _reduced(lambda x, **along: flushed(jnp.min(x, **along))),
    "any": _reduced(_any),
    "argmax": _arg(jnp.argmax),
    "argmin": _arg(jnp.argmin),
    "max_with_index": _extreme(jnp.argmax),
    "min_with_index": _extreme(jnp.argmin),
    "reduce_xor": _xor,
    "cumsum": _scanned(lax.cumsum),
    "cumprod": _scanned(lax.cumprod),
    "cummax": _running(lambda new, old: new >= old),
    "cummin": _running(lambda new, old: new <= old),
    "logcumsumexp": in_float32(_scanned(_log_sums)),
    "sort": _sort,
    "topk": _topk,
}
