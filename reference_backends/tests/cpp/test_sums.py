"""Sums of floats lose no more than PyTorch's do, whatever the shape of the loop."""

from __future__ import annotations

from math import fsum

import pytest
import torch
from torch import Tensor

from keel import Launcher, Source
from keel.loops import parse
from keel_cpp import target

TEXTS = {
    "total": "kernel total(in0: {d}[N*M]) -> (out0: {d}[1]):\n  reduce i0 < N*M:\n    %0 = load in0[i0]\n"
    "    %1 = reduce sum %0\n  store out0[0] %1\n",
    "rows": "kernel rows(in0: {d}[N*M]) -> (out0: {d}[N]):\n  parallel i0 < N:\n    reduce j0 < M:\n"
    "      %0 = load in0[M*i0 + j0]\n      %1 = reduce sum %0\n    store out0[i0] %1\n",
    "columns": "kernel columns(in0: {d}[N*M]) -> (out0: {d}[M]):\n  parallel i0 < M:\n    reduce j0 < N:\n"
    "      %0 = load in0[M*j0 + i0]\n      %1 = reduce sum %0\n    store out0[i0] %1\n",
    "running": "kernel running(in0: {d}[N*M]) -> (out0: {d}[N*M]):\n  parallel i0 < N:\n    scan j0 < M:\n"
    "      %0 = load in0[M*i0 + j0]\n      %1 = scan sum %0\n      store out0[M*i0 + j0] %1\n",
}
SHAPES = {"total": (1000, 1000), "rows": (30, 20_000), "columns": (20_000, 30), "running": (30, 20_000)}
CASES = [(name, dtype) for name in TEXTS for dtype in ("f32", "f64")]


@pytest.fixture(scope="module")
def launchers() -> dict[tuple[str, str], Launcher]:
    kernels = []
    for name, dtype in CASES:
        text = TEXTS[name].replace("{d}", dtype)
        n, m = SHAPES[name]
        kernels.append(parse(text.replace("N*M", str(n * m)).replace("N", str(n)).replace("M", str(m))))
    return dict(zip(CASES, target.build([Source(k, target.render(k)) for k in kernels]), strict=True))


def eager(name: str, x: Tensor) -> Tensor:
    match name:
        case "total":
            return x.sum().reshape(1)
        case "rows":
            return x.sum(1)
        case "columns":
            return x.sum(0)
        case _:
            return x.cumsum(1)


def exact(name: str, x: Tensor) -> Tensor:
    """In float64; for float64 itself by exact sums."""
    if x.dtype == torch.float32:
        return eager(name, x.double())
    rows = {"total": x.reshape(1, -1), "rows": x, "columns": x.T}.get(name)
    if rows is not None:
        return torch.tensor([fsum(r) for r in rows.tolist()], dtype=torch.float64)
    ends = range(0, x.shape[1], 997)
    out = torch.full_like(x, float("nan"))
    for i, row in enumerate(x.tolist()):
        for k in ends:
            out[i, k] = fsum(row[: k + 1])
    return out


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("kind", ["around zero", "positive"])
def test_error_beside_eager(name: str, dtype: str, kind: str, launchers: dict[tuple[str, str], Launcher]) -> None:
    ours, theirs = 0.0, 0.0
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        draw = torch.randn if kind == "around zero" else torch.rand
        x = draw(SHAPES[name], generator=generator).to({"f32": torch.float32, "f64": torch.float64}[dtype])
        truth = exact(name, x).reshape(-1)
        have = torch.empty(truth.numel(), dtype=x.dtype)
        launchers[name, dtype](x, have)
        known = ~truth.isnan()
        ours += float((have.double() - truth)[known].square().sum())
        theirs += float((eager(name, x).reshape(-1).double() - truth)[known].square().sum())
    assert ours**0.5 <= 2 * theirs**0.5


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_infinities_stay(dtype: str, launchers: dict[tuple[str, str], Launcher]) -> None:
    x = torch.zeros(SHAPES["rows"], dtype={"f32": torch.float32, "f64": torch.float64}[dtype])
    x[0, 100], x[1, 5], x[2, 7], x[2, 9] = float("inf"), float("-inf"), float("inf"), float("-inf")
    have = torch.empty(30, dtype=x.dtype)
    launchers["rows", dtype](x, have)
    torch.testing.assert_close(have, x.sum(1), equal_nan=True)
