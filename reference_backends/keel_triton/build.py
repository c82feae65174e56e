"""Builds launchers from sources: one module per graph, compiled functions by sizes, and cheap calls."""

from __future__ import annotations

import hashlib
import importlib
import linecache
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from keel import Launcher, Source
from keel.loops import Kernel, evaluate
from keel_triton.block_sizes import Blocks, choose
from keel_triton.driver import Run, runner
from keel_triton.launch_plan import NARROW, Launch, plan, reach
from keel_triton.native_launch import Runs, build_launchers
from keel_triton.prepared_launches import PreparedLaunches

if TYPE_CHECKING:  # these modules import Triton, which is not everywhere
    from triton.backends.compiler import GPUTarget

    from keel_triton.binaries import Binary


def build(sources: Sequence[Source]) -> Sequence[Launcher]:
    """One launcher per source. Functions with known sizes are compiled immediately, in parallel.

    Raises KeelError[build-failed] when a launcher is first called, if Triton rejects its source.
    """
    from keel_triton.kernel_cache import interpreting

    modules = modules_of(sources)
    if interpreting():
        return [_interpreted(m, s.kernel) for m, s in zip(modules, sources, strict=True)]
    graph = [_Launchable(m, s.kernel) for m, s in zip(modules, sources, strict=True)]
    if torch.cuda.is_available():
        for one in graph:
            if not one.kernel.symbols:
                one.start(torch.cuda.current_device(), True, {})
    for one in graph:
        one.siblings = graph
    return [PreparedLaunches(one.kernel, one.prepare).launcher() for one in graph]


def warm_up() -> None:
    """Prepares what all kernels need: reads and imports Triton's compiler, and builds the launchers in C."""
    from keel_triton.binaries import compiler_fingerprint

    compiler_fingerprint()
    build_launchers()
    importlib.import_module("triton.compiler.code_generator")  # Triton does so when it compiles the first function


# -- the module ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def load(text: str) -> ModuleType:
    """A module with this source, without a file that could be changed before it is compiled. Triton, debuggers and
    tracebacks read the source from Python's line cache.
    """
    from keel_triton.kernel_cache import interpreting

    name = f"keel_triton_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    module = ModuleType(name)
    module.__file__ = f"<{name}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    if interpreting():
        from keel_triton.libdevice_shim import libdevice

        module.__dict__["libdevice"] = libdevice
    return module


def modules_of(sources: Sequence[Source]) -> list[ModuleType]:
    """The module of each source. All sources are in one module, unless two kernels have the same name."""
    if len({s.kernel.name for s in sources}) < len(sources):
        return [load(s.text) for s in sources]
    return [load("\n\n".join(s.text for s in sources))] * len(sources) if sources else []


# -- launchers -----------------------------------------------------------------------------------------

Settled = tuple[tuple[Blocks, ...], bool, dict[str, int]]


def settle(kernel: Kernel, launch: Launch, sizes: Mapping[str, int]) -> Settled:
    """(blocks of each part, whether indices are 64-bit, values of the int parameters) at these sizes."""
    numbers = {name: evaluate(d, sizes) for name, d in launch.numbers.items()}
    wide = launch.index == "int64" or (launch.index == "INDEX" and reach(kernel, sizes) > NARROW)
    return tuple(choose(part, sizes) for part in launch.parts), wide, numbers


def constants(launch: Launch, blocks: Sequence[Blocks]) -> tuple[tuple[str, int], ...]:
    """The values of the constant parameters. INDEX is filled in when the function is compiled."""
    values = {"INDEX": 0}
    for k, b in enumerate(blocks):
        values |= {f"XBLOCK{launch.suffix(k)}": b.x, f"RBLOCK{launch.suffix(k)}": b.r}
    return tuple((c, values[c]) for c in launch.constants)


def _interpreted(module: ModuleType, kernel: Kernel) -> Launcher:
    """Runs the functions in Triton's interpreter, on tensors of any device."""
    from keel_triton.kernel_cache import Variant, constants_of

    def launch(*args: Any) -> None:
        buffers, sizes = (
            args[: len(kernel.buffers)],
            dict(zip(kernel.symbols, args[len(kernel.buffers) :], strict=True)),
        )
        tensors_by_name = dict(zip((b.name for b in kernel.buffers), buffers, strict=True))
        for one in plan(kernel):
            blocks, wide, numbers = settle(kernel, one, sizes)
            programs = sum(b.programs for b in blocks)
            if programs:
                values = constants_of(Variant(constants(one, blocks), 1, wide=wide))
                tensors = [tensors_by_name[b.name] for b in one.buffers]
                getattr(module, one.name)[(programs,)](*tensors, *numbers.values(), **values)

    return launch


Started = tuple[Launch, int, dict[str, int], "Future[Binary]"]
"""A launch, its number of programs, its int parameters, and its compiled function to be."""


class _Launchable:
    """A kernel whose functions are compiled by device, alignment and sizes."""

    def __init__(self, module: ModuleType, kernel: Kernel):
        self.module, self.kernel = module, kernel
        self.siblings: Sequence[_Launchable] = ()

    def start(self, device: int, aligned: bool, sizes: Mapping[str, int]) -> list[Started]:
        """Starts to compile the function of each launch that has programs at these sizes."""
        from keel_triton.kernel_cache import Variant, compiler

        started: list[Started] = []
        for one in plan(self.kernel):
            blocks, wide, numbers = settle(self.kernel, one, sizes)
            programs = sum(b.programs for b in blocks)
            if programs:
                even = frozenset(n for n, v in numbers.items() if v % 16 == 0)
                variant = Variant(constants(one, blocks), max(b.warps for b in blocks), aligned, even, wide)
                function = getattr(self.module, one.name)
                started.append((one, programs, numbers, compiler.start(function, one, variant, target_of(device))))
        return started

    def prepare(self, device: int, aligned: bool, values: tuple[int, ...]) -> Runs:
        """Compiles this kernel and the graph's other kernels for these sizes, and loads it onto the current device."""
        sizes = dict(zip(self.kernel.symbols, values, strict=True))
        if sizes:
            for other in self.siblings:
                if sizes.keys() >= set(other.kernel.symbols):
                    other.start(device, aligned, {s: sizes[s] for s in other.kernel.symbols})
        number = {b.name: k for k, b in enumerate(self.kernel.buffers)}
        runs: list[tuple[tuple[int, ...], Run]] = []
        for one, programs, numbers, future in self.start(device, aligned, sizes):
            run = runner(future.result(), device, programs, len(one.buffers), tuple(numbers.values()))
            runs.append((tuple(number[b.name] for b in one.buffers), run))
        return runs


@lru_cache(maxsize=64)
def target_of(device: int) -> GPUTarget:
    """Triton's compilation target for a device."""
    from triton.backends.compiler import GPUTarget

    major, minor = torch.cuda.get_device_capability(device)
    return GPUTarget("cuda", 10 * major + minor, 32)
