"""Pointwise rules give what eager gives: special values, every dtype, every kind of promotion and broadcasting."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
import torch

from keel.loops.lower import lower, unary
from keel.spec import decomposition_of
from keel.types import Call, Dim, TensorType

from .calls import INF, NAN, SPECIAL, call_of, check, check_symbolic, lowered

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
EVERY = (*FLOATS, *INTEGERS, torch.bool)

FLOAT_UNARY = [getattr(aten, name).default for name in unary.SAME_NAME]
FLOAT_UNARY += [aten.sinc.default, aten.logit.default, aten.special_entr.default, aten.angle.default]
REAL_UNARY = [
    getattr(aten, n).default
    for n in (
        "neg",
        "abs",
        "sign",
        "sgn",
        "floor",
        "ceil",
        "trunc",
        "round",
        "signbit",
        "isnan",
        "isinf",
        "isposinf",
        "isneginf",
        "nan_to_num",
    )
]


def sample(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Special values of the dtype, first."""
    if dtype == torch.bool:
        return torch.tensor([True, False, True, False, True, True, False, False] * 2)
    if dtype.is_floating_point:
        values = torch.tensor(SPECIAL, dtype=torch.float64)
        return (values.roll(seed) if seed else values).to(dtype)
    info = torch.iinfo(dtype)
    values = [
        0,
        1,
        info.max,
        info.min,
        2,
        3,
        7,
        100,
        5,
        64,
        31,
        9,
        *([-1, -7, -2, -100] if info.min else [8, 6, 4, 200]),
    ]
    return torch.tensor(values, dtype=dtype).roll(seed)


