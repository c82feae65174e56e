"""Histograms are eager's: edges, bounds, weights, densities."""

from __future__ import annotations

import pytest
import torch

from keel.spec import decomposition_of

from .decomposed import holds

pytestmark = pytest.mark.slow

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histc(dtype: torch.dtype) -> None:
    x = torch.randn(6, 7).to(dtype)
    x[0, :3] = torch.tensor([2.0, -1.0, 0.5])
    for args in ((5, -1, 2), (5, 0, 0), (100, -3, 3), (1, 0, 1)):
        holds(aten.histc.default, x, *args)
    holds(aten.histc.default, torch.full((4,), 2.0, dtype=dtype), 4, 0, 0)
    holds(aten.histc.default, torch.zeros(0, dtype=dtype), 4, 0, 0)
    holds(aten.histc.default, torch.tensor([1.0, float("nan"), 5.0], dtype=dtype), 4, 0, 2)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(density: bool, weighted: bool) -> None:
    x = torch.randn(4, 5)
    x[0, 0], x[1, 1], x[2, 2] = 2.0, -1.0, 0.0
    weight = torch.rand(4, 5) if weighted else None
    edges = torch.tensor([-1.0, -0.5, 0.0, 2.0])
    holds(aten.histogram.bins_tensor, x, edges, weight=weight, density=density)
    for given in ({"range": [-1.0, 2.0]}, {}):
        for bins in (1, 3, 8):
            eager = aten.histogram.bin_ct(x, bins, weight=weight, density=density, **given)
            ours = decomposition_of(aten.histogram.bin_ct)(x, bins, weight=weight, density=density, **given)
            torch.testing.assert_close(ours, eager)
    points = torch.randn(9, 2)
    weight = torch.rand(9) if weighted else None
    holds(
        aten._histogramdd_from_bin_tensors.default,
        points,
        [edges, edges[1:].contiguous()],
        weight=weight,
        density=density,
    )
    holds(aten._histogramdd_from_bin_cts.default, points, [3, 4], weight=weight, density=density)
    holds(
        aten._histogramdd_from_bin_cts.default,
        points,
        [3, 4],
        range=[-1.0, 1.0, 0.0, 2.0],
        weight=weight,
        density=density,
    )
    holds(aten._histogramdd_bin_edges.default, points, [3, 4])
