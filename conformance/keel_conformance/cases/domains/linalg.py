"""Matrices well and badly conditioned, singular, of no rows, in batches; triangles whose other half is junk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch

from keel.opset import About, Op

from ...by_member import ByMember
from ..domain import Domain, Levels, Rule
from ..values import SeededValues, fill
from .call_templates import CallTemplate, DerivedArg, TensorArg, domain, when

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
BATCHES: Mapping[str, tuple[int, ...]] = {"one": (), "three": (3,), "none": (0,), "two_by_one": (2, 1)}
SQUARE = ("3", "1", "2", "5", "8", "17", "33", "0")
OBLONG = ("4x3", "3x5", "1x4", "5x1", "17x9", "8x16", "6x6", "33x8", "2x0")
TALL = tuple(size for size in OBLONG if int(size.split("x")[0]) >= int(size.split("x")[1]))
CONDITIONS = ("well", "ill", "singular", "diagonal", "identity", "scaled")
_Drawn = Callable[[SeededValues, torch.dtype, tuple[int, ...], str], torch.Tensor]


def _normal(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return fill(draw, "random", wide, prod(shape), low=-1.0, high=1.0).reshape(shape)


def matrix(condition: str) -> _Drawn:
    """Square or oblong matrices of a condition."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x, n = _normal(draw, dtype, shape), min(shape[-2:])
        eye = torch.eye(*shape[-2:], dtype=x.dtype)
        match condition:
            case "well":
                x = x + (n + 1) * eye
            case "ill":
                x = x * torch.logspace(0, -3, shape[-1], dtype=torch.float64)
            case "singular" if n > 0:
                x = (4 * x.real).round().to(x.dtype)
                x[..., :, -1] = x[..., :, 0] if shape[-1] > 1 else 0
            case "diagonal":
                x = x * eye
            case "identity":
                x = eye.expand(shape).clone()
            case "scaled":
                x = 1e4 * x + 1e4 * (n + 1) * eye
        return x.to(dtype)

    return drawn


