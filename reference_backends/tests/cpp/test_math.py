"""The elementary functions: how far from the truth, over bit patterns of all kinds; right at their special values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import mpmath
import pytest
import sympy
import torch
from torch import Tensor

import keel
from keel import Launcher, Source
from keel.loops import SCALARS, Apply, Axis, Buffer, Kernel, Load, Loop, Store, index
from keel_cpp import target

INF, NAN = float("inf"), float("nan")
F32, F64 = torch.float32, torch.float64

# Largest error in units of the last place of float.  Where it is above 1, PyTorch's own is too, or the function is a
# quotient of others.
ULPS: Mapping[str, float] = {
    "exp": 1.0,
    "exp2": 0.9,
    "expm1": 1.3,
    "log": 0.8,
    "log2": 0.7,
    "log10": 0.7,
    "log1p": 1.5,
    "sigmoid": 2.2,
    "sin": 0.51,
    "cos": 0.51,
    "tan": 0.51,
    "asin": 0.51,
    "acos": 0.51,
    "atan": 0.51,
    "sinh": 0.51,
    "cosh": 0.51,
    "asinh": 0.51,
    "acosh": 0.51,
    "atanh": 0.51,
    "tanh": 1.1,
    "erf": 1.0,
    "erfc": 0.6,
    "erfinv": 0.51,
    "lgamma": 0.51,
    "digamma": 0.51,
    "sqrt": 0.501,
    "rsqrt": 1.5,
    "reciprocal": 0.501,
    "floor": 0,
    "ceil": 0,
    "trunc": 0,
    "round": 0,
    "abs": 0,
    "neg": 0,
    "sign": 0,
}
BINARY: Mapping[str, float] = {
    "pow": 0.51,
    "atan2": 0.51,
    "add": 0.501,
    "sub": 0.501,
    "mul": 0.501,
    "div": 0.501,
    "minimum": 0,
    "maximum": 0,
    "copysign": 0,
    "fmod": 0,
    "mod": 0,
    "nextafter": 0,
}
DOUBLE: Mapping[str, float] = {"exp": 1.0, "log": 1.0, "tanh": 2.0, "sigmoid": 2.0, "erfinv": 2.0}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    3.0,
    -3.0,
    2.5,
    -2.5,
    1.5,
    INF,
    -INF,
    NAN,
    1e-45,
    -1e-45,
    1.2e-38,
    3.4e38,
    -3.4e38,
    1e38,
    16777216.0,
    16777217.0,
    88.7228,
    88.7229,
    -103.97,
    -103.98,
    127.9,
    128.0,
    -149.0,
    -150.1,
]


def mapped(op: str, arity: int, dtype: torch.dtype, result: torch.dtype | None = None) -> Kernel:
    """out[i] = op(in0[i], ...)"""
    n = sympy.Symbol("s0", integer=True, positive=True)
    axis = Axis("i0", n)
    loads = tuple(Load(k, f"in{k}", index(axis), dtype) for k in range(arity))
    buffers = tuple(Buffer(f"in{k}", dtype, n, "in") for k in range(arity))
    result = result or dtype
    body = (*loads, Apply(arity, op, tuple(range(arity)), result), Store("out0", index(axis), arity))
    return Kernel(f"{op}_{arity}", (*buffers, Buffer("out0", result, n, "out")), (Loop("parallel", (axis,), body),))


KERNELS = {
    **{(op, F32): mapped(op, 1, F32) for op in ULPS},
    **{(op, F32): mapped(op, 2, F32) for op in BINARY},
    **{(op, F64): mapped(op, 1, F64) for op in DOUBLE},
    **{("isnan", F32): mapped("isnan", 1, F32, torch.bool), ("isinf", F32): mapped("isinf", 1, F32, torch.bool)},
    **{("widen", d): mapped("cast", 1, d, F32) for d in (torch.bfloat16, torch.float16)},
    **{("round_to", d): mapped("cast", 1, F32, d) for d in (torch.bfloat16, torch.float16, torch.int32, torch.int64)},
    **{(op, torch.int32): mapped(op, 2, torch.int32) for op in ("floordiv", "truncdiv", "mod", "fmod")},
}


@pytest.fixture(scope="module")
def launchers() -> dict[tuple[str, torch.dtype], Launcher]:
    sources = [Source(k, target.render(k)) for k in KERNELS.values()]
    return dict(zip(KERNELS, target.build(sources), strict=True))


def called(launcher: Launcher, result: torch.dtype, *args: Tensor) -> Tensor:
    out = torch.empty(args[0].numel(), dtype=result)
    launcher(*args, out, out.numel())
    return out


def patterns(step: int) -> Tensor:
    """Every ``step``-th float, by bit pattern."""
    return torch.arange(-(2**31), 2**31, step).to(torch.int32).view(F32)


def meant(op: str, *args: Tensor) -> Tensor:
    """The truth, in float64."""
    functions = {"fmod": _fmod, "mod": _mod, "sign": lambda x: x.sign().nan_to_num(0.0), "nextafter": torch.nextafter}
    function = functions.get(op) or getattr(torch, op, None) or getattr(torch.special, op)
    if op == "nextafter":
        return torch.nextafter(*(a.float() for a in args)).double()
    return function(*args)


def _fmod(x: Tensor, y: Tensor) -> Tensor:
    """PyTorch's own goes by the quotient, which overflows."""
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return torch.tensor([math.fmod(a, b) if abs(a) < INF and b != 0 else NAN for a, b in pairs], dtype=F64)


