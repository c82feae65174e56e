"""Launchers of machine code that was compiled elsewhere. They need CUDA's driver, and no compiler."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import torch

from keel import KeelError, Launcher, Source
from keel.loops import Kernel
from keel.plugin import CodeObject
from keel_triton.driver import Run, run_of
from keel_triton.launch_data import FunctionLaunch, read_launch, value
from keel_triton.launch_plan import plan
from keel_triton.native_launch import Runs
from keel_triton.prepared_launches import PreparedLaunches


def load_code(objects: Sequence[CodeObject], sources: Sequence[Source]) -> list[Launcher]:
    """A launcher for each source. Raises KeelError[not-here] if no device here can run the code, and
    KeelError[bad-artifact] if the objects are not of these sources.
    """
    return [PreparedLaunches(s.kernel, partial(prepare, s.kernel, f)).launcher() for s, f in checked(objects, sources)]


def checked(
    objects: Sequence[CodeObject], sources: Sequence[Source]
) -> list[tuple[Source, list[list[FunctionLaunch]]]]:
    """Each source with the functions of each of its launches, the best ones first."""
    if why := lacking([need for each in objects for need in each.needs], capabilities()):
        raise KeelError(
            "not-here",
            "The Triton kernels cannot run here.",
            {"triton": why},
            do="Compile them for the GPU of this machine, too.",
        )
    steps = [[list[FunctionLaunch]() for _ in plan(source.kernel)] for source in sources]
    for code in objects:
        for function in code.functions:
            one = read_launch(code, function, sources[function.source].kernel)
            if one.step >= len(steps[function.source]):
                raise KeelError("bad-artifact", f"{function.name} is of a launch that its kernel does not have.")
            steps[function.source][one.step].append(one)
    for source, launches in zip(sources, steps, strict=True):
        if not all(launches):
            raise KeelError("bad-artifact", f"The machine code of {source.kernel.name} lacks one of its launches.")
    return [(s, [sorted(f, key=lambda one: one.rank) for f in each]) for s, each in zip(sources, steps, strict=True)]


def prepare(
    kernel: Kernel, steps: Sequence[Sequence[FunctionLaunch]], device: int, aligned: bool, values: tuple[int, ...]
) -> Runs:
    """What is launched at these values of the kernel's symbols, loaded onto a device."""
    sizes = dict(zip(kernel.symbols, values, strict=True))
    runs: list[tuple[tuple[int, ...], Run]] = []
    for functions in steps:
        one = selected(functions, aligned, sizes)
        if programs := value(one.grid, sizes):
            numbers = [value(n, sizes) for n in one.numbers]
            runs.append((one.buffers, run_of(one.code, device, programs, len(one.buffers), numbers)))
    return runs


def selected(functions: Sequence[FunctionLaunch], aligned: bool, sizes: dict[str, int]) -> FunctionLaunch:
    """The first function that may be launched. Raises KeelError[bad-artifact] if no function may be."""
    for one in functions:
        if one.fits(aligned, sizes):
            return one
    raise KeelError("bad-artifact", f"No function of {functions[0].code.name} may be launched at the sizes {sizes}.")


def capabilities() -> frozenset[tuple[int, int]]:
    """The compute capabilities of the devices here."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return frozenset(torch.cuda.get_device_capability(device) for device in devices)


def lacking(needs: Sequence[tuple[str, str]], devices: Collection[tuple[int, int]]) -> str:
    """Why devices of these capabilities cannot run what ``needs`` this, as a sentence; '' if one of them can."""
    if not needs:
        return ""
    if not devices:
        return "No CUDA device was found."
    if any(all(runs(need, device) for need in needs) for device in devices):
        return ""
    needed = ", ".join(dict.fromkeys(feature for _, feature in needs))
    here = ", ".join(f"sm_{major}{minor}" for major, minor in sorted(devices))
    return f"They are for {needed}, and the devices here are {here}."


def runs(need: tuple[str, str], device: tuple[int, int]) -> bool:
    """True if a device of this capability runs code for ``sm_80`` (this capability, or a higher one of the same major
    version) or ``sm_90a`` (this capability).
    """
    kind, feature = need
    number = feature.removeprefix("sm_").removesuffix("a")
    if kind != "cuda" or not number.isdigit():
        return False
    capability = divmod(int(number), 10)
    return device == capability if feature.endswith("a") else device[0] == capability[0] and device >= capability
