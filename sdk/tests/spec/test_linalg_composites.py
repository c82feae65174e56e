"""What linear algebra is made of gives what it gives: values, factors that backwards rely on, gradients, types."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.spec import MEMBERS, decomposition_of

from .agreement import agree
from .written_out import WrittenOut, pieces

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
F32, F64, C64 = torch.float32, torch.float64, torch.complex64
DTYPES = pytest.mark.parametrize("dtype", [F32, F64, C64], ids=str)
SQUARES = ((4, 4), (1, 1), (0, 0), (2, 5, 5), (3, 1, 2, 2), (0, 3, 3))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", "torch.*is deprecated")


def regular(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype) + 2 * torch.eye(*shape[-2:], dtype=dtype).flip(-1)


def positive(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    x = regular(dtype, *shape)
    return x @ x.mH + torch.eye(shape[-1], dtype=dtype)


def sides(a: torch.Tensor, left: bool = True) -> list[torch.Tensor]:
    n, batch = a.shape[-1], a.shape[:-2]
    return [
        torch.randn((*b, *((n, k) if left else (k, n))), dtype=a.dtype)
        for b, k in ((batch, 1), (batch, 3), (batch, 0), ((2, *(1 for _ in batch)), 2))
    ]


@DTYPES
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_lu_solve(dtype: torch.dtype, left: bool, adjoint: bool) -> None:
    for shape in SQUARES:
        lu, pivots, _ = torch.linalg.lu_factor_ex(regular(dtype, *shape))
        for b in sides(lu, left):
            agree(aten.linalg_lu_solve.default, lu, pivots, b, left=left, adjoint=adjoint)
            agree(
                aten.linalg_lu_solve.default, lu.contiguous(), pivots, b.mT.contiguous().mT, left=left, adjoint=adjoint
            )


def test_lu_solve_keeps_what_is_not_finite_in_its_column() -> None:
    lu, pivots, _ = torch.linalg.lu_factor_ex(regular(F32, 4, 4))
    b = torch.randn(4, 3)
    b[1, 1], b[2, 2] = NAN, INF
    got = decomposition_of(aten.linalg_lu_solve.default)(lu, pivots, b)
    assert torch.isfinite(got[:, 0]).all() and not torch.isfinite(got[:, 1:]).all()


@DTYPES
def test_solve(dtype: torch.dtype) -> None:
    for shape in SQUARES:
        a = regular(dtype, *shape)
        for left in (True, False):
            for b in sides(a, left):
                for x in (a, a.mT.contiguous().mT):
                    agree(aten._linalg_solve_ex.default, x, b, left=left)
        agree(aten._linalg_solve_ex.default, a, torch.randn(a.shape[:-1], dtype=dtype))
        if a.dim() > 2:
            agree(aten._linalg_solve_ex.default, a, torch.randn(a.shape[-1], dtype=dtype))


@DTYPES
def test_inverse(dtype: torch.dtype) -> None:
    for shape in SQUARES:
        agree(aten.linalg_inv_ex.default, regular(dtype, *shape))
        agree(aten.linalg_inv_ex.default, regular(dtype, *shape).mT)


@pytest.mark.parametrize(
    ("op", "keywords"),
    [(aten._linalg_solve_ex.default, {"B": torch.ones(2)}), (aten.linalg_inv_ex.default, {})],
    ids=str,
)
def test_a_singular_matrix_is_told_or_raises(op: Any, keywords: dict[str, Any]) -> None:
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    ours = decomposition_of(op)
    assert int(ours(a, *keywords.values())[-1]) == int(op(a, *keywords.values())[-1]) == 2
    for f in (op, ours):
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            f(a, *keywords.values(), check_errors=True)


@DTYPES
def test_lu(dtype: torch.dtype) -> None:
    for shape in ((4, 4), (5, 3), (3, 5), (0, 3), (3, 0), (2, 3, 4)):
        agree(aten.linalg_lu.default, regular(dtype, *shape))


@DTYPES
@pytest.mark.parametrize("op", [aten._linalg_det.default, aten._linalg_slogdet.default], ids=str)
def test_determinants_and_what_they_save(op: Any, dtype: torch.dtype) -> None:
    for shape in SQUARES:
        a = regular(dtype, *shape)
        for x in (a, a.mT.contiguous().mT, a.expand(2, *shape)):
            agree(op, x)
            factors = [i for i, t in enumerate(op(x)) if t.dtype == torch.int32 or t.shape == x.shape]
            for i in factors[-2:]:
                torch.testing.assert_close(decomposition_of(op)(x)[i], op(x)[i])
    singular = torch.tensor([[1, 2], [2, 4]], dtype=dtype)
    for w, g in zip(op(singular), decomposition_of(op)(singular), strict=True):
        torch.testing.assert_close(g, w)


@DTYPES
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_and_its_solvers(dtype: torch.dtype, upper: bool) -> None:
    for shape in SQUARES:
        a = positive(dtype, *shape)
        if hasattr(aten, "cholesky"):  # gone from PyTorch 2.14
            agree(aten.cholesky.default, a, upper)
        factor = torch.linalg.cholesky(a, upper=upper) + (
            torch.randn(shape, dtype=dtype).tril(-1) if upper else torch.randn(shape, dtype=dtype).triu(1)
        )
        agree(aten.cholesky_inverse.default, factor, upper)
        for b in sides(a):
            agree(aten.cholesky_solve.default, b, factor, upper)
        agree(aten._cholesky_solve_helper.default, sides(a)[1], factor, upper)


@pytest.mark.skipif(not hasattr(aten, "cholesky"), reason="PyTorch 2.14 and later have torch.linalg's alone")
def test_what_is_not_positive_definite_raises() -> None:
    for a in (-torch.eye(2), -torch.eye(2).expand(3, 2, 2)):
        with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
            decomposition_of(aten.cholesky.default)(a)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(dtype: torch.dtype, transpose: bool, unit: bool) -> None:
    for upper in (True, False):
        for shape in SQUARES:
            a = torch.randn(shape, dtype=dtype) * 0.3 + 2 * torch.eye(shape[-1], dtype=dtype)
            for b in sides(a):
                agree(aten.triangular_solve.default, b, a, upper, transpose, unit)


@DTYPES
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(dtype: torch.dtype, mode: str) -> None:
    for shape in ((4, 4), (5, 3), (3, 5), (0, 3), (3, 0), (2, 3, 4), (2, 4, 3)):
        agree(aten.linalg_qr.default, regular(dtype, *shape), mode)
        agree(aten.linalg_qr.default, regular(dtype, *shape[:-2], shape[-1], shape[-2]).mT, mode)


@DTYPES
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_ormqr(dtype: torch.dtype, left: bool, transpose: bool) -> None:
    for shape in ((4, 4), (5, 3), (3, 5), (2, 5, 3)):
        factored, tau = torch.geqrf(regular(dtype, *shape))
        m = shape[-2]
        other = torch.randn((*shape[:-2], *((m, 2) if left else (2, m))), dtype=dtype)
        agree(aten.ormqr.default, factored, tau, other, left, transpose)


@DTYPES
def test_eigenvalues(dtype: torch.dtype) -> None:
    for shape in SQUARES:
        a = regular(dtype, *shape)
        torch.testing.assert_close(
            *(
                torch.view_as_real(f(a)).sort(-2)[0]
                for f in (decomposition_of(aten._linalg_eigvals.default), aten._linalg_eigvals.default)
            )
        )


@DTYPES
@pytest.mark.parametrize(
    "tolerances",
    [
        {},
        {"atol": torch.tensor(0.5)},
        {"rtol": torch.tensor(0.3)},
        {"atol": torch.tensor(0.0)},
        {"atol": torch.tensor([0.1, 2.0]), "rtol": torch.tensor([0.2, 0.0])},
        {"rtol": torch.tensor(0.3, dtype=F64)},
    ],
    ids=str,
)
def test_pseudo_inverse(dtype: torch.dtype, tolerances: dict[str, torch.Tensor]) -> None:
    many = any(t.dim() for t in tolerances.values())
    for shape in ((2, 4, 4), (2, 5, 3), (2, 3, 5), *(() if many else ((4, 4), (3, 5), (0, 3), (3, 0), (0, 2, 2)))):
        agree(aten.linalg_pinv.atol_rtol_tensor, regular(dtype, *shape), **tolerances)
        if shape[-1] == shape[-2]:
            agree(
                aten.linalg_pinv.atol_rtol_tensor,
                positive(dtype, *shape) - 3 * torch.eye(shape[-1], dtype=dtype),
                **tolerances,
                hermitian=True,
            )


def polar(a: torch.Tensor) -> Any:
    return MEMBERS["linalg_polar"].decompose(a)


def root(a: torch.Tensor) -> Any:
    return MEMBERS["linalg_matrix_sqrth"].decompose(a)


@DTYPES
def test_polar_decomposition(dtype: torch.dtype) -> None:
    for shape in ((4, 3), (2, 5, 3), *SQUARES, (3, 0)):
        a = regular(dtype, *shape)
        u, h = polar(a)
        torch.testing.assert_close(u @ h, a)
        torch.testing.assert_close(u.mH @ u, torch.eye(shape[-1], dtype=dtype).expand(h.shape))
        assert torch.equal(h, h.mH) and bool((torch.linalg.eigvalsh(h) > -1e-5).all())
        for op in MEMBERS["linalg_polar"].targets:
            agree(op, a)


@DTYPES
def test_root_of_a_matrix(dtype: torch.dtype) -> None:
    for shape in SQUARES:
        a = positive(dtype, *shape)
        x = root(a.tril() + 7 * torch.ones(shape).triu(1))
        torch.testing.assert_close(x @ x, a, rtol=1e-4, atol=1e-4)
        assert torch.equal(x, x.mH) and bool((torch.linalg.eigvalsh(x) > 0).all())
        for op in MEMBERS["linalg_matrix_sqrth"].targets:
            agree(op, a)


def test_eigenvalues_below_0_have_the_root_0() -> None:
    a = torch.tensor([[-1.0, 0.0], [0.0, 4.0]])
    torch.testing.assert_close(root(a), torch.tensor([[0.0, 0.0], [0.0, 2.0]]))
    for op in MEMBERS["linalg_matrix_sqrth"].targets:
        agree(op, a)
        agree(op, torch.tensor([[NAN, 0.0], [0.0, 4.0]]))


@pytest.mark.parametrize("dtype", [F32, F64, C64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("ord", [2, 1, 0, 3, 0.5, -1, -2, INF, -INF])
@pytest.mark.parametrize("op", [aten.linalg_vector_norm.default, aten.linalg__powsum.default], ids=str)
def test_vector_norm(op: Any, dtype: torch.dtype, ord: float) -> None:
    if op is aten.linalg__powsum.default and ord in (INF, -INF):
        return  # sums of powers have a finite order
    for shape, dim, keepdim in (
        ((5, 7), [1], False),
        ((5, 7), None, True),
        ((2, 3, 4), [0, -1], False),
        ((), None, False),
        ((1000,), [0], False),
    ):
        agree(op, torch.randn(shape, dtype=dtype), ord, dim, keepdim)
    agree(op, torch.randn(5, 7).to(dtype), ord, [1], dtype=torch.complex128 if dtype.is_complex else F64)


def test_powers_of_special_values() -> None:
    """Whatever is taken to the power of 0 is 1, as pow has it; a norm counts what is not 0."""
    for ord in (2, 1, 0, 3, -1, 0.5):
        for x in (torch.tensor([1.0, NAN]), torch.tensor([INF, 1.0]), torch.tensor([0.0, -0.0, 2.0])):
            agree(aten.linalg__powsum.default, x, ord)
        agree(aten.linalg__powsum.default, torch.empty(3, 0), ord, [1])


def test_vector_norm_of_special_values() -> None:
    for ord in (2, 1, 0, INF, -INF, 3, -1):
        for x in (torch.tensor([1.0, NAN]), torch.tensor([INF, 1.0]), torch.tensor([0.0, -0.0])):
            agree(aten.linalg_vector_norm.default, x, ord)
        if 0 <= ord < INF:
            agree(aten.linalg_vector_norm.default, torch.empty(3, 0), ord, [1])


@pytest.mark.parametrize("dtype", [F32, F64, C64, torch.bfloat16, torch.int64], ids=str)
def test_cross(dtype: torch.dtype) -> None:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randint(-9, 9, shape) if dtype == torch.int64 else torch.randn(shape, dtype=dtype)

    for a, b, dim in (((4, 3), (4, 3), -1), ((3, 5), (3, 5), 0), ((1, 3), (6, 3), 1), ((2, 3, 4), (2, 3, 1), 1)):
        agree(aten.linalg_cross.default, draw(*a), draw(*b), dim=dim)


CALLS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "linalg_lu_solve": lambda: (*torch.linalg.lu_factor(regular(F32, 2, 4, 4)), torch.randn(3, 1, 4, 2)),
    "linalg_solve_ex": lambda: (regular(F32, 2, 4, 4), torch.randn(2, 4, 3)),
    "linalg_inv_ex": lambda: (regular(C64, 3, 4, 4),),
    "linalg_lu": lambda: (regular(F32, 3, 5, 4),),
    "linalg_det": lambda: (regular(F32, 3, 4, 4),),
    "linalg_slogdet": lambda: (regular(F32, 3, 4, 4).mT,),
    "cholesky_or_raise": lambda: (positive(F32, 3, 4, 4),),
    "cholesky_solve": lambda: (torch.randn(3, 4, 2), positive(F32, 3, 4, 4)),
    "cholesky_inverse": lambda: (positive(F32, 3, 4, 4),),
    "triangular_solve_and_copy": lambda: (torch.randn(3, 4, 2), regular(F32, 4, 4)),
    "linalg_qr": lambda: (regular(F32, 3, 5, 4),),
    "ormqr": lambda: (*torch.geqrf(regular(F32, 3, 5, 4)), torch.randn(3, 5, 2)),
    "linalg_eigvals": lambda: (regular(F32, 3, 4, 4),),
    "linalg_pinv": lambda: (regular(F32, 3, 5, 4),),
    "linalg_polar": lambda: (regular(C64, 3, 5, 4),),
    "linalg_matrix_sqrth": lambda: (positive(C64, 3, 4, 4),),
    "linalg_vector_norm": lambda: (torch.randn(3, 5, 4), 3, [1]),
    "linalg_powsum": lambda: (torch.randn(3, 5, 4), 3, [1]),
    "linalg_cross": lambda: (torch.randn(3, 5, 3), torch.randn(1, 5, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", CALLS)
def test_pieces_are_simpler_and_have_the_types_that_were_promised(name: str, symbolic: bool) -> None:
    op = MEMBERS[name]
    if not op.targets:
        pytest.skip("this PyTorch has no such operator")
    assert pieces(op.targets[0], *CALLS[name](), symbolic=symbolic).isdisjoint(op.overloads)


def test_all_are_tested() -> None:
    family = {name for name, op in MEMBERS.items() if op.family == "linalg composites"}
    assert family == set(CALLS)


NEWER: tuple[Callable[..., Any], ...] = (
    (torch.linalg.polar, lambda a: torch.linalg.matrix_sqrth(a @ a.mH)) if MEMBERS["linalg_polar"].targets else ()
)
"""What PyTorch 2.15 is the first to have."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        torch.linalg.det,
        torch.linalg.slogdet,
        torch.linalg.inv,
        torch.linalg.qr,
        torch.linalg.pinv,
        lambda a: torch.linalg.solve(a, a + 1),
        lambda a: torch.linalg.cholesky(a @ a.mH),
        lambda a: torch.cholesky_solve(a, torch.linalg.cholesky(a @ a.mH)),
        torch.linalg.lu,
        lambda a: torch.linalg.vector_norm(a, 3, 1),
        lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a @ a.mH)),
        lambda a: torch.linalg.solve(a, a[..., 0]),
        *NEWER,
    ],
    ids=range(12 + len(NEWER)),
)
@pytest.mark.parametrize("turned", [False, True])
def test_gradients(fn: Callable[..., Any], dtype: torch.dtype, turned: bool) -> None:
    """The joint graph of forward and backward gives eager's gradients when every call of it is written out."""

    def joint(a: torch.Tensor) -> Any:
        out = fn(a)
        total = sum(torch.abs(o).sum() for o in (out if isinstance(out, tuple) else (out,)))
        return torch.autograd.grad(total, a)[0]  # type: ignore[arg-type]

    a = regular(dtype, 2, 4, 4)
    a = (a.mT.contiguous().mT if turned else a).requires_grad_()
    graph = make_fx(joint)(a)
    torch.testing.assert_close(WrittenOut(graph).run(a.detach()), joint(a))


def test_matrices_of_no_rows_have_pieces_too() -> None:
    empty = torch.zeros(0, 5)
    assert "aten.linalg_qr.default" not in pieces(aten.linalg_qr.default, empty, symbolic=False)
    factored, tau = torch.geqrf(empty.mT)
    assert "aten.ormqr.default" not in pieces(aten.ormqr.default, factored, tau, empty, False, True, symbolic=False)
