"""Draws of weights and inputs, with what eager PyTorch and float64 make of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from keel_conformance.models import ModelCase

from .error_metrics import Left
from .training_step import Step, leavings, prepare, reference, run


@dataclass(frozen=True)
class Measure:
    """What one draw of weights and inputs is judged by. Each part is computed when it is first asked for, and once."""

    step: Step
    drawn: ModelCase

    @cached_property
    def eager(self) -> Left:
        """What eager PyTorch leaves. Raises what it raises."""
        twin = prepare(self.step, self.drawn.twin())
        return leavings(self.step, twin, run(self.step, twin, twin.model))

    @cached_property
    def eager_channels_last(self) -> Left | None:
        """What eager PyTorch leaves if images and their weights lie channels-last; None without images.

        None in training, too, where oneDNN may write beyond its memory (``Library.strided_channels``).
        """
        if self.step.mode == "training" or not any(p.ndim == 4 for p in self.drawn.model.parameters()):
            return None
        twin = prepare(self.step, self.drawn.twin().channels_last())
        return leavings(self.step, twin, run(self.step, twin, twin.model))

    @cached_property
    def exact(self) -> Left:
        """What is left in float64. Raises what PyTorch raises there."""
        return reference(self.step, self.drawn)


def measures(step: Step, drawn: Callable[[int], ModelCase]) -> Callable[[int], Measure]:
    """The draw of each seed, computed again each time."""
    return lambda seed: Measure(step, drawn(seed))
