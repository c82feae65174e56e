"""One case on one backend: what came of it, in a word and, where that is not a pass, a sentence."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

import keel

from ..bench.errors import FLOOR_ULPS, TIMES, same_classes
from .cases import Case

Status = Literal["pass", "fail", "not claimed", "error"]


@dataclass(frozen=True)
class Verdict:
    case: str
    status: Status
    why: str = ""


def judge(case: Case, backend: str | keel.Backend, seed: int = 0) -> Verdict:
    """Runs the case through Keel with ``backend`` and eager PyTorch, and through eager PyTorch in both precisions.

    Error against float64 at most ``TIMES`` times eager's (which counts as ``FLOOR_ULPS`` ulp at least), NaN and
    infinities at the same elements, other dtypes equal, inputs left alone, a second run equal to the first.
    """
    torch.compiler.reset()
    torch.manual_seed(seed)
    args = case.arguments()
    try:
        explained = keel.explain(case.program, *map(_copy, args), backends=[backend, "eager"])
        if not explained.taken[backend if isinstance(backend, str) else backend.name]:
            return Verdict(case.name, "not claimed")
        compiled = keel.compile(case.program, backends=[backend, "eager"], strict=True)
        given = tuple(map(_copy, args))
        results = _run(compiled, given, case.gradients)
        again = _run(compiled, tuple(map(_copy, args)), case.gradients)
    except Exception as raised:
        return Verdict(case.name, "error", f"{type(raised).__name__}: {str(raised).splitlines()[0]}")
    why = _faults(case, args, results, again, given)
    return Verdict(case.name, "fail" if why else "pass", why)


def _faults(case: Case, args: Sequence[Tensor], results: Sequence[Tensor], again: Sequence[Tensor],
            given: Sequence[Tensor]) -> str:
    eager = _run(case.program, tuple(map(_copy, args)), case.gradients)
    exact = _run(case.program, tuple(_copy(a, torch.float64) for a in args), case.gradients)
    if not all(_equal(a, b.detach()) for a, b in zip(args, given, strict=True)):
        return "An input was written to."
    if not all(map(_equal, results, again)):
        return "A second run gave other values."
    for k, (mine, theirs, best) in enumerate(zip(results, eager, exact, strict=True)):
        if sentence := compare(mine, theirs, best):
            return f"Result {k}: {sentence}"
    return ""


def compare(mine: Tensor, eager: Tensor, exact: Tensor) -> str:
    """What is wrong with a result, in a sentence; nothing if it is right."""
    if (mine.dtype, mine.shape, mine.stride()) != (eager.dtype, eager.shape, eager.stride()):
        return (f"{mine.dtype} {list(mine.shape)} strides {mine.stride()}, "
                f"but should be {eager.dtype} {list(eager.shape)} strides {eager.stride()}.")
    if not mine.is_floating_point():
        return "" if torch.equal(mine, eager) else f"{int((mine != eager).sum())} elements differ."
    # Eager's float32 kernels overflow in places where the operator does not: either is right.
    if not (same_classes(mine, eager) or same_classes(mine, exact.to(mine.dtype))):
        return "NaN or infinities at other elements than eager's."
    finite = torch.isfinite(mine) & torch.isfinite(eager) & torch.isfinite(exact)
    error, theirs = (float((x.double() - exact)[finite].norm()) for x in (mine, eager))
    allowed = TIMES * max(theirs, FLOOR_ULPS * torch.finfo(mine.dtype).eps * float(exact[finite].norm()))
    return "" if error <= allowed else f"the error is {error:.3g}, but may be {allowed:.3g}."


def _run(program: Callable[..., Any], args: tuple[Tensor, ...], gradients: bool) -> list[Tensor]:
    wanted = [a.requires_grad_() for a in args if gradients and a.is_floating_point()]
    given = program(*args)
    results = [given] if isinstance(given, Tensor) else list(given)
    if wanted:
        total = sum((r * torch.linspace(-1, 1, r.numel(), dtype=r.dtype).view(r.shape)).sum() for r in results)
        assert isinstance(total, Tensor)
        results += torch.autograd.grad(total, wanted)
    return [r.detach() for r in results]


def _copy(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of the same values and strides at another address; floats in ``dtype``."""
    copy = torch.empty_strided(x.shape, x.stride(), dtype=dtype if dtype and x.is_floating_point() else x.dtype)
    return copy.copy_(x)


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and (
        not a.is_floating_point() or torch.equal(a.isnan(), b.isnan()))
