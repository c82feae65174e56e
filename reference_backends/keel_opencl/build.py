"""Compiles rendered kernels for the device, keeps their machine code in Keel's cache, and launches them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keel import KeelError, Launcher, Source
from keel.cache import Cache
from keel.loops import Kernel, evaluate
from keel.plugin import CodeObject, CompileContext, KernelFunction, memory_of
from keel_opencl.kernel_functions import GROUP, Function, functions
from keel_opencl.opencl_devices import UNCACHED, Machine, identity, machine_of

if TYPE_CHECKING:
    import pyopencl

FLAGS = "-w -cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
PRELUDE = Path(__file__).with_name("prelude.cl").read_text()


def compile_code(sources: Sequence[Source], target: str | None, ctx: CompileContext) -> list[CodeObject]:
    """The machine code of the sources for this device, in one program for all names that are different.

    Raises KeelError[bad-option] for the name of any other device, and KeelError[build-failed] with the compiler's words
    if it rejects them.
    """
    here = machine_of(ctx.options)
    if target not in (None, here.device.name):
        raise KeelError("bad-option", f"opencl cannot compile for {target!r}.", do=f"Name {here.device.name!r}.")
    return [_compiled(here, sources, numbers, ctx.options["flags"]) for numbers in _batches(sources)]


def _batches(sources: Sequence[Source]) -> Iterator[list[int]]:
    """The positions of the sources, divided so that the kernels of a batch have different names."""
    left = [*range(len(sources))]
    while left:
        batch = {sources[k].kernel.name: k for k in reversed(left)}
        yield sorted(batch.values())
        left = [k for k in left if k not in batch.values()]


def _compiled(here: Machine, sources: Sequence[Source], numbers: Sequence[int], flags: str) -> CodeObject:
    text, options = "\n".join([PRELUDE, *(sources[k].text for k in numbers)]), f"{FLAGS} {flags}".strip()
    key = [text, options, identity(here.device)]
    content = Cache("opencl").get_or_make(key, lambda: _binary(here, text, options))
    names = tuple(KernelFunction(name=f.name, source=k) for k in numbers for f in functions(sources[k].kernel))
    needs = (("opencl", identity(here.device)),)
    return CodeObject(kind="opencl", content=content, target=here.device.name, needs=needs, functions=names)


def _binary(here: Machine, text: str, options: str) -> bytes:
    import pyopencl as cl

    try:
        program = cl.Program(here.context, text).build(options, cache_dir=UNCACHED)
        return bytes(program.get_info(cl.program_info.BINARIES)[0])
    except cl.Error as error:
        raise KeelError("build-failed", "The OpenCL kernels cannot be built.", {"opencl": str(error)}) from error


def load_code(objects: Sequence[CodeObject], sources: Sequence[Source], ctx: CompileContext) -> list[Launcher]:
    """A launcher for each source. Raises KeelError[not-here] if the code is of another device or driver."""
    import pyopencl as cl

    here, made = machine_of(ctx.options), dict[int, list[cl.Kernel]]()
    for each in objects:
        if each.needs != (("opencl", identity(here.device)),):
            what = f"The OpenCL kernels were compiled for {each.target} and cannot run on {here.device.name}."
            raise KeelError("not-here", what, do="Compile them again with this device and this driver.")
        program = cl.Program(here.context, [here.device], [each.content]).build(cache_dir=UNCACHED)
        for f in each.functions:
            made.setdefault(f.source, []).append(cl.Kernel(program, f.name))
    return [_launcher(here, source.kernel, made.get(k, [])) for k, source in enumerate(sources)]


def _launcher(here: Machine, kernel: Kernel, compiled: Sequence[pyopencl.Kernel]) -> Launcher:
    import pyopencl as cl

    steps, buffers = [*zip(compiled, functions(kernel), strict=True)], len(kernel.buffers)
    groups = lru_cache(lambda sizes: [_groups(f, dict(zip(kernel.symbols, sizes, strict=True))) for _, f in steps])

    def launch(*arguments: Any) -> None:
        values: list[Any] = []
        for tensor in arguments[:buffers]:
            block, start = memory_of(tensor)
            values += (block, np.int64(start // tensor.itemsize))
        values += map(np.int64, arguments[buffers:])
        with here.lock:
            for (function, _), count in zip(steps, groups(arguments[buffers:]), strict=True):
                if count:
                    function.set_args(*values)
                    cl.enqueue_nd_range_kernel(here.queue, function, (count * GROUP,), (GROUP,))

    return launch


def _groups(function: Function, sizes: dict[str, int]) -> int:
    points = evaluate(function.points, sizes)
    return points if function.grouped else -(-points // GROUP)
