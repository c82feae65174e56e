"""Linear algebra made of factorizations: solving, inverting, determinants, norms, and the older names.

What a forward saves for its backward (the factors of determinants and of solve) is part of what it promises.
"""

from __future__ import annotations

from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Family
from keel.spec.pytorch_kernels import EVERY_DEVICE

aten = torch.ops.aten
family = Family("linalg composites", profile="linalg")

Tensor = torch.Tensor
_INFO = (
    "info is that of the factorization: 0, or k where the k-th pivot is exactly 0; the result is then not specified."
)
_SAVED = "LU and pivots are those of A, and its backward solves with them."


# -- pieces -----------------------------------------------------------------------------------------------------------


def _adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose, as a value: no lazy conjugation, which types do not tell."""
    turned = aten.transpose.int(x, -2, -1)
    return aten.conj_physical.default(turned) if x.is_complex() else turned


def _eye(like: Tensor) -> Tensor:
    """The identity, of the sizes of square matrices."""
    n = like.shape[-1]
    return aten.expand.default(aten.eye.default(n, dtype=like.dtype, device=like.device), list(like.shape))


def _solve(triangle: Tensor, b: Tensor, upper: bool, left: bool = True, unit: bool = False) -> Tensor:
    return aten.linalg_solve_triangular.default(triangle, b, upper=upper, left=left, unitriangular=unit)


def _columns(x: Tensor, n: Any) -> Tensor:
    """The first ``n`` columns, zeros where there are fewer."""
    return aten.constant_pad_nd.default(x, [0, n - x.shape[-1]])


def _rows(x: Tensor, n: Any) -> Tensor:
    return aten.slice.Tensor(x, -2, 0, n)


def _check(info: Tensor, name: str) -> None:
    aten._linalg_check_errors.default(info, name, is_matrix=info.dim() == 0)


def _exchanged(x: Tensor, permutation: Tensor, inverse: bool, left: bool) -> Tensor:
    """The rows of ``x`` (its columns without ``left``) in the order of a permutation matrix P: P x or x P, with
    ``inverse`` P^T in place of P. Elements are moved, so that what is not finite stays in its place.
    """
    n, over = permutation.shape[-1], -2 if inverse == left else -1
    counted = aten.arange.default(n, dtype=torch.int64, device=x.device)
    ones = aten.ne.Scalar(permutation, 0).to(torch.int64)
    order = aten.sum.dim_IntList(ones * (aten.unsqueeze.default(counted, -1) if over == -2 else counted), [over])
    dim = -2 if left else -1
    batch = torch.broadcast_shapes(order.shape[:-1], x.shape[:-2])
    shape = [*batch, *x.shape[-2:]]
    places = aten.expand.default(aten.unsqueeze.default(order, -1 if left else -2), shape)
    return aten.gather.default(aten.expand.default(x, shape), dim, places)


# -- with LU ----------------------------------------------------------------------------------------------------------


@family(
    "linalg_lu_solve",
    clauses=(
        "The result is X with A X = B, or X A = B without left, where A = P L U; with adjoint its conjugate transpose "
        "stands for A.",
        Clause(
            "A zero on the diagonal of U gives infinities and NaN; it is not an error.", About.NONFINITE | About.ZERO
        ),
        Clause("The batch dimensions of LU and B are broadcast.", About.BROADCAST),
    ),
)
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Linear equations solved with the factors that lu_factor gives: two triangular ones and an exchange of rows."""
    permutation = aten.lu_unpack.default(LU, pivots, False, True)[0]
    if left and not adjoint:
        x = _exchanged(B, permutation, inverse=True, left=True)
        return _solve(LU, _solve(LU, x, upper=False, unit=True), upper=True)
    turned = _adjoint(LU) if adjoint else LU
    if left:
        x = _solve(turned, _solve(turned, B, upper=False), upper=True, unit=True)
        return _exchanged(x, permutation, inverse=False, left=True)
    if adjoint:
        x = _exchanged(B, permutation, inverse=False, left=False)
        return _solve(turned, _solve(turned, x, upper=True, left=False, unit=True), upper=False, left=False)
    x = _solve(LU, _solve(LU, B, upper=True, left=False), upper=False, left=False, unit=True)
    return _exchanged(x, permutation, inverse=True, left=False)


