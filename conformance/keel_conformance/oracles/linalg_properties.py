"""Metamorphic oracles of linear algebra: what the factors give together, and how orthonormal they are.

Factors are not unique (signs, phases, order), so none is compared with another's. A residual is measured as LAPACK's
own tests measure it, |A - Q R| / (n |A| eps) in the 1-norm, and held to their threshold, 30 (LAPACK Working Note 41,
section 6.4: "the threshold value for the test ratios ... 30.0"; the bounds behind it are Higham 2002, Theorems 9.3,
10.3, 19.4 and 8.5). All is computed in float64 from the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..by_member import ByMember
from .compare import compare
from .running_error import analyze
from .tracked_tensor import tracked, wide, wide_dtype

aten = torch.ops.aten
THRESHOLD = 30.0
Named = Mapping[str, Any]
Property = Callable[[Named, Sequence[Any], Sequence[Any]], str]
promise: ByMember[Property] = ByMember()


def _norm(x: Tensor) -> Tensor:
    """The 1-norm of each matrix, 0 of none."""
    return x.abs().sum(-2).amax(-1) if x.shape[-1] and x.shape[-2] else torch.zeros(x.shape[:-2], dtype=torch.float64)


def _w(x: Tensor) -> Tensor:
    return wide(x)


specified: ByMember[Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]] = ByMember()
"""Of members whose results are not specified as a whole: the parts that are, of the results and eager PyTorch's."""


@specified("cholesky")
def _factors(results: Sequence[Any], eager: Sequence[Any]) -> Sequence[Any]:
    """The factor of a matrix that is not positive definite is not specified (cholesky.C4)."""
    return [results[0][eager[1] == 0]]


def unknown(member: str, arguments: Sequence[Any], results: Sequence[Any], eager: Sequence[Any]) -> str:
    """Of finite arguments there is no NaN where eager PyTorch has none at all: it is less than no bound."""
    if (known := specified.declared.get(member)) is not None:
        results = known(results, eager)
    floats = [
        [x for x in some if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())]
        for some in (arguments, eager, results)
    ]
    if not all(bool(x.isfinite().all()) for some in floats[:2] for x in some):
        return ""
    return "An element is NaN." if any(bool(x.isnan().any()) for x in floats[2]) else ""


def residual(what: str, left: Tensor, right: Tensor, scale: Tensor, eps: float) -> str:
    """|left - right| is at most 30 max(m, n) eps times ``scale``, for each matrix of the batch."""
    if not left.numel():
        return ""
    n = max(left.shape[-2:])
    off, allowed = _norm(left - right), THRESHOLD * n * eps * scale
    wrong = ~(off <= allowed) & right.isfinite().all(-1).all(-1)
    if not wrong.any():
        return ""
    k = int(wrong.flatten().nonzero()[0])
    return (
        f"{what}: the residual {float(off.flatten()[k]):.3g} of matrix {k} is beyond "
        f"{float(allowed.broadcast_to(off.shape).flatten()[k]):.3g}, which is 30 n eps times its size."
    )


def orthonormal(what: str, q: Tensor, eps: float) -> str:
    """Q^H Q is the identity."""
    eye = torch.eye(q.shape[-1], dtype=q.dtype).broadcast_to((*q.shape[:-2], q.shape[-1], q.shape[-1]))
    n = max(q.shape[-2:], default=1)
    return residual(f"{what} is not orthonormal", q.mH @ q, eye, torch.full(q.shape[:-2], float(n)), eps)


def _eps(x: Tensor) -> float:
    return float(torch.finfo(x.dtype).eps)


def _hermitian(a: Tensor, lower: bool) -> Tensor:
    """The matrix whose one triangle is read."""
    a = _w(a)
    part = a.tril(-1) if lower else a.triu(1)
    diagonal = torch.diag_embed(a.diagonal(dim1=-2, dim2=-1).real.to(a.dtype))
    return part + part.mH + diagonal


def _equal(what: str, got: Tensor, want: Tensor) -> str:
    return "" if torch.equal(got, want) else f"{what} is {got.tolist()}, not {want.tolist()}."


