"""Matrix products and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from keel_pjrt.sites import Lowering, Site, widened


def _matmul(site: Site, self: Array, mat2: Array, out_dtype: Any = None) -> Array:
    """16-bit floats are added up in float32; narrow integers wrap around as their sums do."""
    if not self.size or not mat2.size:  # XLA may divide by the number of terms
        return jnp.zeros(site.shape, site.dtype)
    return jnp.matmul(widened(self), widened(mat2))


def _int_mm(site: Site, self: Array, mat2: Array) -> Array:
    return _matmul(site, self.astype(jnp.int32), mat2.astype(jnp.int32))


def _scaled(site: Site, x: Array, dims: Sequence[int], normalization: int, shape: Sequence[int]) -> Array:
    count = float(np.prod([shape[d] for d in dims]))
    return x * np.asarray((1.0, count**-0.5, 1.0 / count)[normalization], x.real.dtype)


def _c2c(site: Site, self: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    if not dim:
        return self
    function = jnp.fft.fftn if forward else jnp.fft.ifftn
    return _scaled(
        site, function(self, axes=dim, norm="backward" if forward else "forward"), dim, normalization, self.shape
    )


def _r2c(site: Site, self: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return _scaled(site, transform(self, axes=dim), dim, normalization, self.shape)


def _c2r(site: Site, self: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    if len(dim) > 1:
        self = jnp.fft.ifftn(self, axes=dim[:-1], norm="forward")
    half = lax.slice_in_dim(self, 0, last_dim_size // 2 + 1, axis=dim[-1])
    return _scaled(site, jnp.fft.irfft(half, last_dim_size, dim[-1], norm="forward"), dim, normalization, site.shape)


TABLE: Mapping[str, Lowering] = {
    "mm": _matmul,
    "bmm": _matmul,
    "int_mm": _int_mm,
    "fft_c2c": _c2c,
    "fft_r2c": _r2c,
    "fft_c2r": _c2r,
}
