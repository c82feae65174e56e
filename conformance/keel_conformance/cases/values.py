"""What stands in tensors: classes of values, each drawn from a case and the number of the call.

A class has the values at which implementations differ: zeros of both signs, subnormals, infinities, NaN and extremes;
ties of rounding; terms that cancel; duplicates; integers whose sums are exact in any order; all magnitudes.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from functools import cached_property

import torch

INF, NAN = float("inf"), float("nan")
FLOAT_KINDS = ("random", "specials", "wide", "ties", "cancel", "duplicates", "exact", "tiny", "huge", "shifted")
INT_KINDS = ("random", "specials", "wide", "duplicates", "exact", "shifted")
BOOL_KINDS = ("random", "true", "false")
COMPLEX_KINDS = ("random", "specials", "wide", "cancel", "duplicates", "exact")
KINDS = (*FLOAT_KINDS, "true", "false")
EXACT_BITS = {
    torch.float16: 11,
    torch.bfloat16: 8,
    torch.float32: 24,
    torch.float64: 53,
    torch.complex64: 24,
    torch.complex128: 53,
}
"""Integers up to two to this power are all representable."""


def kinds_of(dtype: torch.dtype) -> tuple[str, ...]:
    """The classes that a dtype has."""
    if dtype == torch.bool:
        return BOOL_KINDS
    return COMPLEX_KINDS if dtype.is_complex else FLOAT_KINDS if dtype.is_floating_point else INT_KINDS


@dataclass(frozen=True)
class SeededValues:
    """The random source of one call of a case: ``text`` names the case, ``call`` the call. Attributes and indices that
    determine sizes are equal in all calls and are drawn from ``fixed``; values are drawn from ``fresh``. If ``bare``,
    values are cheap and meaningless, for callers that need only types and attributes. ``turn`` counts how often values
    were drawn again.
    """

    text: str
    call: int = 0
    bare: bool = False
    turn: int = 0

    @cached_property
    def fixed(self) -> random.Random:
        return random.Random(self.text)

    @cached_property
    def fresh(self) -> torch.Generator:
        which = f"{self.text} {self.call}" + (f" {self.turn}" if self.turn else "")
        digest = hashlib.sha256(which.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def uniform(self, n: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """``n`` float64 numbers from ``low`` to ``high``."""
        if self.bare:
            return torch.full((n,), low, dtype=torch.float64)
        return torch.rand(n, generator=self.fresh, dtype=torch.float64) * (high - low) + low

    def integers(self, n: int, low: int, high: int) -> torch.Tensor:
        """``n`` int64 numbers from ``low`` to below ``high``."""
        if self.bare:
            return torch.full((n,), low)
        return torch.randint(low, high, (n,), generator=self.fresh)

    def shuffled(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.bare else x[torch.randperm(len(x), generator=self.fresh)]


def fill(
    draw: SeededValues, kind: str, dtype: torch.dtype, n: int, *, low: float = -4.0, high: float = 4.0, terms: int = 1
) -> torch.Tensor:
    """``n`` values of one class.  ``low`` and ``high`` bound those of the class ``random``; of ``exact`` any ``terms``
    have a sum that is representable however it is formed.
    """
    if draw.bare:
        return torch.ones(n, dtype=dtype)
    if dtype == torch.bool:
        return _bools(draw, kind, n)
    if dtype.is_complex:
        return _complex(draw, kind, dtype, n, low, high, terms)
    if dtype.is_floating_point:
        return _floats(draw, kind, dtype, n, low, high, terms)
    return _integers(draw, kind, dtype, n, low, high)


OUTLIER_SHARE = (("specials", 0.16), ("wide", 0.08), ("ties", 0.08))
"""Classes, and the share of each, of what stands among random values where elements do not touch each other."""
MIDWAY = 0.06
"""The share of those halfway between numbers of a narrower dtype."""
CROSSED = 0.1
"""Of operands, the share of elements that are special in all."""


def with_outliers(
    draw: SeededValues, dtype: torch.dtype, n: int, *, low: float = -4.0, high: float = 4.0
) -> torch.Tensor:
    """Like ``fill`` with class random, but with values of other classes at different positions in each operand. Fits
    operators in which a special value does not spoil other elements' results, and integers, which are exact in any
    order.
    """
    result = fill(draw, "random", dtype, n, low=low, high=high)
    if draw.bare or dtype == torch.bool:
        return result
    chance, reached = draw.uniform(n), 0.0
    for kind, share in OUTLIER_SHARE:
        if kind in kinds_of(dtype):
            here = (chance >= reached) & (chance < reached + share)
            result = torch.where(here, fill(draw, kind, dtype, n), result)
        reached += share
    if dtype in (torch.float32, torch.float64):
        here = (chance >= reached) & (chance < reached + MIDWAY)
        result = torch.where(here, _midway(draw, dtype, n, low, high), result)
    return result


def _midway(draw: SeededValues, dtype: torch.dtype, n: int, low: float, high: float) -> torch.Tensor:
    """Halfway between adjacent numbers of a narrower dtype, or so near to it that cutting off digits of float32 leads
    there, and rounding them does not.
    """
    x, which, off = draw.uniform(n, low, high), draw.integers(n, 0, 3), draw.integers(n, -1, 2).double()
    finest = torch.float32 if dtype == torch.float64 else torch.float16
    for k, narrow in enumerate((torch.bfloat16, torch.float16, finest)):
        near = x.to(narrow)
        middle = (near.double() + torch.nextafter(near, torch.full((), INF, dtype=narrow)).double()) / 2
        step = torch.finfo(dtype).eps if narrow == finest else 0.75 * torch.finfo(torch.float32).eps
        x = torch.where(which == k, middle * (1 + off * step), x)
    return x.to(dtype)


def crossed(draw: SeededValues, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """The operands with special values where those of the first one's sizes have some, too: any beside any other."""
    n, shape = operands[0].numel(), operands[0].shape
    if draw.bare or len(operands) < 2:
        return operands
    here, result = draw.uniform(n).reshape(shape) < CROSSED, list[torch.Tensor]()
    for x in operands:
        few = _few(x.dtype)
        fits = x.shape == shape and len(few)
        result.append(torch.where(here, few[draw.integers(n, 0, len(few))].reshape(shape), x) if fits else x)
    return result


