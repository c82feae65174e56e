"""Ops that a target lacks: each way to make one keeps its bound, and a target of twenty ops is enough."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from keel.errors import KeelError
from keel.loops.expansion import Expansion
from keel.loops.expansions import EXPANSIONS
from keel.loops.interpret import interpret
from keel.loops.ir import Apply, Kernel, show, walk
from keel.loops.legalize_scalars import Program, _kinds, combination, compiled, expand, why_unsupported
from keel.loops.monoids import MONOIDS
from keel.loops.parser import parse
from keel.loops.scalar_ops import SCALARS, ByKind
from keel.loops.scalar_semantics import evaluate_op
from keel.loops.verify import DOMAINS, verify
from keel.types import DTYPE_NAMES

from .accuracy import RANGES, TRUTH, numbers, rounded, run, worst

CORE = frozenset(
    (
        "cast",
        "bitcast",
        "where",
        "neg",
        "add",
        "sub",
        "mul",
        "div",
        "truncdiv",
        "lt",
        "eq",
        "and",
        "or",
        "not",
        "floor",
        "sqrt",
        "exp",
        "log",
        "sin",
        "cos",
    )
)
DTYPES = (torch.float32, torch.float64, torch.int8, torch.int64, torch.uint8, torch.uint32, torch.bool)
INF, NAN = float("inf"), float("nan")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 100.0, -200.0, 1e30, -1e30, 1e-30, INF, -INF, NAN)


def operands(op: str, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
    return (torch.bool, dtype, dtype) if op == "where" else (dtype,) * SCALARS[op].arity


def cases() -> list[pytest.param]:
    return [
        pytest.param(row, dtype, id=f"{row.op}-{DTYPE_NAMES[dtype]}-{n}")
        for n, row in enumerate(EXPANSIONS)
        for dtype in DTYPES
        if row.kind in _kinds(dtype) and dtype in DOMAINS[SCALARS[row.op].domain]
    ]


def samples(op: str, dtype: torch.dtype, seed: int) -> Tensor:
    """All pairs of these meet, as the first and second operand."""
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype)
    if dtype == torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    values = [
        v
        for v in (0, 1, -1, 2, -2, 3, 7, -7, 100, info.max, info.max - 1, info.min, info.min + 1)
        if info.min <= v <= info.max
    ]
    if op in ("floordiv", "truncdiv", "mod", "fmod") and seed == 1:
        values = [v for v in values if v not in (0, -1)]  # undefined, or overflowing
    return torch.tensor(values, dtype=torch.int64).to(dtype)


def grid(op: str, dtype: torch.dtype) -> tuple[Tensor, ...]:
    arity = SCALARS[op].arity
    axes = [samples(op, dtype, n) for n in range(arity)]
    return tuple(
        a.view([-1 if k == n else 1 for k in range(arity)]).expand([len(b) for b in axes]).flatten()
        for n, a in enumerate(axes)
    )


def same(got: Tensor, want: Tensor) -> bool:
    """Bit by bit, any NaN for any other."""
    if not want.dtype.is_floating_point:
        return got.dtype == want.dtype and got.tolist() == want.tolist()
    bits = {torch.float32: torch.int32, torch.float64: torch.int64}[want.dtype]
    return bool(((got.contiguous().view(bits) == want.contiguous().view(bits)) | (got.isnan() & want.isnan())).all())


@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), cases())
def test_each_way_keeps_its_bound(row: Expansion, dtype: torch.dtype) -> None:
    program = compiled(row, operands(row.op, dtype))
    assert row.op not in {s.op for s in program.steps if isinstance(s, Apply)}
    if row.ulp == 0:
        given = grid(row.op, dtype)
        result = torch.bool if SCALARS[row.op].result == "bool" else dtype
        got, want = run(program, given, evaluate_op), evaluate_op(row.op, given, result)
        if row.op in ("minimum", "maximum") and dtype.is_floating_point:  # which zero of two is free
            got, want = got + 0, want + 0
        if row.op == "copysign" and row.kind == "float":  # NaN has no sign in this way of making it
            got, want = (torch.where(given[1].isnan(), 0, t) for t in (got, want))
        assert same(got, want), (row, [g[[*range(len(got))]] for g in given])
    elif row.op in TRUTH:
        given = tuple(
            numbers(dtype, 300, *RANGES.get(row.op, (-1e308, 1e308)), seed=n) for n in range(SCALARS[row.op].arity)
        )
        given = tuple(g[: min(map(len, given))] for g in given)
        error, where = worst(row.op, run(program, given), given)
        assert error <= row.ulp, where
    else:
        assert row.op == "mod"
        given = grid(row.op, dtype)
        torch.testing.assert_close(
            run(program, given), evaluate_op("mod", given, dtype), rtol=0, atol=0, equal_nan=True
        )


FLOAT_OPS = [op for op in SCALARS if SCALARS[op].domain == "float" and op not in CORE]
UNMADE = {"lgamma", "digamma", "mod", "fmod", "pow", "shl", "shr"}


@pytest.mark.parametrize("op", [op for op in TRUTH if op not in CORE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=DTYPE_NAMES.get)
def test_what_the_core_makes_is_within_six_ulp(op: str, dtype: torch.dtype) -> None:
    if (op, dtype) == ("pow", torch.float64):
        assert why_unsupported("pow", CORE, torch.float64)
        return
    given = tuple(numbers(dtype, 150, *RANGES.get(op, (-1e308, 1e308)), seed=5 + n) for n in range(SCALARS[op].arity))
    given = tuple(g[: min(map(len, given))] for g in given)
    error, where = worst(op, run(written(op, dtype), given), given)
    assert error <= 6, where


FUSED = [
    pytest.param(row, dtype, id=f"{row.kind}-{n}")
    for n, row in enumerate(EXPANSIONS)
    if row.op == "fma"
    for dtype in (torch.float32, torch.float64)
    if row.kind in _kinds(dtype)
]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), FUSED)
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_a_product_that_overflows_alone_does_not_spoil_a_sum_that_does_not(row, dtype, data) -> None:
    """Each way to make fma, where the product or one of its halves is beyond the range and the result is not."""
    top, bits = (2.0**127, 24) if dtype == torch.float32 else (2.0**1023, 53)
    some = st.floats(width=32 if dtype == torch.float32 else 64, allow_subnormal=False)
    large = st.integers(-(2**bits) + 1, 2**bits - 1).map(lambda n: n / 2.0**bits * top * 1.9)
    x, y, z = (data.draw(some | large) for _ in range(3))
    if data.draw(st.booleans()) and x:  # the product meets -z
        y = max(min(-z / x, top), -top)
    values = tuple(torch.tensor([v], dtype=torch.float64).to(dtype) for v in (x, y, z))
    got, want = run(compiled(row, operands("fma", dtype)), values, evaluate_op), evaluate_op("fma", values, dtype)
    exact = values[0].double().item(), values[1].double().item()
    if want.isfinite() and 0 < abs(exact[0]) * abs(exact[1]) < 2**-900 * (2.0**830 if bits == 24 else 1):
        return  # a part underflows
    if row.ulp == 0 or not want.isfinite():
        assert same(got + 0, want + 0), (x, y, z)
    else:
        assert abs(got - want) <= 2.0 ** (1 - bits) * abs(want), (x, y, z)


@pytest.mark.parametrize("op", [op for op in FLOAT_OPS if op not in UNMADE - {"pow"}])
def test_special_values_come_out_as_they_should(op: str) -> None:
    """NaN, infinities and the signs of zeros, whatever the value in between."""
    given = grid(op, torch.float32)
    result = torch.bool if SCALARS[op].result == "bool" else torch.float32
    got, want = run(written(op, torch.float32), given, evaluate_op), evaluate_op(op, given, result)
    if result == torch.bool or op == "nextafter":
        assert same(got, want)
        return
    for seen in (torch.isnan, torch.isinf, lambda t: t == 0, lambda t: torch.signbit(t) & ~t.isnan()):
        wrong = seen(got) != seen(want)
        if op in ("sigmoid", "erfc"):  # may flush what is not normal
            wrong &= want.abs() >= 2.0**-126
        assert not wrong.any(), [(*(g[wrong][0].item() for g in given), got[wrong][0].item(), want[wrong][0].item())]


def written(op: str, dtype: torch.dtype) -> Program:
    """The op alone, in core ops."""
    args = ", ".join(f"in{n}: {DTYPE_NAMES[dtype]}[1]" for n in range(SCALARS[op].arity))
    result = "b8" if SCALARS[op].result == "bool" else DTYPE_NAMES[dtype]
    loads = "".join(f"  %{n} = load in{n}[0]\n" for n in range(SCALARS[op].arity))
    values = " ".join(f"%{n}" for n in range(SCALARS[op].arity))
    kernel = parse(f"kernel k({args}) -> (out0: {result}[1]):\n{loads}  %9 = {op} {values}\n  store out0[0] %9\n")
    body = [s for s in walk(expand(kernel, CORE, ()).body) if s.__class__.__name__ in ("Const", "Apply")]
    assert {s.op for s in body if isinstance(s, Apply)} <= CORE
    return _renumbered(body, SCALARS[op].arity)


def _renumbered(body: list, arity: int) -> Program:
    from keel.loops.legalize_scalars import _numbered

    return _numbered(body, arity, (9,))


def test_twenty_ops_are_enough_for_all_but_a_few() -> None:
    assert len(CORE) == 20
    assert {op for op in SCALARS if why_unsupported(op, CORE)} == UNMADE
    assert {op for op in UNMADE if why_unsupported(op, CORE, torch.float32)} == UNMADE - {"pow"}
    assert why_unsupported("mod", CORE, torch.int64) is None


def test_a_target_that_has_all_gets_its_kernel_back() -> None:
    kernel = parse(GELU)
    assert expand(kernel, SCALARS, MONOIDS) is kernel


GELU = """\
kernel gelu(in0: bf16[64*s0]) -> (out0: bf16[64*s0]) where s0:
  parallel i0 < s0, i1 < 64:
    %0 = load in0[64*i0 + i1]
    %1 = cast %0 : f32
    %2 = const 0.7071067811865476 : f32
    %3 = mul %1 %2
    %4 = erf %3
    %5 = const 1.0 : f32
    %6 = add %4 %5
    %7 = tanh %6
    %8 = mul %7 %1
    %9 = cast %8 : bf16
    store out0[64*i0 + i1] %9
