"""Whether the results of a program are right: within the errors that rounding may make, by runs in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.minify.graph_program import LOW, Program, evaluate, evaluate_wide, function_of
from keel.torch_adapter import is_random

DISTURBED = 4
TIMES, ULPS = 8.0, 16.0
"""How far results may be off: TIMES the effect of rounding, and ULPS units in the last place of the largest result."""


@dataclass(frozen=True)
class Judgment:
    """A result that is wrong: its number, a sentence, and whether it is NaN where eager PyTorch's is not."""

    output: int
    sentence: str
    is_nan: bool


@dataclass(frozen=True)
class Budget:
    """The reference of a result in float64, or exactly, and how far each element may be off; infinite where any value
    is right.
    """

    reference: Tensor
    bound: Tensor


def is_random_program(program: Program, inputs: Sequence[Any]) -> bool:
    """True if the results depend on random numbers. An operator that may draw some seldom does."""
    if not any(is_random(function_of(call.op)) for call in program.calls):
        return False
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(evaluate(program, *inputs))
    return any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*results, strict=True))


def budgets(program: Program, inputs: Sequence[Any]) -> list[Budget]:
    """The budget of each output. What eager PyTorch's own rounding does, and what disturbed inputs do, is allowed."""
    with torch.no_grad():
        native = evaluate(program, *inputs)
        try:
            wide = evaluate_wide(program, *inputs)
            eps = max((torch.finfo(x.dtype).eps for x in _narrow(program, inputs, native)), default=0.0)
            others = [evaluate_wide(program, *_disturbed(inputs, eps, k)) for k in range(DISTURBED)]
        except Exception:  # an operator without a kernel for float64
            wide, others = native, []
    return [_budget(x, wide[k], [o[k] for o in others]) for k, x in enumerate(native)]


def _narrow(program: Program, inputs: Sequence[Any], results: Sequence[Any]) -> list[Tensor]:
    return [x for x in (*inputs, *results) if isinstance(x, Tensor) and x.dtype in LOW]


def _disturbed(inputs: Sequence[Any], eps: float, seed: int) -> list[Any]:
    chance = torch.Generator().manual_seed(seed)

    def one(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype not in LOW:
            return x
        noise = torch.rand(x.shape, generator=chance, dtype=torch.float64).to(x.device) * 2 - 1
        return x.double() * (1 + noise * eps / 2)

    return [one(x) for x in inputs]


def _budget(native: Tensor, wide: Tensor, others: Sequence[Tensor]) -> Budget:
    if not native.is_floating_point():
        unsure = torch.zeros(native.shape, dtype=torch.bool, device=native.device)
        for other in (wide, *others):
            unsure |= other != native
        zero = torch.zeros(native.shape, dtype=torch.float64, device=native.device)
        return Budget(native, zero.masked_fill(unsure, torch.inf))
    reference = wide.double()
    error = (native.double() - reference).abs()
    for other in others:
        error = torch.maximum(error, (other.double() - reference).abs())
    error = error.nan_to_num(nan=torch.inf, posinf=torch.inf)
    finite = error.isfinite() & reference.isfinite()
    typical = error[finite].square().mean().sqrt() if bool(finite.any()) else torch.zeros(())
    largest = reference[finite].abs().amax() if bool(finite.any()) else torch.zeros(())
    bound = TIMES * torch.maximum(error, typical) + ULPS * torch.finfo(native.dtype).eps / 2 * largest
    same = (native == wide) | (native.isnan() & wide.isnan())
    return Budget(reference, torch.where(finite, bound, torch.where(same, 0.0, torch.inf)))


def is_allowed(result: Tensor, budget: Budget) -> Tensor:
    """For each element, whether it is within the budget."""
    want, bound = budget.reference, budget.bound
    if not result.is_floating_point():
        return (result == want) | bound.isinf()
    near = (result.double() - want).abs() <= bound
    return near | (result.double() == want) | (result.isnan() & want.isnan()) | bound.isinf()


def judged(program: Program, inputs: Sequence[Any], results: Sequence[Any]) -> Judgment | None:
    """What is wrong with the first result that is not within its budget; None if all are. The results of a program that
    draws random numbers are not judged.
    """
    if is_random_program(program, inputs):
        return None
    for k, (x, budget) in enumerate(zip(results, budgets(program, inputs), strict=True)):
        if x.is_complex():
            continue
        allowed = is_allowed(x, budget)
        if bool(allowed.all()):
            continue
        place = (~allowed).reshape(-1).nonzero()[0]
        have, want = x.reshape(-1)[place].item(), budget.reference.reshape(-1)[place].item()
        count = int((~allowed).sum())
        is_nan = bool((x.isnan() & ~allowed).any()) if x.is_floating_point() else False
        sentence = (
            f"Result {k} ({program.outputs[k]}) is wrong in {count} of {x.numel()} elements: "
            f"element {int(place)} is {have!r}, not {want!r}."
        )
        return Judgment(k, sentence, is_nan)
    return None
