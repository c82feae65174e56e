"""Texts of kernels: what is printed reads back as what it was, and the error for a wrong line says what was
expected.
"""

from __future__ import annotations

import math

import pytest
import sympy
import torch
from hypothesis import given

from keel.errors import KeelError
from keel.loops.index import Axis, Loaded, index
from keel.loops.ir import Apply, Buffer, Const, Kernel, Load, Loop, Position, Reduce, Scan, Store, show
from keel.loops.parser import parse
from keel.loops.symbolic_sizes import symbol

from ..soon import soon
from .indices import SPACES, build, trees
from .kernels import kernels

S0, U0, V0 = symbol("s0"), symbol("u0", "any"), symbol("v0", ">= 0")

EVERYTHING = """\
kernel every_form(in0: bf16[4*(s0 // 2) + max(2, s0)], in1: i64[s0*s1], acc: inout f32[16]) -> (out0: f32[s0]) \
where s0, s1, u0 any, v0 >= 0:
  %0 = const true : b8
  %1 = const -inf : f32
  %2 = const 1e-05 : f64
  %3 = const -7 : i32
  %4 = position u0 + v0 + 3
  parallel i0 < s0, i1 < 8:
    %5 = load in0[((i0 + 1) // 2) % 3] if %0
    %6 = cast %5 : f32
    %7 = load in1[s1*i0]
    reduce r0 < (s0 % 4) + 1:
      %8 = load in0[r0 + 4*(%7 < s0 // 2)]
      %9 = cast %8 : f32
      %10 = position 12 - r0
      %11, %12 = reduce argmax %9 %10
      %13 = reduce max %6
    scan t0 < 4:
      %14 = scan sum %11
    %15 = add %6 %13
    %16 = lt %15 %1
    %17 = bitcast %15 : i32
    store add acc[2*i1] %15 if %16
    store out0[i0] %15
"""


def test_every_form() -> None:
    kernel = parse(EVERYTHING)
    assert parse(show(kernel)) == kernel
    assert show(parse(show(kernel))) == show(kernel) == str(kernel)


def test_the_text_of_every_form(golden) -> None:
    golden(show(parse(EVERYTHING)), suffix=".loops")


@pytest.mark.slow
@given(kernels())
def test_what_is_shown_parses_back(kernel: Kernel) -> None:
    assert parse(show(kernel)) == kernel


@pytest.mark.slow
@given(SPACES.flatmap(lambda space: trees(space).map(lambda tree: (space, build(tree)))))
def test_indices_parse_back(case) -> None:
    """Inside the loops of their axes, whatever they are made of."""
    space, i = case
    axes = tuple(a for a in space.axes)
    kernel = Kernel(
        "k",
        (Buffer("out0", torch.int64, 1000, "out"),),
        (Const(7, 3, torch.int64), Loop("parallel", axes, (Position(1, i), Store("out0", i, 1)))),
    )
    assert parse(show(kernel)) == kernel


@pytest.mark.parametrize(
    "size",
    [
        S0,
        768 * S0,
        S0 + 1,
        3 - S0,
        S0**2 - 4 * S0,
        sympy.floor(S0 / 2),
        sympy.floor((S0 + 3) / 4) * 4,
        sympy.Mod(S0, 4) + 1,
        sympy.Max(1, S0 - 3),
        sympy.Min(S0, 7) * 2,
        -sympy.floor(-S0 / 2),
        S0 * (S0 + 1) / 2,
        U0 + V0,
        sympy.floor(S0 / V0),
    ],
)
def test_sizes_parse_back(size: sympy.Expr) -> None:
    size = sympy.expand(size)
    kernel = Kernel(
        "k",
        (Buffer("out0", torch.float32, size, "out"),),
        (
            Const(0, 1.0, torch.float32),
            Loop("parallel", (Axis("i0", size),), (Store("out0", index(Axis("i0", size)), 0),)),
        ),
    )
    assert parse(show(kernel)) == kernel