"""


def test_an_expanded_kernel_verifies_and_gives_the_same(golden) -> None:
    kernel = parse(GELU)
    small = expand(kernel, CORE, MONOIDS)
    verify(small)
    assert {s.op for s in walk(small.body) if isinstance(s, Apply)} <= CORE
    assert parse(show(small)) == small
    x = torch.randn(5 * 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    want, got = torch.empty_like(x), torch.empty_like(x)
    interpret(kernel, [x, want], {"s0": 5})
    interpret(small, [x, got], {"s0": 5})
    torch.testing.assert_close(got, want, rtol=2**-8, atol=0)
    golden(show(small), suffix=".loops")


def test_what_two_expansions_share_is_written_once() -> None:
    kernel = parse("""\
kernel k(in0: f32[4]) -> (out0: f32[4]):
  parallel i0 < 4:
    %0 = load in0[i0]
    %1 = sigmoid %0
    %2 = isinf %0
    %3 = where %2 %0 %1
    %4 = atan %0
    %5 = add %3 %4
    store out0[i0] %5
""")
    small = expand(kernel, CORE - {"exp"} | {"exp", "abs"}, MONOIDS)
    ops = [s.op for s in walk(small.body) if isinstance(s, Apply)]
    assert ops.count("abs") == 1
    verify(small)


def test_values_computed_in_a_loop_are_not_used_outside_of_it() -> None:
    kernel = parse("""\
