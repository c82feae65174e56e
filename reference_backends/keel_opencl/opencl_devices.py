"""The OpenCL device: how it is chosen, what it can do, and its memory and queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from keel import KeelError
from keel.plugin import CompileContext, DeviceMemory, Option

if TYPE_CHECKING:  # a machine without PyOpenCL can import this module
    import pyopencl

OPTIONS = (
    Option(name="platform", type=str, default="", sentence="A part of the name of the platform; '' for the first one."),
    Option(name="device", type=str, default="", sentence="A part of the name of the device; '' for the first one."),
    Option(name="flags", type=str, default="", sentence="Further options of the OpenCL compiler."),
)
UNCACHED: Any = False  # PyOpenCL has a cache of its own, which unpickles files
DO = "pip install 'torch-keel[opencl]' brings PyOpenCL, and PoCL, which makes a device of the CPU."


def available() -> list[tuple[str, pyopencl.Device]]:
    """The devices of all platforms, each with the name of its platform; [] without PyOpenCL or a driver."""
    if find_spec("pyopencl") is None:
        return []
    import pyopencl as cl

    try:
        return [(p.name, d) for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error:  # the loader has no driver (ICD)
        return []


def device(platform: str = "", name: str = "") -> pyopencl.Device | None:
    """The first device with these words in the names of its platform and of itself."""
    return next((d for owner, d in available() if platform in owner and name in d.name), None)


@dataclass(frozen=True)
class Abilities:
    """What the tables depend on. A device that ``rounds`` can divide and take roots of float32 by IEEE arithmetic."""

    rounds: bool = True
    doubles: bool = False
    long_atomics: bool = False
    subnormals: bool = True


def abilities(of: pyopencl.Device | None) -> Abilities:
    """What a device can do."""
    if of is None:
        return Abilities()
    import pyopencl as cl

    known, single = set(of.extensions.split()), of.single_fp_config
    return Abilities(
        bool(single & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        bool(of.double_fp_config),
        "cl_khr_int64_base_atomics" in known,
        bool(single & cl.device_fp_config.DENORM),
    )


KNOWN = abilities(device())
"""What the device can do that is used without options."""


def probe() -> str | None:
    """Why there is no device that the backend can use."""
    if find_spec("pyopencl") is None:
        return f"It needs PyOpenCL: {DO}"
    if (first := device()) is None:
        return f"It finds no OpenCL device: {DO}"
    if not abilities(first).rounds:
        return f"{first.name} does not divide float32 as IEEE arithmetic does."
    return _lacks_compiler(first)


@lru_cache(maxsize=1)
def _lacks_compiler(of: pyopencl.Device) -> str | None:
    """What the driver says of a kernel without work. The compiler of an older PoCL knows no newer CPU."""
    import pyopencl as cl

    try:
        cl.Program(cl.Context([of]), "kernel void nothing() {}").build(cache_dir=UNCACHED)
    except cl.Error as error:
        words = [line for line in str(error).splitlines() if "error:" in line] or [str(error).partition("\n")[0]]
        return f"The driver {of.platform.version} cannot compile for {of.name}: {words[0].strip()}."
    return None


def identity(of: pyopencl.Device) -> str:
    """A text that differs between devices and drivers that need other machine code."""
    return "\n".join([of.platform.version, of.name, of.version, of.driver_version])


@dataclass(frozen=True)
class Machine:
    """A device in use. ``lock`` guards the arguments of kernels from their setting to their launch."""

    device: pyopencl.Device
    context: pyopencl.Context
    queue: pyopencl.CommandQueue
    lock: Any = field(default_factory=Lock)

    def allocate(self, size: int) -> pyopencl.Buffer:
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if self.device.host_unified_memory else 0)
        return cl.Buffer(self.context, flags, max(size, 1))

    def put(self, tensor: torch.Tensor) -> pyopencl.Buffer:
        """The tensor's own memory where the host and the device share it, else a copy."""
        import pyopencl as cl

        if tensor.numel() == 0:
            return self.allocate(0)
        flags = cl.mem_flags
        shared = flags.USE_HOST_PTR if self.device.host_unified_memory else flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags.READ_WRITE | shared, hostbuf=tensor.numpy())

    def get(self, buffer: pyopencl.Buffer) -> torch.Tensor:
        """The buffer's memory where the host and the device share it, else a copy."""
        import pyopencl as cl

        if self.device.host_unified_memory:
            both: Any = cl.map_flags.READ | cl.map_flags.WRITE
            size, dtype = (buffer.size,), np.dtype(np.uint8)
            mapped, _ = cl.enqueue_map_buffer(self.queue, buffer, both, 0, size, dtype)
            return torch.from_numpy(mapped)
        copied = torch.empty(buffer.size, dtype=torch.uint8)
        cl.enqueue_copy(self.queue, copied.numpy(), buffer)
        return copied


@lru_cache
def machine(platform: str = "", name: str = "") -> Machine:
    """The device that options name, ready to run. Raises KeelError[bad-option] if no device has it."""
    import pyopencl as cl

    if (chosen := device(platform, name)) is None:
        names = ", ".join(f"{owner}: {d.name}" for owner, d in available())
        what = f"No OpenCL device has {platform!r} and {name!r} in the names of its platform and of itself."
        raise KeelError("bad-option", what, do=f"These are here: {names or 'none'}.")
    context = cl.Context([chosen])
    return Machine(chosen, context, cl.CommandQueue(context))


def machine_of(options: Mapping[str, Any]) -> Machine:
    return machine(options["platform"], options["device"])


def memory(ctx: CompileContext) -> DeviceMemory:
    """The memory of the device that a part's options name."""
    here = machine_of(ctx.options)
    return DeviceMemory(allocate=here.allocate, put=here.put, get=here.get)