@family(
    "_linalg_solve_ex",
    factors=2 / 3,
    clauses=(
        "The result is X with A X = B, or X A = B without left.",
        _SAVED,
        _INFO,
        Clause(
            "B is one vector per matrix if it has one dimension, or those of A but for the last.", parameters=("B",)
        ),
        Clause("With check_errors a singular matrix raises.", parameters=("check_errors",)),
    ),
)
def linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Linear equations solved: the solution, and the factors for the backward."""
    lu, pivots, info = aten.linalg_lu_factor_ex.default(A)
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and list(B.shape) == list(A.shape[:-1]))
    x = linalg_lu_solve(lu, pivots, aten.unsqueeze.default(B, -1) if vector else B, left=left)
    if check_errors:
        _check(info, "torch.linalg.solve_ex")
    return aten.squeeze.dim(x, -1) if vector else x, lu, pivots, info


@family(
    "linalg_inv_ex",
    factors=2.0,
    clauses=(
        "The result X has A X = X A = I but for rounding.",
        _INFO,
        Clause("With check_errors a singular matrix raises.", parameters=("check_errors",)),
    ),
)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The inverse."""
    lu, pivots, info = aten.linalg_lu_factor_ex.default(A)
    if check_errors:
        _check(info, "linalg.inv_ex")
    return linalg_lu_solve(lu, pivots, _eye(A)), info


@family(
    "linalg_lu",
    clauses=(
        "A = P L U: P is a permutation matrix, L has ones on its diagonal and zeros above it, U has zeros below.",
        "Without pivot P is an empty tensor of shape [0], and A = L U.",
    ),
)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The factors P, L and U."""
    lu, pivots, _ = aten.linalg_lu_factor_ex.default(A, pivot=pivot)
    p, lower, upper = aten.lu_unpack.default(lu, pivots, True, pivot)
    return p, lower, upper


def _factored(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LU, pivots and the determinant of P. For a contiguous real matrix the transpose is factored, as its backward
    relies on: it asks for the same.
    """
    turned = aten.transpose.int(A, -2, -1) if A.is_contiguous() and not A.is_complex() else A
    lu, pivots, _ = aten.linalg_lu_factor_ex.default(turned)
    n = pivots.shape[-1]
    stays = aten.arange.start(1, n + 1, dtype=pivots.dtype, device=pivots.device)
    exchanges = aten.sum.dim_IntList(aten.ne.Tensor(pivots, stays), [-1])
    return lu, pivots, 1 - 2 * aten.remainder.Scalar(exchanges, 2)


_LU_OF = (
    "LU and pivots factor the transposed matrix where A is real and contiguous, and A otherwise; the backward "
    "decides by the same layout."
)


@family(
    "_linalg_det",
    factors=2 / 3,
    clauses=(
        "The determinant is the product of the diagonal of U, negated for an odd number of row exchanges.",
        _LU_OF,
        Clause("A singular matrix has 0, or what rounding leaves of it; a matrix of no rows has 1.", About.EMPTY),
    ),
)
def linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The determinant, and the factors for the backward."""
    lu, pivots, sign = _factored(A)
    product = aten.prod.dim_int(aten.diagonal.default(lu, 0, -2, -1), -1)
    return product * sign.to(A.dtype), lu, pivots


@family(
    "_linalg_slogdet",
    factors=2 / 3,
    clauses=(
        "det A = sign * exp(logabsdet); the sign of a complex matrix is a number of magnitude 1.",
        _LU_OF,
        Clause(
            "A U with a zero on its diagonal gives sign 0 and logabsdet -inf; a matrix of no rows gives 1 and 0.",
            About.EMPTY,
        ),
    ),
)
def linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sign and logarithm of the determinant, and the factors for the backward."""
    lu, pivots, sign = _factored(A)
    diagonal = aten.diagonal.default(lu, 0, -2, -1)
    signs = aten.prod.dim_int(aten.sgn.default(diagonal), -1)
    logs = aten.sum.dim_IntList(aten.log.default(aten.abs.default(diagonal)), [-1])
    return signs * sign.to(A.dtype), logs, lu, pivots


