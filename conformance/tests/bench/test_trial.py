"""Draws until a verdict: a kink is told from a wrong gradient."""
from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from keel_conformance.bench.errors import compare
from keel_conformance.bench.step import Step, leavings, reference, run
from keel_conformance.bench.trial import MOVES, UNIT, Trial, motion, perturbed
from keel_conformance.models import ModelCase

NEAR = 1e-7
"""Nearer to ReLU's kink than float32 resolves at these magnitudes."""
FAR = 1.0


class Bent(nn.Module):
    """relu(x @ w - b), the first of whose sums is ``near``."""

    def __init__(self, near: float, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.w = nn.Parameter(torch.rand(64, 4, generator=generator) + 0.5)
        self.b = nn.Parameter(torch.zeros(4))
        with torch.no_grad():
            self.b[0] = self.w[:, 0].double().sum() - near

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.w - self.b)


def drawn(near: float, seed: int) -> ModelCase:
    return ModelCase("bent", Bent(near, seed), (torch.ones(1, 64),), {}, {}, lambda out: out.sum())


def trial(near: float, *, wrong: bool = False) -> Trial:
    case, twin = drawn(near, 0), drawn(near, 0)

    def other(x: Tensor) -> Any:
        """The same with a sum that rounds otherwise; if ``wrong``, a gradient is off by a thousandth in each draw."""
        out = torch.relu((x.flip(1) @ case.model.w.flip(0)) - case.model.b)
        return out + 1e-3 * (case.model.w[0] - case.model.w[0].detach()) if wrong else out

    return Trial(Step("training"), other, case, twin)


def test_another_side_of_a_kink_holds() -> None:
    found = {v.name: v for v in trial(NEAR).judged(partial(drawn, NEAR), 3)}
    assert all(v.holds for v in found.values())


def test_a_wrong_gradient_does_not() -> None:
    found = {v.name: v for v in trial(FAR, wrong=True).judged(partial(drawn, FAR), 3)}
    assert not found["gradient of w"].holds


def test_the_exact_gradient_jumps_at_a_kink() -> None:
    step = Step("training")
    for near, jumps in ((NEAR, True), (FAR, False)):
        case = drawn(near, 0)
        left = leavings(step, case, run(step, case, case.model))
        draw = compare(left, left, reference(step, drawn(near, 0)))
        *_, farthest = islice(motion(step, drawn(near, 0), draw), MOVES)
        assert (farthest["gradient of b"] >= 1) is jumps


class Sum(nn.Module):
    """Of terms that cancel; it has no parameters to move."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True) + torch.tensor([0.0, 1.0, -1.0], dtype=x.dtype)


class Gated(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Sum(), nn.ReLU(), nn.Linear(3, 1, bias=False))


@pytest.mark.parametrize("near", [NEAR, FAR])
def test_an_argument_that_cancels_to_nothing_is_at_a_kink(near: float) -> None:
    step, x = Step("training"), torch.tensor([[1.0, -1.0, near / 4]])
    case = ModelCase("gated", Gated(), (x,), {}, {}, lambda out: out.sum())
    left = leavings(step, case, run(step, case, case.model))
    *_, farthest = islice(motion(step, case, compare(left, left, reference(step, case))), MOVES)
    at_zero = farthest["gradient of 2.weight"]
    assert at_zero > 0
    sides = {bool(reference(step, perturbed(case, UNIT["fp32"], seed))["gradient of 2.weight"][0, 0] > 0)
             for seed in range(MOVES)}
    assert sides == ({True, False} if near == NEAR else {True})


def test_a_perturbation_is_as_small_as_it_says() -> None:
    case = drawn(FAR, 0)
    moved = perturbed(case, 2.0 ** -20, 1).model.w.detach() / case.model.w.detach().double() - 1
    assert 2.0 ** -22 < moved.abs().max() <= 2.0 ** -20
