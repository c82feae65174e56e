"""Linear algebra: the factorizations and solvers that LAPACK-like libraries have. Batches of matrices, column-major."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import COMPLEX
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.pytorch_kernels import EVERY_DEVICE
from keel.spec.rules import (
    DENSE,
    Out,
    ShapeRule,
    fixed,
    like,
    real,
    shape_of,
)
from keel.spec.rules_linalg import (
    COLUMNS,
    batch,
    batched,
    columns_but_on_cuda,
    complexed,
    matrix,
    only_if,
    same_dtype,
    solution,
    square,
)
from keel.spec.samples import drawn
from keel.spec.unspecified import above_diagonal

family = Family("linalg", profile="linalg")

DTYPES = (torch.float32, torch.float64, *COMPLEX)
INT32 = fixed(torch.int32)
_BATCHES = Clause(
    "Dimensions before the last two are a batch: each matrix is treated alone, and none gives an empty result.",
    About.EMPTY | About.BATCH,
)
_RAISES = Clause("With check_errors a failure raises; otherwise info reports it.", parameters=("check_errors",))
_PHASE = Clause(
    "Vectors are given up to a factor of magnitude 1, and those of equal values up to a rotation: what is "
    "promised is what they do together.",
    About.TIES,
)
_STABLE = "The error is backward stable: the result is exact for a matrix within a few n ulps of the one given."


def _declare(
    name: str,
    overload: str,
    doc: str,
    *clauses: Clause | str,
    out: Sequence[Out],
    samples: Any,
    requires: Sequence[Requires] = (),
    own: Mapping[str, int] = MappingProxyType({}),
    **more: Any,
) -> None:
    family.primitive(
        name,
        overload,
        doc=doc,
        clauses=clauses,
        out=tuple(out),
        requires=tuple(requires),
        dtypes=DTYPES,
        samples=samples,
        budget={d: Budget(times=2.0) for d in DTYPES},
        operands=tuple(own),
        own=own,
        **more,
    )


# -- samples ----------------------------------------------------------------------------------------------------------

_SQUARE = ((1, 1), (3, 3), (5, 5), (0, 0), (2, 4, 4), (3, 1, 2, 2), (0, 3, 3), (2, 0, 0))
_TALL = ((4, 2), (2, 4), (3, 3), (1, 1), (0, 3), (3, 0), (2, 5, 3), (2, 3, 5), (0, 3, 2))


def matrices(dtype: torch.dtype, shapes: Sequence[tuple[int, ...]] = _TALL) -> Iterator[torch.Tensor]:
    """Matrices with independent rows and columns, row-major, then column-major, then with gaps."""
    for i, shape in enumerate(shapes):
        yield _dominant(drawn(dtype, *shape, seed=i, low=-1.0, high=1.0))
    *lead, m, n = shapes[1]
    yield _dominant(drawn(dtype, *lead, n, m, seed=7, low=-1.0, high=1.0)).mT
    yield _dominant(drawn(dtype, *lead, 2 * m, 2 * n, seed=8, low=-1.0, high=1.0)[..., ::2, ::2])


def _dominant(x: torch.Tensor) -> torch.Tensor:
    """With an anti-diagonal that keeps the matrix regular and its rows in need of exchange."""
    return x + 3 * torch.eye(*x.shape[-2:], dtype=x.dtype).flip(-1)


def squares(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    yield from matrices(dtype, _SQUARE)


def positive(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Hermitian positive definite matrices."""
    for x in squares(dtype):
        yield x @ x.mH + torch.eye(x.shape[-1], dtype=dtype)


def _each(operands: Any, dtype: torch.dtype, *keywords: dict[str, Any]) -> Iterator[Sample]:
    for x in operands(dtype):
        for k in keywords or ({},):
            yield Sample((x,), k)


def sides(a: torch.Tensor, left: bool = True) -> Iterator[torch.Tensor]:
    """Right-hand sides for square matrices: one column, several, none, a batch that broadcasts."""
    n = a.shape[-1]
    for columns in (1, 3, 0):
        yield drawn(a.dtype, *a.shape[:-2], *((n, columns) if left else (columns, n)), seed=columns)
    yield drawn(a.dtype, 2, *[1] * (a.dim() - 2), *((n, 2) if left else (2, n)), seed=5)


def _triangular(dtype: torch.dtype) -> Iterator[Sample]:
    for i, a in enumerate(positive(dtype)):
        for left in (True, False):
            for b in sides(a, left):
                yield Sample((a, b), {"upper": i % 2 == 0, "left": left, "unitriangular": i % 3 == 2})


