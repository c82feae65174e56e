"""Is what a program ends in as near to float64 as eager PyTorch is?  The same yardstick as the bench's.

Tensors of a sample are judged as ``keel_bench.error_metrics`` judges those of a model: normwise, by twice eager's
own error, with more draws of the values where a sample is over, and by how far float64 itself moves where it jumps.
Integers and bools must be eager's, or float64's where rounding decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from keel import universe

from ..error_metrics import Comparison, Verdict, compare, judge

DRAWS = (12, 96)  # in turn, while over: 12 draws of one number's error said 3.06 times of what 96 say is 1.2 times
MOVES = 8
UNIT = 2.0**-24

Left = dict[str, Tensor]
Function = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class AccuracyResult:
    """``worst`` is the largest error as a multiple of eager's; ``over`` has a sentence for each tensor that is too far
    off, ``restrided`` the tensors with other strides than eager's.
    """

    worst: float
    over: tuple[str, ...]
    restrided: tuple[str, ...]


def leave(fn: Function, inputs: Sequence[Tensor], seed: int = 0) -> Left:
    """What a call leaves behind: results, and gradients of those inputs that require one, for the cotangents that
    ``seed`` draws: some gradients depend on nothing else.
    """
    twins = [twin(x) for x in inputs]
    outs = fn(*twins)
    left = {f"result {i}": o.detach() for i, o in enumerate(outs)}
    leaves = [x for x in twins if x.requires_grad]
    smooth = [o for o in outs if o.requires_grad]
    if torch.is_grad_enabled() and leaves and smooth:
        generator = torch.Generator().manual_seed(seed)
        cotangents = [torch.randn(o.shape, generator=generator, dtype=_wide(o.dtype)).to(o) for o in smooth]
        grads = torch.autograd.grad(smooth, leaves, cotangents, allow_unused=True)
        left |= {f"gradient {i}": g for i, g in enumerate(grads) if g is not None}
    return left


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def twin(x: Tensor) -> Tensor:
    """A leaf with the same memory around it, apart from the original's."""
    if x.layout != torch.strided or x.numel() == 0:
        return x.detach().clone().requires_grad_(x.requires_grad)
    size = x.untyped_storage().nbytes() // x.element_size()
    memory = torch.as_strided(x.detach(), (size,), (1,), 0).clone()
    same = torch.as_strided(memory, x.shape, x.stride(), x.storage_offset())
    same = torch.conj(same) if x.is_conj() else same
    return same.detach().requires_grad_(x.requires_grad)


def judge_accuracy(draw: Callable[[int], universe.Example | None], ours: Function) -> AccuracyResult:
    """Judges ``ours`` by the example that ``draw(0)`` gives, and by further draws of it where those are needed.

    Raises NoReference where the example does not run in float64.
    """
    first = draw(0)
    assert first is not None
    eager, ours_left = leave(first.fn, first.inputs), leave(ours, first.inputs)
    over = list(type_differences(ours_left, eager))
    if over:
        return AccuracyResult(float("inf"), tuple(over), ())
    exact = reference(first)
    over += discrete(ours_left, eager, exact)
    draws = [compared(ours_left, eager, exact)]
    verdicts = judge(draws) if draws[0] else []
    for count in DRAWS:
        names = {v.name for v in verdicts if not v.holds}
        if names:
            verdicts = [*(v for v in verdicts if v.holds), *_again(draw, ours, draws, names, count)]
    over += [_sentence(v) for v in verdicts if not v.holds]
    strided = tuple(n for n, t in eager.items() if n.startswith("result") and _strides(t) != _strides(ours_left[n]))
    return AccuracyResult(max((v.times for v in verdicts if not v.kinks), default=0.0), tuple(over), strided)


def _sentence(v: Verdict) -> str:
    if not v.same_classes:
        return f"{v.name} has NaN or infinities elsewhere than eager."
    return f"{v.name} is off by {v.farthest:.3g} times eager's {v.eager:.2g}."


