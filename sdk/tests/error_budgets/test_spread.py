"""How far legal evaluations lie apart, by rows and columns, and in blocks."""

from __future__ import annotations

import torch

from keel.error_budgets.spread import BLOCK, spread


def test_errors_that_grow_with_rows_and_columns_are_within_a_few_spreads() -> None:
    """One column in which the others happen to be exact at an element; its row has much smaller errors on average."""
    torch.manual_seed(0)
    scale = torch.exp(torch.randn(64, 1, dtype=torch.float64)) * torch.exp(1.5 * torch.randn(512, dtype=torch.float64))
    exact = torch.zeros_like(scale)
    others = [scale * torch.randn_like(scale) for _ in range(3)]
    row, column = 5, int(scale[5].argmax())
    for other in others:
        other[row, column] = 0
    element = float(spread(exact, others, torch.float64)[row, column])
    assert 0.2 < element / float(scale[row, column]) < 5
    alone = float(spread(exact[row], [other[row] for other in others], torch.float64)[column])
    assert alone < float(scale[row, column]) / 10


def test_blocks_make_no_difference() -> None:
    torch.manual_seed(0)
    exact = torch.randn(3, 2 * BLOCK // 64 + 1, 64, dtype=torch.float64)
    others = [exact * (1 + 1e-7 * torch.randn_like(exact))]
    result = spread(exact, others, torch.float32)
    swapped = spread(exact.flip(1), [others[0].flip(1)], torch.float32).flip(1)
    torch.testing.assert_close(result, swapped, rtol=1e-12, atol=0)
    assert bool((result >= (others[0] - exact).abs()).all())


def test_sizes_of_any_kind() -> None:
    for sizes in ((), (1,), (0,), (3, 0), (0, 9), (5, 1, 1), (2, 3, 5)):
        exact = torch.ones(sizes, dtype=torch.float64)
        assert spread(exact, [exact.float()], torch.float32).shape == exact.shape
    odd = torch.tensor([1.0, torch.inf, torch.nan], dtype=torch.float64)
    assert bool(spread(odd, [odd.float()], torch.float32).isfinite().all())
    assert spread(torch.ones(9, dtype=torch.complex128), [], torch.complex64).dtype == torch.float64


def test_rows_are_those_of_the_memory() -> None:
    torch.manual_seed(0)
    exact = torch.randn(64, 96, dtype=torch.float64)
    others = [exact * (1 + 1e-6 * torch.randn_like(exact))]
    result = spread(exact, others, torch.float32)
    assert torch.equal(spread(exact.t(), [others[0].t()], torch.float32), result.t())
    row, other = exact[0].expand(9, 96), others[0][0].expand(9, 96)
    assert bool((spread(row, [other], torch.float32) >= spread(exact[0], [others[0][0]], torch.float32)).all())
