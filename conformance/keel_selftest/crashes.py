"""Backends that end a process in each of six ways, at arguments of float64: what a run has to outlive."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend

from .mutant import backend_of

CrashFunction = Callable[[], Any]
PLENTY = 40


@dataclass(frozen=True)
class Crash:
    """``verdicts`` are those that a case may get which dies of ``deed``."""

    deed: CrashFunction
    backend: Backend
    verdicts: tuple[str, ...]


def dies(name: str, *verdicts: str) -> Callable[[CrashFunction], Crash]:
    def made(deed: CrashFunction) -> Crash:
        def compile(gm: fx.GraphModule) -> Callable[..., Any]:
            def call(*inputs: Any) -> Any:
                if touched(inputs):
                    deed()
                return gm.forward(*inputs)

            return call

        return Crash(deed, backend_of(name, compile, "dies"), verdicts)

    return made


def touched(inputs: Sequence[Any]) -> bool:
    return any(isinstance(x, Tensor) and x.dtype == torch.float64 for x in inputs)


@dies("of-a-segment", "crash")
def segment() -> None:
    """Reads at address 0."""
    ctypes.string_at(0)


@dies("of-abort", "crash")
def abort() -> None:
    """Aborts, as a failed assertion in C does."""
    os.abort()


@dies("of-exit", "crash")
def leave() -> None:
    """Leaves without a word, and says that all is well."""
    os._exit(0)


@dies("of-sleep", "timeout")
def sleep() -> None:
    """Hangs in native code with the interpreter's lock."""
    ctypes.PyDLL(None).sleep(600)


@dies("of-hunger", "resource")
def hunger() -> None:
    """Takes memory until none is left."""
    [torch.zeros(2**26) for _ in range(PLENTY)]


@dies("of-depth", "crash", "resource")
def depth() -> None:
    """Calls itself through native code until the stack ends: a small one, since Python 3.12 limits such calls."""
    sys.setrecursionlimit(10**9)

    def again() -> None:
        native()

    native = ctypes.CFUNCTYPE(None)(again)
    threading.stack_size(2**18)
    small = threading.Thread(target=native)
    small.start()
    small.join()


CRASHES: Mapping[str, Crash] = {name: value for name, value in globals().items() if isinstance(value, Crash)}
"""By the name with which any process finds it: ``keel_selftest.crashes:abort.backend``."""
