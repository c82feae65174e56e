"""Factorizations of matrices and what is solved by them, which XLA leaves to LAPACK or to a library of the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.lax import linalg

from keel_pjrt.sites import Lowering, Site


def _lu_factor(site: Site, A: Array, pivot: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    """``info`` is the first zero on the diagonal, counted from 1. Matrices without elements have one as well."""
    if not A.size:
        return tuple(jnp.zeros(tuple(each.shape)) for each in site.results if each is not None)
    lu, pivots, _ = linalg.lu(A)
    is_zero = jnp.diagonal(lu, 0, -2, -1) == 0
    info = jnp.where(is_zero.any(-1), jnp.argmax(is_zero, -1) + 1, 0)
    return lu, pivots + 1, info


def _lu_unpack(site: Site, unpack_data: bool = True, unpack_pivots: bool = True, **packed: Any) -> tuple[Any, ...]:
    lu, pivots = packed["LU_data"], packed["LU_pivots"]
    m, n = lu.shape[-2:]
    k, swapped = min(m, n), jnp.zeros((0,), lu.dtype)
    empty = swapped
    if unpack_pivots:
        order = linalg.lu_pivots_to_permutation(pivots - 1, m)
        swapped = (order[..., None, :] == jnp.arange(m)[:, None]).astype(lu.dtype)
    if not unpack_data:
        return swapped, empty, empty
    return swapped, jnp.tril(lu[..., :k], -1) + jnp.eye(m, k, dtype=lu.dtype), jnp.triu(lu[..., :k, :])


def _geqrf(site: Site, self: Array) -> tuple[Any, ...]:
    packed, factors = jnp.linalg.qr(self, mode="raw")
    return jnp.swapaxes(packed, -1, -2), factors


def _householder_product(site: Site, input: Array, tau: Array) -> Array:
    return linalg.householder_product(input, tau)


def _eigh(site: Site, A: Array, compute_v: bool = True, **triangle: Any) -> tuple[Any, ...]:
    half = jnp.tril(A) if triangle["UPLO"].upper() == "L" else jnp.conj(jnp.swapaxes(jnp.triu(A), -1, -2))
    vectors, values = linalg.eigh(half, lower=True, symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), A.dtype)


def _eig(site: Site, self: Array) -> tuple[Any, ...]:
    values, vectors = linalg.eig(self, compute_left_eigenvectors=False)
    return values, vectors


def _svd(
    site: Site, A: Array, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None
) -> tuple[Any, ...]:
    empty = jnp.zeros((0,), A.dtype)
    if not compute_uv:
        return empty, linalg.svd(A, full_matrices=False, compute_uv=False), empty
    return tuple(linalg.svd(A, full_matrices=full_matrices, compute_uv=True))


def _triangular_solve(
    site: Site, self: Array, B: Array, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    lead = site.shape[:-2]
    a, b = (jnp.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (self, B))
    return linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


TABLE: Mapping[str, Lowering] = {
    "lu_factor": _lu_factor,
    "lu_unpack": _lu_unpack,
    "geqrf": _geqrf,
    "householder_product": _householder_product,
    "eigh": _eigh,
    "eig": _eig,
    "svd": _svd,
    "triangular_solve": _triangular_solve,
}
