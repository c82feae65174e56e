"""Samples are drawn until there is a verdict, which distinguishes a kink from a wrong gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from keel_bench.accuracy_trial import AccuracyTrial, in_any_layout
from keel_bench.draws import Measure, measures
from keel_bench.error_metrics import compare, judge
from keel_bench.kinks import MOVES, UNIT, motion, perturbed
from keel_bench.training_step import Step, reference
from keel_conformance.models import ModelCase

NEAR = 1e-7
"""Nearer to ReLU's kink than float32 resolves at these magnitudes."""
FAR = 1.0
TRAINING = Step("training")


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


def trial(near: float, *, wrong: bool = False) -> AccuracyTrial:
    case = drawn(near, 0)

    def other(x: Tensor) -> Any:
        """The same with a sum that rounds otherwise; if ``wrong``, a gradient is off by a thousandth in each draw."""
        out = torch.relu((x.flip(1) @ case.model.w.flip(0)) - case.model.b)
        return out + 1e-3 * (case.model.w[0] - case.model.w[0].detach()) if wrong else out

    return AccuracyTrial(TRAINING, other, case)


def test_another_side_of_a_kink_holds() -> None:
    found = {v.name: v for v in trial(NEAR).judge(measures(TRAINING, partial(drawn, NEAR)), 3)}
    assert all(v.holds for v in found.values())


def test_a_wrong_gradient_does_not() -> None:
    found = {v.name: v for v in trial(FAR, wrong=True).judge(measures(TRAINING, partial(drawn, FAR)), 3)}
    assert not found["gradient of w"].holds


def test_a_wrong_gradient_does_not_hide_behind_a_kink() -> None:
    """The kink moves the gradient of w by far more than the error, but that of b by its part of that as well."""
    found = {v.name: v for v in trial(NEAR, wrong=True).judge(measures(TRAINING, partial(drawn, NEAR)), 3)}
    assert found["gradient of w"].times <= 2 and found["gradient of w"].unexplained > 2
    assert found["gradient of b"].holds


def test_the_exact_gradient_jumps_at_a_kink() -> None:
    for near, jumps in ((NEAR, True), (FAR, False)):
        measure = Measure(TRAINING, drawn(near, 0))
        draw = compare(measure.eager, measure.eager, measure.exact)
        *_, farthest = islice(motion(measure, draw), MOVES)
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
    x = torch.tensor([[1.0, -1.0, near / 4]])
    case = ModelCase("gated", Gated(), (x,), {}, {}, lambda out: out.sum())
    measure = Measure(TRAINING, case)
    *_, farthest = islice(motion(measure, compare(measure.eager, measure.eager, measure.exact)), MOVES)
    at_zero = farthest["gradient of 2.weight"]
    assert at_zero > 0
    sides = {
        bool(reference(TRAINING, perturbed(case, UNIT["fp32"], seed))["gradient of 2.weight"][0, 0] > 0)
        for seed in range(MOVES)
    }
    assert sides == ({True, False} if near == NEAR else {True})


def test_a_perturbation_is_as_small_as_it_says() -> None:
    case = drawn(FAR, 0)
    moved = perturbed(case, 2.0**-20, 1).model.w.detach() / case.model.w.detach().double() - 1
    assert 2.0**-22 < moved.abs().max() <= 2.0**-20


def test_float64_computes_a_draw_once_that_is_judged_twice() -> None:
    asked: list[int] = []

    def counted(seed: int) -> ModelCase:
        asked.append(seed)
        return drawn(NEAR, seed)

    trial(NEAR).judge(cache(measures(TRAINING, counted)), 3)
    assert sorted(asked) == sorted(set(asked))
    measure = Measure(TRAINING, drawn(FAR, 0))
    assert measure.exact is measure.exact and measure.eager is measure.eager


def test_a_settled_verdict_takes_no_more_draws() -> None:
    asked: list[int] = []

    def counted(seed: int) -> ModelCase:
        asked.append(seed)
        return drawn(FAR, seed)

    assert all(v.holds for v in trial(FAR).judge(measures(TRAINING, counted), 1))
    assert asked == [0]