def _again(
    draw: Callable[[int], universe.Example | None],
    ours: Function,
    draws: list[Mapping[str, Comparison]],
    names: set[str],
    count: int,
) -> list[Verdict]:
    """Verdicts on ``names`` over ``count`` draws, each with how far float64 moves."""
    examples = [(i, e) for i, e in ((seed, draw(seed)) for seed in range(count)) if e is not None]
    results: list[Mapping[str, Comparison]] = []
    for i, example in examples:
        exact = reference(example, i)
        left, eager = (leave(fn, example.inputs, i) for fn in (ours, example.fn)) if i else (None, None)
        one = draws[0] if left is None or eager is None else compared(left, eager, exact)
        one = {n: one[n] for n in names if n in one}
        if set(one) == names:
            moved = motion(example, exact, names, i)
            results.append({n: replace(c, squared_motion=moved[n]) for n, c in one.items()})
    return judge(results)


def type_differences(ours_left: Left, eager: Left) -> Iterator[str]:
    """A sentence for each tensor that is missing, or has another dtype or shape than eager's."""
    for name in eager.keys() | ours_left.keys():
        if name not in ours_left or name not in eager:
            yield f"{name} is there in {'eager' if name in eager else 'the operator set'} only."
        elif (ours_left[name].dtype, ours_left[name].shape) != (eager[name].dtype, eager[name].shape):
            yield (
                f"{name} is {ours_left[name].dtype} {list(ours_left[name].shape)}, not {eager[name].dtype} "
                f"{list(eager[name].shape)}."
            )


def discrete(ours_left: Left, eager: Left, exact: Left) -> Iterator[str]:
    for name, x in ours_left.items():
        if _continuous(x):
            continue
        differ = dense(x) != dense(eager[name])
        if name in exact and exact[name].shape == x.shape:
            differ &= dense(x) != dense(exact[name])
        if differ.any():
            yield f"{name} ({x.dtype}) differs from eager's in {int(differ.sum())} of {differ.numel()} elements."


def compared(ours_left: Left, eager: Left, exact: Left) -> Mapping[str, Comparison]:
    floats = [n for n, x in ours_left.items() if _continuous(x) and n in exact]
    return compare(*({n: real(left[n]) for n in floats} for left in (ours_left, eager, exact)))


def _continuous(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.layout != torch.strided else x


def real(x: Tensor) -> Tensor:
    """Real numbers; a complex tensor's as pairs."""
    x = dense(x)
    return torch.view_as_real(x.resolve_conj()) if x.dtype.is_complex else x


def _strides(x: Tensor) -> list[int]:
    if x.layout != torch.strided or x.numel() == 0:
        return []
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n != 1]


class NoReference(Exception):
    """The example does not run in float64: why."""


def reference(example: universe.Example, seed: int = 0) -> Left:
    try:
        with _default(torch.float64):
            twin = example.in_double()
            return leave(twin.fn, twin.inputs, seed)
    except Exception as e:
        raise NoReference(f"In float64 it raises {type(e).__name__}: {str(e).strip().partition(chr(10))[0]}") from e


def motion(example: universe.Example, exact: Left, names: set[str], cotangents: int) -> dict[str, float]:
    """How far float64 moves, squared, when every input moves by a rounding of float32: the farthest of ``MOVES``."""
    farthest = dict.fromkeys(names, 0.0)
    with _default(torch.float64):
        twin_ = example.in_double()
        for seed in range(MOVES):
            generator = torch.Generator().manual_seed(seed)
            near = leave(twin_.fn, [_moved(x, generator) for x in twin_.inputs], cotangents)
            for n in names:
                a, b = real(near[n]), real(exact[n])
                if a.shape == b.shape:
                    distance = (a - b)[a.isfinite() & b.isfinite()]
                    farthest[n] = max(farthest[n], float(distance.square().sum()))
    return farthest


def _moved(x: Tensor, generator: torch.Generator) -> Tensor:
    if not _continuous(x) or x.layout != torch.strided:
        return x
    by = 2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1
    return (x.detach() * (1 + UNIT * by.to(x.device))).to(x.dtype).requires_grad_(x.requires_grad)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    was: Any = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(was)
