"""Sampling at the places of a grid, and its gradients, in every mode."""

from __future__ import annotations

import pytest
import torch

from .agreement import agree
from .writing import same_written_out

aten = torch.ops.aten
MODES = [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def sampled(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An image and a grid that goes beyond it."""
    return torch.randn(3, 4, *(5, 6, 7)[:n]), torch.randn(3, 4, 5, *([2] if n == 3 else []), n) * 1.3


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(("n", "mode"), MODES)
def test_grid_sampler(n: int, mode: int, padding: int, align: bool) -> None:
    x, grid = sampled(n)
    forward, backward = (getattr(aten, f"grid_sampler_{n}d{end}").default for end in ("", "_backward"))
    grad = torch.randn_like(forward(x, grid, mode, padding, align))
    for dtype in (torch.float32, torch.float64):
        agree(forward, x.to(dtype), grid.to(dtype), mode, padding, align)
        agree(backward, grad.to(dtype), x.to(dtype), grid.to(dtype), mode, padding, align, [True, True])


def test_an_image_of_one_element_reflects_onto_it() -> None:
    agree(aten.grid_sampler_2d.default, torch.randn(1, 2, 1, 1), torch.randn(1, 3, 4, 2), 0, 2, True)


def test_the_input_has_no_gradient_where_none_is_wanted() -> None:
    x, grid = sampled(2)
    out = aten.grid_sampler_2d(x, grid, 0, 0, False)
    agree(aten.grid_sampler_2d_backward.default, torch.randn_like(out), x, grid, 0, 0, False, [False, True])


def test_affine_grids() -> None:
    agree(aten.affine_grid_generator.default, torch.randn(2, 2, 3), [2, 3, 4, 5], False)
    agree(aten.affine_grid_generator.default, torch.randn(2, 3, 4), [2, 3, 4, 5, 3], True)
    for align in (False, True):
        agree(aten.affine_grid_generator.default, torch.randn(1, 3, 4), [1, 1, 1, 4, 1], align)
        agree(aten.affine_grid_generator.default, torch.randn(1, 2, 3), [1, 1, 1, 1], align)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "mode"), [(2, 0), (2, 2), (3, 1)])
def test_written_out_with_symbols_for_sizes(n: int, mode: int) -> None:
    x, grid = sampled(n)
    forward, backward = (getattr(aten, f"grid_sampler_{n}d{end}").default for end in ("", "_backward"))
    same_written_out(forward, x, grid, mode, 2, False)
    grad = torch.randn_like(forward(x, grid, mode, 2, False))
    same_written_out(backward, grad, x, grid, mode, 2, False, [True, True])