@pytest.mark.parametrize("op", FLOAT_UNARY, ids=str)
def test_functions_of_one_number(op: object) -> None:
    for dtype in EVERY:
        if defined(op, sample(dtype)):
            check(op, sample(dtype))
            check(op, torch.linspace(-4, 4, 37, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("op", REAL_UNARY, ids=str)
def test_functions_of_one_number_that_keep_integers(op: object) -> None:
    for dtype in EVERY:
        if defined(op, sample(dtype)):
            check(op, sample(dtype))


def defined(op: Any, *args: Any) -> bool:
    """Whether eager takes these arguments."""
    try:
        op(*args)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def test_zeros_keep_their_signs() -> None:
    x = torch.tensor([0.0, -0.0])
    for op in (
        aten.neg.default,
        aten.floor.default,
        aten.round.default,
        aten.sqrt.default,
        aten.trunc.default,
        aten.sin.default,
        aten.clone.default,
    ):
        definition = lowered(op, x)
        from .evaluate import evaluate

        assert torch.equal(torch.signbit(evaluate(definition, [x])[0]), torch.signbit(op(x))), op


@pytest.mark.parametrize("decimals", [0, 2, -1, 20])
def test_rounding_to_decimals(decimals: int) -> None:
    check(aten.round.decimals, torch.tensor([1.005, 2.5, -3.555, 1234.5, INF, NAN]), decimals=decimals)
    check(aten.round.decimals, torch.tensor([1.005, 2.5, -3.555], dtype=torch.float64), decimals=decimals)


def test_nan_to_num_takes_its_numbers() -> None:
    x = torch.tensor([NAN, INF, -INF, 1.0])
    check(aten.nan_to_num.default, x, 7.0, 8.0, -9.0)
    check(aten.nan_to_num.default, x.bfloat16())
    check(aten.nan_to_num.default, x, None, 5.0)


def test_logit_clamps_by_eps() -> None:
    x = torch.tensor([0.0, 1.0, 0.3, -2.0, 3.0, NAN])
    check(aten.logit.default, x, 1e-3)
    check(aten.logit.default, x, -1.0)
    check(aten.logit.default, x, 0.7)


ARITHMETIC = [
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.fmax.default,
    aten.fmin.default,
    aten.remainder.Tensor,
    aten.fmod.Tensor,
    aten.floor_divide.default,
    aten.eq.Tensor,
    aten.ne.Tensor,
    aten.lt.Tensor,
    aten.le.Tensor,
    aten.gt.Tensor,
    aten.ge.Tensor,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.bitwise_and.Tensor,
    aten.bitwise_or.Tensor,
    aten.bitwise_xor.Tensor,
    aten.pow.Tensor_Tensor,
    aten.atan2.default,
    aten.copysign.Tensor,
    aten.heaviside.default,
    aten.xlogy.Tensor,
    aten.special_xlog1py.default,
    aten.hypot.default,
    aten.logaddexp.default,
    aten.logaddexp2.default,
    aten.nextafter.default,
]
DIVISIONS = {
    aten.remainder.Tensor,
    aten.fmod.Tensor,
    aten.floor_divide.default,
    aten.remainder.Scalar,
    aten.fmod.Scalar,
}


@pytest.mark.parametrize("op", [aten.logical_and.default, aten.logical_or.default, aten.logical_xor.default], ids=str)
def test_truth_is_that_of_the_common_dtype(op: Any) -> None:
    """A number without dimensions may wrap to 0, or be too small for a float."""
    for x, y in (
        (torch.tensor([0, 1], dtype=torch.int8), torch.tensor(-(2**63))),
        (torch.tensor([0.0, 1.0]), torch.tensor(1e-300, dtype=torch.float64)),
    ):
        check(op, x, y)
        assert torch.equal(decomposition_of(op)(x, y), op(x, y))


def pairs(x: torch.dtype, y: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Every special value with every other."""
    left, right = sample(x), sample(y)
    return left.repeat_interleave(len(right)), right.repeat(len(left))


def divisible(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Without those that eager cannot divide: integers by zero, the least one by -1 (which traps), and floats whose
    quotient overflows (where its vectorized fmod is NaN).
    """
    if x.is_floating_point() or y.is_floating_point():
        keep = ~((x.float() / y.float()).isinf() & x.isfinite() & (y != 0))
    else:
        keep = (y != 0) & (y.long() != -1)
    return x[keep], y[keep]


MIXED = [
    (torch.int64, torch.float32),
    (torch.bool, torch.int32),
    (torch.bfloat16, torch.float32),
    (torch.uint8, torch.int8),
    (torch.float16, torch.int64),
    (torch.bfloat16, torch.float16),
]


@pytest.mark.parametrize("op", ARITHMETIC, ids=str)
def test_functions_of_two_numbers(op: object) -> None:
    for dtypes in [*((d, d) for d in EVERY), *MIXED]:
        x, y = pairs(*dtypes)
        if op in DIVISIONS:
            x, y = divisible(x, y)
        if defined(op, x, y):
            check(op, x, y)


def test_neighbors_of_16_bit_floats() -> None:
    for half in (torch.float16, torch.bfloat16):
        check(aten.nextafter.default, *pairs(half, half))


def test_integers_divided_by_zero_do_not_trap() -> None:
    x, y = torch.tensor([5, -7, 0]), torch.tensor([1, 1, 1])
    for op, kwargs in (
        (aten.div.Tensor_mode, {"rounding_mode": "floor"}),
        (aten.remainder.Tensor, {}),
        (aten.fmod.Tensor, {}),
        (aten.div.Tensor_mode, {"rounding_mode": "trunc"}),
    ):
        definition = lower(call_of(op, (x, y), kwargs, op(x, y, **kwargs)))
        from .evaluate import evaluate

        assert evaluate(definition, [x, torch.zeros_like(y)])[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_division_rounds_as_asked(dtype: torch.dtype, mode: str | None) -> None:
    x, y = divisible(*pairs(dtype, dtype))
    if dtype == torch.bfloat16 and mode == "floor":
        # Eager divides in bfloat16 here: the reference is float32 rounded once.
        want = torch.div(x.float(), y.float(), rounding_mode="floor").bfloat16()
        from .evaluate import evaluate

        definition = lower(call_of(aten.div.Tensor_mode, (x, y), {"rounding_mode": mode}, want))
        torch.testing.assert_close(evaluate(definition, [x, y])[0], want, equal_nan=True)
    else:
        check(aten.div.Tensor_mode, x, y, rounding_mode=mode)
    check(aten.div.Scalar_mode, x, 3, rounding_mode=mode)


def test_floor_division_is_exact_where_the_quotient_is_whole() -> None:
    x = torch.arange(1, 200, dtype=torch.float32) * 0.1
    check(aten.div.Tensor_mode, x, torch.full_like(x, 0.1), rounding_mode="floor")


@pytest.mark.parametrize("alpha", [1, 2, -0.5, 0])
def test_sums_with_alpha(alpha: float) -> None:
    x, y = pairs(torch.float32, torch.float32)
    for op in (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor):
        check(op, x, y, alpha=alpha, rtol=1e-6, atol=1e-45)
    if isinstance(alpha, int):
        check(aten.add.Tensor, *pairs(torch.int8, torch.int8), alpha=alpha)
        check(aten.sub.Tensor, *pairs(torch.int64, torch.int32), alpha=alpha)
        check(aten.rsub.Scalar, sample(torch.int32), 5, alpha)
    check(aten.add.Tensor, sample(torch.bool), sample(torch.bool, 3), alpha=bool(alpha))
    check(aten.add.Scalar, sample(torch.float32), 2.5, alpha)


SCALARS = [
    aten.add.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.sub.Tensor,
    aten.add.Scalar,
    aten.mul.Scalar,
    aten.div.Scalar,
    aten.eq.Scalar,
    aten.lt.Scalar,
    aten.ge.Scalar,
    aten.remainder.Scalar,
    aten.fmod.Scalar,
    aten.floor_divide.default,
    aten.bitwise_and.Scalar,
    aten.bitwise_xor.Scalar,
    aten.copysign.Scalar,
    aten.xlogy.Scalar_Other,
    aten.clamp_min.default,
    aten.clamp_max.default,
]


@pytest.mark.parametrize("op", SCALARS, ids=str)
def test_tensors_with_numbers(op: object) -> None:
    for dtype, number in itertools.product(EVERY, (2, 2.5, True, -3, 0.1, 300)):
        x = sample(dtype)
        if op in DIVISIONS and dtype.is_floating_point:
            x = divisible(x, torch.full_like(x, number))[0]
        try:
            op(x, number)  # type: ignore[operator]
        except (RuntimeError, NotImplementedError) as e:
            if "overflow" in str(e) or "representable" in str(e):
                assert "cannot hold" in str(lower(call_of(op, (x, number), {}, x)))
        else:
            check(op, x, number)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, -3, 7, 64, INF, NAN], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool], ids=str
)
def test_powers(exponent: float, dtype: torch.dtype) -> None:
    x = sample(dtype)
    try:
        aten.pow.Tensor_Scalar(x, exponent)
    except RuntimeError:
        assert isinstance(lower(call_of(aten.pow.Tensor_Scalar, (x, exponent), {}, x)), str)
        return
    check(
        aten.pow.Tensor_Scalar,
        x,
        exponent,
        rtol=1e-6 if dtype == torch.float32 else None,
        atol=1e-45 if dtype == torch.float32 else None,
    )


@pytest.mark.parametrize("base", [0, 1, 2, -1.5, 0.5, INF])
def test_powers_of_a_number(base: float) -> None:
    check(aten.pow.Scalar, base, sample(torch.float32))
    check(aten.pow.Scalar, base, sample(torch.bfloat16))
    check(aten.pow.Scalar, base, torch.arange(6))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_beyond_the_width(dtype: torch.dtype) -> None:
    x = sample(dtype)
    amounts = torch.tensor([0, 1, 7, 8, 15, 31, 63, 64, 100, *([-1, -64] if dtype != torch.uint8 else [200])])
    left, right = x.repeat_interleave(len(amounts)), amounts.to(dtype).repeat(len(x))
    for op in (aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor):
        check(op, left, right)
        check(getattr(aten, op.__name__.split(".")[0]).Tensor_Scalar, x, 3)


def test_symbolic_sizes() -> None:
    found = check_symbolic(
        lambda x, y: aten.where(x > y, (x + y) * x.shape[0], y - x.shape[1]).clamp(min=0.0),
        torch.randn(5, 7),
        torch.randn(7),
    )
    assert len(found) == 6


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((2, 0), (1,)), ((1,), (1,)), ((), ())], ids=str
)
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (torch.randn(s) for s in shapes)
    check(aten.add.Tensor, x, y)
    check(aten.where.self, x.expand(torch.broadcast_shapes(*shapes)) > 0, x, y)
    check(aten.masked_fill.Scalar, x, y > 0, 3.0) if x.ndim >= y.ndim else None
    check(aten.mul.Tensor, x.double(), y)
    check(aten.lt.Tensor, x, y.to(torch.int32))