kernel k(in0: f32[12]) -> (out0: f32[4]):
  parallel i0 < 4:
    %9 = const 2.0 : f32
    reduce r0 < 3:
      %0 = load in0[3*i0 + r0]
      %1 = tanh %9
      %2 = mul %0 %1
      %3 = reduce sum %2
    %4 = tanh %9
    %5 = add %3 %4
    store out0[i0] %5
""")
    small = expand(kernel, CORE, MONOIDS)
    verify(small)
    x, want, got = torch.arange(12.0), torch.empty(4), torch.empty(4)
    interpret(kernel, [x, want], {})
    interpret(small, [x, got], {})
    torch.testing.assert_close(got, want)


def test_what_cannot_be_made_is_said() -> None:
    kernel = parse(
        "kernel k(in0: f32[1]) -> (out0: f32[1]):\n  %0 = load in0[0]\n  %1 = lgamma %0\n  store out0[0] %1\n"
    )
    with pytest.raises(KeelError) as error:
        expand(kernel, CORE, MONOIDS)
    assert str(error.value) == (
        "KeelError[no-lowering]: The target cannot compute lgamma. It has no lgamma on f32, and Keel does not know how "
        "to make it of others.\nAdd lgamma to the target's scalars."
    )
    assert why_unsupported("tanh", CORE - {"floor", "div"}, torch.float32) == (
        "It has no tanh on f32; making it of others takes div."
    )
    assert why_unsupported("tanh", CORE, torch.float32) is None
    assert why_unsupported("pow", CORE, torch.float32, dtypes={torch.float32, torch.int32, torch.bool}) == (
        "It has no pow on f32; making it of others takes f64."
    )


@pytest.mark.parametrize("monoid", MONOIDS)
def test_a_monoid_is_combined_in_the_ops_there_are(monoid: str) -> None:
    form = MONOIDS[monoid]
    first = {
        "float": torch.float32,
        "number": torch.float32,
        "any": torch.float32,
        "int": torch.int64,
        "bool": torch.bool,
        "integral": torch.int32,
    }
    dtypes = tuple(first[d] for d in form.domains)
    program = combination(monoid, dtypes, CORE)
    assert {s.op for s in program.steps if isinstance(s, Apply)} <= CORE
    assert len(program.outputs) == form.arity
    state = [torch.tensor(v).to(d) for v in ([1, 0, 1, 1, 0], [0, 0, 1, 2, 3]) for d in dtypes]
    plain = combination(monoid, dtypes, SCALARS)
    assert [s.op for s in plain.steps] == [op for op, _ in form.steps]
    for k in range(form.arity):
        got = run(Program(program.steps, program.outputs[k:]), tuple(state), evaluate_op)
        want = run(Program(plain.steps, plain.outputs[k:]), tuple(state), evaluate_op)
        assert same(got + 0 if got.dtype.is_floating_point else got, want + 0 if want.dtype.is_floating_point else want)


def test_a_monoid_that_the_target_can_neither_name_nor_combine_is_refused() -> None:
    kernel = parse(
        "kernel k(in0: f32[4]) -> (out0: f32[1]):\n  reduce r0 < 4:\n    %0 = load in0[r0]\n"
        "    %1 = reduce max %0\n  store out0[0] %1\n"
    )
    assert isinstance(expand(kernel, CORE, ()), Kernel)
    assert isinstance(expand(kernel, {"add"}, {"max"}), Kernel)
    with pytest.raises(KeelError, match=r"no-lowering.*cannot compute maximum"):
        expand(kernel, {"add"}, {"sum"})


def test_the_reference_of_these_tests_rounds_correctly() -> None:
    x = torch.rand(100, generator=torch.Generator().manual_seed(3))
    assert same(rounded("exp", (x,), torch.float32), x.double().exp().float())


def test_an_op_without_a_text_for_a_kind_is_written_out_there_and_kept_elsewhere() -> None:
    table = {**dict.fromkeys(CORE - {"not"}, "-"), "not": ByKind(boolean="!{0}")}
    kernel = parse(
        "kernel k(a: i32[1], b: b8[1]) -> (o: i32[1], p: b8[1]):\n  %0 = load a[0]\n  %1 = not %0\n"
        "  store o[0] %1\n  %2 = load b[0]\n  %3 = not %2\n  store p[0] %3\n"
    )
    known = {s.result: s for s in walk(expand(kernel, table, MONOIDS).body) if isinstance(s, Apply)}
    assert known[3].op == "not" and known[1].op in ("sub", "add")
    assert why_unsupported("not", {"not": ByKind(boolean="!{0}")}, torch.bool) is None
    assert why_unsupported("not", {"not": ByKind(boolean="!{0}")}, torch.int32) == (
        "It has no not on i32; making it of others takes add, sub."
    )
    whole = {"not": ByKind(boolean="!{0}", integer="~{0}")}
    both = expand(kernel, whole, MONOIDS)
    assert both is kernel or both == kernel
