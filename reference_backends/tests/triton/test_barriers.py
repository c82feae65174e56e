"""When lanes of one program wait for each other."""

from __future__ import annotations

from keel.loops import Loop
from keel_triton.barriers import Memory, crosses_lanes

from ..kernels import sized


def test_reading_what_was_stored_waits() -> None:
    m = Memory()
    assert not m.store("b", "x")
    assert not m.load("a", "x")
    assert m.load("b", "x")
    m.settle()
    assert not m.load("b", "x")


def test_a_lane_may_overwrite_what_its_value_was_made_of() -> None:
    m = Memory()
    assert not m.load("b", "x")
    assert not m.store("b", "x", frozenset({("b", "x")}))


def test_it_may_not_overwrite_what_another_still_reads() -> None:
    m = Memory()
    assert not m.load("b", "x")
    assert m.store("b", "x")  # a value that does not depend on the load
    m = Memory()
    assert not m.load("b", "y")
    assert m.store("b", "x", frozenset({("b", "y")}))  # an element that another lane may not have read yet


def test_storing_twice_waits() -> None:
    m = Memory()
    assert not m.store("b", "x")
    assert m.store("b", "y")


def loop(body: str) -> Loop:
    text = f"kernel k(b: inout f32[N]) -> ():\n  parallel i0 < N - 1:\n    %0 = const 0.0 : f32\n{body}"
    return sized(text, N=100).body[0]


def test_iterations_apart() -> None:
    assert not crosses_lanes(loop("    store b[i0] %0\n"))
    assert not crosses_lanes(loop("    %1 = load b[i0]\n    store b[i0] %1\n"))
    assert crosses_lanes(loop("    %1 = load b[i0 + 1]\n    store b[i0] %1\n"))
    assert crosses_lanes(loop("    store b[i0] %0\n    store b[i0 + 1] %0\n"))
