"""Backends with one stage replaced by its reference, so that a failure that goes away names the stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor, fx

from keel.loop_level import loop_backend
from keel.loops import DTYPE_NAMES, MONOIDS, SCALARS, show
from keel.loops.interpret import interpret
from keel.loops.ir import Kernel, StoreMode
from keel.plugin import Backend, CompileContext, Extern, Launcher, Limits, LoopTarget, Source
from keel.runtime.prepared_constants import compile_part
from keel.settings import Settings

SCALAR_TEXTS = {op.name: " ".join((op.name, *(f"{{{n}}}" for n in range(op.arity)))) for op in SCALARS.values()}
FOLD_TEXTS = {name: ("the empty fold", f"{name} {{0}} {{1}}") for name in MONOIDS}
PLAIN = Limits(max_buffers=1 << 16, max_rank=1 << 16, atomics=frozenset(get_args(StoreMode)) - {"write"})


def swapped(settings: Settings, swap: str) -> Settings:
    """The settings with the stage ``swap`` of each backend, but the last resorts, replaced by its reference."""
    if not swap:
        return settings
    change = SWAPS[swap]
    return replace(settings, backends=tuple(b if b.last_resort else change(b) for b in settings.backends))


def _eager_parts(backend: Backend) -> Backend:
    """Each part runs in eager PyTorch."""

    def compile(gm: fx.GraphModule) -> Callable[..., Any]:
        return lambda *inputs: tuple(gm.forward(*inputs))

    return _recompiled(backend, compile)


def _corrected(backend: Backend) -> Backend:
    """The plugin runs, and then its results get the values of eager PyTorch: their types and memory are its own."""

    def compile(gm: fx.GraphModule, ctx: CompileContext) -> Callable[..., Any]:
        run = compile_part(backend, gm, ctx)

        def call(*inputs: Any) -> Any:
            right = gm.forward(*[x.clone() if isinstance(x, Tensor) else x for x in inputs])
            results = run(*inputs)
            for have, want in zip(results, right, strict=True):
                if isinstance(have, Tensor) and have.shape == want.shape:
                    have.copy_(want)
            return results

        return call

    return _recompiled(backend, compile)


def _recompiled(backend: Backend, compile: Callable[..., Any]) -> Backend:
    return replace(backend, compile=compile, fingerprint=None, serialize=None, deserialize=None)


def _of_target(change: Callable[[LoopTarget], LoopTarget]) -> Callable[[Backend], Backend]:
    """The change of a target as a change of backends; one that compiles graphs is left as it is."""

    def of(backend: Backend) -> Backend:
        return backend if backend.target is None else loop_backend(replace(change(backend.target), fingerprint=None))

    return of


def _interpreted(target: LoopTarget) -> LoopTarget:
    """The kernels that the target would get are run by the interpreter of loops."""
    return replace(target, render=show, build=_interpreters, compile=None, load=None, concurrent=False)


def _interpreters(sources: Sequence[Source]) -> list[Launcher]:
    return [_interpreter(source.kernel) for source in sources]


def _interpreter(kernel: Kernel) -> Launcher:
    """A launcher that copies buffers to the host and back, if they are on a device."""

    def launch(*args: Any) -> None:
        buffers = [a for a in args if isinstance(a, Tensor)]
        sizes = dict(zip(kernel.symbols, [a for a in args if not isinstance(a, Tensor)], strict=True))
        away = [b.device.type != "cpu" for b in buffers]
        on_host = [b.cpu() if moved else b for b, moved in zip(buffers, away, strict=True)]
        with torch.device("cpu"):
            interpret(kernel, on_host, sizes)
        for buffer, result, moved in zip(buffers, on_host, away, strict=True):
            if moved:
                buffer.copy_(result)

    return launch


def _unexpanded(target: LoopTarget) -> LoopTarget:
    """The same with all scalar ops and monoids of the loop IR, so that none is expanded."""
    return replace(
        _interpreted(target), scalars=SCALAR_TEXTS, reductions=FOLD_TEXTS, dtypes=dict(DTYPE_NAMES), checks=True
    )


def _plain_loops(target: LoopTarget) -> LoopTarget:
    """The same without limits, for which no loop is split or reordered."""
    return replace(_unexpanded(target), limits=PLAIN)


def _eager_externs(target: LoopTarget) -> LoopTarget:
    """Library calls are those of PyTorch."""
    externs = {name: _eager_extern(name, extern) for name, extern in target.externs.items()}
    return replace(target, externs=externs)


def _eager_extern(name: str, extern: Extern) -> Extern:
    operator: Any = torch.ops
    for part in name.split("."):
        operator = getattr(operator, part)
    return Extern(run=operator, refuse=extern.refuse, view=extern.view)


def _separate_memory(target: LoopTarget) -> LoopTarget:
    """Intermediate tensors are allocated one by one."""
    return replace(target, arena=False)


def _serial(target: LoopTarget) -> LoopTarget:
    """Parts are built one after the other."""
    return replace(target, concurrent=False)


SWAPS: Mapping[str, Callable[[Backend], Backend]] = {
    "eager parts": _eager_parts,
    "corrected": _corrected,
    "interpreted": _of_target(_interpreted),
    "unexpanded": _of_target(_unexpanded),
    "plain loops": _of_target(_plain_loops),
    "eager externs": _of_target(_eager_externs),
    "separate memory": _of_target(_separate_memory),
    "serial": _of_target(_serial),
}
"""The swaps by name."""
