"""What a kernel should have left in memory, by the interpreter, and how far a memory may be from it.

Exact kernels are compared bit for bit, NaN equal to NaN and, where the sign of a zero depends on the order of what is
folded or on which of two equal numbers is taken, -0 to 0.
A scalar operation f may be off by

    k * (ulp(f(x)) + |f(x (1 + u)) - f(x)|),

k being the budget of the operator of that name: k units in the last place where f is flat, and what k roundings of its
argument amount to where it is steep. The reference is the interpreter in float64; for a float64 operation that has the
same budget itself, which is added, and how steep f is follows from ``STEPS`` steps, of which one may be less than what
PyTorch's function rounds. What the interpreter gives in the kernel's dtype is right too: it is the definition,
and early overflow is PyTorch's own. Welford's fold of n numbers may be off by 4 n u max|x| in the mean and by
4 n u ||x|| sqrt(S) + (n u ||x||)^2 in the sum of squared deviations S (Chan, Golub, LeVeque: Algorithms for computing
the sample variance, 1983, section 3: the relative error of updating is of order n kappa u, kappa = ||x|| / sqrt(S)).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from keel.loops import Apply, Buffer, Kernel, Reduce, Scan, Store, interpret, walk

from .kernel_case import ZONE, KernelCase

CELLS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
STEPS = 32


@dataclass(frozen=True)
class Want:
    """All of a memory as it should be; of rounded results the precise ones, and those of arguments moved by an ulp."""

    memory: Tensor
    precise: Tensor | None = None
    moved: Tensor | None = None


def expectation(made: KernelCase, seed: int, call: int) -> list[Want]:
    def run(*, precise: bool = False, nudge: bool = False) -> list[Tensor]:
        memory = made.memory(seed, call)
        if nudge:
            for b, m in zip(made.kernel.buffers, memory, strict=True):
                for _ in range(_steps(b.dtype) if b.role == "in" and b.dtype.is_floating_point else 0):
                    m.copy_(torch.nextafter(m, torch.full_like(m, torch.inf)))
        if precise:  # float64 where the kernel rounds
            return widened(made, memory, call)
        interpret(made.kernel, [made.inner(m) for m in memory], made.sizes[call])
        return memory

    plain = run()
    if made.ulps is None:
        return [Want(m) for m in plain]
    precise, moved = run(precise=True), run(precise=True, nudge=True)
    return [Want(m, p, q) for m, p, q in zip(plain, precise, moved, strict=True)]


def _steps(dtype: torch.dtype) -> int:
    return STEPS if dtype == torch.float64 else 1


def widened(made: KernelCase, memory: list[Tensor], call: int) -> list[Tensor]:
    """The memories after the kernel with float64 in place of float32, by its text."""
    from keel.loops import parse, show

    kernel = parse(show(made.kernel).replace("f32", "f64"))
    wide = [m.double() if m.dtype == torch.float32 else m for m in memory]
    interpret(kernel, [made.inner(m) for m in wide], made.sizes[call])
    return wide


def compare(made: KernelCase, buffer: Buffer, have: Tensor, want: Want, call: int) -> tuple[str, str, float]:
    """What is wrong with a memory, in a sentence, the clause it breaks, and the error in ulps."""
    n = len(want.memory) - 2 * ZONE
    zones = [torch.cat([m[:ZONE], m[ZONE + n :]]).view(torch.uint8) for m in (have, want.memory)]
    if not torch.equal(*zones):
        return "memory outside of the buffer was written.", "contract.kernels.C5", 0.0
    actual, expected = made.inner(have), made.inner(want.memory)
    if buffer.role == "in" or made.ulps is None or want.precise is None or not actual.is_floating_point():
        return (*_exact(actual, expected, buffer, signed(made.kernel)), 0.0)
    assert want.moved is not None
    return _rounded(made, buffer, actual, expected, made.inner(want.precise), made.inner(want.moved), call)


def off(made: KernelCase, buffer: Buffer, have: Tensor, want: Want, call: int) -> tuple[Tensor, Tensor, Tensor]:
    """The places in a memory of elements that are wrong, what should stand there, and how far from it is allowed."""
    wrong = _differ(have, want.memory, signed(made.kernel))
    allowed, right = torch.zeros(len(have), dtype=torch.float64), want.memory
    actual, inside = made.inner(have), slice(ZONE, len(have) - ZONE)
    if buffer.role != "in" and want.precise is not None and want.moved is not None and actual.is_floating_point():
        precise, moved = made.inner(want.precise), made.inner(want.moved)
        good, bound = _within(made, buffer, actual, made.inner(want.memory), precise, moved, call)
        wrong[inside], allowed[inside] = ~good, bound
        right = right.double()
        right[inside] = precise.double()
    places = wrong.nonzero().flatten()
    return places, right[places], allowed[places]


def signed(kernel: Kernel) -> bool:
    """Whether the sign of each zero is decided."""
    for stmt in walk(kernel.body):
        match stmt:
            case Reduce() | Scan() | Apply(op="minimum" | "maximum"):
                return False
            case Store() if stmt.mode != "write":
                return False
    return True


def _differ(actual: Tensor, expected: Tensor, signs: bool) -> Tensor:
    """Elements of other bits, NaN left out, and without ``signs`` zeros."""
    if actual.is_complex():
        left, right = (torch.view_as_real(x).flatten() for x in (actual, expected))
        return _differ(left, right, signs).reshape(-1, 2).any(1)
    wrong = actual.view(CELLS[actual.dtype.itemsize]) != expected.view(CELLS[actual.dtype.itemsize])
    if actual.is_floating_point():
        alike = torch.zeros_like(wrong) if signs else actual == expected
        wrong &= ~(alike | (actual.isnan() & expected.isnan()))
    return wrong


def _exact(actual: Tensor, expected: Tensor, buffer: Buffer, signs: bool) -> tuple[str, str]:
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual).flatten(), torch.view_as_real(expected).flatten()
    wrong = _differ(actual, expected, signs)
    if not wrong.any():
        return "", ""
    at = int(wrong.nonzero()[0])
    clause = "contract.kernels.C5" if buffer.role == "in" else ""
    return (
        f"{int(wrong.sum())} of {len(actual)} elements differ, first at {at}: {actual[at].item()!r}, "
        f"should be {expected[at].item()!r}."
    ), clause


def _rounded(
    made: KernelCase, buffer: Buffer, actual: Tensor, plain: Tensor, precise: Tensor, moved: Tensor, call: int
) -> tuple[str, str, float]:
    if not len(actual):
        return "", "", 0.0
    right, allowed = _within(made, buffer, actual, plain, precise, moved, call)
    error, ulp = (actual.double() - precise.double()).abs(), spacing(precise, actual.dtype)
    finite = precise.isfinite() & (precise.abs() + allowed < torch.finfo(actual.dtype).max)
    ulps = float(torch.where(finite & error.isfinite(), error / ulp, 0.0).max())
    if right.all():
        return "", "", ulps
    at = int((~right).nonzero()[0])
    return (
        (
            f"{int((~right).sum())} of {len(actual)} elements are off, first at {at}: {actual[at].item()!r}, precisely "
            f"{precise[at].item()!r}, off by {float(error[at] / ulp[at]):.3g} ulp, allowed "
            f"{float(allowed[at] / ulp[at]):.3g}."
        ),
        "contract.kernels.C2",
        ulps,
    )


def _within(
    made: KernelCase, buffer: Buffer, actual: Tensor, plain: Tensor, precise: Tensor, moved: Tensor, call: int
) -> tuple[Tensor, Tensor]:
    """Which elements are right, and how far from the precise ones they may be."""
    error, ulp = (actual.double() - precise.double()).abs(), spacing(precise, actual.dtype)
    allowed = _welford(made, buffer, precise, call) if made.fold else _budget(made, actual.dtype, ulp, precise, moved)
    # Beyond the range of the dtype either the largest numbers or infinity is the nearest.
    top = torch.finfo(actual.dtype).max
    finite = precise.isfinite() & (precise.abs() + allowed < top)
    over = actual.isinf() & (precise.sign() == actual.sign()) & (precise.abs() + allowed >= top)
    right = (
        (error <= allowed) & (finite | actual.isfinite()) | over | (actual == plain) | (actual.isnan() & plain.isnan())
    )
    return right, allowed


def spacing(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of adjacent numbers of ``dtype`` at ``x``, float64; at least that at its smallest normal one."""
    info = torch.finfo(dtype)
    x = x.double().abs().clamp(info.smallest_normal, info.max)
    return torch.exp2(torch.floor(torch.log2(x))) * info.eps


def _budget(made: KernelCase, dtype: torch.dtype, ulp: Tensor, precise: Tensor, moved: Tensor) -> Tensor:
    steep = (moved.double() - precise.double()).abs() / _steps(dtype)
    steep = torch.where(steep.isfinite(), steep, 0.0)
    k = max(made.ulps or 0.0, 0.5)
    if dtype == torch.float64:  # whose reference may lose what is below the normal numbers
        return 2 * k * (ulp + steep) + torch.finfo(dtype).smallest_normal
    return k * (ulp + steep)


def _welford(made: KernelCase, buffer: Buffer, precise: Tensor, call: int) -> Tensor:
    sizes = made.sizes[call]
    n = prod(v for s, v in sizes.items() if s != "N") if len(sizes) > 1 else sizes["M"]
    unit, largest = torch.finfo(buffer.dtype).eps / 2, 110.0
    norm = largest * n**0.5
    match buffer.name:
        case "o0":
            return torch.full_like(precise, 4 * n * unit * largest, dtype=torch.float64)
        case "o1":
            budget: Tensor = 4 * n * unit * norm * precise.double().abs().sqrt() + (n * unit * norm) ** 2
            return budget
    return torch.zeros_like(precise, dtype=torch.float64)
