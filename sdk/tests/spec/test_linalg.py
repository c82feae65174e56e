"""Linear algebra: what the clauses say, tried on eager; types where PyTorch has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from keel.graph.calls import type_of
from keel.spec import MEMBERS
from keel.spec.bind import bound
from keel.spec.ops.linalg import matrices, positive, squares
from keel.torch_adapter.meta_bugs.table import METAS

from .test_types import agrees

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
F64, C128 = torch.float64, torch.complex128
DTYPES = pytest.mark.parametrize("dtype", [F64, C128], ids=str)


def types(name: str, args: Any, kwargs: Any) -> Any:
    given = [type_of(a) if isinstance(a, torch.Tensor) else a for a in args]
    return MEMBERS[name].types(bound(MEMBERS[name].targets[0], given, kwargs))


LINALG = [name for name, op in MEMBERS.items() if op.family == "linalg"]


@pytest.mark.parametrize("name", LINALG)
def test_types_are_those_of_eager(name: str) -> None:
    op = MEMBERS[name]
    for sample in op.samples(torch.complex64):  # type: ignore[misc]
        found = op.targets[0](*sample.args, **sample.kwargs)
        results = found if isinstance(found, tuple) else (found,)
        got = types(name, sample.args, sample.kwargs)
        assert all(agrees(type_of(w), g) for w, g in zip(results, got, strict=True)), f"{sample}: {got}"


@pytest.mark.parametrize("name", LINALG)
def test_preconditions_hold_of_samples(name: str) -> None:
    for sample in MEMBERS[name].samples(F64):  # type: ignore[misc]
        given = [type_of(a) if isinstance(a, torch.Tensor) else a for a in sample.args]
        assert all(r.holds(bound(MEMBERS[name].targets[0], given, sample.kwargs)) for r in MEMBERS[name].requires)


@pytest.mark.parametrize(
    ("name", "shapes", "keywords"),
    [
        ("cholesky", [(2, 3)], {}),
        ("lu_factor", [(3,)], {}),
        ("eigh", [(3, 3)], {"UPLO": "X"}),
        ("eig", [(3,)], {}),
        ("svd", [(3, 3)], {"driver": "gesvd"}),
        ("householder_product", [(2, 3), (2,)], {}),
        ("triangular_solve", [(3, 3), (2, 1)], {"upper": True}),
        ("matrix_exp", [(2, 3)], {}),
        ("ldl_factor", [(2, 3)], {}),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_preconditions_refuse_what_eager_refuses(name: str, shapes: list[tuple[int, ...]], keywords: Any) -> None:
    args = [torch.ones(s) for s in shapes]
    given = bound(MEMBERS[name].targets[0], [type_of(a) for a in args], keywords)
    assert not all(r.holds(given) for r in MEMBERS[name].requires)
    with pytest.raises((RuntimeError, IndexError)):
        MEMBERS[name].targets[0](*args, **keywords)


@DTYPES
def test_cholesky(dtype: torch.dtype) -> None:
    for a in positive(dtype):
        noise = torch.full_like(a, NAN)
        lower, info = aten.linalg_cholesky_ex(a.tril() + noise.triu(1))
        upper, _ = aten.linalg_cholesky_ex(a.triu() + noise.tril(-1), upper=True)
        torch.testing.assert_close(lower @ lower.mH, a)
        torch.testing.assert_close(upper, lower.mH)
        diagonal = lower.diagonal(0, -2, -1)
        assert not info.any() and torch.equal(lower, lower.tril()) and (diagonal.real > 0).all()
        assert not diagonal.is_complex() or not diagonal.imag.any()
    assert aten.linalg_cholesky_ex(torch.tensor([[4.0, 2, 1], [2, -3, 5], [1, 5, 9]]))[1] == 2
    assert aten.linalg_cholesky_ex(torch.tensor([[NAN]]))[1] == 1
    with pytest.raises(torch.linalg.LinAlgError):
        aten.linalg_cholesky_ex(-torch.eye(2), check_errors=True)


@DTYPES
def test_lu(dtype: torch.dtype) -> None:
    for a in matrices(dtype):
        lu, pivots, _ = aten.linalg_lu_factor_ex(a)
        p, lower, upper = aten.lu_unpack(lu, pivots)
        torch.testing.assert_close(p @ lower @ upper, a)
        assert torch.equal(lower, lower.tril()) and torch.equal(upper, upper.triu())
        assert (lower.diagonal(0, -2, -1) == 1).all() and (lower.abs() <= 2**0.5 + 1e-12).all()
        assert torch.equal(torch.tril(lu, -1).narrow(-1, 0, lower.shape[-1]), torch.tril(lower, -1))
        if a.dim() == 2 and not a.is_complex():
            order = list(range(a.shape[-2]))
            for i, j in enumerate(pivots.tolist()):
                order[i], order[j - 1] = order[j - 1], order[i]
            assert torch.equal(p.mT @ a, a[order])
            assert (lower.abs() <= 1).all()
    lu, _, info = aten.linalg_lu_factor_ex(torch.tensor([[1.0, 2], [2, 4]]))
    assert info == 2 and lu[1, 1] == 0


@DTYPES
def test_ldl(dtype: torch.dtype) -> None:
    for x in squares(dtype):
        for hermitian in (False, True):
            a = x + (x.mH if hermitian else x.mT)
            hidden = torch.full_like(a, NAN).triu(1)
            ld, pivots, info = aten.linalg_ldl_factor_ex(a.tril() + hidden, hermitian=hermitian)
            b = torch.randn(*a.shape[:-1], 2, dtype=dtype)
            ignored = ld.tril() + hidden
            if not info.any():
                torch.testing.assert_close(a @ aten.linalg_ldl_solve(ignored, pivots, b, hermitian=hermitian), b)
    assert aten.linalg_ldl_factor_ex(torch.zeros(2, 2))[2] == 1


@DTYPES
def test_qr_by_reflectors(dtype: torch.dtype) -> None:
    for a in matrices(dtype):
        factored, tau = aten.geqrf(a)
        m, n = a.shape[-2:]
        q = torch.eye(m, dtype=dtype).expand(*a.shape[:-2], m, m)
        for i in range(tau.shape[-1]):
            v = factored[..., i].clone()
            v[..., :i], v[..., i] = 0, 1
            q = q @ (torch.eye(m, dtype=dtype) - tau[..., i, None, None] * v[..., :, None] * v.conj()[..., None, :])
        torch.testing.assert_close(q @ factored.triu(), a)
        torch.testing.assert_close(q.mH @ q, torch.eye(m, dtype=dtype).expand_as(q))
        if m >= n:
            hidden = factored.tril(-1) + torch.full_like(factored, NAN).triu()
            torch.testing.assert_close(aten.linalg_householder_product(hidden, tau), q.narrow(-1, 0, n))


@DTYPES
def test_eigenvalues(dtype: torch.dtype) -> None:
    for a in positive(dtype):
        for uplo, part in (
            ("L", a.tril() + torch.full_like(a, NAN).triu(1)),
            ("u", a.triu() + torch.full_like(a, NAN).tril(-1)),
        ):
            values, vectors = aten._linalg_eigh(part, uplo)
            torch.testing.assert_close(a @ vectors, vectors * values.unsqueeze(-2))
            torch.testing.assert_close(vectors.mH @ vectors, torch.eye(a.shape[-1], dtype=dtype).expand_as(a))
            assert not values.is_complex() and torch.equal(values, values.sort(-1)[0])
    for a in squares(dtype):
        values, vectors = aten.linalg_eig(a)
        torch.testing.assert_close(a.to(C128) @ vectors, vectors * values.unsqueeze(-2))
        torch.testing.assert_close(vectors.norm(dim=-2), torch.ones(values.shape, dtype=F64))
        if not a.is_complex():
            torch.testing.assert_close(*(torch.view_as_real(v).sum(-2) for v in (values, values.conj().resolve_conj())))
    for special in (NAN, INF):
        with pytest.raises(RuntimeError):
            aten.linalg_eig(torch.tensor([[special, 1], [1, 2]], dtype=dtype))


@DTYPES
def test_singular_values(dtype: torch.dtype) -> None:
    for a in matrices(dtype):
        for full in (False, True):
            u, s, vh = aten._linalg_svd(a, full)
            k = s.shape[-1]
            torch.testing.assert_close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
            for x in (u, vh.mH):
                torch.testing.assert_close(x.mH @ x, torch.eye(x.shape[-1], dtype=dtype).expand(*a.shape[:-2], -1, -1))
            assert (s >= 0).all() and torch.equal(s, s.sort(-1, descending=True)[0])
    with pytest.raises(RuntimeError):
        aten._linalg_svd(torch.tensor([[NAN, 1], [1, 2]], dtype=dtype))


@DTYPES
def test_triangular_solve_reads_its_triangle_only(dtype: torch.dtype) -> None:
    for a in positive(dtype):
        n = a.shape[-1]
        for upper in (False, True):
            for unit in (False, True):
                part = (a.triu(1) if upper else a.tril(-1)) * (0.1 if unit else 1)
                hidden = torch.full_like(a, NAN)
                whole = part + (torch.eye(n, dtype=dtype) if unit else a * torch.eye(n, dtype=dtype))
                given = torch.where(whole == 0, hidden, whole)
                if unit:
                    given = torch.where(torch.eye(n, dtype=torch.bool), hidden, given)
                for left in (True, False):
                    b = torch.randn(*a.shape[:-2], *((n, 3) if left else (3, n)), dtype=dtype)
                    x = aten.linalg_solve_triangular(given, b, upper=upper, left=left, unitriangular=unit)
                    torch.testing.assert_close(whole @ x if left else x @ whole, b)
    singular = aten.linalg_solve_triangular(torch.tensor([[0.0, 0], [1, 4]]), torch.ones(2, 1), upper=False)
    assert singular.tolist() == [[INF], [-INF]]


@DTYPES
def test_matrix_exponential(dtype: torch.dtype) -> None:
    for a in squares(dtype):
        term = total = torch.eye(a.shape[-1], dtype=dtype).expand_as(a)
        for k in range(1, 80):
            term = term @ a / k
            total = total + term
        torch.testing.assert_close(aten.linalg_matrix_exp(a), total, rtol=1e-9, atol=1e-9)
    assert torch.equal(aten.linalg_matrix_exp(torch.zeros(3, 3, dtype=dtype)), torch.eye(3, dtype=dtype))
    assert aten.linalg_matrix_exp(torch.full((2, 2), INF, dtype=dtype)).isnan().any()


def shapes() -> Iterator[torch.Tensor]:
    yield from matrices(torch.float32)


def test_the_type_of_what_has_no_meta_kernel() -> None:
    for a in shapes():
        for env in (None, ShapeEnv()):
            mode = FakeTensorMode(shape_env=env)
            with mode:
                given = mode.from_tensor(a)
                fake = METAS[aten.geqrf.default](given)
            rule = types("geqrf", (given,), {})
            assert all(agrees(type_of(f), r) for f, r in zip(fake, rule, strict=True)), f"{type_of(given)}: {rule}"


@pytest.mark.parametrize("name", ["svd", "eig", "eigh", "lu_factor", "triangular_solve"])
def test_layouts_are_fake_tensors_on_cuda_too(name: str) -> None:
    op = MEMBERS[name]
    for sample in op.samples(torch.float32):  # type: ignore[misc]
        with FakeTensorMode():
            args = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="cuda") for a in sample.args]
            found = op.targets[0](*args, **sample.kwargs)
        want = found if isinstance(found, tuple) else (found,)
        assert all(agrees(type_of(w), g) for w, g in zip(want, types(name, args, sample.kwargs), strict=True))
