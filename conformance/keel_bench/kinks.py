"""How the exact result of a step moves when its numbers move as little as rounding moves them.

Near a kink, such as a ReLU whose argument rounds to the other side, exact gradients jump.  The gradients of a compiler
may jump in the same way without an error.  Two things identify a jump.  First, the float64 reference jumps as well when
parameters and the results of modules are perturbed by a few unit roundoffs (``motion``).  Second, a jump moves the
gradients of all parameters that feed the kink at once, by amounts in a fixed proportion.  So the moves of the reference
explain the error of one tensor only if the other tensors have their parts of the same moves (``unexplained``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from functools import partial
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn

from keel_conformance.models import ModelCase

from .draws import Measure
from .error_metrics import TIMES, Comparison, Left
from .training_step import in_double

MOVES = 24
"""Perturbed references at a kink, at most.  One that changes sides in a sixth of them is missed with a chance of 1 %;
most are found by the first few, and then no more are computed.
"""
FITTED = 16
"""Perturbed references by which the errors of a draw are explained."""
UNIT = {"fp32": 2.0**-24, "bf16": 2.0**-8}
"""Unit roundoff of what parameters are computed with."""
FARTHEST = 64.0
"""How many unit roundoffs a number is moved at most, if that takes the outputs no farther than eager's are."""
NEGLIGIBLE = 1e-9
"""Directions of a Gram matrix with less than this part of the largest one are rounding."""

Draw = Mapping[str, Comparison]


def motion(measure: Measure, draw: Draw) -> Iterator[dict[str, float]]:
    """How far each tensor of the reference is moved, squared: the farthest of one perturbed reference, of two, and so
    on.
    """
    farthest = dict.fromkeys(measure.exact, 0.0)
    for move in moves(measure, draw):
        farthest = {n: max(far, _squared(move[n])) for n, far in farthest.items()}
        yield farthest


def moves(measure: Measure, draw: Draw) -> Iterator[Left]:
    """What each tensor of the float64 reference is moved by when all parameters and what modules return move by a few
    unit roundoffs: by as many as move the outputs as far as they may be off in ``draw``.
    """
    step, drawn, exact = measure.step, measure.drawn, measure.exact
    outputs = [n for n in exact if n.startswith("output")]
    off = math.sqrt(sum(draw[n].squared_eager for n in outputs))
    unit = UNIT[step.precision]
    by_unit = in_double(step, perturbed(drawn, unit, 0))
    moved = math.sqrt(sum(_squared(by_unit[n] - exact[n]) for n in outputs))
    size = unit * min(max(TIMES * off / moved if moved else 1.0, 1.0), FARTHEST)
    for seed in count():
        near = by_unit if seed == 0 and size == unit else in_double(step, perturbed(drawn, size, seed))
        yield {n: near[n] - x for n, x in exact.items()}


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


def unexplained(
    measure: Measure, draw: Draw, left: Left, usual: Mapping[str, float], names: Set[str]
) -> dict[str, float]:
    """What is left of the error of each of ``names`` when the moves of perturbed references have explained their part,
    as a multiple of what kinks may leave.

    ``left`` is what the compiled step left in ``draw``, and ``usual`` eager's usual squared error of each tensor beside
    its squared scale.  One sum of moves explains the errors of all tensors together, by least squares, each beside its
    usual error.  Kinks may leave what they leave of eager's errors, and of each move that the other moves explain (the
    median): a unit that changes sides in no other reference.
    """
    columns = [_single(move) for move in islice(moves(measure, draw), FITTED)]
    columns += [_single({n: x[n].double() - r for n, r in measure.exact.items()}) for x in (left, measure.eager)]
    weights = {n: 1 / (usual[n] * c.squared_scale) for n, c in draw.items() if usual[n] * c.squared_scale > 0}
    parts = explained(sum((w * _gram(columns, n) for n, w in weights.items()), torch.zeros(())))
    return {n: _rest(_stacked(columns, n), parts, draw[n]) for n in names}


def explained(gram: Tensor) -> Tensor:
    """How much of each of the first columns stands in each column, by least squares; of a first column, in the others.

    ``gram`` holds the inner products of all columns, the compiled step's and eager's errors last.  Shape
    [columns - 2, columns].
    """
    first = len(gram) - 2
    parts = torch.zeros(first, len(gram), dtype=gram.dtype)
    for j in range(len(gram)):
        by = [k for k in range(first) if k != j]
        parts[by, j] = torch.linalg.pinv(gram[by][:, by], hermitian=True, rtol=NEGLIGIBLE) @ gram[by, j]
    return parts


def _rest(columns: Tensor, parts: Tensor, compared: Comparison) -> float:
    rest = (columns - parts.T @ columns[: len(parts)]).norm(dim=1)
    may = max(float(rest[-1]), float(rest[:-2].median()), math.sqrt(compared.squared_floor))
    return float(rest[-2]) / may if may else 0.0 if not rest[-2] else math.inf


def _gram(columns: list[Left], name: str) -> Tensor:
    stacked = _stacked(columns, name)
    return stacked @ stacked.T


def _stacked(columns: list[Left], name: str) -> Tensor:
    return torch.stack([c[name].flatten() for c in columns]).double().cpu()


def _single(move: Left) -> Left:
    """In float32, since some are held at once; where an element is infinite, or not a number, nothing moves."""
    return {n: x.float().nan_to_num(0.0, 0.0, 0.0) for n, x in move.items()}


def _squared(x: Tensor) -> float:
    return float(x.square().sum())