def _wide(x: torch.Tensor) -> torch.Tensor:
    """What is factored in double precision has, rounded, the same digits on every machine."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _unpacked(dtype: torch.dtype) -> Iterator[Sample]:
    for a in matrices(dtype):
        lu, pivots, _ = torch.linalg.lu_factor_ex(_wide(a))
        lu = lu.to(dtype)
        for keywords in ({}, {"unpack_data": False}, {"unpack_pivots": False}):
            yield Sample((lu, pivots), keywords)


def _indefinite(dtype: torch.dtype) -> Iterator[torch.Tensor]:
    for x in squares(dtype):
        yield x + x.mT


def _ldl(dtype: torch.dtype) -> Iterator[Sample]:
    for a in _indefinite(dtype):
        ld, pivots, _ = torch.linalg.ldl_factor_ex(_wide(a))
        ld = ld.to(dtype)
        for b in sides(a):
            if b.shape[:-2] == a.shape[:-2]:
                yield Sample((ld, pivots, b))


def _reflectors(dtype: torch.dtype) -> Iterator[Sample]:
    for a in matrices(dtype):
        if a.shape[-2] >= a.shape[-1]:
            factored, tau = (x.to(dtype) for x in torch.geqrf(_wide(a)))
            yield Sample((factored, tau))
            yield Sample((factored, tau[..., :1]))


# -- factorizations ---------------------------------------------------------------------------------------------------

_SAME = Out(like("self"), shape_of("self"), COLUMNS)
_INFO = Out(INT32, batch("self"), DENSE)

_declare(
    "cholesky",
    "linalg_cholesky_ex",
    "The Cholesky factor of a Hermitian positive definite matrix: A = L L^H, or U^H U with upper.",
    Clause(
        "Only the lower triangle is read, or the upper with upper; the imaginary part of the diagonal is not read.",
        About.COMPLEX,
        parameters=("upper",),
    ),
    "The other triangle of the factor is 0, its diagonal is real and positive.",
    "info is 0, or the order k > 0 of the first leading minor that is not positive definite; the factor is then not "
    "specified.",
    Clause("A minor that holds NaN is not positive definite.", About.NONFINITE),
    _RAISES,
    _BATCHES,
    _STABLE,
    factors=1 / 3,
    out=(_SAME, _INFO),
    requires=(square("self"),),
    samples=lambda dtype: _each(positive, dtype, {}, {"upper": True}),
    libraries=EVERY_DEVICE,
)

_declare(
    "lu_factor",
    "linalg_lu_factor_ex",
    "The factors of P^T A = L U in one matrix, and the row exchanges of P.",
    "L is below the diagonal, its diagonal of ones not stored; U is the upper triangle.",
    "pivots are int32 and count from 1: at step i row i was exchanged with row pivots[i], in this order.",
    "At step i the pivot has the largest magnitude among the column's elements from row i on.",
    "info is 0, or the number k > 0 of the first pivot that is exactly 0; the factors are then still those of A.",
    Clause(
        "Without pivot no rows are exchanged and pivots are 1, 2, ...; a backend may refuse that.",
        parameters=("pivot",),
    ),
    _RAISES,
    _BATCHES,
    _STABLE,
    factors=2 / 3,
    out=(
        Out(like("A"), shape_of("A"), COLUMNS),
        Out(INT32, batched("A", "[k]", lambda m, n, k: (k,)), DENSE),
        Out(INT32, batch("A"), DENSE),
    ),
    requires=(matrix("A"),),
    samples=lambda dtype: _each(matrices, dtype),
)


def _parts(flag: str, last: Any, text: str) -> Out:
    shape = only_if(lambda args: bool(args[flag]), flag, batched("LU_data", text, last))
    return Out(like("LU_data"), shape, DENSE)


_declare(
    "lu_unpack",
    "lu_unpack",
    "The matrices P, L and U from what lu_factor gives.",
    "P is a permutation matrix of zeros and ones in the dtype of the factors, with A = P L U.",
    "L has ones on its diagonal and zeros above it; U has zeros below its diagonal.",
    "What is not asked for is an empty tensor of shape [0].",
    "The result is exact.",
    _BATCHES,
    out=(
        _parts("unpack_pivots", lambda m, n, k: (m, m), "[m, m]"),
        _parts("unpack_data", lambda m, n, k: (m, k), "[m, k]"),
        _parts("unpack_data", lambda m, n, k: (k, n), "[k, n]"),
    ),
    requires=(
        matrix("LU_data"),
        Requires(
            "pivots-dtype",
            "Pivots are int32.",
            lambda args: not args["unpack_pivots"] or args["LU_pivots"].dtype == torch.int32,
        ),
    ),
    samples=_unpacked,
    numerics=Numerics(results=Results.MOVED),
)

_declare(
    "ldl_factor",
    "linalg_ldl_factor_ex",
    "The factors of a symmetric matrix, or with hermitian of a Hermitian one: A = P L D L^T P^T, in one matrix.",
    "Only the lower triangle is read.",
    "D has blocks of sizes 1 and 2; pivots tell the exchanges and blocks as LAPACK's sytrf does, counting from 1, "
    "negative for a block of size 2.",
    Clause("What LD holds above the diagonal is not specified.", About.UNSPECIFIED),
    "info is 0, or the number k > 0 of the first block of D that is exactly singular.",
    _RAISES,
    _BATCHES,
    _STABLE,
    factors=1 / 3,
    out=(_SAME, Out(INT32, batched("self", "[n]", lambda m, n, k: (n,)), DENSE), _INFO),
    requires=(square("self"),),
    samples=lambda dtype: _each(_indefinite, dtype),
    unspecified=above_diagonal,
)

_declare(
    "geqrf",
    "geqrf",
    "The factors of A = Q R in one matrix: R above, the Householder vectors of Q below.",
    "R is the upper triangle with the diagonal.",
    "Q is the product of I - tau[i] v v^H in order, with v[i] = 1, zeros before it and column i of a below it.",
    "The signs (complex: phases) of the diagonal of R are not specified, and go together with those of Q.",
    _BATCHES,
    _STABLE,
    factors=2.0,
    out=(_SAME, Out(like("self"), batched("self", "[k]", lambda m, n, k: (k,)), DENSE)),
    requires=(matrix("self"),),
    samples=lambda dtype: _each(matrices, dtype),
)

_declare(
    "householder_product",
    "linalg_householder_product",
    "The first n columns of the product of the Householder reflectors that geqrf gives.",
    "Reflector i is I - tau[i] v v^H with v[i] = 1, zeros before it and column i of input below it.",
    "The diagonal and what is above it are not read.",
    "There may be fewer reflectors than columns.",
    _BATCHES,
    _STABLE,
    out=(Out(like("input"), shape_of("input"), COLUMNS),),
    requires=(
        matrix("input"),
        same_dtype("input", "tau"),
        Requires(
            "tall",
            "There are at least as many rows as columns, and as many columns as reflectors.",
            lambda args: _ordered(args["input"].shape[-2], args["input"].shape[-1], args["tau"].shape[-1]),
        ),
    ),
    samples=_reflectors,
)


def _ordered(*sizes: Any) -> bool:
    known = [n for n in sizes if isinstance(n, int)]
    return known == sorted(known, reverse=True)


# -- eigenvalues and singular values ----------------------------------------------------------------------------------


def _if_flag(flag: str, rule: ShapeRule) -> ShapeRule:
    return only_if(lambda args: bool(args[flag]), flag, rule)


_declare(
    "eigh",
    "_linalg_eigh",
    "Eigenvalues and eigenvectors of a Hermitian matrix.",
    "The eigenvalues are real, ascending, and counted by multiplicity.",
    "The columns of the eigenvectors are orthonormal: A V = V diag(w).",
    _PHASE,
    Clause(
        "Only the triangle that UPLO names is read, in upper or lower case; the imaginary part of the diagonal is not.",
        About.COMPLEX,
    ),
    Clause("For a matrix that is not finite, the result is not specified, and may be an error.", About.NONFINITE),
    "Without compute_v the eigenvectors are an empty tensor of shape [0].",
    _BATCHES,
    _STABLE,
    factors=9.0,
    out=(
        Out(real(like("A")), batched("A", "[n]", lambda m, n, k: (n,)), DENSE),
        Out(like("A"), _if_flag("compute_v", shape_of("A")), COLUMNS),
    ),
    requires=(
        square("A"),
        Requires("triangle-known", "UPLO is U or L.", lambda args: args["UPLO"].upper() in ("U", "L")),
    ),
    samples=lambda dtype: _each(positive, dtype, {}, {"UPLO": "U"}, {"compute_v": False}),
)

_declare(
    "eig",
    "linalg_eig",
    "Eigenvalues and eigenvectors of a square matrix, complex.",
    "The columns of the eigenvectors have norm 1: A V = V diag(w).",
    _PHASE,
    "The order of the eigenvalues is not specified; those of a real matrix come in conjugate pairs.",
    Clause("A matrix that is not finite is an error.", About.NONFINITE),
    "For a matrix without a full set of eigenvectors, the eigenvectors are dependent.",
    _BATCHES,
    _STABLE,
    factors=25.0,
    out=(
        Out(complexed("self"), batched("self", "[n]", lambda m, n, k: (n,)), DENSE),
        Out(complexed("self"), shape_of("self"), columns_but_on_cuda("self")),
    ),
    requires=(square("self"),),
    samples=lambda dtype: _each(squares, dtype),
)


def _svd_shape(full: Any, thin: Any, text: str) -> ShapeRule:
    wide, narrow = batched("A", text, full), batched("A", text, thin)
    return _if_flag(
        "compute_uv",
        ShapeRule(
            f"{text} of full_matrices, else k", lambda args: (wide if args["full_matrices"] else narrow).of(args)
        ),
    )


_declare(
    "svd",
    "_linalg_svd",
    "Singular values and vectors: A = U diag(S) Vh.",
    "The singular values are real, not negative, and descend.",
    Clause(
        "The columns of U and the rows of Vh are orthonormal; there are k of them, or all with full_matrices.",
        parameters=("full_matrices",),
    ),
    _PHASE,
    Clause("A matrix that holds NaN is an error.", About.NONFINITE),
    "Without compute_uv U and Vh are empty tensors of shape [0].",
    _BATCHES,
    _STABLE,
    factors=21.0,
    out=(
        Out(like("A"), _svd_shape(lambda m, n, k: (m, m), lambda m, n, k: (m, k), "batch(A)[m, m]"), COLUMNS),
        Out(real(like("A")), batched("A", "[k]", lambda m, n, k: (k,)), DENSE),
        Out(
            like("A"),
            _svd_shape(lambda m, n, k: (n, n), lambda m, n, k: (k, n), "batch(A)[n, n]"),
            columns_but_on_cuda("A"),
        ),
    ),
    requires=(
        matrix("A"),
        Requires(
            "driver-on-cuda-only",
            "A driver is named on CUDA only.",
            lambda args: args["driver"] is None or args["A"].device.type == "cuda",
        ),
    ),
    samples=lambda dtype: _each(matrices, dtype, {}, {"full_matrices": True}, {"compute_uv": False}),
)

# -- solvers and functions --------------------------------------------------------------------------------------------

_declare(
    "triangular_solve",
    "linalg_solve_triangular",
    "X with A X = B, or X A = B without left, for a triangular matrix A.",
    Clause(
        "Only the triangle that upper names is read; with unitriangular its diagonal is not, and counts as ones.",
        parameters=("unitriangular",),
    ),
    Clause(
        "A zero on the diagonal gives infinities and NaN as the divisions by it do; it is not an error.",
        About.NONFINITE | About.ZERO,
    ),
    Clause("The batch dimensions of A and B are broadcast.", About.BROADCAST),
    "The input is not changed.",
    "Each column of X is exact for a matrix within n ulps of A.",
    out=(Out(like("B"), solution("B", "self"), COLUMNS),),
    requires=(
        square("self"),
        matrix("B"),
        same_dtype("self", "B"),
        Requires(
            "shapes-fit",
            "A and B fit: as many rows as A is wide, or columns without left.",
            lambda args: args["self"].shape[-1] == args["B"].shape[-2 if args["left"] else -1],
        ),
    ),
    samples=_triangular,
    libraries=EVERY_DEVICE,
)

_declare(
    "ldl_solve",
    "linalg_ldl_solve",
    "X with A X = B from the factors that ldl_factor gives.",
    "hermitian must be the one that the factors were made with.",
    Clause("A singular D gives infinities or NaN; it is not an error.", About.NONFINITE),
    "What LD holds above the diagonal is not read.",
    out=(Out(like("B"), solution("B", "LD"), COLUMNS),),
    requires=(
        square("LD"),
        matrix("B"),
        same_dtype("LD", "B"),
        Requires(
            "same-batch",
            "LD and B have equal batch dimensions, as in normal form: PyTorch's own kernel reads past the pivots where "
            "they are broadcast.",
            lambda args: args["LD"].shape[:-2] == args["B"].shape[:-2],
        ),
    ),
    samples=_ldl,
    own={"LD": 2, "pivots": 1, "B": 2},
    row_major=True,
)

_declare(
    "matrix_exp",
    "linalg_matrix_exp",
    "The matrix exponential: the sum of A^k / k! over k from 0 on.",
    "For zeros it is the identity, exactly.",
    Clause("A matrix that is not finite gives one with NaN.", About.NONFINITE),
    "The relative error in the norm is a few ulps times the norm of A where that is larger than 1.",
    _BATCHES,
    out=(Out(like("self"), shape_of("self"), DENSE),),
    requires=(square("self"),),
    samples=lambda dtype: _each(squares, dtype),
)