# -- with Cholesky's factors ------------------------------------------------------------------------------------------


@family(
    "cholesky",
    name="cholesky_or_raise",
    clauses=("The factor is that of linalg_cholesky_ex; a matrix that is not positive definite raises.",),
    libraries=EVERY_DEVICE,
)
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor, or an error."""
    factor, info = aten.linalg_cholesky_ex.default(x, upper=upper)
    _check(info, "cholesky")
    return factor


@family(
    "cholesky_solve",
    "_cholesky_solve_helper",
    clauses=(
        Clause("The result is X with L L^H X = B, or U^H U X = B with upper.", parameters=("upper",)),
        "The other triangle of the factor is not read.",
        Clause("The batch dimensions of both are broadcast.", About.BROADCAST),
    ),
)
def cholesky_solve(B: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Linear equations solved with a Cholesky factor."""
    turned = _adjoint(factor)
    first, second = (turned, factor) if upper else (factor, turned)
    return _solve(second, _solve(first, B, upper=False), upper=True)


@family(
    "cholesky_inverse",
    clauses=(
        Clause(
            "The result is the inverse of L L^H, or of U^H U with upper, Hermitian but for rounding.",
            parameters=("upper",),
        ),
        "The other triangle of the factor is not read.",
    ),
)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix from its Cholesky factor."""
    return cholesky_solve(_eye(factor), factor, upper)


@family(
    "triangular_solve",
    name="triangular_solve_and_copy",
    clauses=(
        "The solution is X with A X = B for the triangle of A that upper names, A transposed (not conjugated) "
        "first with "
        "transpose; its diagonal counts as ones with unitriangular.",
        Clause("The second result is a copy of A, broadcast as the solution is.", About.BROADCAST),
    ),
    libraries=EVERY_DEVICE,
)
def triangular_solve(
    B: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Triangular equations solved, and a copy of the matrix."""
    turned = aten.transpose.int(A, -2, -1) if transpose else A
    x = _solve(turned, B, upper != transpose, unit=unitriangular)
    copy = aten.clone.default(aten.expand.default(A, [*x.shape[:-2], *A.shape[-2:]]))
    return x, copy


# -- with Householder's reflectors ------------------------------------------------------------------------------------


@family(
    "linalg_qr",
    factors=4.0,
    clauses=(
        "A = Q R: the columns of Q are orthonormal, R has zeros below its diagonal.",
        Clause(
            "Q has k columns and R k rows with mode reduced, the lesser of rows and columns; Q is square with "
            "complete; with r there is only R, and Q is an empty tensor of shape [0].",
            parameters=("mode",),
        ),
        "The signs (complex: phases) of the diagonal of R are those of geqrf.",
    ),
)
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """An orthonormal and an upper triangular factor."""
    m, n = A.shape[-2:]
    k = torch.sym_min(m, n)
    factored, tau = aten.geqrf.default(A)
    upper = aten.triu.default(factored)
    if mode == "r":
        return aten.empty.memory_format([0], dtype=A.dtype, device=A.device), _rows(upper, k)
    columns = m if mode == "complete" else k
    q = aten.linalg_householder_product.default(_columns(factored, columns), tau)
    return q, upper if mode == "complete" else _rows(upper, k)


