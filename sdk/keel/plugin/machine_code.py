"""Machine code as data: what a loop target's ``compile`` makes on any machine, and what its ``load`` gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keel.plugin.compile_context import CompileContext, with_context
from keel.registration import bad, checked_type


@dataclass(frozen=True, kw_only=True)
class KernelFunction:
    """A function of a CodeObject. ``name`` is its symbol, and ``source`` the position of the Source that it belongs to.

    ``launch`` is what a launch needs beyond addresses and symbols, as JSON data. It is empty for a C function that
    takes the addresses of the kernel's buffers, in order, then its symbols as ``int64_t``, and returns nothing.
    """

    name: str
    source: int = 0
    launch: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_type("A KernelFunction", "name", self.name, str, "the symbol of the function")
        checked_type("A KernelFunction", "launch", self.launch, Mapping, "a dict of JSON data, or leave it out")
        if isinstance(self.source, bool) or not isinstance(self.source, int) or self.source < 0:
            bad(f"A KernelFunction has source={self.source!r}.", "Write the position of its Source: source=0.")


@dataclass(frozen=True, kw_only=True)
class CodeObject:
    """Machine code that a loop target compiled: one file of its compiler's format.

    ``kind`` is the format: ``elf`` for a shared library, ``cubin`` for machine code of a CUDA device, or a word of the
    vendor's. ``content`` is the bytes of the file. ``target`` is the name of the machine that it was compiled for.
    ``needs`` is what a machine must have to run it, as pairs of a kind and a feature: ``("cpu", "avx2")`` is a flag of
    ``/proc/cpuinfo``. ``("cuda", "sm_80")`` is a CUDA device of compute capability 8.0 or a higher 8.x, and ``("cuda",
    "sm_90a")``, with the letter, one of exactly 9.0. ``functions`` has the functions of one or more sources. A
    source may have several, in several objects, or none if its kernel launches nothing.
    """

    kind: str
    content: bytes
    target: str
    needs: tuple[tuple[str, str], ...]
    functions: tuple[KernelFunction, ...]

    def __post_init__(self) -> None:
        what = "A CodeObject"
        checked_type(what, "kind", self.kind, str, "the format of the code as text")
        checked_type(what, "content", self.content, bytes, "the bytes of the compiler's file")
        checked_type(what, "target", self.target, str, "the name of the machine that it is for")
        checked_type(what, "functions", self.functions, tuple, "a tuple of KernelFunction values")
        for function in self.functions:
            checked_type(what, "functions", function, KernelFunction, "a tuple of KernelFunction values")
        pairs = isinstance(self.needs, tuple) and all(isinstance(n, tuple) and len(n) == 2 for n in self.needs)
        if not pairs or not all(isinstance(text, str) for need in self.needs for text in need):
            bad(f"{what} has needs={self.needs!r:.200}.", 'Write a tuple of pairs of texts: needs=(("cpu", "avx2"),).')


@dataclass(frozen=True)
class CompileAndLoad:
    """The ``build`` of a loop target that has none: ``compile`` for this machine, and ``load``."""

    compile: Callable[..., Sequence[CodeObject]]
    load: Callable[..., Sequence[Callable[..., None]]]

    def __call__(self, sources: Sequence[Any], ctx: CompileContext | None = None) -> Sequence[Callable[..., None]]:
        ctx = ctx or CompileContext()
        return with_context(self.load, ctx)(with_context(self.compile, ctx)(sources, None), sources)