def test_symbols_keep_what_is_known_of_them() -> None:
    text = (
        "kernel k() -> (out0: f32[s0 + u0 + v0]) where s0, u0 any, v0 >= 0:\n"
        "  %0 = const 1.0 : f32\n  store out0[0] %0\n"
    )
    kernel = parse(text)
    assert kernel.buffers[0].size == S0 + U0 + V0
    assert show(kernel) == text


@pytest.mark.parametrize("value", [True, 3, -3, 0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-45, 2**63 - 1])
def test_literals_parse_back(value: bool | int | float) -> None:
    kernel = Kernel("k", (), (Const(0, value, torch.float64),))
    again = parse(show(kernel))
    assert again == kernel
    assert repr(again.body[0].value) == repr(value)


def test_zero_and_minus_zero_are_two_literals() -> None:
    assert Const(0, 0.0, torch.float32) != Const(0, -0.0, torch.float32)
    assert Const(0, 1, torch.float32) != Const(0, True, torch.float32)
    assert Const(0, float("nan"), torch.float32) == Const(0, math.nan, torch.float32)
    assert len({Const(0, float("nan"), torch.float32), Const(0, math.nan, torch.float32)}) == 1


def test_buffers_in_an_unusual_order_keep_it() -> None:
    buffers = (
        Buffer("o", torch.float32, 4, "out"),
        Buffer("a", torch.float32, 4, "in"),
        Buffer("b", torch.int8, 4, "inout"),
    )
    text = show(Kernel("k", buffers, ()))
    assert text == "kernel k(o: out f32[4], a: f32[4], b: inout i8[4]) -> ():\n"
    assert parse(text).buffers == buffers


def test_comments_and_empty_lines_are_skipped() -> None:
    text = (
        "# a kernel\nkernel k() -> (out0: i64[4]):  # four numbers\n\n  parallel i0 < 4:\n    %0 = position i0\n"
        "    # stored\n    store out0[i0] %0\n"
    )
    assert [type(s) for s in parse(text).body[0].body] == [Position, Store]


def test_statements_that_break_rules_can_still_be_shown() -> None:
    """``verify`` shows the statement that it refuses."""
    x = Axis("x", 3)
    kernel = Kernel(
        "bad",
        (Buffer("a", torch.float32, 3, "in"),),
        (
            Load(0, "nowhere", index(x), torch.float32),
            Load(1, "a", index(x), torch.int8),
            Apply(2, "nonsense", (9,), torch.bool),
            Loop("reduce", (), (Reduce((3, 4), "max", (0,), (torch.float32, torch.int8)),)),
            Scan((5,), "what", (), (torch.bool,)),
            Store("a", index(Loaded(7, 3)), 8, "max", 6),
        ),
    )
    assert (
        show(kernel)
        == """\
kernel bad(a: f32[3]) -> ():
  %0 = load nowhere[x] : f32
  %1 = load a[x] : i8
  %2 = nonsense %9 : b8
  reduce:
    %3, %4 = reduce max %0 : f32, i8
  %5 = scan what : b8
  store max a[(%7 < 3)] %8 if %6
"""
    )


HEAD = "kernel k(a: f32[4*s0]) -> (o: f32[4]) where s0:\n"


