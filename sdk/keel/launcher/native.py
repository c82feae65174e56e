"""Launchers in C: what calls a kernel's C function without Python in between, for any backend.

The C code is compiled when the first launcher is made, once per machine and version of Python. It takes a C compiler
and Python's headers; without them the backend's launchers in Python are used, which are slower.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from keel.cache import compile_library
from keel.errors import KeelError

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-x", "c")
MOST = 512
"""The most arguments of a launcher in C."""
Launcher = Callable[..., None]
_log = logging.getLogger(__name__)


def native_launcher(
    otherwise: Launcher,
    entry: int,
    state: int,
    *,
    buffers: int,
    symbols: int,
    failed: Callable[[int], Any],
    owner: Any,
    queue: Callable[[int], int] | None = None,
) -> Launcher:
    """A launcher that calls the C function at the address ``entry``, or ``otherwise`` where there can be none.

    The launcher takes a tensor for each of ``buffers`` and an int for each of ``symbols``. The entry is::

        int entry(void *state, uint64_t *arguments, int64_t device, uint64_t queue)

    ``state`` is the address that is given here. ``arguments`` are the addresses of the tensors' data, then the ints; it
    may write to them. If a function ``queue`` is given, ``device`` is the number of the first tensor's device, and
    ``queue`` is what the function returns for it, such as the handle of a stream; otherwise they are -1 and 0. Python's
    lock is released during the call.

    The entry returns 0 when it has launched the kernel. If it returns a negative number it has launched nothing, and
    ``otherwise`` is called with the same arguments. For a positive number ``failed`` is called with it, which should
    raise. ``owner`` is kept alive as long as the launcher: the library of the entry, and the memory of the state.
    """
    type = launcher_type() if 0 < buffers <= MOST - symbols else None
    if type is None:
        return otherwise
    made: Launcher = type(entry, state, buffers, symbols, queue, otherwise, failed, owner)
    return made


@lru_cache(maxsize=1)
def launcher_type() -> Callable[..., Launcher] | None:
    """The type of launchers in C; None if it cannot be built here."""
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists() or platform.python_implementation() != "CPython":
        _log.info("Kernels are launched by Python: launchers in C take CPython and its headers.")
        return None
    text = files("keel.launcher").joinpath("native.c").read_text()
    library = c_library(text, f"-I{headers}", f"-DMOST={MOST}", what="the launchers in C", key=_python())
    if library is None:
        return None
    make = ctypes.PYFUNCTYPE(ctypes.py_object)(address_of(library.keel_launcher_type))
    type: Callable[..., Launcher] = make()
    return type


def c_library(text: str, *options: str, what: str, key: Sequence[str] = ()) -> ctypes.CDLL | None:
    """The shared library of a text in C11, from Keel's cache or compiled; None if that is not possible here, for
    reasons that are logged. ``what`` names it there, and ``key`` holds what else it depends on.
    """
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        _log.info("Kernels are launched by Python: %s need a C compiler, one of %s.", what, ", ".join(COMPILERS))
        return None
    try:
        return compile_library("launcher", [compiler, *FLAGS, *options, "-"], text, key=key, what=what)
    except KeelError as error:
        _log.info("Kernels are launched by Python: %s", error)
        return None


def address_of(function: Any) -> int:
    """The address of a C function that ctypes knows."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _python() -> list[str]:
    """What the layout of Python's objects depends on."""
    return [platform.python_version(), str(sysconfig.get_config_var("SOABI"))]
