"""Axes in the order of memory, and tiles where loads and stores disagree about it."""

from __future__ import annotations

import pytest

from keel.loops import Loop, Store, walk
from keel_triton.axis_order import arranged, by_stride, tiled
from keel_triton.launch_split import Piece, launches

from .kernels import kernel


def piece(name: str, **sizes: int | None) -> Piece:
    ((found,),) = launches(kernel(name, **sizes))
    return found


def names(axes: tuple) -> list[str]:
    return [a.name for a in axes]


def test_the_store_says_which_axis_is_last() -> None:
    p = piece("out_of_order", N=3, M=5, K=7)
    assert names(by_stride(p.axes, p.body)) == ["i2", "i1", "i0"]
    p = piece("out_of_order", N=3, M=None, K=None)
    assert names(by_stride(p.axes, p.body)) == ["i2", "i1", "i0"]


def test_axes_that_the_store_does_not_use_come_first() -> None:
    p = piece("gather", N=3, M=5, K=7)
    assert names(by_stride(p.axes[::-1], p.body)) == ["i0", "i1"]


def test_loops_inside_are_arranged_too() -> None:
    loop = next(s for s in piece("total", N=3, M=5).body if isinstance(s, Loop))
    swapped = Loop(loop.kind, loop.axes[::-1], loop.body)
    assert arranged(swapped) == loop


@pytest.mark.parametrize(
    ("m", "k", "axes", "inner"),
    [
        (128, 256, ["i0", "i2a", "i1"], ["i2b"]),  # split in two
        (64, 256, ["i0", "i1"], ["i2"]),  # one tile wide
        (100, 256, ["i0", "i1"], ["i2"]),  # cannot be split evenly
        (8, 256, ["i0", "i1", "i2"], []),  # too short for a tile
        (128, 8, ["i0", "i1", "i2"], []),
        (None, None, ["i0", "i1"], ["i2"]),
    ],
)
def test_transposing_goes_by_tiles(m: int | None, k: int | None, axes: list[str], inner: list[str]) -> None:
    p = piece("transposed", N=4, M=m, K=k)
    found, body = tiled(by_stride(p.axes, p.body), p.body)
    assert names(found) == axes
    assert [n for s in body if isinstance(s, Loop) for n in names(s.axes)] == inner


def test_straight_copies_are_not_tiled() -> None:
    for name in ("broadcast", "gather"):
        p = piece(name, **dict.fromkeys(("N", "M", "K") if name == "gather" else ("N", "M"), 128))
        assert tiled(p.axes, p.body) == (p.axes, p.body)


def test_a_tile_stores_where_the_loop_did() -> None:
    p = piece("transposed", N=4, M=128, K=256)
    _, body = tiled(by_stride(p.axes, p.body), p.body)
    (store,) = (s for s in walk(body) if isinstance(s, Store))
    assert str(store.index) == "32768*i0 + 128*i1 + 64*i2a + i2b"
