"""Compiles kernels for named GPUs: machine code as data, for which no device has to be here.

A kernel with symbols has several functions for each launch, because block sizes follow from sizes: one for the typical
sizes, one for each of a few other choices of blocks, and one for all other sizes. Which one runs is a matter of speed
and of rounding; each is right wherever its conditions hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from keel import KeelError, Source
from keel.loops import Kernel
from keel.plugin import CodeObject, CompileContext, KernelFunction, SizeRange
from keel_triton.block_conditions import Condition, conditions, largest, less, size_data, together
from keel_triton.block_sizes import Blocks
from keel_triton.build import constants, modules_of, settle
from keel_triton.driver import device_code
from keel_triton.launch_data import launch_data
from keel_triton.launch_plan import NARROW, Launch, magnitudes, plan

if TYPE_CHECKING:  # the module imports Triton, which is not everywhere
    from keel_triton.binaries import Binary

CAPABILITIES = (75, 80, 86, 87, 89, 90, 100, 103, 120)
"""The compute capabilities that machines are named after: ``sm_80``."""
CHOICES = 4
"""The most choices of blocks for which a launch has functions of its own."""
TYPICAL = 64
"""The assumed typical value of a symbol that the context does not know."""
SAMPLES = 512
"""The most sets of sizes that are tried to find choices of blocks."""


def compile_code(sources: Sequence[Source], target: str | None, ctx: CompileContext | None = None) -> list[CodeObject]:
    """The machine code of all kernels for the GPU named ``target``, such as ``sm_80``; for the current device if it is
    None. Each function has its launch as data (module ``launch_data``).

    Raises KeelError[bad-option] for a name that is not known, KeelError[not-here] if there is no current device, and
    KeelError[build-failed] if Triton is not installed or rejects a source.
    """
    capability = capability_of(target)
    _require_compiler()
    from triton.backends.compiler import GPUTarget

    from keel_triton.kernel_cache import compiler

    gpu, ranges = GPUTarget("cuda", capability, 32), ctx.sizes if ctx else {}
    started: list[tuple[int, _Choice, Future[Binary]]] = []
    for k, (module, source) in enumerate(zip(modules_of(sources), sources, strict=True)):
        for choice in _choices(module, source.kernel, ranges):
            future = compiler.start(choice.function, choice.launch, choice.variant, gpu)
            started.append((k, choice, future))
    by_content: dict[tuple[bytes, str], list[KernelFunction]] = {}
    for k, choice, future in started:
        binary = future.result()
        function = choice.kernel_function(k, sources[k].kernel, binary)
        by_content.setdefault((binary.asm["cubin"], _architecture(binary)), []).append(function)
    name = f"sm_{capability}"
    return [
        CodeObject(kind="cubin", content=cubin, target=name, needs=(("cuda", needed),), functions=tuple(functions))
        for (cubin, needed), functions in by_content.items()
    ]


def capability_of(target: str | None) -> int:
    """The compute capability of a machine, times ten."""
    if target is None:
        if not torch.cuda.is_available():
            raise KeelError(
                "not-here",
                "triton cannot compile for this machine.",
                {"triton": "No CUDA device was found."},
                do=f"Name the GPU to compile for: {_names()}.",
            )
        major, minor = torch.cuda.get_device_capability()
        return 10 * major + minor
    number = re.fullmatch(r"sm_(\d{2,3})", target)
    if number is None or int(number[1]) not in CAPABILITIES:
        raise KeelError(
            "bad-option",
            f"triton cannot compile for {target!r}.",
            {"triton": f"It knows {_names()}."},
            do="Name one of these.",
        )
    return int(number[1])


def _names() -> str:
    return ", ".join(f"sm_{c}" for c in CAPABILITIES)


def _require_compiler() -> None:
    from importlib.util import find_spec

    why = "triton is not installed." if find_spec("triton") is None else ""
    if not why:
        from keel_triton.kernel_cache import interpreting

        why = "TRITON_INTERPRET=1 interprets kernels, and compiles none." if interpreting() else ""
    if why:
        raise KeelError("build-failed", "The Triton kernels cannot be compiled.", {"triton": why})


def _architecture(binary: Binary) -> str:
    """What the code was compiled for, as PTX names it: ``sm_80``, or ``sm_90a`` for exactly one capability."""
    target = re.search(r"^\s*\.target\s+(sm_\w+)", binary.asm["ptx"], re.MULTILINE)
    assert target is not None, "PTX names its target"
    return target[1]


# -- the functions of a launch -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """A function of a launch, before it is compiled, and when it may run."""

    function: Any
    launch: Launch
    variant: Any
    blocks: tuple[Blocks, ...]
    step: int
    rank: int
    conditions: tuple[Condition, ...]

    def kernel_function(self, source: int, kernel: Kernel, binary: Binary) -> KernelFunction:
        code = device_code(binary, len(self.launch.arguments))
        data = launch_data(kernel, self.launch, code, self.blocks, self.variant.wide)
        place = {"step": self.step, "rank": self.rank, "conditions": list(self.conditions)}
        alignment = {"alignment": 16 if self.variant.aligned else 1}
        return KernelFunction(name=code.name, source=source, launch={**data, **place, **alignment})


def _choices(module: ModuleType, kernel: Kernel, ranges: Mapping[str, SizeRange]) -> Iterator[_Choice]:
    from keel_triton.kernel_cache import Variant

    for step, launch in enumerate(plan(kernel)):
        function = getattr(module, launch.name)
        for rank, each in enumerate(_variants(kernel, launch, ranges)):
            warps = max(b.warps for b in each.blocks)
            variant = Variant(constants(launch, each.blocks), warps, each.aligned, each.even, each.wide)
            yield _Choice(function, launch, variant, each.blocks, step, rank, each.conditions)


@dataclass(frozen=True)
class Alternative:
    """The blocks of a launch, and what its function assumes: addresses that are multiples of 16, the numbers that are
    multiples of 16, numbers of 64 bits, and the conditions on sizes.
    """

    blocks: tuple[Blocks, ...]
    aligned: bool
    even: frozenset[str]
    wide: bool
    conditions: tuple[Condition, ...]


def _variants(kernel: Kernel, launch: Launch, ranges: Mapping[str, SizeRange]) -> Iterator[Alternative]:
    """The functions of a launch, the best ones first. The last one may run at any sizes, with any addresses."""
    options = _block_choices(kernel, launch, ranges)
    if not kernel.symbols:
        even = frozenset(name for name, n in settle(kernel, launch, {})[2].items() if n % 16 == 0)
        wide = launch.index == "int64"
        return (yield from (Alternative(options[0], aligned, even, wide, ()) for aligned in (True, False)))
    narrow = _narrow(kernel)
    even = frozenset(launch.numbers)
    divided = tuple(["Equality", ["PythonMod", size_data(n), 16], 0] for n in launch.numbers.values())
    if narrow is not None:
        for blocks in options:
            chosen = _chosen(launch, blocks)
            if launch.numbers:
                yield Alternative(blocks, True, even, False, (*chosen, *narrow, *divided))
            yield Alternative(blocks, True, frozenset(), False, (*chosen, *narrow))
        if _chosen(launch, options[0]):
            yield Alternative(options[0], True, frozenset(), False, narrow)
        yield Alternative(options[0], False, frozenset(), False, narrow)
    yield Alternative(options[0], False, frozenset(), True, ())


def _chosen(launch: Launch, blocks: Sequence[Blocks]) -> tuple[Condition, ...]:
    """The conditions under which the parts of a launch have these blocks."""
    return together([c for part, b in zip(launch.parts, blocks, strict=True) for c in conditions(part, b)])


def _narrow(kernel: Kernel) -> tuple[Condition, ...] | None:
    """The conditions under which indices fit 32 bits; None if they never do."""
    sizes = [size_data(size) for size in {str(m): m for m in magnitudes(kernel, lambda size: size)}.values()]
    known, open_sizes = [s for s in sizes if isinstance(s, int)], [s for s in sizes if not isinstance(s, int)]
    fits = together([less(largest(each), NARROW + 1) for each in (known, open_sizes)])
    return None if False in fits else fits


def _block_choices(kernel: Kernel, launch: Launch, ranges: Mapping[str, SizeRange]) -> list[tuple[Blocks, ...]]:
    """The choices of blocks that get functions: that of typical sizes first, then those of the sizes nearest to them.
    The numbers of programs in them mean nothing.
    """
    options: dict[tuple[tuple[int, int, int], ...], tuple[Blocks, ...]] = {}
    for sizes in _samples(kernel.symbols, ranges):
        blocks = settle(kernel, launch, sizes)[0]
        options.setdefault(tuple((b.x, b.r, b.warps) for b in blocks), blocks)
        if len(options) == CHOICES:
            break
    return [*options.values()]


def _samples(symbols: Sequence[str], ranges: Mapping[str, SizeRange]) -> Iterator[dict[str, int]]:
    """Sets of sizes: the typical ones, then others by how many times larger or smaller they are."""
    values = [_values(ranges.get(symbol)) for symbol in symbols]
    combinations = sorted(product(*(v.items() for v in values)), key=lambda c: sum(abs(far) for _, far in c))
    for combination in combinations[:SAMPLES]:
        yield {symbol: size for symbol, (size, _) in zip(symbols, combination, strict=True)}


def _values(known: SizeRange | None) -> dict[int, int]:
    """Values of a symbol, with the logarithm of how many times larger than the typical value each is."""
    typical = TYPICAL if known is None or known.typical is None else known.typical
    low, high = (1, None) if known is None else (known.low, known.high)
    values = {typical: 0}
    for far in range(1, 6):
        for size, distance in ((typical << 2 * far, far), (typical >> 2 * far, -far)):
            if size >= max(low, 1) and (high is None or size <= high):
                values.setdefault(size, distance)
    return values
