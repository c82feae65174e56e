"""One run of a kernel, as a schedule has it."""

from __future__ import annotations

from dataclasses import dataclass

from keel.loops.ir import Kernel


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel run: ``tensors`` are the numbers of its buffers, in the kernel's order."""

    kernel: Kernel
    tensors: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(t for t, b in zip(self.tensors, self.kernel.buffers, strict=True) if b.role != "out")

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(t for t, b in zip(self.tensors, self.kernel.buffers, strict=True) if b.role != "in")