@family(
    "ormqr",
    clauses=(
        Clause(
            "The result is Q C, or C Q without left, for the square Q that is the product of all reflectors; with "
            "transpose Q^H in place of Q.",
            parameters=("transpose",),
        ),
    ),
)
def ormqr(factored: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product with the orthonormal factor that geqrf gives."""
    q = aten.linalg_householder_product.default(_columns(factored, factored.shape[-2]), tau)
    q = _adjoint(q) if transpose else q
    return aten.matmul.default(q, other) if left else aten.matmul.default(other, q)


# -- with eigenvalues and singular values -----------------------------------------------------------------------------


@family("_linalg_eigvals", clauses=("The eigenvalues are those that linalg_eig gives, in its order.",))
def linalg_eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of a square matrix, complex."""
    return aten.linalg_eig.default(A)[0]


@family(
    "linalg_pinv.atol_rtol_tensor",
    clauses=(
        "Singular values above max(atol, rtol * the largest) are inverted, the others give 0.",
        "rtol defaults to the larger size times epsilon, and to 0 where a positive atol is given; atol defaults to 0.",
        Clause(
            "With hermitian the magnitudes of eigenvalues stand for singular values; only the lower triangle is read.",
            parameters=("hermitian",),
        ),
    ),
)
def linalg_pinv(
    A: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """The pseudo-inverse of Moore and Penrose."""
    m, n = A.shape[-2:]
    if hermitian:
        values, u = aten._linalg_eigh.default(A, "L")
        sizes, v = aten.abs.default(values), _adjoint(u)
    else:
        u, values, v = aten._linalg_svd.default(A)
        sizes = values
    if any(isinstance(s, int) and s == 0 for s in A.shape):
        return aten.full.default([*A.shape[:-2], n, m], 0, dtype=A.dtype, device=A.device)
    largest = aten.amax.default(sizes, [-1], True)
    significant = aten.gt.Tensor(sizes, _tolerance(sizes, largest, atol, rtol, torch.sym_max(m, n)))
    inverted = aten.where.self(significant, aten.reciprocal.default(values), _number(0.0, values)).to(A.dtype)
    return aten.matmul.default(_adjoint(v) * aten.unsqueeze.default(inverted, -2), _adjoint(u))


def _tolerance(sizes: Tensor, largest: Tensor, atol: Tensor | None, rtol: Tensor | None, size: Any) -> Tensor:
    relative = _number(torch.finfo(sizes.dtype).eps, sizes) * size
    if atol is None:
        return largest * (relative if rtol is None else aten.unsqueeze.default(rtol, -1))
    if rtol is None:
        rtol = aten.where.self(aten.gt.Scalar(atol, 0), _number(0.0, sizes), relative)
    return aten.maximum.default(aten.unsqueeze.default(atol, -1), aten.unsqueeze.default(rtol, -1) * largest)


def _number(value: Any, like: Tensor) -> Tensor:
    return aten.full.default([], value, dtype=like.dtype, device=like.device)


@family(
    "linalg_polar",
    clauses=(
        "A = U H: the columns of U are orthonormal, H is Hermitian and has no eigenvalue below 0.",
        "For an A with dependent columns, U is not specified beyond that.",
        Clause("A matrix that holds NaN, or has more columns than rows, is an error.", About.NONFINITE),
    ),
)
def linalg_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """The polar decomposition: an orthonormal factor and a Hermitian one."""
    u, values, v = aten._linalg_svd.default(A)
    return aten.matmul.default(u, v), _hermitian(_adjoint(v), values)


@family(
    "linalg_matrix_sqrth",
    clauses=(
        "The result is the Hermitian matrix X without eigenvalues below 0 for which X X = A.",
        Clause("Only the lower triangle of A is read; the imaginary part of its diagonal is not.", About.COMPLEX),
        "An eigenvalue of A below 0 counts as 0.",
        Clause("A matrix that is not finite gives one with NaN, or an error.", About.NONFINITE),
    ),
)
def linalg_matrix_sqrth(A: Tensor) -> Tensor:
    """The root of a Hermitian matrix that is positive semidefinite."""
    values, vectors = aten._linalg_eigh.default(A, "L")
    return _hermitian(vectors, aten.sqrt.default(aten.clamp_min.default(values, 0)))


def _hermitian(vectors: Tensor, values: Tensor) -> Tensor:
    """V diag(w) V^H, which is equal to its conjugate transpose in each bit."""
    scaled = vectors * aten.unsqueeze.default(values, -2).to(vectors.dtype)
    product = aten.matmul.default(scaled, _adjoint(vectors))
    return (product + _adjoint(product)) / 2