@pytest.mark.parametrize(
    ("text", "line", "wanted"),
    [
        ("", 1, "expected a kernel, found nothing"),
        ("kernel k(a: f32[4])", 1, "expected kernel name(buffers) -> (buffers):"),
        ("kernel k(a f32[4]) -> ():", 1, "expected a buffer as name: dtype[size], not 'a f32[4]'"),
        ("kernel k(a: f33[4]) -> ():", 1, "expected a dtype (f16, bf16, f32,"),
        ("kernel k(a: f32[s9]) -> ():", 1, "expected a number, a size or an axis that is in scope before 's9'"),
        ("kernel k(a: f32[4]) -> () where s0:", 1, "expected only sizes that the kernel uses after where, not s0"),
        ("kernel k(a: f32[4]) -> () where 4:", 1, "expected a size's name after where, not '4'"),
        (HEAD + "   %0 = position 1", 2, "expected two spaces per level"),
        (HEAD + "    %0 = position 1", 2, "expected a statement 2 spaces in"),
        (HEAD + "%0 = position 1", 2, "expected a statement of the kernel, indented"),
        (HEAD + "  parallel i0 < 4:\n      %0 = position i0", 3, "expected a statement 4 spaces in"),
        (HEAD + "  parallel i0 4:\n    %0 = position i0", 2, "expected an axis as name < size, not 'i0 4'"),
        (
            HEAD + "  parallel i0 < 4, i1 < i0:\n    %0 = position i0",
            2,
            "expected a number, a size or an axis that is in scope before 'i0'",
        ),
        (
            HEAD + "  parallel i0 < 4:\n    %0 = position i0\n  %1 = position i0",
            4,
            "expected a number, a size or an axis that is in scope before 'i0'",
        ),
        (HEAD + "  load a[0]", 2, "expected a loop (parallel, reduce, scan), a store, or %n = op ..."),
        (
            HEAD + "  %0 = frobnicate %1",
            2,
            "expected const, position, load, check, reduce, scan or a scalar op, not 'frobnicate'",
        ),
        (HEAD + "  %0 = load b[0]", 2, "expected a buffer of the kernel, not 'b'"),
        (HEAD + "  %0 = load a", 2, "expected %n = load buffer[index]"),
        (HEAD + "  %0 = load a[2 +]", 2, "expected a number, a size or an axis that is in scope before 'the end'"),
        (HEAD + "  %0 = load a[2 2]", 2, "expected the end of the index before '2'"),
        (HEAD + "  %0 = load a[(2]", 2, "expected ')' before 'the end'"),
        (HEAD + "  %0 = load a[2 $ 2]", 2, "expected an index, not '2 $ 2'"),
        (HEAD + "  %0 = load a[2 // 0]", 2, "expected a positive size to divide by before 'the end'"),
        (HEAD + "  parallel i0 < 4:\n    %0 = load a[i0*i0]", 3, "expected a size to multiply with before 'the end'"),
        (HEAD + "  parallel i0 < 4:\n    %0 = load a[i0 / 2]", 3, "expected // between an index and a size"),
        (HEAD + "  %0 = const 1.0", 2, "expected %n = const literal : dtype"),
        (HEAD + "  %0 = const one : f32", 2, "expected a number, true or false, not 'one'"),
        (HEAD + "  %0, %1 = add %2 %3", 2, "expected one result of add"),
        (HEAD + "  %0 = add 1 2", 2, "expected %n = add %a ..."),
        (HEAD + "  %0 = cast %1", 2, "expected the result's dtype after a colon"),
        (HEAD + "  reduce r0 < 4:\n    %0 = reduce most %1", 3, "expected a monoid (sum, prod,"),
        (HEAD + "  reduce r0 < 4:\n    %0 = reduce sum", 3, "expected the name of a monoid, then its values"),
        (HEAD + "  reduce r0 < 4:\n    %0 = reduce sum %1", 3, "expected a value that stands above, not %1"),
    ],
)
def test_a_wrong_line_is_told_what_was_expected(text: str, line: int, wanted: str) -> None:
    with pytest.raises(KeelError) as error:
        parse(text)
    assert error.value.code == "bad-text"
    assert str(error.value).startswith(f"KeelError[bad-text]: Line {line}: {wanted}")


def axes(depth: int, count: int = 1000) -> str:
    return "  " * depth + "parallel " + ", ".join(f"a{depth}_{i} < 2" for i in range(count)) + ":\n"


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(x: f32[4]) -> (y: f32[4]):\n" + "".join(map(axes, range(1, 40))) + "  " * 40 + "%0 = load x[0]\n",
        f"kernel k(x: f32[4]) -> (y: f32[4]) where {', '.join(f's{i}' for i in range(5000))}:\n  %0 = load x[0]\n",
        "kernel k(x: f32[4]) -> (y: f32[4]):\n" + "  %0 = load x[0]\n" * (1 << 17),
    ],
    ids=["axes", "sizes", "characters"],
)
def test_texts_too_large_are_refused_soon_and_in_short(text: str) -> None:
    with soon(), pytest.raises(KeelError, match="at most") as error:
        parse(text)
    assert error.value.code == "bad-text" and len(str(error.value)) < 600
