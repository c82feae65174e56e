"""A compiled model, put through draws of weights and inputs beside eager PyTorch and float64 until it is judged."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from keel_conformance.models import ModelCase

from .draws import Measure
from .error_metrics import TIMES, Left, Verdict, compare, judge
from .kinks import MOVES, Draw, motion, unexplained
from .training_step import Step, leavings, run

MORE = 12
"""Draws for a tensor that is over its budget in the first ones: the error of a scalar, or of a gradient that is zero in
exact arithmetic, is noise, and so is its ratio to another such error."""


@dataclass(frozen=True)
class AccuracyTrial:
    """``compiled`` is the compiled forward of ``case``, which takes the weights and inputs of each draw.

    ``more`` is how many draws a tensor is judged over that is over its budget in the first ones.
    """

    step: Step
    compiled: Callable[..., Any]
    case: ModelCase
    more: int = MORE

    def judge(self, measured: Callable[[int], Measure], *draws: int) -> list[Verdict]:
        """A verdict for each tensor, worst first, over the first number of ``draws``; if one falls short in those, over
        the next number, and so on, and over ``more`` at last.  Then eager's error is that in its worse layout of
        images, too.  Raises what eager PyTorch raises.

        ``measured`` gives the draw of a seed; a caller with memory for all may give the same one twice.
        """
        drawn: list[Draw] = []
        all_layouts = False
        for up_to in (*draws, self.more):
            drawn += [self._draw(measured(seed), all_layouts) for seed in range(len(drawn), up_to)]
            verdicts = self._verdicts(measured, drawn)
            if not all_layouts and not all(v.holds for v in verdicts):
                all_layouts = True
                drawn = [in_any_layout(measured(seed), draw) for seed, draw in enumerate(drawn)]
                verdicts = self._verdicts(measured, drawn)
            if all(v.holds for v in verdicts):
                break
        return verdicts

    def _verdicts(self, measured: Callable[[int], Measure], drawn: list[Draw]) -> list[Verdict]:
        """Over the draws ``drawn``, and which of them are kinks, where there are several draws."""
        if len(drawn) == 1 or all(v.holds for v in judge(drawn)):
            return judge(drawn)
        over = {v.name for v in judge(drawn) if not v.holds and v.same_classes}
        times = [{n: judge([{n: draw[n]}])[0].farthest for n in over} for draw in drawn]
        drawn = self._excused(measured, drawn, [{n for n in over if of[n] > 1} for of in times])
        often = {n for n in over if statistics.median(of[n] for of in times) > TIMES}
        if not often or not all(v.holds for v in judge(drawn)):
            return judge(drawn)
        return judge(self._explained(measured, drawn, [{n for n in often if of[n] > TIMES} for of in times]))

    def _excused(self, measured: Callable[[int], Measure], drawn: list[Draw], suspects: list[set[str]]) -> list[Draw]:
        """``drawn``, with how far the exact result moves by as few perturbed references as make all suspects hold."""
        over = set[str]().union(*suspects)
        motions = [
            motion(measured(seed), draw) if names else None
            for seed, (draw, names) in enumerate(zip(drawn, suspects, strict=True))
        ]
        left = over
        for _ in range(MOVES):
            drawn = [
                {**draw, **{n: replace(draw[n], squared_motion=far[n]) for n in names}}
                if (moves is not None and names & left and (far := next(moves)))
                else draw
                for draw, names, moves in zip(drawn, suspects, motions, strict=True)
            ]
            left = {v.name for v in judge(drawn) if v.name in over and not v.holds}
            if not left:
                break
        return drawn

    def _explained(self, measured: Callable[[int], Measure], drawn: list[Draw], often: list[set[str]]) -> list[Draw]:
        """``drawn``, with what kinks do not explain of the tensors that are off in most draws."""
        usual = {n: statistics.median(draw[n].relative(draw[n].squared_least) for draw in drawn) for n in drawn[0]}

        def rest(seed: int) -> dict[str, float]:
            measure = measured(seed)
            return unexplained(measure, drawn[seed], self._leave(measure), usual, often[seed])

        return [
            {**draw, **{n: replace(draw[n], unexplained=far) for n, far in rest(seed).items()}} if often[seed] else draw
            for seed, draw in enumerate(drawn)
        ]

    def _draw(self, measure: Measure, all_layouts: bool) -> Draw:
        draw = compare(self._leave(measure), measure.eager, measure.exact)
        return in_any_layout(measure, draw) if all_layouts else draw

    def _leave(self, measure: Measure) -> Left:
        return leave(self.step, redraw(self.case, measure.drawn), self.compiled)


def in_any_layout(measure: Measure, draw: Draw) -> Draw:
    """``draw`` with eager's error in the layout of images in which it is larger."""
    other = measure.eager_channels_last
    if other is None:
        return draw
    errors = compare(other, measure.eager, measure.exact)
    return {n: replace(c, squared_eager=max(c.squared_eager, errors[n].squared_error)) for n, c in draw.items()}


def leave(step: Step, case: ModelCase, forward: Callable[..., Any]) -> dict[str, Tensor]:
    """What a step leaves, in memory of its own: buffers and gradients change with the next draw."""
    return {name: t.clone() for name, t in leavings(step, case, run(step, case, forward)).items()}


def redraw(case: ModelCase, drawn: ModelCase) -> ModelCase:
    """``case`` with the weights, buffers and inputs of ``drawn``, written in place: what is compiled stays compiled."""
    case.model.load_state_dict(drawn.model.state_dict())
    case.model.zero_grad(set_to_none=True)
    return replace(drawn, model=case.model)
