"""A kernel with what it is run on: sizes for each call, and how each buffer is filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from keel.loops import Buffer, Kernel, evaluate

ZONE = 32
"""Elements before and after each buffer that nobody may touch."""
CALLS = 3


@dataclass(frozen=True)
class BufferFill:
    """How a buffer is filled. ``kind`` is one of

    numbers:         integers whose sums are exact in any order; an integer dtype's whole range, and for float64 also
                     integers that float32 lacks
    ints:            integers from ``low`` to below ``high``
    divisors:        numbers other than 0
    factors:         numbers whose products are exact in any order
    ranked:          few different numbers, with the extremes, infinities and NaN
    special:         values on which operations differ, mixed with others
    above-the-least: special, without the least integer, which has no quotient by -1
    midway:          special, and numbers halfway between neighbors of a narrower dtype
    within:          floats in an interval
    alike:           equal elements: the greatest, the least, or an infinity
    places:          different indices below the buffer's size
    """

    kind: str = "numbers"
    low: float = -3
    high: float = 4


@dataclass(frozen=True)
class KernelCase:
    """``sizes`` has each symbol's value at each call. ``ulps`` is None where results are exact, else how far they may
    be off, in units in the last place of the precise result; ``fold`` says that Welford's fold is what rounds. Kernels
    that are alike but for ``salt`` are run on other values.
    """

    kernel: Kernel
    sizes: tuple[Mapping[str, int], ...] = ({},) * CALLS
    fills: Mapping[str, BufferFill] = field(default_factory=dict)
    ulps: float | None = None
    fold: bool = False
    salt: int = 0

    def memory(self, seed: int, call: int) -> list[Tensor]:
        """For each of the kernel's buffers a memory that holds it, and ``ZONE`` elements before and after it."""
        draw = torch.Generator().manual_seed(seed * 97 + call + 1_000_003 * self.salt)
        return [
            with_red_zones(
                fill_buffer(self.fills.get(b.name, BufferFill()), b, max(evaluate(b.size, self.sizes[call]), 0), draw)
            )
            for b in self.kernel.buffers
        ]

    @staticmethod
    def inner(memory: Tensor) -> Tensor:
        """The buffer within its memory."""
        return memory[ZONE : len(memory) - ZONE]

    def symbols(self, call: int) -> list[int]:
        return [self.sizes[call][s] for s in self.kernel.symbols]


def with_red_zones(x: Tensor) -> Tensor:
    memory = torch.empty(x.numel() + 2 * ZONE, dtype=x.dtype)
    memory.view(torch.uint8).fill_(1 if x.dtype == torch.bool else 0xA5)
    memory[ZONE : ZONE + x.numel()] = x
    return memory


def fill_buffer(fill: BufferFill, buffer: Buffer, count: int, draw: torch.Generator) -> Tensor:
    dtype = buffer.dtype
    if fill.kind == "alike":
        return _ends(dtype)[int(torch.randint(0, 2, (), generator=draw))].expand(count).clone()
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
        case "above-the-least":
            result = mixed(dtype, count, draw)
            return torch.where(result == torch.iinfo(dtype).min, 1, result) if dtype.is_signed else result
        case "midway":
            return midway(dtype, count, draw)
        case "ranked":
            return ranked(dtype, count, draw)
        case "factors" if dtype.is_floating_point:
            result = FACTORS[torch.randint(0, len(FACTORS), (count,), generator=draw)].to(dtype)
            for _ in range(count and dtype == torch.float64):
                result[torch.randint(0, count, (1,), generator=draw)] = LONG
            return result
        case "divisors":
            result = _between(fill, dtype, count, draw)
            return torch.where(result == 0, 1, result).to(dtype)
        case "numbers" | "factors" if not (dtype.is_floating_point or dtype.is_complex):
            return bits(dtype, count, draw)
        case "numbers" if dtype == torch.float64:
            return torch.randint(-WIDE, WIDE, (count,), generator=draw).to(dtype)
    result = _between(fill, dtype, count, draw)
    return torch.complex(result.double(), -result.double()).to(dtype) if dtype.is_complex else result.to(dtype)


