"""Sizes at which kernels differ: around the widths of vectors and tiles, none, one, more than 16 bits count."""

from __future__ import annotations

from collections.abc import Mapping

SHAPES = (
    "0d",
    "1",
    "7",
    "8",
    "9",
    "16",
    "17",
    "33",
    "64",
    "65",
    "129",
    "256",
    "257",
    "1025",
    "70001",
    "0",
    "1x1",
    "2x0x3",
    "3x33",
    "17x65",
    "17x17",
    "129x9",
    "4x1x7",
    "2x17x8",
    "2x3x4x5",
    "5x5x5",
    "1x8x5x7",
    "2x3x2x5x4",
)
"""At tier standard; names of sizes."""
MORE = (
    "15",
    "31",
    "32",
    "63",
    "127",
    "128",
    "255",
    "512",
    "1023",
    "1024",
    "4097",
    "65537",
    "1x1025",
    "1025x1",
    "2x1x3x1x2x3",
    "3x0",
    "33x2x31",
)
"""Besides those, at tier full."""
EXTENTS = (1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 129, 256, 257, 1025)
"""Of one dimension that counts: that which is reduced, scanned, sorted, contracted."""


def shape_of(name: str) -> tuple[int, ...]:
    """``2x3`` is (2, 3), ``0d`` is ()."""
    return () if name == "0d" else tuple(map(int, name.split("x")))


def shapes(*names: str) -> Mapping[str, tuple[int, ...]]:
    """Shapes by their names."""
    return {name: shape_of(name) for name in names}


def name_of(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "0d"