@promise("cholesky", "cholesky_or_raise")
def cholesky(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = L L^H where info is 0; zeros in the other triangle, a positive diagonal."""
    upper, factor = bool(named["upper"]), results[0]
    info = results[1] if len(results) > 1 else torch.zeros(factor.shape[:-2], dtype=torch.int32)
    if len(results) > 1 and (sentence := _equal("info", info, eager[1])):
        return sentence
    a, f = _hermitian(named["self"], not upper), _w(factor)
    other = f.tril(-1) if upper else f.triu(1)
    good = info == 0
    if bool((other[good] != 0).any()):
        return "The other triangle of the factor is not 0."
    if bool((f.diagonal(dim1=-2, dim2=-1).real[good] <= 0).any()):
        return "The diagonal of the factor is not positive."
    product = f.mH @ f if upper else f @ f.mH
    return residual("A = L L^H", product[good], a[good], _norm(a[good]), _eps(factor))


def _unpacked(lu: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U in float64."""
    return torch.lu_unpack(_w(lu), pivots)


@promise("lu_factor")
def lu_factor(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = P L U, |L| at most 1 where rows were exchanged, info the first pivot that is 0.

    LAPACK compares complex numbers by |re| + |im| (its izamax): a multiplier may be as large as the square root of 2.
    """
    a, pivots = _w(named["A"]), results[1]
    if bool(((pivots < 1) | (pivots > a.shape[-2])).any()):
        return f"A pivot names no row: {pivots.tolist()}, of matrices of {a.shape[-2]}."
    p, lower, u = _unpacked(results[0], pivots)
    grown, most = _norm(lower.abs() @ u.abs()), 2.0**0.5 if a.is_complex() else 1.0
    if named.get("pivot", True) and bool((lower.abs() > most * (1 + 4 * _eps(results[0]))).any()):
        return "A multiplier is greater than 1: a row of larger magnitude was left below."
    diagonal = u.diagonal(dim1=-2, dim2=-1) == 0
    count = (
        torch.where(diagonal.any(-1), diagonal.to(torch.int64).argmax(-1) + 1, 0)
        if diagonal.shape[-1]
        else (torch.zeros(diagonal.shape[:-1], dtype=torch.int64))
    )
    if len(results) > 2 and (sentence := _equal("info", results[2].long(), count)):
        return sentence
    return residual("A = P L U", p @ lower @ u, a, torch.maximum(_norm(a), grown), _eps(results[0]))


def _follows(
    named: Named, results: Sequence[Any], eager: Sequence[Any], formula: Callable[[Tensor, Tensor], tuple[Tensor, ...]]
) -> str:
    """The factors come last, and are those of A or of its transpose (linalg_det.C2); the first results are ``formula``
    of the diagonal of that U and of the determinant of P, within the bounds of error analysis.
    """
    a, (*first, lu, pivots) = named["A"], results
    turned = a.mT if a.is_contiguous() and not a.is_complex() else a
    if sentence := lu_factor({"A": turned, "pivot": True}, (lu, pivots), eager[-2:]):
        return sentence
    exchanges = (pivots != torch.arange(1, pivots.shape[-1] + 1)).sum(-1)
    sign = (1 - 2 * (exchanges % 2)).to(lu.dtype)
    expected = formula(tracked(lu.diagonal(0, -2, -1).clone(), analyze), sign)
    result = (compare(got, want).sentence for got, want in zip(first, expected, strict=True))
    return next((f"It does not follow from the factors. {sentence}" for sentence in result if sentence), "")


@promise("linalg_det")
def det(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    return _follows(
        named, results, eager, lambda diagonal, sign: (aten.mul.Tensor(aten.prod.dim_int(diagonal, -1), sign),)
    )


@promise("linalg_slogdet")
def slogdet(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    def formula(diagonal: Tensor, sign: Tensor) -> tuple[Tensor, ...]:
        signs = aten.prod.dim_int(aten.sgn.default(diagonal), -1)
        logs = aten.sum.dim_IntList(aten.log.default(aten.abs.default(diagonal)), [-1])
        return aten.mul.Tensor(signs, sign), logs

    return _follows(named, results, eager, formula)


@promise("linalg_lu")
def linalg_lu(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = P L U of matrices apart."""
    p, lower, u = (_w(r) for r in results)
    a = _w(named["A"])
    k = lower.shape[-1]
    if bool((lower.triu(1) != 0).any()) or bool((u.tril(-1) != 0).any()):
        return "L is not lower or U not upper triangular."
    if k and bool((lower.diagonal(dim1=-2, dim2=-1) != 1).any()):
        return "The diagonal of L is not 1."
    product = lower @ u
    if p.numel():
        ones = (p == 1).sum(-1) == 1
        if not bool(ones.all()) or not bool(((p == 1).sum(-2) == 1).all()) or bool(((p != 0) & (p != 1)).any()):
            return "P is not a permutation."
        product = p @ product
    return residual("A = P L U", product, a, torch.maximum(_norm(a), _norm(lower.abs() @ u.abs())), _eps(results[1]))


@promise("linalg_qr")
def linalg_qr(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = Q R; of R alone, R^H R = A^H A."""
    a, (q, r) = _w(named["A"]), (_w(x) for x in results)
    eps = _eps(results[1])
    if bool((r.tril(-1) != 0).any()):
        return "R is not upper triangular."
    if named["mode"] == "r":
        return residual("R^H R = A^H A", r.mH @ r, a.mH @ a, _norm(a) * _norm(a.mH), eps)
    return orthonormal("Q", q, eps) or residual("A = Q R", q @ r, a, _norm(a), eps)


@promise("geqrf")
def geqrf(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = Q R from reflectors, which the normal form of the oracle multiplies out one by one."""
    a, packed, tau = _w(named["self"]), _w(results[0]), _w(results[1])
    m = a.shape[-2]
    q = torch.eye(m, dtype=a.dtype).expand(*a.shape[:-2], m, m)
    for i in range(tau.shape[-1]):
        v = packed[..., :, i].clone()
        v[..., :i] = 0
        v[..., i] = 1
        q = q - tau[..., i, None, None] * (q @ v[..., :, None]) @ v[..., None, :].conj()
    eps = _eps(results[0])
    return orthonormal("Q", q, eps) or residual("A = Q R", q @ packed.triu(), a, _norm(a), eps)


@promise("eigh")
def eigh(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A V = V diag(w), V orthonormal, w ascending; w alone as near as the matrix is (Weyl: within the residual)."""
    a = _hermitian(named["A"], named["UPLO"].upper() == "L")
    if not bool(a.isfinite().all()):
        return ""
    w, eps = _w(results[0]), _eps(results[0])
    if w.shape[-1] > 1 and bool((w[..., 1:] < w[..., :-1]).any()):
        return "The eigenvalues do not ascend."
    if not named["compute_v"]:
        best = torch.linalg.eigvalsh(a)
        return residual("Eigenvalues", w[..., None], best[..., None], _norm(a) * max(a.shape[-1], 1), eps)
    v = _w(results[1])
    scaled = v * w[..., None, :].to(v.dtype)
    return orthonormal("V", v, eps) or residual("A V = V diag(w)", a @ v, scaled, _norm(a), eps)


@promise("eig")
def eig(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A V = V diag(w), columns of norm 1."""
    a, (w, v) = _w(named["self"]).to(torch.complex128), (_w(r) for r in results)
    eps = _eps(results[0])
    norms = v.norm(dim=-2)
    if bool(((norms - 1).abs() > THRESHOLD * max(a.shape[-1], 1) * eps).any()):
        return "A column of the eigenvectors has not the norm 1."
    return residual("A V = V diag(w)", a @ v, v * w[..., None, :], _norm(a), eps) or _trace(a, w, eps)


@promise("linalg_eigvals")
def eigvals(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """Each makes A - w I singular to within the residual; together they have the trace of A."""
    a, w = _w(named["self"]).to(torch.complex128), _w(results[0])
    n, eps = a.shape[-1], _eps(results[0])
    if not w.numel():
        return ""
    shifted = a[..., None, :, :] - w[..., :, None, None] * torch.eye(n, dtype=a.dtype)
    least = torch.linalg.svdvals(shifted)[..., -1]
    allowed = THRESHOLD * n * eps * _norm(a)[..., None] * n
    return "A result is not an eigenvalue." if bool((least > allowed).any()) else _trace(a, w, eps)


def _trace(a: Tensor, w: Tensor, eps: float) -> str:
    n = a.shape[-1]
    total = a.diagonal(dim1=-2, dim2=-1).sum(-1)
    off = (w.sum(-1) - total).abs() > THRESHOLD * n * n * eps * _norm(a)
    return "The eigenvalues do not add up to the trace: one is there twice or missing." if bool(off.any()) else ""


@promise("svd")
def svd(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = U diag(S) Vh, U and V orthonormal, S descending and not negative."""
    a, (u, s, vh) = _w(named["A"]), (_w(r) for r in results)
    eps, k = _eps(results[1]), s.shape[-1]
    if bool((s < 0).any()) or (k > 1 and bool((s[..., 1:] > s[..., :-1]).any())):
        return "The singular values are negative or do not descend."
    if not named["compute_uv"]:
        best = torch.linalg.svdvals(a)
        return residual("Singular values", s[..., None], best[..., None], _norm(a) * max(*a.shape[-2:], 1), eps)
    product = (u[..., :, :k] * s[..., None, :].to(u.dtype)) @ vh[..., :k, :]
    return (
        orthonormal("U", u, eps)
        or orthonormal("V", vh.mH, eps)
        or residual("A = U diag(S) Vh", product, a, _norm(a), eps)
    )


@promise("linalg_polar")
def polar(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A = U H, U orthonormal, H positive semidefinite."""
    a, (u, h), eps = _w(named["A"]), (_w(r) for r in results), _eps(results[0])
    return orthonormal("U", u, eps) or _semidefinite("H", h, eps) or residual("A = U H", u @ h, a, _norm(a), eps)


@promise("linalg_matrix_sqrth")
def root(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """X X = A without the part of A whose eigenvalues are below 0, X positive semidefinite."""
    a, x, eps = _hermitian(named["self"], lower=True), _w(results[0]), _eps(results[0])
    if not bool(a.isfinite().all()):
        return ""
    w, v = torch.linalg.eigh(a)
    retained = (v * w.clamp_min(0)[..., None, :].to(v.dtype)) @ v.mH
    return _semidefinite("X", x, eps) or residual("X X = A", x @ x, retained, _norm(a), eps)


def _semidefinite(what: str, x: Tensor, eps: float) -> str:
    """Hermitian, and no eigenvalue is below 0 by more than the error of a matrix of its size."""
    if sentence := residual(f"{what} is not Hermitian", x, x.mH, _norm(x), eps):
        return sentence
    if not x.numel() or not bool(x.isfinite().all()):
        return ""
    allowed = THRESHOLD * x.shape[-1] * eps * _norm(x)
    below = torch.linalg.eigvalsh((x + x.mH) / 2)[..., 0] < -allowed
    return f"{what} has an eigenvalue below 0." if bool(below.any()) else ""


def _solved(what: str, a: Tensor, x: Tensor, b: Tensor, left: bool, eps: float) -> str:
    """|A X - B| is at most 30 n eps |A| |X|: X is exact for a matrix nearby (Higham 2002, Theorem 7.1)."""
    if not x.numel():
        return ""
    if not left:
        a, x, b = a.mT, x.mT, b.mT
    finite = x.isfinite().all(-1).all(-1)
    scale = torch.where(finite, a.abs().sum(-2).amax(-1) * _norm(x) + _norm(b), 0.0)
    return residual(what, torch.where(finite[..., None, None], a @ x, b), b.broadcast_to(x.shape), scale, eps)


@promise("triangular_solve")
def triangular(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A X = B for the triangle that is read."""
    a, b = _w(named["self"]), _w(named["B"])
    a = a.triu() if named["upper"] else a.tril()
    if named["unitriangular"]:
        a = a - torch.diag_embed(a.diagonal(dim1=-2, dim2=-1)) + torch.eye(a.shape[-1], dtype=a.dtype)
    x = _w(results[0])
    return _classes(results[0], eager[0]) or _solved("A X = B", a, x, b, named["left"], _eps(results[0]))


def _classes(got: Tensor, want: Tensor) -> str:
    """Finite where eager's result is."""
    off = got.isfinite() != want.isfinite()
    return "Other elements are finite than in eager PyTorch." if bool(off.any()) else ""


@promise("linalg_solve_ex")
def solve(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A X = B where the matrix is not singular, and the factors are those of A."""
    a, b = _w(named["A"]), _w(named["B"])
    if sentence := _equal("info", results[3], eager[3]):
        return sentence
    if bool((results[3] != 0).any()):
        return ""
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    x = _w(results[0])
    b, x = (b[..., None], x[..., None]) if vector else (b, x)
    return _solved("A X = B", a, x, b, named["left"] or vector, _eps(results[0]))


@promise("linalg_inv_ex")
def inverse(named: Named, results: Sequence[Any], eager: Sequence[Any]) -> str:
    """A X = I where the matrix is not singular."""
    a = _w(named["A"])
    if sentence := _equal("info", results[1], eager[1]):
        return sentence
    eye = torch.eye(a.shape[-1], dtype=a.dtype).broadcast_to(a.shape)
    good = results[1] == 0
    return _solved("A X = I", a[good], _w(results[0])[good], eye[good], True, _eps(results[0]))


__all__ = ["THRESHOLD", "orthonormal", "promise", "residual", "wide_dtype"]