def _ends(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        return torch.tensor([-torch.inf, torch.inf], dtype=dtype)
    return torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max], dtype=dtype)


WIDE = 1 << 25
"""Products of two such numbers, and sums of eight of these, are exact in float64; float32 lacks some of them."""
FACTORS = torch.tensor([0.5, 2.0, *[1.0, -1.0] * 15])
"""Most of them are 1 or -1, so that a product of thousands neither overflows nor underflows in float32."""


LONG = 1.0 + 2.0**-50
"""One factor of float64 has more digits than float32 has."""


def _between(fill: BufferFill, dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    low = int(fill.low) if dtype.is_signed or dtype.is_floating_point else max(int(fill.low), 0)
    return torch.randint(low, max(int(fill.high), low + 1), (count,), generator=draw)


def bits(dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    """Any integers of the dtype."""
    held = torch.randint(0, 256, (count * dtype.itemsize,), generator=draw, dtype=torch.uint8)
    return held.view(dtype)


def ranked(dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    """Few values, so that many are equal; NaN in some calls, where it is rare, in some places, or nowhere."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        few = torch.tensor(
            [-3.0, -1.0, 0.0, 0.5, 2.0, info.min, info.max, -torch.inf, torch.inf], dtype=torch.float64
        ).to(dtype)
        some = int(torch.randint(2, len(few) + 1, (), generator=draw))  # often without an infinity
        share = (0.0, 0.003, 0.05)[int(torch.randint(0, 3, (), generator=draw))]
        result = few[torch.randint(0, some, (count,), generator=draw)]
        return torch.where(torch.rand(count, generator=draw) < share, torch.nan, result).to(dtype)
    bounds = torch.iinfo(dtype)
    near = [v for v in (-2, -1, 0, 1, 7) if v >= bounds.min]
    few = torch.tensor([*near, bounds.max - 1, bounds.max, bounds.min, bounds.min + 1]).to(dtype)
    some = int(torch.randint(2, len(few) + 1, (), generator=draw))
    return few[torch.randint(0, some, (count,), generator=draw)]


def midway(dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    """Values halfway between two numbers of a narrower dtype, or one epsilon away, mixed with special values."""
    narrow = (torch.bfloat16, torch.float16, torch.float32)
    which = torch.randint(0, 3 if dtype == torch.float64 else 2, (count,), generator=draw)
    x, result = torch.randn(count, generator=draw, dtype=torch.float64) * 4, mixed(dtype, count, draw)
    off = torch.randint(-1, 2, (count,), generator=draw) * torch.finfo(dtype).eps
    for k, small in enumerate(narrow[: 3 if dtype == torch.float64 else 2]):
        near = x.to(small)
        above = torch.nextafter(near, torch.full((), torch.inf, dtype=small))
        x = torch.where(which == k, (near.double() + above.double()) / 2 * (1 + off), x)
    return torch.where(torch.rand(count, generator=draw) < 0.3, result, x.to(dtype))


def mixed(dtype: torch.dtype, count: int, draw: torch.Generator) -> Tensor:
    """Special values at random places among ordinary ones of all magnitudes."""
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        special = torch.tensor(
            [
                0.0,
                -0.0,
                1,
                -1,
                0.5,
                -0.5,
                1.5,
                2.5,
                info.max,
                info.min,
                info.tiny,
                info.eps,
                info.smallest_normal / 4,
                torch.inf,
                -torch.inf,
                torch.nan,
                3.1415926,
                -1e-3,
                88.5,
                -88.5,
                1e4,
            ],
            dtype=torch.float64,
        ).to(dtype)
        ordinary = torch.randn(count, generator=draw, dtype=torch.float64)
        ordinary = (ordinary * torch.exp2(torch.randint(-12, 12, (count,), generator=draw).double())).to(dtype)
    elif dtype == torch.uint64:  # whose greatest numbers PyTorch has no literals for
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
