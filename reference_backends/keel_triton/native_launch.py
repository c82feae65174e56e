"""The compiled functions of a kernel in the memory that ``launch.c`` reads, and its launcher."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from keel import Launcher
from keel.launcher import address_of, c_library, launcher_type, native_launcher
from keel.plugin import stream_handle
from keel_triton.driver import INVALID_CONTEXT, Run, launch_failed

MOST = 512  # the parameters of a function that launch.c has room for
VARIANTS = 256  # the length of the list that it walks

Runs = Sequence[tuple[tuple[int, ...], Run]]
"""For each launch the positions of the buffers that it takes, and the function."""

_NUMBER = ctypes.c_uint64
_NUMBERS = ctypes.POINTER(_NUMBER)


class _Run(ctypes.Structure):
    _fields_ = (
        *((name, _NUMBER) for name in ("function", "programs", "threads", "shared")),
        *((name, _NUMBER) for name in ("pointers", "numbers", "parameters")),
        *((name, _NUMBERS) for name in ("which", "values")),
    )


class _Variant(ctypes.Structure):
    _fields_ = (
        ("next", ctypes.c_void_p),
        ("device", ctypes.c_int64),
        ("aligned", _NUMBER),
        ("runs", _NUMBER),
        ("sizes", _NUMBERS),
        ("run", ctypes.POINTER(_Run)),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("current", ctypes.c_void_p),
        ("buffers", _NUMBER),
        ("symbols", _NUMBER),
        ("first", ctypes.c_void_p),
    )


class Variants:
    """What a kernel launches, by device, alignment of its addresses, and sizes.

    Variants stay as long as this object, for another thread may be reading them.
    """

    def __init__(self, buffers: int, symbols: int, driver: Any) -> None:
        self.kernel = _Kernel(address_of(driver.cuLaunchKernel), address_of(driver.cuCtxGetDevice), buffers, symbols)
        self.listed: list[_Variant] = []

    def add(self, device: int, aligned: bool, sizes: Sequence[int], runs: Runs) -> None:
        """Lists what is launched for these sizes, unless the list is full or a function takes too many parameters."""
        if len(self.listed) == VARIANTS or any(run.parameters > MOST for _, run in runs):
            return
        launches = (_Run * len(runs))(*(_run(which, run) for which, run in runs))
        variant = _Variant(self.kernel.first, device, aligned, len(runs), _numbers(sizes), launches)
        self.listed.append(variant)
        self.kernel.first = ctypes.addressof(variant)

    def launcher(self, otherwise: Launcher) -> Launcher:
        """A launcher in C of what is listed, which leaves all else to ``otherwise``; or that, if there can be none."""
        library = launch_library()
        if library is None:
            return otherwise
        return native_launcher(
            otherwise,
            address_of(library.keel_triton_launch),
            ctypes.addressof(self.kernel),
            buffers=self.kernel.buffers,
            symbols=self.kernel.symbols,
            failed=launch_failed,
            owner=(library, self),
            queue=stream_handle,
        )


def _run(which: Sequence[int], run: Run) -> _Run:
    sizes = (len(which), len(run.numbers), run.parameters)
    return _Run(run.function, run.programs, run.threads, run.shared, *sizes, _numbers(which), _numbers(run.numbers))


def _numbers(values: Sequence[int]) -> Any:
    return ctypes.cast((_NUMBER * len(values))(*values), _NUMBERS)


def build_launchers() -> None:
    """Builds what every launcher in C needs, if that is not in the cache."""
    launcher_type()
    launch_library()


@lru_cache(maxsize=1)
def launch_library() -> ctypes.CDLL | None:
    """The library of ``launch.c``; None if this machine cannot build it."""
    text = files("keel_triton").joinpath("launch.c").read_text()
    numbers = f"-DMOST={MOST}", f"-DINVALID_CONTEXT={INVALID_CONTEXT}"
    return c_library(text, *numbers, what="the entry of Triton's kernels")
