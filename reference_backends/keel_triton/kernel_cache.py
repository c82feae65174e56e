"""Triton functions compiled for given block sizes: once per process and, in Keel's cache, once per machine."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from keel import KeelError
from keel_triton.binaries import CACHE, Binary, Store, binary, compiler_fingerprint
from keel_triton.launch_plan import Launch
from keel_triton.op_table import POINTEES

# Products are not contracted with sums, and libdevice keeps subnormals, so results are those of separate operators.
OPTIONS = {"num_stages": 1, "enable_fp_fusion": False, "enable_reflect_ftz": False, "sanitize_overflow": False}


@dataclass(frozen=True)
class Variant:
    """What a compiled function depends on in addition to its source. ``even`` are the int parameters that are multiples
    of 16. ``aligned`` is True if all pointers are multiples of 16, ``wide`` if ints have 64 bits.
    """

    constants: tuple[tuple[str, int], ...]
    warps: int
    aligned: bool = True
    even: frozenset[str] = frozenset()
    wide: bool = False


def interpreting() -> bool:
    """True if Triton interprets functions on the CPU instead of compiling them (TRITON_INTERPRET=1)."""
    return bool(triton.knobs.runtime.interpret)


def source_of(function: Any, launch: Launch, variant: Variant) -> ASTSource:
    """The function with its argument types and constants, in the form that Triton's compiler takes."""
    names = launch.names
    types = {names[b.name]: f"*{POINTEES[b.dtype]}" for b in launch.buffers}
    numbers = dict.fromkeys(launch.numbers, "i64" if variant.wide else "i32")
    constants = constants_of(variant)
    signature = {**types, **numbers, **dict.fromkeys(constants, "constexpr")}
    tidy = [n for n in types if variant.aligned] + [n for n in numbers if n in variant.even]
    attrs = {(list(signature).index(n),): [["tt.divisibility", 16]] for n in tidy}
    return ASTSource(function, signature, constants, attrs)


def constants_of(variant: Variant) -> dict[str, Any]:
    """The values of the constant parameters; INDEX is a dtype."""
    values: dict[str, Any] = dict(variant.constants)
    if "INDEX" in values:
        values["INDEX"] = triton.language.int64 if variant.wide else triton.language.int32
    return values


def compile_now(function: Any, launch: Launch, variant: Variant, target: GPUTarget, store: Store = CACHE.put) -> Binary:
    """The compiled kernel, which ``store`` puts into the cache.  Raises KeelError[build-failed]."""
    try:
        return binary(source_of(function, launch, variant), target, {**OPTIONS, "num_warps": variant.warps}, store)
    except Exception as raised:
        raise KeelError(
            "build-failed",
            f"Triton could not compile {launch.name}.",
            {"triton": str(raised)},
            do="This is a defect of keel_triton; KEEL_DUMP=<folder> keeps the source.",
        ) from raised


class Compiler:
    """Running and finished compilations. Equal requests share one."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.done: dict[tuple[Hashable, ...], Future[Binary]] = {}

    def start(self, function: Any, launch: Launch, variant: Variant, target: GPUTarget) -> Future[Binary]:
        """A future of the compiled kernel. It is compiled in another thread, because most of Triton's compiler releases
        the GIL.
        """
        # The source does not contain the element types of pointers, so a copy of halves and one of integers have the
        # same source.
        pointees = tuple(b.dtype for b in launch.buffers)
        compiler_fingerprint()  # or each thread would begin to read the compiler
        key = (function.fn.__code__.co_filename, launch.name, pointees, variant, target)
        with self.lock:
            if key not in self.done:
                self.done[key] = _pool(os.getpid()).submit(compile_now, function, launch, variant, target, _store)
            return self.done[key]


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads for one process: one that is forked has none of its parent's."""
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="keel-triton")


@lru_cache(maxsize=1)
def _writer(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="keel-triton-cache")


def _store(key: Sequence[str], data: bytes) -> None:
    """Stores an entry on a thread that no kernel waits for: until it is on the disk, tens of milliseconds can pass.
    Python ends after the last one is stored.
    """
    _writer(os.getpid()).submit(copy_context().run, CACHE.put, key, data)


def stored() -> Future[None]:
    """A future that is done when all kernels that were compiled until now are stored."""
    return _writer(os.getpid()).submit(lambda: None)


compiler = Compiler()