def test_operands_of_any_layout() -> None:
    x, y = torch.randn(4, 6).t(), torch.randn(1, 4).expand(6, 4)
    check(aten.add.Tensor, x, y)
    check(aten.mul.Tensor, torch.randn(12, 8)[::2, ::2], y)
    check(aten.exp.default, torch.randn(6, 4, 2).permute(2, 0, 1))


def test_promotion_of_0d_tensors_and_numbers() -> None:
    values = [
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.int32),
        torch.ones((), dtype=torch.float64),
        torch.ones((), dtype=torch.int64),
        torch.ones(3, dtype=torch.bool),
        torch.tensor(True),
        2,
        2.5,
        True,
    ]
    for x, y in itertools.product(values, values):
        if isinstance(x, torch.Tensor):
            for op in (
                aten.add.Tensor,
                aten.lt.Tensor if isinstance(y, torch.Tensor) else aten.lt.Scalar,
                aten.div.Tensor,
            ):
                check(op, x, y)


def test_comparisons_see_numbers_rounded_to_the_tensor() -> None:
    check(aten.eq.Scalar, torch.tensor([0.1], dtype=torch.bfloat16), 0.1)
    check(aten.lt.Scalar, torch.tensor([0.1], dtype=torch.float16), 0.1)
    check(aten.eq.Tensor, torch.tensor([256.0], dtype=torch.bfloat16), torch.tensor([257]))


