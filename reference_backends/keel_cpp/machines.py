"""The machines that kernels can be compiled for: the compiler and its options, and the CPU features that code for them
may use.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from keel import KeelError
from keel.cache import run_compiler
from keel_cpp.probe import COMPILER, cpu_features, probe

NATIVE = "native"
"""The name of this machine."""
WIDE = ("-mprefer-vector-width=512",)
"""GCC uses half of the width of AVX-512 without this option."""

# The levels of the x86-64 psABI, version 1.0, section 3.1.1, by the names of /proc/cpuinfo.
_V1 = ("cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_V1, "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
LEVELS: Mapping[str, tuple[str, ...]] = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}

_ARM = ("asimd", "fp")
ARM_LEVELS: Mapping[str, tuple[str, ...]] = {
    "armv8-a": _ARM,
    "armv8.2-a": (*_ARM, "asimdrdm", "atomics", "crc32"),
}
"""Architectures of Arm, as -march takes them."""
ARM_COMPILERS = ("aarch64-linux-gnu-g++", "aarch64-unknown-linux-gnu-g++")

RENAMED = {
    "sse3": "pni",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "lahf_sahf": "lahf_lm",
    "pclmul": "pclmulqdq",
    "sha": "sha_ni",
    "prfchw": "3dnowprefetch",
    "crc32": "sse4_2",
    "avxvnni": "avx_vnni",
    **{f"avx512{x}": f"avx512_{x}" for x in ("bf16", "fp16", "bitalg", "vbmi2", "vnni", "vpopcntdq", "vp2intersect")},
}
"""The names in /proc/cpuinfo of those features that GCC calls otherwise."""
_X = ("xsave", "xsavec", "xsaveopt", "xsaves")
_SYSTEM = ("clflushopt", "clwb", "clzero", "fsgsbase", "mwaitx", "pku", "ptwrite", "rdpid", "sgx", "shstk", "wbnoinvd")
UNUSED = frozenset((*_X, *_SYSTEM, "rdrnd", "rdseed"))
"""Features that GCC uses only where the text asks for one of their instructions, which kernels never do."""


@dataclass(frozen=True)
class Machine:
    """A machine to compile for: its name, the compiler and its options, and the CPU features that code may use."""

    name: str
    compiler: str
    options: tuple[str, ...]
    features: tuple[str, ...]


def machine(name: str | None) -> Machine:
    """The machine of this name; this one if the name is None.

    Raises KeelError[bad-option] for a name that is not known, and KeelError[build-failed] without a compiler for it.
    """
    if name is None or name == NATIVE:
        return Machine(NATIVE, _compiler_for_here(), native_options(), native_features())
    family, _, march = name.partition("-")
    if name in LEVELS and platform.machine() == "x86_64":
        options = (f"-march={name}", *(WIDE if "avx512f" in LEVELS[name] else ()))
        return Machine(name, _compiler_for_here(), options, LEVELS[name])
    if family == "aarch64" and march in ARM_LEVELS:
        return Machine(name, _arm_compiler(name), (f"-march={march}",), ARM_LEVELS[march])
    known = (*(LEVELS if platform.machine() == "x86_64" else ()), *(f"aarch64-{each}" for each in ARM_LEVELS))
    raise KeelError(
        "bad-option",
        f"cpp cannot compile for {name!r}.",
        {"cpp": f"It knows {', '.join(known)}, and {NATIVE} for this CPU."},
        do="Name one of these.",
    )


def native_options() -> tuple[str, ...]:
    """The compiler's options for this CPU."""
    return ("-march=native", *(WIDE if "avx512f" in cpu_features() else ()))


def _compiler_for_here() -> str:
    if why := probe():
        raise KeelError("build-failed", "The C++ kernels cannot be built.", {"cpp": why})
    return COMPILER


def _arm_compiler(name: str) -> str:
    if platform.machine() == "aarch64":
        return _compiler_for_here()
    for compiler in ARM_COMPILERS:
        if shutil.which(compiler):
            return compiler
    raise KeelError(
        "build-failed",
        f"cpp cannot compile for {name!r} on this machine.",
        {"cpp": f"It needs a cross compiler, {' or '.join(ARM_COMPILERS)}, on PATH."},
        do="Install one: Debian has g++-aarch64-linux-gnu.",
    )


# -- features ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def native_features() -> tuple[str, ...]:
    """The features of this CPU that code for it may use: those that the compiler says it uses, by the names of
    /proc/cpuinfo. For a CPU other than an x86, whatever the CPU has.
    """
    if platform.machine() != "x86_64":
        return tuple(sorted(cpu_features()))
    return tuple(sorted({*_V1, *features_of(_macros("-march=native") - _macros("-march=x86-64"))}))


def _macros(option: str) -> set[str]:
    """The macros that the compiler defines as 1."""
    text = run_compiler([_compiler_for_here(), option, "-dM", "-E", "-x", "c++", "-"]).stdout
    return set(re.findall(r"^#define (\w+) 1$", text, re.MULTILINE))


def features_of(macros: Collection[str]) -> set[str]:
    """The features that GCC's macros such as ``__AVX512F__`` stand for. An extension without a known name has its own
    in lower case, so that only a CPU that lists it runs the code.
    """
    names = {match[1].lower() for macro in macros if (match := _EXTENSION.fullmatch(macro))} - UNUSED
    return {RENAMED.get(name, name) for name in names}


_EXTENSION = re.compile(r"__((?!BIGGEST_ALIGNMENT|FP_FAST|GCC_|GXX_)[A-Z0-9]\w*?)__")


def lacking(needs: Sequence[tuple[str, str]], features: Collection[str]) -> str:
    """What a CPU with these features lacks of ``needs``, as a sentence; '' if it lacks nothing."""
    missing = [feature for kind, feature in needs if kind != "cpu" or feature not in features]
    return f"This CPU lacks {', '.join(missing)}." if missing else ""
