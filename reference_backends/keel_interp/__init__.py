"""The loop IR itself as a backend: a kernel is rendered as its own text, which is parsed, checked and interpreted.

Slow, without a toolchain, and the definition: what another target computes is right where it agrees with this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, device

from keel import Launcher, Limits, LoopTarget, Source, aten_externs, loop_backend
from keel.cache import package_fingerprint
from keel.loops import DTYPE_NAMES, MONOIDS, SCALARS, interpret, parse, show, verify

DTYPES = dict(DTYPE_NAMES)
OPS = {op.name: " ".join((op.name, *(f"{{{n}}}" for n in range(op.arity)))) for op in SCALARS.values()}
FOLDS = {name: ("the empty fold", f"{name} {{0}} {{1}}") for name in MONOIDS}


def build(sources: Sequence[Source]) -> list[Launcher]:
    """One launcher per kernel, each from the text alone."""
    return [launcher(source.text) for source in sources]


def launcher(text: str) -> Launcher:
    """A callable on the kernel's buffers, then its symbols as ints."""
    kernel = parse(text)
    verify(kernel)

    def run(*args: Tensor | int) -> None:
        buffers = [a for a in args if isinstance(a, Tensor)]
        sizes = [a for a in args if not isinstance(a, Tensor)]
        with device("cpu"):  # the user may have another one as the default
            interpret(kernel, buffers, dict(zip(kernel.symbols, sizes, strict=True)))

    return run


target = LoopTarget(
    name="interp",
    device="cpu",
    dtypes=DTYPES,
    scalars=OPS,
    reductions=FOLDS,
    render=show,
    build=build,
    checks=True,
    externs=aten_externs("cpu", DTYPES),
    suffix="loops",
    limits=Limits(max_buffers=1 << 16, max_rank=1 << 16, atomics=frozenset({"add", "min", "max", "mul"})),
    fingerprint=lambda: package_fingerprint("keel_interp"),
)
backend = loop_backend(target)

__all__ = ["backend", "target"]