def test_choices() -> None:
    mask = sample(torch.bool)
    for dtype in EVERY:
        check(aten.where.self, mask, sample(dtype), sample(dtype, 2))
    check(aten.where.self, mask, torch.ones(16, dtype=torch.int32), torch.tensor(2.5))
    check(aten.where.self, torch.tensor(True), torch.ones(3), torch.zeros(2, 3))
    check(aten.masked_fill.Tensor, sample(torch.bfloat16), mask, torch.tensor(0.1))
    check(aten.masked_fill.Scalar, sample(torch.float32), mask, -INF)
    assert "cannot hold 300" in str(
        lower(call_of(aten.masked_fill.Scalar, (sample(torch.int8), mask, 300), {}, sample(torch.int8)))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8], ids=str)
def test_clamps(dtype: torch.dtype) -> None:
    x = sample(dtype)
    check(aten.clamp.default, x, 1, 5)
    check(aten.clamp.default, x, None, 5)
    check(aten.clamp.default, x, 6, 5)
    check(aten.clamp.default, x, 2)
    if dtype.is_floating_point:
        check(aten.clamp.default, x, NAN, 5.0)
        check(aten.clamp.default, x, -INF, 0.1)
    check(aten.clamp.Tensor, x, sample(dtype, 3), sample(dtype, 5))
    check(aten.clamp.Tensor, x, None, sample(dtype, 5))
    check(aten.clamp_min.Tensor, x, sample(dtype, 1))
    check(aten.clamp_max.Tensor, x, sample(dtype, 1))
    check(aten.clamp.default, sample(torch.int32), 0.5, 3.5)


def test_bools_are_clamped_as_they_are_compared() -> None:
    x, y = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    check(aten.clamp_min.Tensor, x, y)
    check(aten.clamp_max.Tensor, x, y)
    check(aten.maximum.default, x, y)


def test_multiply_add() -> None:
    x, y = pairs(torch.float32, torch.float32)
    z = y.flip(0)
    finite = torch.randn(3, 50)
    check(aten.addcmul.default, x, y, z, value=1)
    check(aten.addcmul.default, *finite, value=0.3, rtol=1e-5, atol=1e-6)
    check(aten.addcmul.default, *(torch.arange(5) + n for n in range(3)), value=2)
    check(aten.addcdiv.default, x, y, z)
    check(aten.addcdiv.default, *finite, value=0.3, rtol=1e-5, atol=1e-6)
    for weight in (0.0, 1.0, 0.3, 0.7, 2.0):
        check(aten.lerp.Scalar, finite[0], finite[1], weight, rtol=1e-5, atol=1e-6)
    check(aten.lerp.Tensor, finite[0], finite[1], finite[2], rtol=1e-5, atol=1e-6)
    check(aten.addcmul.default, *finite.bfloat16(), value=2)


def test_conversions() -> None:
    for x, y in itertools.product(EVERY, EVERY):
        values = sample(x)
        if x.is_floating_point and not y.is_floating_point and y != torch.bool:
            values = torch.tensor([0.0, -1.5, 2.5, 3.99, 100.0]).abs().to(x)  # out of range is undefined in eager
        check(aten._to_copy.default, values, dtype=y)
    check(torch.ops.prims.convert_element_type.default, sample(torch.float32), torch.bfloat16)


def test_bits_read_as_another_dtype() -> None:
    check(aten.view.dtype, sample(torch.float32), torch.int32)
    check(aten.view.dtype, sample(torch.bfloat16), torch.int16)
    assert "another width" in str(lowered(aten.view.dtype, sample(torch.float32), torch.int8))


def test_what_has_no_loop_form_is_said_in_a_sentence() -> None:
    assert lowered(aten.sort.default, torch.ones(2)) == "aten.sort.default has no loop form."
    x = torch.ones(2, dtype=torch.complex64)
    assert lowered(aten.add.Tensor, x, x) == "aten.add.Tensor has no loop form on complex64."


def test_numbers_computed_from_sizes() -> None:
    found = check_symbolic(
        lambda x: x * (x.shape[0] / (2 * x.shape[1])) + (x.shape[0] / (3 * x.shape[0])), torch.randn(5, 7)
    )
    assert len(found) == 2


def test_a_size_that_may_be_one_is_not_taken_for_another() -> None:
    """An input's is guarded, and is another symbol's where it may differ."""
    late, given = sympy.Symbol("u0", integer=True), sympy.Symbol("s0", integer=True, positive=True)

    def answer(a: Dim, b: Dim, size: Dim) -> object:
        x, y, out = (TensorType.dense(torch.float32, (n, 3)) for n in (a, b, size))
        return lower(Call(aten.add.Tensor, (x, y), {}, (out,)))

    for sizes in ((4, late, 4), (late, 4, late), (given, late, given)):
        assert "unknown until run time whether one of them is 1" in str(answer(*sizes))
    assert not isinstance(answer(late, late, late), str) and not isinstance(answer(late, 1, late), str)