def _few(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool or dtype.is_complex:
        return torch.zeros(0, dtype=dtype)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return specials(dtype) if info.min == 0 else torch.tensor([0, 1, -1, 2, info.min, info.max], dtype=dtype)
    facts = torch.finfo(dtype)
    return torch.tensor(
        [0.0, -0.0, 1.0, -1.0, 0.5, facts.smallest_normal / 2, facts.max, INF, -INF, NAN], dtype=torch.float64
    ).to(dtype)


def specials(dtype: torch.dtype) -> torch.Tensor:
    """The values where operators differ, of a dtype."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 3.0, -88.0, INF, -INF, NAN], dtype=torch.float64)
        return torch.complex(parts.repeat_interleave(len(parts)), parts.repeat(len(parts))).to(dtype)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        near = [v for v in (-8, -3, -2, -1, 0, 1, 2, 3, 7, 8) if info.min <= v]
        # unsigned dtypes of more than 8 bits are made through a wider one, which holds all of theirs but uint64's
        values = [info.min, info.min + 1, *near, info.max - 1, info.max]
        if dtype == torch.uint64:
            return torch.tensor([v - (v >> 63 << 64) for v in values]).view(torch.uint64)
        return torch.tensor(values).to(dtype)
    facts = torch.finfo(dtype)
    tiny, eps = facts.smallest_normal, facts.eps
    positive = [
        0.0,
        tiny * eps,
        tiny / 2,
        tiny,
        eps,
        eps / 2,
        0.25,
        0.5,
        1.0 - eps / 2,
        1.0,
        1.0 + eps,
        1.5,
        2.0,
        2.5,
        3.0,
        3.5,
        4.0,
        7.0,
        10.0,
        88.0,
        89.5,
        100.0,
        1 / eps,
        2 / eps,
        facts.max / 2,
        facts.max,
        INF,
    ]
    return torch.tensor([s * v for v in positive for s in (1.0, -1.0)] + [NAN], dtype=torch.float64).to(dtype)


def _bools(draw: SeededValues, kind: str, n: int) -> torch.Tensor:
    if kind in ("true", "false"):  # all but one, which moves
        result = torch.full((n,), kind == "true")
        if n > 1:
            result[int(draw.integers(1, 0, n))] ^= True
        return result
    return draw.integers(n, 0, 2) > 0


def _complex(
    draw: SeededValues, kind: str, dtype: torch.dtype, n: int, low: float, high: float, terms: int
) -> torch.Tensor:
    if kind == "specials":
        return _tiled(draw, specials(dtype), n)
    part = torch.float32 if dtype == torch.complex64 else torch.float64
    real, imag = (_floats(draw, kind, part, n, low, high, 2 * terms) for _ in range(2))
    return torch.complex(real, imag)


def _integers(draw: SeededValues, kind: str, dtype: torch.dtype, n: int, low: float, high: float) -> torch.Tensor:
    info = torch.iinfo(dtype)
    match kind:
        case "specials":
            return _tiled(draw, specials(dtype), n)
        case "wide":  # half of them so near to others that floats are equal
            result, few = draw.integers(n, -(2**63), 2**63 - 1), draw.integers(8, -(2**63), 2**63 - 1)
            near = few[draw.integers(n, 0, 8)] + draw.integers(n, -9, 10)
            return torch.where(draw.integers(n, 0, 2) == 0, near, result).to(dtype)
        case "duplicates":
            few = draw.integers(4, max(info.min, -9), 10)
            return few[draw.integers(n, 0, 4)].to(dtype)
        case "shifted":  # all of one sign, in the next call of the other
            result = draw.integers(n, 3, 101)
            return (-result if info.min and draw.call % 2 else result).to(dtype)
    least, most = max(info.min, -(2**62), round(low)), min(info.max, 2**62, round(high))
    return draw.integers(n, least, max(most, least) + 1).to(dtype)


def _floats(
    draw: SeededValues, kind: str, dtype: torch.dtype, n: int, low: float, high: float, terms: int
) -> torch.Tensor:
    facts = torch.finfo(dtype)
    if kind == "specials":
        return _tiled(draw, specials(dtype), n)
    if kind == "exact":
        return _exact(draw, dtype, n, terms)
    signs = draw.integers(n, 0, 2) * 2.0 - 1.0
    match kind:
        case "random":
            result = draw.uniform(n, low, high)
        case "wide":
            least, most = _exponents(facts)
            result = signs * torch.exp2(draw.uniform(n, least, most)) * draw.uniform(n, 1.0, 1.5)
        case "ties":
            result = draw.integers(n, -9, 9) + 0.5 * draw.integers(n, 0, 2)
            off = draw.integers(n, -1, 2).to(torch.float64) * facts.eps
            result = torch.where(draw.integers(n, 0, 4) == 0, result * (1 + off), result)
        case "cancel":
            pairs = draw.uniform((n + 1) // 2, 1.0, 4.0) * 2.0 ** draw.integers((n + 1) // 2, -2, 7)
            off = 1 + draw.integers((n + 1) // 2, -3, 4) * facts.eps
            result = torch.stack([pairs, -pairs * off], 1).reshape(-1)[:n]
        case "duplicates":
            result = draw.uniform(4, low, high)[draw.integers(n, 0, 4)]
        case "tiny":
            result = signs * facts.smallest_normal * draw.uniform(n, 0.0, 2.0)
        case "shifted":  # far from 0, near each other
            result = draw.uniform(n, -2.0, 2.0) + (100.0 if dtype.itemsize <= 2 else 1000.0)
        case "huge":
            result = signs * facts.max * draw.uniform(n, 0.25, 1.0)
        case _:
            raise ValueError(f"Unknown class of float values: {kind}.")
    return result.clamp(facts.min, facts.max).to(dtype)


def _exponents(facts: torch.finfo) -> tuple[float, float]:
    return math.log2(facts.smallest_normal) + 1, math.log2(facts.max) - 1


def _exact(draw: SeededValues, dtype: torch.dtype, n: int, terms: int) -> torch.Tensor:
    """Integers so small, or so often zero, that a sum of ``terms`` fits, however it is formed."""
    limit = 2 ** EXACT_BITS.get(dtype, 3)
    most = max(1, min(8, limit // max(terms, 1)))
    result = draw.integers(n, 1, most + 1) * (draw.integers(n, 0, 2) * 2 - 1)
    if terms > limit:
        stays = draw.uniform(n) < limit / (4.0 * terms)
        result = torch.where(stays, result, 0)
    return result.to(dtype)


def _tiled(draw: SeededValues, values: torch.Tensor, n: int) -> torch.Tensor:
    """All values as often as there is room for, in a drawn order; where there is one place, another at each turn."""
    if n == 1 and draw.turn:
        few = values if values.dtype == torch.bool or not len(_few(values.dtype)) else _few(values.dtype)
        shift = int(draw.integers(1, 0, len(few))) if draw.turn % 2 else 0  # or all operands have the same one
        return few[(draw.turn // 2 + shift) % len(few) :][:1].clone()
    if n <= len(values):
        return draw.shuffled(values)[:n] if values.dtype != torch.uint64 else values[:n]
    if values.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return values.repeat(-(-n // len(values)))[:n]
    return draw.shuffled(values.repeat(-(-n // len(values)))[:n])
