"""A compiled model, put through draws of weights and inputs beside eager PyTorch and float64 until it is judged."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..models import ModelCase
from .errors import TIMES, Comparison, Left, Verdict, compare, judge
from .step import Step, in_double, leavings, prepare, reference, run

MORE = 12
"""Draws for a tensor that is over its budget in the first ones: the error of a scalar, or of a gradient that is zero in
exact arithmetic, is noise, and so is its ratio to another such error."""
MOVES = 24
"""Perturbed references at a kink, at most.  One that changes sides in a sixth of them is missed with a chance of 1 %;
most are found by the first few, and then no more are computed.
"""
UNIT = {"fp32": 2.0 ** -24, "bf16": 2.0 ** -8}
"""Unit roundoff of what parameters are computed with."""
FARTHEST = 64.0
"""How many unit roundoffs a number is moved at most, if that takes the outputs no farther than eager's are."""

Draw = Mapping[str, Comparison]


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
    def exact(self) -> Left:
        """What is left in float64. Raises what PyTorch raises there."""
        return reference(self.step, self.drawn)


@dataclass(frozen=True)
class Trial:
    """``compiled`` is the compiled forward of ``case``, which takes the weights and inputs of each draw.

    ``more`` is how many draws a tensor is judged over that is over its budget in the first ones.
    """

    step: Step
    compiled: Callable[..., Any]
    case: ModelCase
    more: int = MORE

    def judged(self, measured: Callable[[int], Measure], draws: int) -> list[Verdict]:
        """A verdict for each tensor, worst first, over ``draws`` draws; ``more`` if one falls short in those.

        ``measured`` gives the draw of a seed; a caller with memory for all may give the same one twice.
        """
        found = [self._draw(measured(seed)) for seed in range(draws)]
        if all(v.holds for v in judge(found)):
            return judge(found)
        found += [self._draw(measured(seed)) for seed in range(draws, self.more)]
        over = {v.name for v in judge(found) if not v.holds and v.same_classes}
        suspects = [{n for n in over if judge([{n: draw[n]}])[0].times > 1} for draw in found]
        motions = [motion(measured(seed), draw) if names else None
                   for seed, (draw, names) in enumerate(zip(found, suspects, strict=True))]
        left = over
        for _ in range(MOVES):
            found = [{**draw, **{n: replace(draw[n], squared_motion=far[n]) for n in names}} if (
                        moves is not None and names & left and (far := next(moves))) else draw
                     for draw, names, moves in zip(found, suspects, motions, strict=True)]
            left = {v.name for v in judge(found) if v.name in over and not v.holds}
            if not left:
                break
        return judge(found)

    def _draw(self, measure: Measure) -> Draw:
        left = leave(self.step, redraw(self.case, measure.drawn), self.compiled)
        return compare(left, measure.eager, measure.exact)


def measures(step: Step, drawn: Callable[[int], ModelCase]) -> Callable[[int], Measure]:
    """The draw of each seed, anew each time."""
    return lambda seed: Measure(step, drawn(seed))


def leave(step: Step, case: ModelCase, forward: Callable[..., Any]) -> dict[str, Tensor]:
    """What a step leaves, in memory of its own: buffers and gradients change with the next draw."""
    return {name: t.clone() for name, t in leavings(step, case, run(step, case, forward)).items()}


def redraw(case: ModelCase, drawn: ModelCase) -> ModelCase:
    """``case`` with the weights, buffers and inputs of ``drawn``, written in place: what is compiled stays compiled."""
    case.model.load_state_dict(drawn.model.state_dict())
    case.model.zero_grad(set_to_none=True)
    return replace(drawn, model=case.model)


def motion(measure: Measure, draw: Draw) -> Iterator[dict[str, float]]:
    """How far each tensor of the float64 reference moves, squared, when all parameters and what modules return move by
    a few unit roundoffs: by as many as move the outputs as far as they may be off in ``draw``.  The farthest of one
    move, of two, and so on.
    """
    step, drawn, exact = measure.step, measure.drawn, measure.exact
    outputs = [n for n in exact if n.startswith("output")]
    off = math.sqrt(sum(draw[n].squared_eager for n in outputs))
    unit = UNIT[step.precision]
    by_unit = in_double(step, perturbed(drawn, unit, 0))
    moved = math.sqrt(sum(_squared(by_unit[n] - exact[n]) for n in outputs))
    size = unit * min(max(TIMES * off / moved if moved else 1.0, 1.0), FARTHEST)
    farthest = dict.fromkeys(exact, 0.0)
    for seed in count():
        near = by_unit if seed == 0 and size == unit else in_double(step, perturbed(drawn, size, seed))
        farthest = {n: max(far, _squared(near[n] - exact[n])) for n, far in farthest.items()}
        yield farthest


def perturbed(drawn: ModelCase, size: float, seed: int) -> ModelCase:
    """The case in float64 with every parameter moved by up to ``size`` of itself, and each element of what a module
    without parts returns by up to ``size`` of the tensor's root mean square.

    The second is how rounding moves what cancels to nearly nothing, such as the argument of a ReLU: by its terms' size.
    """
    twin = drawn.twin(torch.float64)
    for i, m in enumerate(m for m in twin.model.modules() if not any(m.children())):
        m.register_forward_hook(partial(_moved, size, 1000 * seed + i))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in twin.model.parameters():
            p.mul_(1 + size * (2 * torch.rand(p.shape, generator=generator, dtype=p.dtype).to(p.device) - 1))
    return twin


def _moved(size: float, seed: int, module: nn.Module, args: Any, out: Any) -> Any:
    if not isinstance(out, Tensor) or not out.is_floating_point() or not out.numel():
        return out
    noise = 2 * torch.rand(out.shape, generator=torch.Generator().manual_seed(seed), dtype=out.dtype) - 1
    return out + size * out.detach().square().mean().sqrt() * noise.to(out.device)


def _squared(x: Tensor) -> float:
    return float(x.square().sum())
