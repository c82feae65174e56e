"""The zoo: every model of the line and of PyTorch 2.0's public benchmark lists, small, at three input sizes each."""

from __future__ import annotations

from dataclasses import dataclass

from keel_conformance.models import NAMES as LINE
from keel_conformance.models import TEXT as LINE_TEXT
from keel_conformance.models import build as build_line
from keel_conformance.models.model_case import ModelCase

from . import zoo_text, zoo_vision

TEXT = (*LINE_TEXT, *zoo_text.TEXT)
VISION = (*(name for name in LINE if name not in LINE_TEXT), *zoo_vision.VISION)
NAMES = (*LINE, *zoo_text.TEXT, *zoo_vision.VISION)
BEYOND = tuple(zoo_vision.BEYOND)
"""Models on none of these lists, whose compile time is measured with the others'."""


@dataclass(frozen=True)
class Size:
    """``batch`` inputs of ``extent`` tokens or of ``extent`` by ``extent`` pixels; 0 is the model's own extent."""

    batch: int
    extent: int = 0

    def __str__(self) -> str:
        return f"{self.batch} x {self.extent}" if self.extent else str(self.batch)


def sizes(name: str) -> tuple[Size, Size, Size]:
    """Three sizes that the model takes.  The third side is not a multiple of the factor by which most networks
    downsample.
    """
    if name in TEXT:
        return Size(2, 64), Size(3, 48), Size(4, 32)
    if name in LINE:
        return Size(4), Size(3), Size(6)
    small = zoo_vision.small(name)
    by = 0 if small.fixed_side else small.by
    sides = (small.side, small.side + 2 * by, small.side + by)
    return Size(4, sides[0]), Size(3, sides[1]), Size(6, sides[2])


def build(name: str, seed: int = 0, size: Size | None = None, device: str = "cpu") -> ModelCase:
    """The model called ``name`` (of ``NAMES`` or ``BEYOND``), in ``eval`` mode, every dropout rate 0, with inputs of
    ``size``.

    The same arguments give the same weights and inputs, and weights do not depend on the size but for the running
    statistics of batch norms.  Raises KeyError for a name that there is not.
    """
    return _build(name, seed, size or sizes(name)[0]).on(device)


def _build(name: str, seed: int, size: Size) -> ModelCase:
    if name in LINE_TEXT:
        return build_line(name, scale="tiny", seed=seed, batch=size.batch, length=size.extent)
    if name in LINE:
        return build_line(name, scale="tiny", seed=seed, batch=size.batch)
    if name in zoo_text.TEXT:
        return zoo_text.build(name, seed, size.batch, size.extent)
    return zoo_vision.build(name, seed, size.batch, size.extent)