def _mod(x: Tensor, y: Tensor) -> Tensor:
    r = _fmod(x, y)
    return torch.where((r != 0) & ((r < 0) != (y < 0)), (r + y).float().double(), r)


def errors(have: Tensor, truth: Tensor) -> Tensor:
    """Distances in units of the last place of float; those of infinities and NaN are 0 if the class is right."""
    near = truth.float()
    same_class = (have.isnan() == truth.isnan()) & (have.isinf() == near.isinf()) & ((have == 0) | (truth != 0))
    same_sign = have.isnan() | (have.signbit() == truth.signbit())
    assert same_class.all() and same_sign.all(), _first(have, truth, ~(same_class & same_sign))
    unit = torch.exp2(truth.abs().clamp(min=2.0**-126).log2().floor() - 23)
    return torch.where(have.isfinite() & near.isfinite(), (have.double() - truth).abs() / unit, 0.0)


def _first(have: Tensor, truth: Tensor, wrong: Tensor) -> str:
    k = int(wrong.nonzero()[0])
    return f"element {k}: {have[k]} instead of {truth[k]}"


@pytest.mark.parametrize("op", ULPS)
def test_over_the_whole_line(op: str, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    x = torch.cat([patterns(9973), torch.tensor(SPECIAL)])
    have = called(launchers[op, F32], F32, x)
    worst, at = errors(have, meant(op, x.double())).max(0)
    assert worst <= ULPS[op], f"{op}({x[at]}) = {have[at]}"


@pytest.mark.parametrize("op", ["isnan", "isinf"])
def test_of_two_answers(op: str, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    x = torch.cat([patterns(99991), torch.tensor(SPECIAL)])
    assert torch.equal(called(launchers[op, F32], torch.bool, x), getattr(torch, op)(x))


@pytest.mark.parametrize("op", BINARY)
def test_of_two_numbers(op: str, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    generator = torch.Generator().manual_seed(1)
    grid = torch.cartesian_prod(torch.tensor(SPECIAL), torch.tensor(SPECIAL))
    bits = torch.randint(-(2**31), 2**31, (2, 20000), generator=generator).to(torch.int32).view(F32)
    near = torch.randn(2, 20000, generator=generator) * torch.tensor([[5.0], [20.0]])
    x = torch.cat([grid[:, 0], bits[0], near[0], near[0].abs(), near[0]])
    y = torch.cat([grid[:, 1], bits[1], near[1], near[1], near[1].round()])
    have = called(launchers[op, F32], F32, x, y)
    worst, at = errors(have, meant(op, x.double(), y.double())).max(0)
    assert worst <= BINARY[op], f"{op}({x[at]}, {y[at]}) = {have[at]}"


@pytest.mark.parametrize("op", DOUBLE)
def test_double(op: str, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.cat([torch.randn(300, generator=generator, dtype=F64) * s for s in (1e-3, 0.4, 10, 200)])
    x = torch.cat([x, torch.tensor([*SPECIAL, 709.78, 709.79, -745.1, -745.2, 5e-324, 1e-310, 1.7e308], dtype=F64)])
    have = called(launchers[op, F64], F64, x)
    like = getattr(torch, op)(x)
    assert (have.isnan() == like.isnan()).all() and (have.isinf() == like.isinf()).all()
    with mpmath.workprec(160):
        for a, b in zip(x.tolist(), have.tolist(), strict=True):
            truth = _exactly(op, mpmath.mpf(a)) if math.isfinite(a) and math.isfinite(b) else mpmath.mpf(0)
            if truth != 0:
                unit = mpmath.mpf(2) ** (max(mpmath.floor(mpmath.log(abs(truth), 2)), -1022) - 52)
                assert abs(b - truth) <= DOUBLE[op] * unit, f"{op}({a}) = {b}"


def _exactly(op: str, x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x)) if op == "sigmoid" else getattr(mpmath, op)(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype: torch.dtype, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    """All of them widened, and floats of all kinds, exact ties among them, rounded."""
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    wide = called(launchers["widen", dtype], F32, halves)
    torch.testing.assert_close(wide, halves.float(), rtol=0, atol=0, equal_nan=True)
    bits = wide.nan_to_num().view(torch.int32)
    ties = [(bits + k).view(F32) for k in (0x8000, 0x7FFF, 0x8001, 0x1000, 0x0FFF, 0x1001)]
    edges = torch.tensor([*SPECIAL, 65504.0, 65519.0, 65520.0, 5.9e-8, 2.9e-8])
    x = torch.cat([patterns(9973), *ties, edges])
    have = called(launchers["round_to", dtype], dtype, x)
    torch.testing.assert_close(have, x.to(dtype), rtol=0, atol=0, equal_nan=True)
    assert (have.signbit() == x.to(dtype).signbit())[~x.isnan()].all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_to_integers(dtype: torch.dtype, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    x = patterns(9973)
    x = x[x.abs() < 2.0**31]
    assert torch.equal(called(launchers["round_to", dtype], dtype, x), x.to(dtype))


@pytest.mark.parametrize("op", ["floordiv", "truncdiv", "mod", "fmod"])
def test_integer_division(op: str, launchers: dict[tuple[str, torch.dtype], Launcher]) -> None:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randint(-(2**31), 2**31, (2, 100_000), generator=generator)
    y[:50_000] = y[:50_000] % 201 - 100
    y[y == 0] = 7
    x[0], y[0] = -(2**31), -1
    have = called(launchers[op, torch.int32], torch.int32, x.int(), y.int())
    rounding = "floor" if op in ("floordiv", "mod") else "trunc"
    quotient = x.div(y, rounding_mode=rounding)
    assert torch.equal(have, (quotient if op.endswith("div") else x - quotient * y).int())


def test_every_scalar_op_has_a_text() -> None:
    assert set(target.scalars) == set(SCALARS)


def test_silu_keeps_its_digits_where_its_exponential_would_overflow() -> None:
    for dtype, least in ((F32, -100.0), (F64, -740.0)):
        x = torch.linspace(least, 20, 4001, dtype=dtype)
        found = keel.compile(torch.nn.functional.silu, backends=["cpp"], strict=True)(x).double()
        best = x.double() * torch.where(x < -40, x.double().exp(), x.double().sigmoid())
        # sigmoid is a multiple of the smallest number, which x multiplies.
        allowed = 8 * torch.finfo(dtype).eps * best.abs() + 2 * torch.finfo(dtype).smallest_normal * torch.finfo(
            dtype
        ).eps * (1 + x.double().abs())
        assert bool(((found - best).abs() <= allowed).all())
