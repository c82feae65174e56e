"""What eager PyTorch does not settle is open, and nothing else."""
from __future__ import annotations

import torch

from keel_conformance.oracles.openings import opened


def test_a_remainder_that_eager_loses_is_open():
    x = torch.tensor([3e38] * 16 + [torch.nan, torch.inf, 7.0, 7.0])
    y = torch.tensor([0.25] * 16 + [2.0, 2.0, 0.0, 2.0])
    lost = torch.full((20,), torch.nan)
    lost[19] = 1.0
    (places,) = opened("fmod", {"self": x, "other": y}, [lost])
    assert places.tolist() == [True] * 16 + [False] * 4


def test_a_division_of_integers_by_zero_is_open():
    x, y = torch.tensor([1, 5, -(2**63)]), torch.tensor([0, 2, -1])
    (places,) = opened("remainder", {"self": x, "other": y}, [torch.zeros(3, dtype=torch.int64)])
    assert places.tolist() == [True, False, True]
