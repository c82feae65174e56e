"""The steps of a schedule: runs of kernels, and library calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from keel.loops.ir import Buffer, Kernel
from keel.schedule.tensor_graph import ExternCall
from keel.types import Dim


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel run: ``tensors`` are the numbers of its buffers, in the kernel's order. ``origins`` are the operators
    that it computes (empty for a view), each with the path of its module.
    """

    kernel: Kernel
    tensors: tuple[int, ...]
    origins: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> Iterator[tuple[int, Buffer]]:
        """Yields each tensor with the buffer that it is."""
        return zip(self.tensors, self.kernel.buffers, strict=True)

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(t for t, b in self.arguments() if b.role != "out")

    @property
    def writes(self) -> tuple[int, ...]:
        return tuple(t for t, b in self.arguments() if b.role != "in")

    def traffic(self, hint: Callable[[Dim], int]) -> int:
        """Returns the bytes of its buffers, twice for those that are both read and written. ``hint`` estimates symbolic
        sizes.
        """
        return sum(hint(b.size) * b.dtype.itemsize * (1 + (b.role == "inout")) for b in self.kernel.buffers)


Step = KernelLaunch | ExternCall
