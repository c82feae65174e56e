"""Builds rendered kernels: one translation unit, one run of the compiler, one shared object in the cache. The cache key
is made of the text, the flags, the content of the compiler and the CPU.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType

import torch

from keel import KeelError, Launcher, Source
from keel.cache import compile_library, library_bytes, load_library
from keel.loops import Kernel
from keel.plugin import CodeObject, KernelFunction
from keel_cpp.emitter import prelude
from keel_cpp.machines import NATIVE, lacking, machine, native_options
from keel_cpp.merge_functions import definitions
from keel_cpp.native_launch import native
from keel_cpp.probe import COMPILER, cpu, cpu_features, probe

# Results are those of IEEE arithmetic as written: no contraction, no reassociation. Floating-point exceptions and errno
# may be wrong, since they are not read. Loops are not peeled for alignment, because sums would then depend on
# addresses. Passes without benefit here are off: they take a third of the compile time, and jump threading splits
# conditions that the vectorizer needs whole.
FLAGS = (
    "-std=c++17",
    "-O2",
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


def compile_code(sources: Sequence[Source], target: str | None) -> list[CodeObject]:
    """One shared library with the functions of all sources, for the machine named ``target`` (see ``machines``).

    Raises KeelError[bad-option] for a name that is not known, and KeelError[build-failed] if there is no compiler for
    it, or with the compiler's words if it rejects them.
    """
    names, text = unit(sources)
    to = machine(target)
    content = library_bytes("cpp", command(to.compiler, to.options), text, key=_key(to.name), what=_titles(sources))
    functions = tuple(KernelFunction(name=name, source=k) for k, name in enumerate(names))
    needs = tuple(("cpu", feature) for feature in to.features)
    return [CodeObject(kind="elf", content=content, target=to.name, needs=needs, functions=functions)]


def load_code(objects: Sequence[CodeObject], sources: Sequence[Source]) -> list[Launcher]:
    """A launcher for each source. Raises KeelError[not-here] if this CPU lacks a feature that the code may use,
    KeelError[build-failed] if the system cannot load it, and KeelError[bad-artifact] if it lacks a function.
    """
    return load_for(cpu_features(), objects, sources)


def load_for(features: Collection[str], objects: Sequence[CodeObject], sources: Sequence[Source]) -> list[Launcher]:
    """The same for a CPU with these features."""
    launchers: dict[int, Launcher] = {}
    for each in objects:
        if why := lacking(each.needs, features):
            raise KeelError(
                "not-here",
                f"The C++ kernels were compiled for {each.target} and cannot run here.",
                {"cpp": why},
                do="Compile them for this machine, too, or for one with fewer features.",
            )
        _share_openmp()
        library = load_library(each.content, "cpp")
        for function in each.functions:
            if not hasattr(library, function.name):
                raise KeelError("bad-artifact", f"The machine code of C++ kernels has no function {function.name}.")
            launchers[function.source] = _launcher(library, function.name, sources[function.source].kernel)
    if missing := [s.kernel.name for k, s in enumerate(sources) if k not in launchers]:
        raise KeelError("bad-artifact", f"The machine code of C++ kernels has no function of {', '.join(missing)}.")
    return [launchers[k] for k in range(len(sources))]


def command(compiler: str, options: Sequence[str]) -> list[str]:
    return [compiler, *FLAGS, *options, "-x", "c++", "-"]


def _key(target: str) -> list[str]:
    """What a library depends on in addition to its text and the command: the CPU, if it is for this one."""
    return [cpu()] if target == NATIVE else []


def _titles(sources: Sequence[Source]) -> str:
    return ", ".join(dict.fromkeys(s.kernel.name for s in sources))


def _open(text: str, sources: Sequence[Source]) -> ctypes.CDLL:
    if why := probe():
        raise KeelError("build-failed", "The C++ kernels cannot be built.", {"cpp": why})
    _share_openmp()
    return compile_library("cpp", command(COMPILER, native_options()), text, key=_key(NATIVE), what=_titles(sources))


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
