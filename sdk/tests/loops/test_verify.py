"""One test per rule of the IR: the statement that breaks it is shown, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given

from keel.errors import KeelError
from keel.loops.index import Axis, index
from keel.loops.ir import Apply, Buffer, Const, Kernel, Load, Loop, Store
from keel.loops.parser import parse
from keel.loops.symbolic_sizes import symbol
from keel.loops.verify import verify

from ..soon import soon
from .kernels import kernels

HEAD = "kernel k(a: f32[12], b: i64[4], h: bf16[12], m: b8[4]) -> (o: f32[12]) where s0:\n  %90 = position s0\n"


def refused(kernel: Kernel) -> str:
    with pytest.raises(KeelError) as error:
        verify(kernel)
    assert error.value.code == "bad-graph"
    return error.value.what


@pytest.mark.parametrize(
    ("body", "why"),
    [
        # -- assignment and visibility
        ("%0 = load a[0]\n%0 = load a[1]\nstore o[0] %0", "'%0 = load a[1]': %0 is assigned twice."),
        ("%1 = lt %0 %0\n%0 = load a[0]\nstore o[0] %0", "'%1 = lt %0 %0': %0 is not visible here."),
        (
            "parallel i0 < 4:\n  %0 = load a[i0]\n  store o[i0] %0\n%1 = neg %0\nstore o[0] %1",
            "'%1 = neg %0 : f32': %0 is not visible here.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce sum %0\n  %2 = neg %1\nstore o[0] %1",
            "'%2 = neg %1 : f32': %1 is not visible here.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce sum %0\nstore o[0] %0",
            "'store o[0] %0': %0 is not visible here.",
        ),
        (
            "parallel i0 < 4:\n  reduce r0 < 3:\n    %0 = load a[r0]\n    %1 = reduce sum %0\n"
            "  store o[i0] %1\nstore o[5] %1",
            "'store o[5] %1': %1 is not visible here.",
        ),
        ("%0 = load a[0]\nstore o[0] %0 if %8", "'store o[0] %0 if %8': %8 is not visible here."),
        ("%0 = load a[(%3 < 4)]\nstore o[0] %0", "'%0 = load a[(%3 < 4)]': %3 is not visible here."),
        # -- axes and loops
        (
            "parallel i0 < 4:\n  parallel i0 < 2:\n    %0 = load a[i0]\n    store o[i0] %0",
            "'parallel i0 < 2:': the axis i0 is already in use here.",
        ),
        ("parallel s0 < 4:\n  %0 = load a[s0]\n  store o[s0] %0", "'parallel s0 < 4:': an axis cannot be named 's0'."),
        ("parallel max < 4:\n  %0 = load a[0]\n  store o[0] %0", "'parallel max < 4:': an axis cannot be named 'max'."),
        ("parallel i0 < -1:\n  %0 = load a[0]\n  store o[0] %0", "'parallel i0 < -1:': the axis i0 has the size -1."),
        ("parallel i0 < 4:\n%0 = load a[0]\nstore o[0] %0", "'parallel i0 < 4:': the loop is empty."),
        (
            "scan i0 < 4, i1 < 2:\n  %0 = load a[i0]\n  %1 = scan sum %0\n  store o[i0] %1",
            "'scan i0 < 4, i1 < 2:': a scan runs along one axis.",
        ),
        (
            "reduce:\n  %0 = load a[0]\n  %1 = reduce sum %0\nstore o[0] %1",
            "'reduce:': a reduce loop runs along an axis.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\nstore o[0] %0",
            "'reduce r0 < 4:': the body of a reduce loop has no Reduce.",
        ),
        (
            "parallel i0 < 4:\n  %0 = load a[i0]\n  %1 = reduce sum %0\n  store o[i0] %0",
            "'%1 = reduce sum %0': it is not directly in a reduce loop.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce sum %0\n  parallel i0 < 2:\n    %2 = reduce sum %0\n"
            "store o[0] %1",
            "'%2 = reduce sum %0': it is not directly in a reduce loop.",
        ),
        ("%0 = load a[0]\n%1 = reduce sum %0\nstore o[0] %1", "'%1 = reduce sum %0 : f32' is not in a loop."),
        ("%0 = load a[0]\n%1 = scan sum %0\nstore o[0] %1", "'%1 = scan sum %0 : f32' is not in a loop."),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = scan sum %0\n  %2 = reduce sum %0\nstore o[0] %2",
            "'%1 = scan sum %0': it is not directly in a scan loop.",
        ),
        # -- memory
        ("%0 = load o[0]\nstore o[0] %0", "'%0 = load o[0]': o is an out buffer."),
        ("%0 = load a[0]\nstore a[0] %0\nstore o[0] %0", "'store a[0] %0': a is an in buffer."),
        ("%0 = load b[0]\nstore o[0] %0", "'store o[0] %0': o holds f32, %0 is i64."),
        ("%0 = load a[0] : f64\nstore o[0] %0", "'%0 = load a[0] : f64': a holds f32."),
        ("%0 = load a[0] if %90\nstore o[0] %0", "'%0 = load a[0] if %90': the mask %90 is not bool."),
        ("%0 = load a[0]\nstore o[0] %0 if %0", "'store o[0] %0 if %0': the mask %0 is not bool."),
        ("%0 = load a[0]\n%1 = load a[(%0 < 4)]\nstore o[0] %1", "'%1 = load a[(%0 < 4)]': %0 is an index but f32."),
        ("%0 = load a[12]\nstore o[0] %0", "'%0 = load a[12]': the index goes up to 12, in a buffer of 12."),
        ("%0 = load a[-1]\nstore o[0] %0", "'%0 = load a[-1]': the index goes down to -1."),
        (
            "parallel i0 < 4:\n  %0 = load a[i0]\n  store o[4*i0] %0",
            "'store o[4*i0] %0': the index goes up to 12, in a buffer of 12.",
        ),
        (
            "parallel i0 < s0:\n  %0 = load a[s0 + i0 + 11]\n  store o[0] %0",
            "'%0 = load a[i0 + s0 + 11]': the index goes up to 2*s0 + 10, in a buffer of 12.",
        ),
        # -- scalar ops
        ("%0 = load h[0]\n%1 = neg %0\nstore o[0] %1", "'%1 = neg %0': neg does not take bf16."),
        (
            "%0 = load h[0]\n%1 = load m[0]\n%2 = where %1 %0 %0\n%3 = cast %2 : f32\nstore o[0] %3",
            "'%2 = where %1 %0 %0': where does not take bf16.",
        ),
        ("%0 = load b[0]\n%1 = exp %0\n%2 = cast %1 : f32\nstore o[0] %2", "'%1 = exp %0': exp does not take i64."),
        ("%0 = load a[0]\n%1 = floordiv %0 %0\nstore o[0] %1", "'%1 = floordiv %0 %0': floordiv does not take f32."),
        (
            "%0 = load m[0]\n%1 = add %0 %0\n%2 = cast %1 : f32\nstore o[0] %2",
            "'%1 = add %0 %0': add does not take b8.",
        ),
        (
            "%0 = load a[0]\n%1 = load b[0]\n%2 = add %0 %1\nstore o[0] %0",
            "'%2 = add %0 %1': the operands are f32 and i64.",
        ),
        ("%0 = load a[0]\n%1 = where %0 %0 %0\nstore o[0] %1", "'%1 = where %0 %0 %0': %0 is not bool."),
        ("%0 = load a[0]\n%1 = add %0\nstore o[0] %1", "'%1 = add %0': add takes 2 values, not 1."),
        ("%0 = load a[0]\n%1 = lt %0 %0 : f32\nstore o[0] %1", "'%1 = lt %0 %0 : f32': lt gives b8, not f32."),
        ("%0 = load a[0]\n%1 = neg %0 : f64\nstore o[0] %0", "'%1 = neg %0 : f64': neg gives f32, not f64."),
        (
            "%0 = load a[0]\n%1 = bitcast %0 : i64\nstore o[0] %0",
            "'%1 = bitcast %0 : i64': f32 and i64 differ in width.",
        ),
        ("%0 = const 1 : c64\nstore o[0] %0", "'%0 = const 1 : c64': 1 is not of type c64."),
        (
            "%0 = load a[0]\n%1 = cast %0 : c64\nstore o[0] %0",
            "'%1 = cast %0 : c64': there is no cast to torch.complex64.",
        ),
        # -- literals
        (
            "%0 = const 1.0 : bf16\n%1 = cast %0 : f32\nstore o[0] %1",
            "'%0 = const 1.0 : bf16': a constant cannot be bf16; cast one.",
        ),
        ("%0 = const 1.0 : i64\n%1 = cast %0 : f32\nstore o[0] %1", "'%0 = const 1.0 : i64': 1.0 is not of type i64."),
        ("%0 = const 300 : u8\n%1 = cast %0 : f32\nstore o[0] %1", "'%0 = const 300 : u8': 300 is not of type u8."),
        ("%0 = const true : f32\nstore o[0] %0", "'%0 = const true : f32': True is not of type f32."),
        ("%0 = const 1 : b8\n%1 = cast %0 : f32\nstore o[0] %1", "'%0 = const 1 : b8': 1 is not of type b8."),
        # -- folds
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce argmax %0\nstore o[0] %1",
            "'%1 = reduce argmax %0': argmax folds 2 values.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce sum %0 : f64\nstore o[0] %0",
            "'%1 = reduce sum %0 : f64': the values are f32.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = reduce any %0\nstore o[0] %1",
            "'%1 = reduce any %0': any does not fold f32.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load h[r0]\n  %1 = reduce sum %0\nstore o[0] %1",
            "'%1 = reduce sum %0': sum does not fold bf16.",
        ),
        (
            "reduce r0 < 4:\n  %0 = load a[r0]\n  %1 = cast %0 : f64\n"
            "  %2, %3, %4 = reduce welford %0 %1 %0\nstore o[0] %2",
            "'%2, %3, %4 = reduce welford %0 %1 %0': the three parts of welford share one dtype.",
        ),
    ],
)
def test_each_rule(body: str, why: str) -> None:
    text = HEAD + "".join(f"  {line}\n" for line in body.split("\n"))
    assert refused(parse(text)) == f"Kernel k: {why}"


def parsed(header: str, *body: str) -> Kernel:
    return parse("\n".join((header, *(f"  {line}" for line in body))))


def test_parameters_have_one_name_each() -> None:
    stores = ("%0 = const 1.0 : f32", "store o[0] %0")
    assert refused(parsed("kernel k(a: f32[4], a: f32[4]) -> (o: f32[4]):", *stores)) == (
        "Kernel k: the name a stands for two parameters."
    )
    assert refused(parsed("kernel k(s0: f32[s0]) -> (o: f32[4]) where s0:", *stores)) == (
        "Kernel k: the name s0 stands for two parameters."
    )


def test_every_out_buffer_is_written() -> None:
    assert refused(parsed("kernel k() -> (o: f32[4], p: f32[4]):", "%0 = const 1.0 : f32", "store o[0] %0")) == (
        "Kernel k: nothing is stored to p."
    )


def test_what_buffers_can_be() -> None:
    body = (Const(0, 1.0, torch.float32), Store("o", index(0), 0))
    good = Buffer("o", torch.float32, 4, "out")
    verify(Kernel("k", (good,), body))
    for wrong, why in (
        (replace(good, name="o.1"), "a buffer cannot be named 'o.1'."),
        (replace(good, dtype=torch.quint8), "o cannot hold torch.quint8."),
        (replace(good, size=-1), "o has the size -1."),
    ):
        assert refused(Kernel("k", (wrong,), body)) == f"Kernel k: {why}"
    assert refused(Kernel("k() {} void other", (good,), body)).endswith("a kernel cannot be named 'k() {} void other'.")


def test_symbols_of_one_name_are_one_symbol() -> None:
    buffers = (Buffer("a", torch.float32, symbol("s0"), "in"), Buffer("o", torch.float32, symbol("s0", "any"), "out"))
    body = (Const(0, 1.0, torch.float32), Store("o", index(0), 0))
    assert refused(Kernel("k", buffers, body)) == "Kernel k: two symbols of different assumptions are named s0."


def test_an_axis_of_another_size_is_another_axis() -> None:
    body = (
        Loop(
            "parallel",
            (Axis("i", 4),),
            (Load(0, "a", index(Axis("i", 5)), torch.float32), Store("o", index(Axis("i", 4)), 0)),
        ),
    )
    buffers = (Buffer("a", torch.float32, 9, "in"), Buffer("o", torch.float32, 9, "out"))
    assert refused(Kernel("k", buffers, body)) == "Kernel k: '%0 = load a[i]': the axis i is not in scope."


def test_names_that_do_not_exist() -> None:
    out = (Buffer("o", torch.float32, 9, "out"),)
    last = Store("o", index(0), 0)
    assert refused(Kernel("k", out, (Load(0, "a", index(0), torch.float32), last))) == (
        "Kernel k: '%0 = load a[0] : f32': there is no buffer a."
    )
    assert refused(Kernel("k", out, (Const(0, 1.0, torch.float32), Apply(1, "twist", (0,), torch.float32), last))) == (
        "Kernel k: '%1 = twist %0 : f32': there is no scalar op twist."
    )


@pytest.mark.parametrize("dtype", ["b8", "f8e4m3fn"])
def test_there_is_no_read_modify_write_of_bool_and_f8(dtype: str) -> None:
    kernel = parsed(f"kernel k(a: {dtype}[4], o: inout {dtype}[4]) -> ():", "%0 = load a[0]", "store add o[0] %0")
    assert refused(kernel) == f"Kernel k: 'store add o[0] %0': there is no add of {dtype}."


def test_an_index_is_refused_only_where_it_certainly_leaves() -> None:
    """With s0 = 1 the first stays inside; the second may stay inside whatever i0 is."""
    verify(
        parsed(
            "kernel k(a: f32[12]) -> (o: f32[9]) where s0:",
            "parallel i0 < s0:",
            "  %0 = load a[i0 + 11]",
            "  store o[0] %0",
        )
    )
    verify(
        parsed(
            "kernel k(a: f32[3]) -> (o: f32[9]):",
            "parallel i0 < 12:",
            "  %0 = load a[(i0 * 5) % 7 // 2]",
            "  store o[0] %0",
        )
    )


def test_what_a_loop_without_steps_would_do_is_not_refused() -> None:
    """A tensor without elements has loops over its other sizes, and is stored to in none of their steps."""
    verify(
        parsed("kernel k(a: i8[3]) -> (o: i8[0]):", "parallel i0 < 3, i1 < 0:", "  %0 = load a[i0]", "  store o[i0] %0")
    )
    verify(
        parsed(
            "kernel k(a: i8[3]) -> (o: i8[0]):",
            "parallel i1 < 0:",
            "  parallel i0 < 3:",
            "    %0 = load a[i0]",
            "    store o[i0] %0",
        )
    )
    assert "the index goes up to 2" in refused(
        parsed("kernel k(a: i8[3]) -> (o: i8[0]):", "parallel i0 < 3, i1 < 1:", "  %0 = load a[i0]", "  store o[i0] %0")
    )


def test_a_masked_access_may_lie_outside() -> None:
    verify(
        parsed(
            "kernel k(a: f32[4], m: b8[9]) -> (o: f32[9]):",
            "parallel i0 < 9:",
            "  %0 = load m[i0]",
            "  %1 = load a[i0] if %0",
            "  store o[i0] %1",
        )
    )


@pytest.mark.slow
@given(kernels())
def test_kernels_made_by_the_rules_are_accepted(kernel: Kernel) -> None:
    verify(kernel)


@pytest.mark.slow
def test_many_loops_after_many_values_take_time_by_their_sum() -> None:
    """Not by their product: the values that are visible are not copied for each loop."""
    values = "".join(f"  %{n} = const 1.0 : f32\n" for n in range(100, 20_100))
    loops = "".join(f"  parallel i < 12:\n    %{n} = const 1.0 : f32\n" for n in range(30_000, 40_000))
    kernel = parse(HEAD + values + loops + "  store o[0] %100\n")
    with soon():
        verify(kernel)
    inside = parse(HEAD + "  parallel i < 12:\n    %1 = const 1.0 : f32\n    store o[i] %1\n  store o[0] %1\n")
    with pytest.raises(KeelError, match="%1 is not visible here"):
        verify(inside)
