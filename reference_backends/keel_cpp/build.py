"""Builds rendered kernels: one translation unit, one run of the compiler, one shared object in the cache. The cache key
is made of the text, the flags, the content of the compiler and the CPU.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

import torch

from keel import KeelError, Launcher, Source
from keel.cache import compile_library
from keel.loops import Kernel
from keel_cpp.emitter import prelude
from keel_cpp.merge_functions import definitions
from keel_cpp.native_launch import native
from keel_cpp.probe import COMPILER, cpu, probe

# Results are those of IEEE arithmetic as written: no contraction, no reassociation. Floating-point exceptions and errno
# may be wrong, since they are not read. Loops are not peeled for alignment, because sums would then depend on
# addresses. Passes without benefit here are off: they take a third of the compile time, and jump threading splits
# conditions that the vectorizer needs whole.
FLAGS = (
    "-std=c++17",
    "-O2",
    "-march=native",
    "-fopenmp-simd",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fpeel-loops",
    "--param=vect-max-peeling-for-alignment=0",
    "-fno-tree-slp-vectorize",
    "-fno-thread-jumps",
    "-fno-tree-pre",
    "-fno-gcse",
    "-fno-code-hoisting",
    "-fno-schedule-insns2",
    "-fno-ipa-cp",
    "-fno-ipa-sra",
    "-fno-ipa-icf",
    "-fno-expensive-optimizations",
    "-fno-tree-tail-merge",
    "-fno-crossjumping",
    "-fno-ipa-ra",
    "-fno-partial-inlining",
    "-fno-optimize-strlen",
    "-fno-caller-saves",
    "-fno-cse-follow-jumps",
    "-fno-rerun-cse-after-loop",
    "-fno-reorder-blocks-and-partition",
    "-fno-reorder-functions",
    "-fno-hoist-adjacent-loads",
    "-fno-ipa-bit-cp",
    "-fno-ree",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-w",
    "-pipe",
)
WIDE = ("-mprefer-vector-width=512",)


def build(sources: Sequence[Source]) -> list[Launcher]:
    """A launcher for each source.  Raises KeelError[build-failed] with the compiler's words if it rejects them."""
    names, text = unit(sources)
    library = _open(text, sources)
    return [_launcher(library, name, source.kernel) for name, source in zip(names, sources, strict=True)]


def unit(sources: Sequence[Source]) -> tuple[list[str], str]:
    """The name of each source's function, a hash of its body, and the text of all functions. A body appears once."""
    functions: dict[str, str] = {}
    names = []
    for source in sources:
        text = source.text.partition(f"void {source.kernel.name}(")[2]
        name = "keel_" + hashlib.sha256(text.encode()).hexdigest()[:16]
        functions[name] = text
        names.append(name)
    return names, "\n".join([prelude(), *definitions(functions)])


def flags() -> tuple[str, ...]:
    return FLAGS + WIDE if re.search(r"\bavx512f\b", cpu()) else FLAGS


def _open(text: str, sources: Sequence[Source]) -> ctypes.CDLL:
    if why := probe():
        raise KeelError("build-failed", "The C++ kernels cannot be built.", {"cpp": why})
    _share_openmp()
    kernels = ", ".join(dict.fromkeys(s.kernel.name for s in sources))
    return compile_library("cpp", [COMPILER, *flags(), "-x", "c++", "-"], text, key=[cpu()], what=kernels)


@lru_cache(maxsize=1)
def _share_openmp() -> None:
    """Makes PyTorch's OpenMP runtime visible to the kernels, which are linked without one: a second runtime in the
    process would have its own threads.
    """
    if hasattr(ctypes.CDLL(None), "GOMP_parallel"):
        return
    maps = Path("/proc/self/maps")
    runtimes = set(re.findall(r"/\S*lib(?:gomp|iomp5|omp)\S*", maps.read_text() if maps.exists() else ""))
    own = str(Path(torch.__file__).parent)
    for path in sorted(runtimes, key=lambda p: (not p.startswith(own), p)):  # other packages contain runtimes too
        if hasattr(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), "GOMP_parallel"):
            return


def _launcher(library: ctypes.CDLL, name: str, kernel: Kernel) -> Launcher:
    """What passes addresses and sizes to the kernel: a launcher in C, or in Python where there can be none in C."""
    return native(_python_launcher(library, name, kernel), library, name, kernel)


def _python_launcher(library: ctypes.CDLL, name: str, kernel: Kernel) -> Launcher:
    function = library[name]
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * len(kernel.buffers) + [ctypes.c_int64] * len(kernel.symbols)
    return FunctionType(_passing(len(kernel.buffers), len(kernel.symbols)), {"function": function})


@lru_cache(maxsize=1024)
def _passing(buffers: int, symbols: int) -> CodeType:
    """The code of ``lambda b0, b1, ..., s0, ...: function(b0.data_ptr(), b1.data_ptr(), ..., s0, ...)``.

    It is generated for each number of arguments, because a loop over them would take longer than the call.
    """

    def read(name: str) -> ast.expr:
        return ast.Name(name, ast.Load())

    tensors, sizes = [f"b{n}" for n in range(buffers)], [f"s{n}" for n in range(symbols)]
    pointers = [ast.Call(ast.Attribute(read(b), "data_ptr", ast.Load()), [], []) for b in tensors]
    call = ast.Call(read("function"), [*pointers, *map(read, sizes)], [])
    params = ast.arguments([], [ast.arg(name) for name in (*tensors, *sizes)], None, [], [], None, [])
    code = compile(ast.fix_missing_locations(ast.Expression(ast.Lambda(params, call))), "<keel_cpp launcher>", "eval")
    return next(part for part in code.co_consts if isinstance(part, CodeType))
