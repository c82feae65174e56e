"""Operators that move, make and convert elements without computing with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from keel_pjrt.sites import Lowering, Site, converted


def _reshaped(site: Site, self: Array, **_: Any) -> Array:
    """In row-major order, to the sizes of the result."""
    return self.reshape(site.shape)


def _itself(site: Site, self: Array, **_: Any) -> Array:
    return self


def _permute(site: Site, self: Array, dims: Sequence[int]) -> Array:
    return jnp.transpose(self, dims)


def _expand(site: Site, self: Array, size: Any, implicit: bool = False) -> Array:
    return jnp.broadcast_to(self, site.shape)


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """The first place and the place after the last, both inside."""
    low, high, _ = slice(start, end).indices(size)
    return low, max(low, high)


def _slice(
    site: Site, self: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    low, high = _bounds(self.shape[dim], start, end)
    return lax.slice_in_dim(self, low, high, step, axis=dim % self.ndim)


def _select(site: Site, self: Array, dim: int, index: int) -> Array:
    return lax.index_in_dim(self, index % self.shape[dim], axis=dim % self.ndim, keepdims=False)


def _diagonal(site: Site, self: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    line: Array = jnp.diagonal(self, offset, dim1, dim2).reshape(site.shape)
    return line


def _unfold(site: Site, self: Array, dimension: int, size: int, step: int) -> Array:
    if not self.ndim:
        return self.reshape(1)[:size].reshape(site.shape)
    dim = dimension % self.ndim
    at = np.arange(site.shape[dim])[:, None] * step + np.arange(size)
    return jnp.moveaxis(jnp.take(self, at, axis=dim, mode="clip"), dim + 1, -1).reshape(site.shape)


def _bitcast(site: Site, self: Array, dtype: Any) -> Array:
    """Between bytes too: the last dimension counts elements of the size of the new dtype."""
    to, have = site.dtype, self.dtype
    if have.kind == "b":
        self, have = self.astype(jnp.uint8), np.dtype(np.uint8)
    if to.kind == "b":
        return lax.bitcast_convert_type(self, jnp.uint8).reshape(site.shape).astype(bool)
    if have.itemsize < to.itemsize:
        self = self.reshape(*self.shape[:-1], -1, to.itemsize // have.itemsize)
    return lax.bitcast_convert_type(self, to).reshape(site.shape)


def _as_strided(
    site: Site, self: Array, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None
) -> Array:
    at = np.asarray(storage_offset or 0)
    for n, step in zip(size, stride, strict=True):
        at = at[..., None] + np.arange(n) * step
    return jnp.take(self.reshape(-1), at, mode="clip")


def _cat(site: Site, tensors: Sequence[Array], dim: int = 0) -> Array:
    """Empty tensors of one dimension are left out, whatever the others are."""
    parts = [converted(x, site.dtype) for x in tensors if x.shape != (0,) or len(site.shape) == 1]
    return jnp.concatenate(parts, dim) if parts else jnp.zeros(site.shape, site.dtype)


def _flip(site: Site, self: Array, dims: Sequence[int]) -> Array:
    return jnp.flip(self, tuple(dims)) if self.ndim else self


def _pad(site: Site, self: Array, pad: Sequence[int], value: Any = 0) -> Array:
    """Negative amounts cut off elements."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    widths = [(0, 0, 0)] * (self.ndim - len(pairs)) + [(low, high, 0) for low, high in pairs]
    return lax.pad(self, jnp.asarray(value).astype(self.dtype), widths)


def _slice_scatter(
    site: Site, self: Array, src: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Array:
    low, high = _bounds(self.shape[dim], start, end)
    where = [slice(None)] * self.ndim
    where[dim] = slice(low, high, step)
    return self.at[tuple(where)].set(src.astype(self.dtype))


def _full(site: Site, size: Any, fill_value: Any, **_: Any) -> Array:
    return jnp.full(site.shape, jnp.asarray(fill_value).astype(site.dtype))


def _scalar(site: Site, s: Any, **_: Any) -> Array:
    return jnp.asarray(s).astype(site.dtype)


def _iota(site: Site, start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    """From known numbers: NumPy's float64 is as precise as PyTorch's."""
    count = np.arange(site.shape[0])
    if site.dtype.kind in "iu":
        return jnp.asarray(int(start) + count * int(step)).astype(site.dtype)
    return jnp.asarray(start + count * np.float64(step)).astype(site.dtype)


def _empty(site: Site, **_: Any) -> Array:
    return jnp.zeros(site.shape, site.dtype)


def _convert(site: Site, **arguments: Any) -> Array:
    """Keeps the real part of complex numbers."""
    x = next(iter(arguments.values()))
    if jnp.iscomplexobj(x) and site.dtype.kind != "c":
        x = (x.real != 0) | (x.imag != 0) if site.dtype == bool else x.real
    result: Array = x != 0 if site.dtype == bool else converted(x, site.dtype)
    return result


def _first(site: Site, a: Array, **_: Any) -> Array:
    return a


def _as_real(site: Site, self: Array) -> Array:
    return jnp.stack([self.real, self.imag], -1)


def _as_complex(site: Site, self: Array) -> Array:
    return lax.complex(self[..., 0], self[..., 1])


def _conj(site: Site, self: Array) -> Array:
    return lax.conj(self) if jnp.iscomplexobj(self) else self


VIEWS: Mapping[str, Callable[..., Array]] = {
    "reshape": _reshaped,
    "permute": _permute,
    "expand": _expand,
    "squeeze": _reshaped,
    "unsqueeze": _reshaped,
    "slice": _slice,
    "select": _select,
    "diagonal": _diagonal,
    "sliding_window": _unfold,
    "bitcast": _bitcast,
    "alias": _itself,
    "as_strided": _as_strided,
    "view_as_real": _as_real,
    "view_as_complex": _as_complex,
}
TABLE: Mapping[str, Lowering] = {
    **VIEWS,
    "cat": _cat,
    "flip": _flip,
    "pad": _pad,
    "copy_layout": _itself,
    "slice_scatter": _slice_scatter,
    "full": _full,
    "scalar_tensor": _scalar,
    "iota": _iota,
    "empty": _empty,
    "constant": _itself,
    "convert": _convert,
    "device_put": _first,
    "conj": _conj,
}
