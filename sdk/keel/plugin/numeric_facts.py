"""What the arithmetic of a device does otherwise than IEEE arithmetic, as a vendor declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from keel.registration import bad, checked_dtype, checked_flag, table

TF32 = "tf32"
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OPERANDS: Mapping[Any, int] = {TF32: 11, torch.bfloat16: 8}
"""The formats that operands of products may be cut to, with the bits of their significands. Their exponents are those
of float32.
"""
WIDE = (torch.float64, torch.complex128)


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Numeric facts about a device, or about the kernels of a backend. ``keel conform`` judges by them, and says so.

    ``flushes_subnormals`` are dtypes in which operands and results below the smallest normal number may be taken for 0.
    ``products`` has, by dtype of the operands, the format to which matrix products and convolutions may cut them
    (``"tf32"`` or ``torch.bfloat16``); they are multiplied and added in the dtype. ``sums`` has, by dtype, the dtype in
    which sums may be accumulated: ``{torch.bfloat16: torch.bfloat16}``, where operators otherwise promise float32.
    Without ``float64``, calls on float64 and complex128 are refused. ``native`` are the formats of at most 16 bits in
    which the device computes without converting to a wider one; nothing is judged by them.

    Raises KeelError[bad-plugin] for dtypes and formats that a fact cannot have.
    """

    flushes_subnormals: tuple[torch.dtype, ...] = ()
    products: Mapping[torch.dtype, str | torch.dtype] = field(default_factory=dict)
    sums: Mapping[torch.dtype, torch.dtype] = field(default_factory=dict)
    float64: bool = True
    native: tuple[torch.dtype, ...] = ()

    def __post_init__(self) -> None:
        what = "An Arithmetic"
        for name in ("flushes_subnormals", "native"):
            object.__setattr__(self, name, _dtypes(what, name, getattr(self, name)))
        for dtype in self.flushes_subnormals:
            if dtype not in FLOATS:
                bad(f"{what} has flushes_subnormals with {dtype}.", f"It takes {_listed(FLOATS)}.")
        for dtype in self.native:
            if dtype.itemsize > 2 or dtype == torch.bool:
                bad(f"{what} has native with {dtype}.", "It takes formats of at most 16 bits.")
        for dtype, operands in table(what, "products", self.products, "torch.dtype").items():
            if dtype != torch.float32 or operands not in OPERANDS:
                bad(
                    f"{what} has products[{dtype}]={operands!r}.",
                    'Write products={torch.float32: "tf32"}, or torch.bfloat16 in place of "tf32".',
                )
        for dtype, over in table(what, "sums", self.sums, "torch.dtype").items():
            if dtype not in (torch.float16, torch.bfloat16) or over != dtype:
                bad(
                    f"{what} has sums[{dtype}]={over!r}.",
                    "Write the dtype itself for float16 or bfloat16: sums={torch.bfloat16: torch.bfloat16}. "
                    "Sums in float32 need no entry.",
                )
        checked_flag(what, "float64", self.float64)

    def sentences(self) -> tuple[str, ...]:
        """The facts as sentences without a subject, such as ``flushes subnormals of float32``."""
        facts = [f"flushes subnormals of {_listed(self.flushes_subnormals)}"] if self.flushes_subnormals else []
        facts += [f"cuts operands of {_show(d)} products to {_show(f)}" for d, f in self.products.items()]
        facts += [f"accumulates sums of {_show(d)} in {_show(f)}" for d, f in self.sums.items()]
        facts += [] if self.float64 else ["has no float64"]
        return (*facts, *([f"computes natively in {_listed(self.native)}"] if self.native else []))

    def one_by_one(self) -> Iterator[Arithmetic]:
        """Each fact that results may be judged by, alone; and all together, if there are several."""
        parts = [
            *([Arithmetic(flushes_subnormals=self.flushes_subnormals)] if self.flushes_subnormals else []),
            *([Arithmetic(products=self.products)] if self.products else []),
            *([Arithmetic(sums=self.sums)] if self.sums else []),
        ]
        yield from parts
        if len(parts) > 1:
            yield replace(self, float64=True, native=())

    def operand_bits(self, dtype: torch.dtype) -> int | None:
        """The bits of significand to which operands of products may be cut; None if they are not cut."""
        return OPERANDS[self.products[dtype]] if dtype in self.products else None

    def lacks(self, dtype: torch.dtype) -> bool:
        """True if the device does not compute in a dtype."""
        return not self.float64 and dtype in WIDE


def _dtypes(what: str, name: str, value: object) -> tuple[torch.dtype, ...]:
    if isinstance(value, str) or not isinstance(value, tuple | list | set | frozenset):
        bad(f"{what} has {name}={value!r}.", f"Write a tuple of dtypes: {name}=(torch.float32,).")
    for dtype in value:
        checked_dtype(what, name, dtype)
    return tuple(value)


def _show(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(dtypes: tuple[torch.dtype, ...]) -> str:
    *first, last = map(_show, dtypes)
    return f"{', '.join(first)} and {last}" if first else last


IEEE = Arithmetic()
