"""Reads a kernel from its text, to legalize it for a target, render it, or compare it with the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from keel.documents import shown
from keel.errors import KeelError
from keel.loop_level import fitted
from keel.loops.index import loaded_bounds
from keel.loops.interpret import interpret
from keel.loops.ir import Check, Kernel, Load, Position, Store, walk
from keel.loops.parser import parse
from keel.loops.symbolic_sizes import evaluate
from keel.loops.verify import verify
from keel.plugin import Backend, CompileContext, LoopTarget, Source, with_context
from keel.runtime.part_context import options_of

MOST_BYTES = 1 << 32
"""The most bytes of all buffers of a kernel that is run from its text."""


@dataclass(frozen=True)
class Trial:
    """The contents of one buffer after the interpreter and after the target ran the kernel, and their largest
    difference.
    """

    buffer: str
    interpreted: torch.Tensor
    built: torch.Tensor | None
    difference: float | None


def read_kernel(text: str) -> Kernel:
    """Parses and verifies a kernel. Raises KeelError[bad-text] or KeelError[bad-graph]."""
    kernel = parse(text)
    verify(kernel)
    return kernel


def for_target(kernel: Kernel, backend: Backend) -> Kernel:
    """Legalizes ``kernel`` for the backend's loop target. Raises KeelError."""
    return fitted(kernel, target_of(backend))


def source(kernel: Kernel, backend: Backend) -> str:
    """The source of ``kernel``, rendered by the backend's loop target."""
    return with_context(target_of(backend).render, _context(backend))(for_target(kernel, backend))


def _context(backend: Backend) -> CompileContext:
    """The context of a kernel without a graph: the backend's options have their defaults."""
    return CompileContext(options=options_of(backend, {}))


def target_of(backend: Backend) -> LoopTarget:
    """The loop target of a backend.  Raises KeelError[bad-option] for one that compiles graphs."""
    if backend.target is None:
        raise KeelError(
            "bad-option",
            f"{backend.name} compiles graphs, not loops.",
            do="Give a backend that keel.loop_backend made of a LoopTarget, for instance cpp.",
        )
    return backend.target


def trial(kernel: Kernel, sizes: Mapping[str, int], backend: Backend | None = None, *, seed: int = 0) -> list[Trial]:
    """Runs ``kernel`` on made-up inputs, by the interpreter and, if one is given, by the backend's target too.

    ``sizes`` has the values of the kernel's symbols. Floats are drawn from the normal distribution. Integers are small
    enough to be valid for every index that the kernel loads. Raises KeelError[bad-option] for missing sizes, and for
    buffers of more than ``MOST_BYTES``.
    """
    if missing := [s for s in kernel.symbols if s not in sizes]:
        raise KeelError(
            "bad-option",
            f"{kernel.name} has sizes of unknown value: {', '.join(missing)}.",
            do="Give each, for instance --size " + " --size ".join(f"{s}=8" for s in missing) + ".",
        )
    needed = sum(max(evaluate(b.size, sizes), 0) * b.dtype.itemsize for b in kernel.buffers)
    if needed > MOST_BYTES:
        raise KeelError(
            "bad-option",
            f"The buffers of {kernel.name} take {shown(needed)} bytes, and a trial at most {MOST_BYTES}.",
            do="Give smaller sizes.",
        )
    buffers = made_up(kernel, sizes, seed)
    copies = [b.clone() for b in buffers]
    interpret(kernel, buffers, sizes)
    if backend is not None:
        target = target_of(backend)
        ready = for_target(kernel, backend)
        (launch,) = with_context(target.build, _context(backend))([Source(ready, source(kernel, backend))])
        moved = [b.to(target.device) for b in copies]
        launch(*moved, *(sizes[s] for s in ready.symbols))
        copies = [b.cpu() for b in moved]
    return [
        Trial(b.name, a, c if backend else None, _difference(a, c) if backend else None)
        for b, a, c in zip(kernel.buffers, buffers, copies, strict=True)
        if b.role != "in"
    ]


def made_up(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[torch.Tensor]:
    """A tensor per buffer: outputs and error buffers are zero, all others are random."""
    chance = torch.Generator().manual_seed(seed)
    top = min(
        (
            evaluate(b, sizes)
            for s in walk(kernel.body)
            if isinstance(s, Load | Store | Position)
            for b in loaded_bounds(s.index)
        ),
        default=8,
    )
    checked = {s.buffer for s in walk(kernel.body) if isinstance(s, Check)}
    made: list[torch.Tensor] = []
    for buffer in kernel.buffers:
        shape, dtype = (evaluate(buffer.size, sizes),), buffer.dtype
        if buffer.role == "out" or buffer.name in checked:
            made.append(torch.zeros(shape, dtype=dtype))
        elif dtype.is_floating_point:
            made.append(torch.randn(shape, generator=chance).to(dtype))
        else:
            made.append(
                torch.randint(0, max(1, min(top, 2 if dtype == torch.bool else 8)), shape, generator=chance).to(dtype)
            )
    return made


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest absolute difference. It is infinite if only one element of a pair is NaN."""
    x, y = a.double(), b.double()
    same = (x == y) | (x.isnan() & y.isnan())
    distance = (x - y).abs().nan_to_num(float("inf"), float("inf")).masked_fill(same, 0.0)
    return float(distance.max()) if distance.numel() else 0.0