def definite(condition: str, half: str = "both") -> _Drawn:
    """Positive definite ones; those of ``half`` have junk, NaN in places, in the other triangle."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = shape[-1]
        x = _normal(draw, dtype, shape)
        scale = torch.logspace(0, -2, n, dtype=torch.float64) if condition == "ill" else torch.ones(n)
        x = (x @ x.mH + n * torch.eye(n)) * scale[:, None] * scale
        if condition == "indefinite" and n:
            x[..., n // 2, n // 2] = -1.0
        junk = torch.full_like(x, 7.0)
        if half != "both":
            x = x.tril() + junk.triu(1) if half == "lower" else x.triu() + junk.tril(-1)
        return x.to(dtype)

    return drawn


def triangle(upper: bool, unit: bool, condition: str) -> _Drawn:
    """A triangle with junk in the other one, and on the diagonal where that counts as ones."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = shape[-1]
        x = _normal(draw, dtype, shape) / max(n, 1)
        x = x + torch.eye(n, dtype=x.dtype) * (50.0 if unit else 2.0)
        if condition == "zero" and n and not unit:
            x[..., n // 2, n // 2] = 0
        junk = torch.full_like(x, float("nan") if condition == "junk_nan" else 9.0)
        full = torch.ones(n, n)
        return torch.where((full.triu() if upper else full.tril()).bool(), x, junk).to(dtype)

    return drawn


def cholesky_factor(upper: bool) -> _Drawn:
    """A triangle whose diagonal is real and positive, as that of a Cholesky factor is."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        x = triangle(upper, False, "well")(draw, dtype, shape, values)
        diagonal = x.diagonal(dim1=-2, dim2=-1)
        return x - torch.diag_embed(diagonal) + torch.diag_embed(diagonal.abs().to(dtype))

    return drawn


# -- one matrix -------------------------------------------------------------------------------------------------------


def _square(levels: Levels) -> tuple[int, ...]:
    n = int(levels["n"])
    return (*BATCHES[levels["batch"]], n, n)


def _oblong(levels: Levels) -> tuple[int, ...]:
    return (*BATCHES[levels["batch"]], *map(int, levels["size"].split("x")))


def _of(shape: tuple[int, ...], draw: _Drawn) -> TensorArg:
    return TensorArg(shape, draw=draw, lies="dense")


def _cholesky(levels: Levels) -> CallTemplate:
    upper = levels["triangle"] == "upper"
    x = _of(_square(levels), definite(levels["condition"], levels["triangle"]))
    return CallTemplate("aten.linalg_cholesky_ex.default", (x,), {"upper": upper, "check_errors": False})


def _cholesky_raising(levels: Levels) -> CallTemplate:
    return CallTemplate(
        "aten.cholesky.default",
        (_of(_square(levels), definite(levels["condition"], levels["triangle"])), levels["triangle"] == "upper"),
    )


def _plain(overload: str, *more: Any, **keywords: Any) -> Callable[[Levels], CallTemplate | None]:
    """Of one square matrix."""

    def ask(levels: Levels) -> CallTemplate | None:
        return CallTemplate(f"aten.{overload}", (_of(_square(levels), matrix(levels["condition"])), *more), keywords)

    return ask


def _flat(overload: str, **choices: tuple[str, Any]) -> Callable[[Levels], CallTemplate]:
    """Of one oblong matrix, with keywords by levels: the factor and a level for which each is true."""

    def ask(levels: Levels) -> CallTemplate:
        return CallTemplate(
            f"aten.{overload}",
            (_of(_oblong(levels), matrix(levels["condition"])),),
            {k: levels[factor] == level for k, (factor, level) in choices.items()},
        )

    return ask


def _qr(levels: Levels) -> CallTemplate:
    return CallTemplate("aten.linalg_qr.default", (_of(_oblong(levels), matrix(levels["condition"])), levels["mode"]))


def _eigh(levels: Levels) -> CallTemplate:
    half = {"L": "lower", "l": "lower"}.get(levels["uplo"], "upper")
    return CallTemplate(
        "aten._linalg_eigh.default",
        (_of(_square(levels), definite(levels["condition"], half)), levels["uplo"], levels["vectors"] == "vectors"),
    )


def _root(levels: Levels) -> CallTemplate:
    return CallTemplate(
        "aten.linalg_matrix_sqrth.default", (_of(_square(levels), definite(levels["condition"], "lower")),)
    )


# -- factors, and what solves with them -------------------------------------------------------------------------------


def _seed(levels: Levels, shape: tuple[int, ...], dtype: torch.dtype, condition: str = "well") -> torch.Tensor:
    return matrix(condition)(SeededValues(repr(sorted(levels.items()))), dtype, shape, "random")


def _lu(levels: Levels, which: int, condition: str = "well", oblong: bool = False) -> DerivedArg:
    shape = _oblong(levels) if oblong else _square(levels)
    return DerivedArg(
        lambda drawn, dtype: aten.linalg_lu_factor_ex.default(_seed(levels, shape, dtype, condition))[which],
        lies="dense" if which == 0 else "none",
    )


def _lu_unpack(levels: Levels) -> CallTemplate:
    return CallTemplate(
        "aten.lu_unpack.default",
        (
            _lu(levels, 0, levels["condition"], True),
            _lu(levels, 1, levels["condition"], True),
            levels["parts"] != "pivots",
            levels["parts"] != "data",
        ),
    )


def _right(levels: Levels, left: bool = True) -> TensorArg:
    n, k = int(levels["n"]), int(levels["columns"])
    return TensorArg((*BATCHES[levels["batch"]], *((n, k) if left else (k, n))), -2.0, 2.0, kind="random", lies="dense")


def _lu_solve(levels: Levels) -> CallTemplate:
    left = levels["side"] == "left"
    return CallTemplate(
        "aten.linalg_lu_solve.default",
        (_lu(levels, 0), _lu(levels, 1), _right(levels, left)),
        {"left": left, "adjoint": levels["adjoint"] == "adjoint"},
    )


def _solve(levels: Levels) -> CallTemplate:
    left = levels["side"] == "left"
    x = _of(_square(levels), matrix(levels["condition"]))
    right = _right(levels, left)
    if levels["systems"] == "one_side":
        right = replace(right, shape=right.shape[-2:])
    return CallTemplate("aten._linalg_solve_ex.default", (x, right), {"left": left})


def _triangular(levels: Levels) -> CallTemplate:
    upper, unit, left = levels["triangle"] == "upper", levels["diagonal"] == "unit", levels["side"] == "left"
    x = _of(_square(levels), triangle(upper, unit, levels["condition"]))
    return CallTemplate(
        "aten.linalg_solve_triangular.default",
        (x, _right(levels, left)),
        {"upper": upper, "left": left, "unitriangular": unit},
    )


def _triangular_and_copy(levels: Levels) -> CallTemplate:
    upper, unit = levels["triangle"] == "upper", levels["diagonal"] == "unit"
    x = _of(_square(levels), triangle(upper, unit, "well"))
    return CallTemplate("aten.triangular_solve.default", (_right(levels), x, upper, levels["turned"] == "turned", unit))


def _cholesky_solved(inverse: bool) -> Callable[[Levels], CallTemplate]:
    def ask(levels: Levels) -> CallTemplate:
        upper = levels["triangle"] == "upper"
        factor = _of(_square(levels), cholesky_factor(upper))
        if inverse:
            return CallTemplate("aten.cholesky_inverse.default", (factor, upper))
        return CallTemplate("aten.cholesky_solve.default", (_right(levels), factor, upper))

    return ask


# -- their domains ----------------------------------------------------------------------------------------------------

_LAY = ("contiguous", "transposed", "offset", "gapped", "rows_apart")
_SQUARE = {"n": SQUARE, "batch": tuple(BATCHES)}
_OBLONG = {"size": OBLONG, "batch": tuple(BATCHES)}
_ANY, _GOOD, _HALVES = (
    {"condition": CONDITIONS},
    {"condition": ("well", "scaled", "diagonal")},
    {"triangle": ("lower", "upper")},
)
_SIDES = {"columns": ("2", "1", "7"), "side": ("left", "right")}
_BATCHED = when(batch=("three", "none", "two_by_one"))
_RAISES = "A call that raises has no result to judge, and negative cases break only preconditions."


def _made(
    factors: Mapping[str, tuple[str, ...]],
    ask: Callable[[Levels], CallTemplate | None],
    cites: Mapping[str, Callable[[Levels], bool]] | None = None,
    **untested: str,
) -> Callable[[Op], Domain]:
    def build_(op: Op) -> Domain:
        batch = {f"C{i}": _BATCHED for i, c in enumerate(op.clauses, 1) if About.BATCH in c.about}

        def few_empty(levels: Levels) -> CallTemplate | None:
            """Of nothing there is little to see: matrices without rows stand alone, and so do batches of none."""
            size = levels.get("n", levels.get("size"))
            if (size in ("0", "2x0") and levels["batch"] != "one") or (
                levels["batch"] == "none" and size not in ("3", "4x3")
            ):
                return None
            return ask(levels)

        real = Rule(("dtype", "condition"), lambda dtype, condition: condition != "zero" or dtype[0] == "f")
        return domain(
            op,
            factors,
            few_empty,
            rules=(real,) if "condition" in factors else (),
            dtypes=op.dtypes or DTYPES,
            kinds=("own",),
            lay=_LAY,
            untested=untested,
            covers={**batch, **(cites or {})},
        )

    return build_


_ALWAYS: Callable[[Levels], bool] = lambda levels: True  # noqa: E731
BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare
declare(
    "cholesky",
    _made(
        {**_SQUARE, **_HALVES, "condition": ("well", "ill", "indefinite")},
        _cholesky,
        {"C1": _ALWAYS, "C3": when(condition="indefinite")},
        C4="The samples have a NaN.",
        C5=_RAISES,
    ),
)
declare("cholesky_or_raise", _made({**_SQUARE, **_HALVES, "condition": ("well", "ill")}, _cholesky_raising))
declare(
    "lu_factor",
    _made(
        {**_OBLONG, **_ANY},
        _flat("linalg_lu_factor_ex.default"),
        {"C4": when(condition="singular")},
        C5="A backend may refuse that.",
        C6=_RAISES,
    ),
)
declare(
    "lu_unpack",
    _made({**_OBLONG, **_ANY, "parts": ("both", "data", "pivots")}, _lu_unpack, {"C3": when(parts=("data", "pivots"))}),
)
declare("geqrf", _made({**_OBLONG, **_ANY}, _flat("geqrf.default"), {"C3": when(condition="well")}))
declare("linalg_qr", _made({**_OBLONG, **_ANY, "mode": ("reduced", "complete", "r")}, _qr, {"C3": _ALWAYS}))
declare(
    "svd",
    _made(
        {**_OBLONG, **_ANY, "whole": ("whole", "part"), "vectors": ("vectors", "none")},
        _flat("_linalg_svd.default", full_matrices=("whole", "whole"), compute_uv=("vectors", "vectors")),
        {"C5": when(vectors="none")},
        C4=_RAISES,
    ),
)
declare(
    "linalg_polar",
    _made(
        {**_OBLONG, "size": TALL, **_ANY},
        _flat("linalg_polar.default"),
        {"C1": _ALWAYS, "C2": when(condition="singular")},
        C3=_RAISES,
    ),
)
declare(
    "linalg_matrix_sqrth",
    _made(
        {**_SQUARE, "condition": ("well", "ill", "indefinite")},
        _root,
        {"C1": _ALWAYS, "C2": _ALWAYS, "C3": when(condition="indefinite")},
        C4=_RAISES,
    ),
)
declare(
    "eigh",
    _made(
        {
            **_SQUARE,
            "condition": ("well", "ill", "indefinite"),
            "uplo": ("L", "U", "l", "u"),
            "vectors": ("vectors", "none"),
        },
        _eigh,
        {"C4": _ALWAYS, "C6": when(vectors="none")},
        C5="What is not specified has no witness.",
    ),
)
declare(
    "eig",
    _made(
        {**_SQUARE, "condition": ("well", "ill", "diagonal", "scaled")},
        _plain("linalg_eig.default"),
        C4=_RAISES,
        C5="What becomes of eigenvectors then is open.",
    ),
)
declare(
    "linalg_eigvals", _made({**_SQUARE, "condition": ("well", "diagonal", "scaled")}, _plain("_linalg_eigvals.default"))
)
declare(
    "matrix_exp",
    _made(
        {**_SQUARE, "condition": ("ill", "diagonal", "identity", "well")},
        _plain("linalg_matrix_exp.default"),
        C1="The samples have zeros.",
        C2="The samples have a NaN.",
    ),
)
declare(
    "linalg_inv_ex",
    _made(
        {**_SQUARE, "condition": ("well", "scaled", "diagonal", "identity")},
        _plain("linalg_inv_ex.default"),
        C3=_RAISES,
    ),
)
declare("linalg_det", _made({**_SQUARE, **_ANY}, _plain("_linalg_det.default"), {"C3": when(condition="singular")}))
declare(
    "linalg_slogdet",
    _made({**_SQUARE, **_GOOD}, _plain("_linalg_slogdet.default"), {"C1": _ALWAYS, "C3": when(n="0")}),
)
declare(
    "linalg_lu_solve",
    _made(
        {**_SQUARE, **_SIDES, "adjoint": ("plain", "adjoint")},
        _lu_solve,
        C2="The samples have one.",
        C3="The samples broadcast.",
    ),
)
declare(
    "linalg_solve_ex",
    _made(
        {**_SQUARE, **_SIDES, **_GOOD, "systems": ("own_sides", "one_side")},
        _solve,
        C4="The samples have vectors.",
        C5=_RAISES,
    ),
)
declare(
    "triangular_solve",
    _made(
        {**_SQUARE, **_SIDES, **_HALVES, "diagonal": ("own", "unit"), "condition": ("well", "zero", "junk_nan")},
        _triangular,
        {"C1": _ALWAYS, "C2": when(condition="zero")},
        C3="The samples broadcast.",
    ),
)
declare(
    "triangular_solve_and_copy",
    _made(
        {**_SQUARE, "columns": ("2", "1", "7"), **_HALVES, "diagonal": ("own", "unit"), "turned": ("plain", "turned")},
        _triangular_and_copy,
    ),
)
declare(
    "cholesky_solve",
    _made({**_SQUARE, "columns": ("2", "1", "7"), **_HALVES}, _cholesky_solved(False), C3="The samples broadcast."),
)
declare("cholesky_inverse", _made({**_SQUARE, **_HALVES}, _cholesky_solved(True)))
