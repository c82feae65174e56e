"""Launchers that call kernels from C: the entries of keel.launcher for the functions of C++ kernels.

The entries are compiled once per machine. They are not part of the kernels' translation units, where each would take
the compiler more than a millisecond in every graph.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NoReturn

from keel import KeelError, Launcher
from keel.launcher import address_of, c_library, native_launcher
from keel.loops import Kernel

MOST = 64
"""The most parameters of a kernel that is called from C."""

HEAD = """#include <stdint.h>
_Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses are passed as integers");
"""


def native(otherwise: Launcher, library: ctypes.CDLL, name: str, kernel: Kernel) -> Launcher:
    """A launcher in C of the function ``name`` of a library, or ``otherwise`` where there can be none."""
    count = len(kernel.buffers) + len(kernel.symbols)
    library_of_entries = entries() if kernel.buffers and count <= MOST else None
    if library_of_entries is None:
        return otherwise
    return native_launcher(
        otherwise,
        address_of(library_of_entries[f"keel_cpp_call_{count}"]),
        address_of(library[name]),
        buffers=len(kernel.buffers),
        symbols=len(kernel.symbols),
        failed=failed,
        owner=(library, library_of_entries),
    )


def failed(code: int) -> NoReturn:
    """Raises KeelError[build-failed] for an entry that says that it failed, which none does."""
    raise KeelError(
        "build-failed",
        f"The entry of a C++ kernel returned {code}.",
        do="This is a defect of keel_cpp, whose entries return 0.",
    )


def entry(count: int) -> str:
    """The entry of all kernels with this number of parameters. Its state is the address of the kernel's function.

    The parameters are addresses and numbers of 64 bits. Where addresses have 64 bits too, a function takes both in the
    same places, whatever they are addresses of.
    """
    types = ", ".join(["uint64_t"] * count)
    arguments = ", ".join(f"a[{n}]" for n in range(count))
    head = f"int keel_cpp_call_{count}(void *kernel, uint64_t *a, int64_t device, uint64_t queue)"
    return f"{head}\n{{\n    ((void (*)({types}))kernel)({arguments});\n    return 0;\n}}\n"


@lru_cache(maxsize=1)
def entries() -> ctypes.CDLL | None:
    """The library of all entries; None if this machine cannot build it."""
    return c_library(HEAD + "".join(map(entry, range(1, MOST + 1))), what="the entries of C++ kernels")
