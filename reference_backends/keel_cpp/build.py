"""From rendered kernels to functions: one translation unit, one run of the compiler, one cached shared object.

The cache is named by content: the text, the flags, the compiler and the CPU.  A library is written beside its place
and moved there, so that another process sees it whole or not at all.
"""
from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import torch

from keel import KeelError, Kernel, Launcher, Source
from keel_cpp.probe import COMPILER, compiler_version, cpu, probe
from keel_cpp.text import prelude

# Results are those of IEEE arithmetic as written: no contraction, no reassociation; floating-point exceptions and
# errno, which nobody reads, need not be right.  Loops are never peeled to an alignment, for then
# sums would depend on addresses.  Passes that gain nothing here are off: they cost a third of the time, and jump
# threading tears conditions apart that the vectoriser wants whole.
FLAGS = (
    "-std=c++17", "-O2", "-march=native", "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-fpeel-loops", "--param=vect-max-peeling-for-alignment=0",
    "-fno-tree-slp-vectorize", "-fno-thread-jumps", "-fno-tree-pre", "-fno-gcse", "-fno-code-hoisting",
    "-fno-schedule-insns2", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-ipa-icf",
    "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fvisibility=hidden",
    "-fPIC", "-shared", "-nostdlib", "-w", "-pipe",
)
WIDE = ("-mprefer-vector-width=512",)


def build(sources: Sequence[Source]) -> list[Launcher]:
    """A launcher for each source.  Raises KeelError[build-failed] with the compiler's words if it rejects them."""
    names, text = unit(sources)
    library = _open(text, sources)
    return [_launcher(library, name, source.kernel) for name, source in zip(names, sources, strict=True)]


def unit(sources: Sequence[Source]) -> tuple[list[str], str]:
    """The name of each source's function, and the text of all: equal bodies once, named by their content."""
    functions: dict[str, str] = {}
    names = []
    for source in sources:
        head = f"void {source.kernel.name}("
        body = source.text.partition(head)[2]
        name = "keel_" + hashlib.sha256(body.encode()).hexdigest()[:16]
        functions[name] = source.text.replace(head, f'__attribute__((visibility("default"))) void {name}(', 1)
        names.append(name)
    return names, "\n".join([prelude(), *functions.values()])


def flags() -> tuple[str, ...]:
    return FLAGS + WIDE if re.search(r"\bavx512f\b", cpu()) else FLAGS


def folder() -> Path:
    """Where libraries are kept: KEEL_CACHE_DIR, or keel in the user's cache."""
    kept = os.environ.get("KEEL_CACHE_DIR")
    return Path(kept) if kept else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keel"


def _open(text: str, sources: Sequence[Source]) -> ctypes.CDLL:
    if why := probe():
        raise KeelError("build-failed", "The C++ kernels cannot be built.", {"cpp": why})
    key = "\0".join([text, *flags(), compiler_version(), cpu()])
    path = folder() / f"cpp-{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    _share_openmp()
    if not path.exists():
        _compile(text, path, sources)
    try:
        return _loaded(str(path))
    except OSError:                                            # cut short by a full disk or a crash: once more
        _compile(text, path, sources)
        return _loaded(str(path))


@cache
def _loaded(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def _compile(text: str, path: Path, sources: Sequence[Source]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    os.close(handle)
    try:
        command = [COMPILER, *flags(), "-x", "c++", "-", "-o", made]
        ran = subprocess.run(command, input=text, capture_output=True, text=True)
        if ran.returncode != 0:
            kernels = ", ".join(dict.fromkeys(s.kernel.name for s in sources))
            raise KeelError("build-failed", f"{COMPILER} rejected the text of {kernels}.",
                            {COMPILER: "\n    ".join(ran.stderr.strip().splitlines()[:20])},
                            do="KEEL_DUMP=<folder> keeps the text that was compiled.")
        os.replace(made, path)
    finally:
        Path(made).unlink(missing_ok=True)


@lru_cache(maxsize=1)
def _share_openmp() -> None:
    """Makes PyTorch's OpenMP runtime visible to the kernels, whose symbols are left open on purpose: a second runtime
    in the process would have threads of its own."""
    if hasattr(ctypes.CDLL(None), "GOMP_parallel"):
        return
    maps = Path("/proc/self/maps")
    found = set(re.findall(r"/\S*lib(?:gomp|iomp5|omp)\S*", maps.read_text() if maps.exists() else ""))
    own = str(Path(torch.__file__).parent)
    for path in sorted(found, key=lambda p: (not p.startswith(own), p)):      # other packages bring runtimes too
        if hasattr(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), "GOMP_parallel"):
            return


def _launcher(library: ctypes.CDLL, name: str, kernel: Kernel) -> Launcher:
    """Passes addresses and sizes on; made as text, for a loop over the arguments would cost more than the call."""
    function = library[name]
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * len(kernel.buffers) + [ctypes.c_int64] * len(kernel.symbols)
    buffers = [f"b{n}" for n in range(len(kernel.buffers))]
    symbols = [f"s{n}" for n in range(len(kernel.symbols))]
    given = ", ".join([*(f"{b}.data_ptr()" for b in buffers), *symbols])
    launcher: Launcher = eval(f"lambda {', '.join(buffers + symbols)}: function({given})", {"function": function})
    return launcher
