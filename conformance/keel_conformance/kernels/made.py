"""A kernel with what it is run on: sizes for each call, and how each buffer is filled."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from keel import Buffer, Kernel, evaluate

ZONE = 32
"""Elements before and after each buffer that nobody may touch."""
CALLS = 3


@dataclass(frozen=True)
class Fill:
    """``ints`` from ``low`` to below ``high``; ``special`` values of floats and integers, mixed with others; ``within``
    an interval of floats; ``places`` all different, below the buffer's size."""

    kind: str = "ints"
    low: float = -3
    high: float = 4


@dataclass(frozen=True)
class Made:
    """``sizes`` has each symbol's value at each call. ``ulps`` is None where results are exact, else how far they may
    be off, in units in the last place of the precise result; ``fold`` says that Welford's fold is what rounds.
    """

    kernel: Kernel
    sizes: tuple[Mapping[str, int], ...] = ({},) * CALLS
    fills: Mapping[str, Fill] = field(default_factory=dict)
    ulps: float | None = None
    fold: bool = False

    def memory(self, seed: int, call: int) -> list[Tensor]:
        """For each of the kernel's buffers a memory that holds it, and ``ZONE`` elements before and after it."""
        draw = torch.Generator().manual_seed(seed * 97 + call)
        return [zoned(filled(self.fills.get(b.name, Fill()), b, max(evaluate(b.size, self.sizes[call]), 0), draw))
                for b in self.kernel.buffers]

    @staticmethod
    def inner(memory: Tensor) -> Tensor:
        """The buffer within its memory."""
        return memory[ZONE:len(memory) - ZONE]

    def symbols(self, call: int) -> list[int]:
        return [self.sizes[call][s] for s in self.kernel.symbols]


def zoned(x: Tensor) -> Tensor:
    memory = torch.empty(x.numel() + 2 * ZONE, dtype=x.dtype)
    memory.view(torch.uint8).fill_(1 if x.dtype == torch.bool else 0xA5)
    memory[ZONE:ZONE + x.numel()] = x
    return memory


def filled(fill: Fill, buffer: Buffer, count: int, draw: torch.Generator) -> Tensor:
    dtype = buffer.dtype
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=draw) > 0
    match fill.kind:
        case "places":
            return torch.randperm(count, generator=draw).to(dtype)
        case "within":
            x = torch.rand(count, generator=draw, dtype=torch.float64)
            return (fill.low + x * (fill.high - fill.low)).to(dtype)
        case "special":
            return mixed(dtype, count, draw)
    low = int(fill.low) if dtype.is_signed or dtype.is_floating_point else max(int(fill.low), 0)
    found = torch.randint(low, max(int(fill.high), low + 1), (count,), generator=draw)
    return torch.complex(found.double(), -found.double()).to(dtype) if dtype.is_complex else found.to(dtype)


def mixed(dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    """Special values at random places among ordinary ones of all magnitudes."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        special = torch.tensor([0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, info.max, info.min, info.tiny, info.eps,
                                info.smallest_normal / 4, torch.inf, -torch.inf, torch.nan, 3.1415926, -1e-3, 88.5,
                                -88.5, 1e4], dtype=torch.float64).to(dtype)
        ordinary = torch.randn(count, generator=draw, dtype=torch.float64)
        ordinary = (ordinary * torch.exp2(torch.randint(-12, 12, (count,), generator=draw).double())).to(dtype)
    elif dtype == torch.uint64:                              # whose greatest numbers PyTorch has no literals for
        special = torch.tensor([0, 1, 2, 3, 7, -1, -2, 1 << 62, (1 << 63) - 1]).view(dtype)
        ordinary = torch.randint(0, 100, (count,), generator=draw).to(dtype)
    else:
        bounds = torch.iinfo(dtype)
        special = torch.tensor([0, 1, 2, 3, bounds.max - 1, bounds.max // 2, 7], dtype=torch.int64)
        special = torch.cat([special, torch.tensor([-1, bounds.min, bounds.min + 1])]) if bounds.min else special
        special = special.to(dtype)
        ordinary = torch.randint(max(bounds.min, -99), 100, (count,), generator=draw).to(dtype)
    chosen = torch.randint(0, len(special), (count,), generator=draw)
    use = torch.rand(count, generator=draw) < 0.4
    # Widened by hand: PyTorch chooses among unsigned integers of 16 bits and more on no machine.
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return torch.where(use, special.view(bits)[chosen], ordinary.view(bits)).view(dtype)
