"""Kernels that do the same are brought into one form."""

import hashlib

import pytest
import sympy
import torch

from keel.loops.index import Axis, index, mod
from keel.loops.ir import Apply, Buffer, Kernel, Load, Loop, Reduce, Scan, Store
from keel.schedule.loop_order import canonicalize

f32 = torch.float32


def hint(d):
    return int(d)


def double(axes, at, to=None):
    """A kernel that doubles each element it loads at ``at`` and stores it at ``to``."""
    size = 1
    for a in axes:
        size *= a.size
    body = (Load(7, "x", at, f32), Apply(9, "add", (7, 7), f32), Store("y", to or at, 9))
    return Kernel("any", (Buffer("x", f32, size, "in"), Buffer("y", f32, size, "out")), (Loop("parallel", axes, body),))


def test_contiguous_axes_merge():
    p, q, r = Axis("p", 2), Axis("q", 3), Axis("r", 5)
    merged = canonicalize(double((p, q, r), index(p) * 15 + index(q) * 5 + r), hint)
    (loop,) = merged.body
    assert loop.axes == (Axis("i0", 30),)
    assert loop.body[0].index == index(Axis("i0", 30))


def test_axes_that_only_the_load_permutes_do_not_merge():
    p, q = Axis("p", 4), Axis("q", 3)
    (loop,) = canonicalize(double((p, q), index(p) + index(q) * 4, index(p) * 3 + q), hint).body
    assert [a.size for a in loop.axes] == [4, 3]


def test_the_axis_with_the_smallest_strides_goes_innermost():
    p, q = Axis("p", 3), Axis("q", 4)
    (loop,) = canonicalize(double((p, q), index(p) + index(q) * 3), hint).body
    assert loop.axes == (Axis("i0", 12),)


def test_division_by_a_divisor_splits_the_axis():
    p = Axis("p", 12)
    (loop,) = canonicalize(double((p,), (index(p) // 4) + (index(p) % 4) * 3, index(p)), hint).body
    assert [a.size for a in loop.axes] == [3, 4]
    assert loop.body[0].index == index(loop.axes[0]) + index(loop.axes[1]) * 3


def test_an_axis_that_counts_down_stays_whole():
    """What lies before 10 - p begins at no multiple of 5."""
    p = Axis("p", 10)
    (loop,) = canonicalize(double((p,), mod(index(p) * -1 + 10, 5), index(p)), hint).body
    assert [a.size for a in loop.axes] == [10]


def test_axes_of_size_one_go():
    p, q = Axis("p", 1), Axis("q", 4)
    (loop,) = canonicalize(double((p, q), index(q)), hint).body
    assert loop.axes == (Axis("i0", 4),)


def test_the_axis_of_a_scan_stays_whatever_its_size():
    p, q = Axis("p", 1), Axis("q", 4)
    body = (Load(7, "x", index(q), f32), Scan((9,), "sum", (7,), (f32,)), Store("y", index(q), 9))
    kernel = Kernel(
        "any",
        (Buffer("x", f32, 4, "in"), Buffer("y", f32, 4, "out")),
        (Loop("parallel", (q,), (Loop("scan", (p,), body),)),),
    )
    (loop,) = canonicalize(kernel, hint).body
    assert [a.size for a in loop.body[0].axes] == [1]


def test_equal_kernels_get_equal_names_whatever_they_were_called():
    p, u = Axis("p", 8), Axis("u", 8)
    one, two = double((p,), index(p)), double((u,), index(u))
    assert canonicalize(one, hint) == canonicalize(two, hint)
    assert canonicalize(one, hint).name != canonicalize(double((Axis("p", 9),), index(Axis("p", 9))), hint).name


@pytest.mark.parametrize("size", [8, sympy.Symbol("n", positive=True, integer=True) * 2 + 1])
def test_the_name_is_a_hash_of_what_the_kernel_prints_as(size):
    axis = Axis("p", size)
    kernel = canonicalize(double((axis,), index(axis) * 2), lambda d: 8)
    content = repr((kernel.buffers, kernel.body))
    assert kernel.name == "k_" + hashlib.sha256(content.encode()).hexdigest()[:10]


def test_sibling_loops_share_names_and_inner_ones_count_on():
    r = Axis("r", 4)
    p = Axis("p", 3)
    at = index(p) * 4 + r
    kernel = Kernel(
        "any",
        (Buffer("x", f32, 12, "in"), Buffer("y", f32, 12, "out")),
        (
            Loop(
                "parallel",
                (p,),
                (
                    Loop("reduce", (r,), (Load(0, "x", at, f32), Reduce((5,), "sum", (0,), (f32,)))),
                    Loop("parallel", (r,), (Load(1, "x", at, f32), Apply(2, "sub", (1, 5), f32), Store("y", at, 2))),
                ),
            ),
        ),
    )
    (outer,) = canonicalize(kernel, hint).body
    assert [loop.axes for loop in outer.body] == [(Axis("j0", 4),), (Axis("j0", 4),)]
    assert outer.body[0].body[1].results == (1,)
    assert outer.body[1].body[1].args == (2, 1)
