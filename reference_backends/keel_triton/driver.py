"""Loads machine code onto a device and launches it, by calls of the CUDA driver.

Triton's launcher does the same, but compiles C code for each signature first, and each call takes longer.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from keel import KeelError

if TYPE_CHECKING:  # the module imports Triton, which is not everywhere
    from keel_triton.binaries import Binary

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
DEFAULT_SHARED = 48 * 1024
INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@dataclass(frozen=True)
class Run:
    """A function on a device, and one launch of it: ``programs`` blocks of ``threads`` with ``shared`` bytes of memory.
    It takes ``parameters``: addresses, then ``numbers``, then null pointers.

    ``launch(addresses, stream)`` launches it. Safe to call from several threads: each call holds parameters of its own.
    """

    function: int
    programs: int
    threads: int
    shared: int
    numbers: tuple[int, ...]
    parameters: int
    launch: Callable[[list[int], int], None]


@lru_cache(maxsize=1)
def cuda() -> Any:
    """The CUDA driver's library."""
    library = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_void_p
    library.cuDevicePrimaryCtxRetain.argtypes = [pointer, ctypes.c_int]
    library.cuCtxSetCurrent.argtypes = [pointer]
    library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    library.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    return library


@dataclass(frozen=True)
class DeviceCode:
    """A function of machine code: the ``cubin``, the function's ``name``, what a launch of it takes besides arguments
    (threads of a block, bytes of ``shared`` memory), and the number of its ``parameters``.
    """

    cubin: bytes
    name: str
    threads: int
    shared: int
    parameters: int


@cache
def load(code: DeviceCode, device: int, driver: Any) -> int:
    """The function on a device.  It stays loaded as long as the process."""
    enter(device, driver)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _done("cuModuleLoadData", driver.cuModuleLoadData(ctypes.byref(module), code.cubin))
    name = code.name.encode()
    _done("cuModuleGetFunction", driver.cuModuleGetFunction(ctypes.byref(function), module, name))
    if code.shared > DEFAULT_SHARED:
        _done("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, code.shared))
    return int(function.value or 0)


def enter(device: int, driver: Any) -> None:
    """Makes PyTorch's context on the device current in this thread. A thread has no context before its first
    CUDA call.
    """
    context = ctypes.c_void_p()
    _done("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _done("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))


def device_code(kernel: Binary, arguments: int) -> DeviceCode:
    """The machine code of Triton's compiled ``kernel``, which takes that many arguments.

    Raises KeelError[build-failed] if it takes others, or needs scratch memory.
    """
    metadata = kernel.metadata
    total = parameters(kernel, arguments)
    return DeviceCode(kernel.asm["cubin"], metadata.name, 32 * metadata.num_warps, metadata.shared, total)


def runner(
    kernel: Binary, device: int, programs: int, pointers: int, numbers: Sequence[int], driver: Any = None
) -> Run:
    """A launch of a compiled kernel that takes that many pointers, then ``numbers``, on a device."""
    return run_of(device_code(kernel, pointers + len(numbers)), device, programs, pointers, numbers, driver)


def run_of(
    code: DeviceCode, device: int, programs: int, pointers: int, numbers: Sequence[int], driver: Any = None
) -> Run:
    """A launch of machine code that takes that many pointers, then ``numbers``, on a device."""
    driver = driver or cuda()
    function, total, threads, shared = load(code, device, driver), code.parameters, code.threads, code.shared
    launch = driver.cuLaunchKernel
    # Without conversions by ctypes, arguments take half the time: the function, the grid, the block, shared memory.
    settled = (ctypes.c_void_p(function), *map(ctypes.c_uint, (programs, 1, 1, threads, 1, 1, shared)))
    slots, table, null = ctypes.c_uint64 * total, ctypes.c_void_p * total, ctypes.c_void_p()
    streams: dict[int, ctypes.c_void_p] = {}

    def fresh() -> tuple[Any, Any]:
        """The parameters and their addresses. A number of 32 bits is the lower half of its slot."""
        values = slots(*[0] * pointers, *numbers)
        start = ctypes.addressof(values)
        return values, table(*range(start, start + 8 * total, 8))

    free = [fresh()]

    def run(addresses: list[int], stream: int) -> None:
        try:
            held = free.pop()
        except IndexError:
            held = fresh()
        values, where = held
        values[0:pointers] = addresses
        if (at := streams.get(stream)) is None:
            at = streams[stream] = ctypes.c_void_p(stream)
        code = launch(*settled, at, where, null)
        if code == INVALID_CONTEXT:
            enter(device, driver)
            code = launch(*settled, at, where, null)
        free.append(held)
        if code:
            launch_failed(code)

    return Run(function, programs, threads, shared, tuple(numbers), total, run)


def launch_failed(code: int) -> None:
    """Raises KeelError[build-failed] for an error of a launch."""
    _done("cuLaunchKernel", code)


_ENTRY = re.compile(r"\.entry\s+\w+\s*\(([^)]*)\)")


def parameters(kernel: Binary, arguments: int) -> int:
    """The number of parameters of the machine code: the given ones, and Triton's pointers to scratch memory.

    Raises KeelError[build-failed] if it takes others, or needs scratch memory.
    """
    entry = _ENTRY.search(kernel.asm["ptx"])
    total = entry[1].count(".param") if entry else 0
    metadata = kernel.metadata
    scratch = metadata.global_scratch_size or metadata.profile_scratch_size
    if not arguments <= total <= arguments + 2 or scratch or metadata.num_ctas != 1:
        raise KeelError(
            "build-failed",
            f"{metadata.name} cannot be launched.",
            {
                "triton": f"It made a function of {total} parameters for {arguments}, with {scratch} bytes of "
                f"scratch memory."
            },
        )
    return total


def _done(call: str, code: int) -> None:
    if code:
        raise KeelError(
            "build-failed",
            f"The CUDA driver's {call} failed with error {code}.",
            do="CUresult in the CUDA driver API says what it means; an earlier kernel may be the cause.",
        )