def test_draws_are_added_until_a_verdict_holds() -> None:
    asked: list[int] = []

    def counted(seed: int) -> ModelCase:
        asked.append(seed)
        return drawn(FAR, seed)

    found = trial(FAR, wrong=True).judge(cache(measures(TRAINING, counted)), 1, 3)
    assert not all(v.holds for v in found) and asked == [*range(12)]


class Convolutions(nn.Sequential):
    """What image models are made of: convolutions, batch norms, kinks and a head."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 5),
        )


def convolutions(seed: int) -> ModelCase:
    torch.manual_seed(seed)
    model = Convolutions()
    return ModelCase("convolutions", model, (torch.randn(4, 3, 16, 16),), {}, {}, lambda out: out.square().sum())


def _scaled(model: nn.Sequential) -> None:
    model[3].weight.register_hook(lambda grad: grad * 1.01)


def _swapped(model: nn.Sequential) -> None:
    model[5].register_forward_hook(lambda m, args, out: out[:, [1, 0, *range(2, 8)]])


def _swapped_gradient(model: nn.Sequential) -> None:
    model[6].weight.register_hook(lambda grad: grad[[1, 0, *range(2, 16)]])


def _stale(model: nn.Sequential) -> None:
    model[4].register_forward_hook(lambda m, args, out: m.running_mean.data.mul_(1.01) is None or out)


def _right(model: nn.Sequential) -> None:
    pass


@pytest.mark.parametrize(
    ("plant", "wrong"),
    [
        (_right, None),
        (_scaled, "gradient of 3.weight"),
        (_swapped, "output"),
        (_swapped_gradient, "gradient of 6.weight"),
        (_stale, "buffer 4.running_mean"),
    ],
)
def test_a_planted_error_is_called_wrong(plant: Callable[[nn.Sequential], None], wrong: str | None) -> None:
    """Over as many draws as the zoo takes: a weight gradient that is off by a hundredth, channels that are swapped, and
    a statistic that is updated by too much.
    """
    case = convolutions(0)
    case.model.train()
    plant(case.model)
    found = AccuracyTrial(TRAINING, case.model, case, more=3).judge(cache(measures(TRAINING, convolutions)), 1)
    over = {v.name for v in found if not v.holds}
    assert (wrong in over) if wrong else not over


def test_eager_counts_in_its_worse_layout() -> None:
    measure = Measure(Step(), convolutions(0))
    exact = torch.ones(4, dtype=torch.float64)
    vars(measure).update(
        exact={"output": exact},
        eager={"output": (exact + 1e-3).float()},
        eager_channels_last={"output": (exact - 2e-3).float()},
    )
    before = compare({"output": (exact + 3e-3).float()}, measure.eager, measure.exact)
    (of_one,), (of_both,) = (judge([draw]) for draw in (before, in_any_layout(measure, before)))
    assert of_one.times == pytest.approx(3, rel=1e-3) and of_both.times == pytest.approx(1.5, rel=1e-3)


def test_images_lie_channels_last_in_inference_alone() -> None:
    seen = []

    def drawn(seed: int) -> ModelCase:
        case = convolutions(seed)
        case.model[3].register_forward_hook(lambda m, args, out: seen.append((args[0], m.weight)))
        return case

    assert Measure(Step(), drawn(0)).eager_channels_last is not None
    assert all(t.is_contiguous(memory_format=torch.channels_last) for each in seen for t in each)
    assert Measure(TRAINING, drawn(0)).eager_channels_last is None
    no_images = ModelCase("vectors", nn.Linear(3, 2), (torch.randn(4, 3),), {}, {}, Tensor.sum)
    assert Measure(Step(), no_images).eager_channels_last is None


def test_a_planted_error_is_wrong_in_every_layout() -> None:
    case = convolutions(0)
    _swapped(case.model.eval())
    found = AccuracyTrial(Step(), case.model, case, more=3).judge(cache(measures(Step(), convolutions)), 1)
    assert not any(v.holds for v in found)
