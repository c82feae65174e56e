"""Every scalar op of the tables in one kernel per dtype, and every cast; what they must give, said with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import torch
from torch import Tensor

from keel import Source
from keel.loops import DTYPE_NAMES, SCALARS, Kernel
from keel_triton.build import build
from keel_triton.render import render

from ..kernels import sized

FLOATS = (torch.float32, torch.float64)
INTS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
INF, NAN = float("inf"), float("nan")

Meaning = Callable[..., Tensor]


def _sqrt(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.sqrt(x)


_COMPARE: Mapping[str, Meaning] = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}
_FLOAT: Mapping[str, Meaning] = {
    **{
        name: getattr(torch, name)
        for name in (
            "abs",
            "floor",
            "ceil",
            "trunc",
            "round",
            "rsqrt",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "erfinv",
            "lgamma",
            "sigmoid",
            "reciprocal",
            "isnan",
            "isinf",
            "add",
            "sub",
            "mul",
            "div",
            "fmod",
            "pow",
            "atan2",
            "copysign",
            "nextafter",
            "minimum",
            "maximum",
            "neg",
        )
    },
    "sqrt": lambda x: torch.from_numpy(_sqrt(x.numpy())),  # correctly rounded, which torch.sqrt on a CPU is not
    "sign": lambda x: torch.sign(x).nan_to_num(0),
    "mod": torch.remainder,
    "where": lambda x, y, z: torch.where(x != 0, y, z),
    "fma": lambda x, y, z: x * y + z,  # the operands are such that it is exact
}
_NUMBER: Mapping[str, Meaning] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "floordiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "truncdiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "mod": torch.remainder,
    "fmod": torch.fmod,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "where": _FLOAT["where"],
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": lambda x, y: x << (y & 7),
    "shr": lambda x, y: x >> (y & 7),
}
_BOOL: Mapping[str, Meaning] = {
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "not": torch.logical_not,
    "where": torch.where,
    **_COMPARE,
}


def meanings(dtype: torch.dtype) -> Mapping[str, Meaning]:
    if dtype == torch.bool:
        return _BOOL
    return {**(_FLOAT if dtype.is_floating_point else _NUMBER), **_COMPARE}


def ops_kernel(dtype: torch.dtype) -> Kernel:
    """out<k>[i] = the k-th op of (in0[i], in1[i], in2[i])."""
    ops, d = meanings(dtype), DTYPE_NAMES[dtype]
    outs = [f"out{k}: {'b8' if SCALARS[op].result == 'bool' else d}[N]" for k, op in enumerate(ops)]
    lines = [
        f"kernel ops(in0: {d}[N], in1: {d}[N], in2: {d}[N]) -> ({', '.join(outs)}):",
        "  parallel i0 < N:",
        *(f"    %{k} = load in{k}[i0]" for k in range(3)),
    ]
    if dtype != torch.bool:
        lines += [f"    %3 = const 0 : {d}", "    %4 = ne %0 %3"]
    if not dtype.is_floating_point and dtype != torch.bool:
        lines += [f"    %5 = const 7 : {d}", "    %6 = and %1 %5"]
    for k, op in enumerate(ops):
        args = ["%0", "%1", "%2"][: SCALARS[op].arity]
        if op == "where" and dtype != torch.bool:
            args[0] = "%4"
        if op in ("shl", "shr"):
            args[1] = "%6"
        lines += [f"    %{10 + k} = {op} {' '.join(args)}", f"    store out{k}[i0] %{10 + k}"]
    return sized("\n".join(lines) + "\n", N=None)


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Every pair of some special and some ordinary values, and a third."""
    if dtype == torch.bool:
        x, y = [True, False], [True, False]
    elif dtype.is_floating_point:
        x = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            3.25,
            -7.75,
            1e-3,
            20.0,
            -20.0,
            1e-40,
            88.5,
            INF,
            -INF,
            NAN,
        ]
        y = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.25, 5.5, INF, -INF, NAN]
    else:
        info = torch.iinfo(dtype)
        x = [0, 1, 2, 3, 7, 100, info.max, *((-1, -2, -7, -100, info.min) if dtype.is_signed else ())]
        y = [1, 2, 3, 7, 50, info.max, *((-1, -3, -7) if dtype.is_signed else ())]
    overflow = (None if dtype.is_floating_point or dtype == torch.bool else torch.iinfo(dtype).min, -1)
    pairs = torch.tensor([p for p in product(x, y) if p != overflow], dtype=dtype)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous(), pairs[:, 0].flip(0).contiguous()


def check_ops(dtype: torch.dtype, device: str) -> list[str]:
    """What the ops got wrong, a line each."""
    kernel, given = ops_kernel(dtype), operands(dtype)
    outs = [torch.zeros(len(given[0]), dtype=b.dtype, device=device) for b in kernel.buffers[3:]]
    (launch,) = build([Source(kernel, render(kernel))])
    launch(*(g.to(device) for g in given), *outs, len(given[0]))
    wrong = []
    for (op, meaning), out in zip(meanings(dtype).items(), outs, strict=True):
        want, defined = meaning(*given[: SCALARS[op].arity]), _defined(op, dtype, given)
        try:
            compare(out.cpu()[defined], want[defined], op)
        except AssertionError as e:
            wrong.append(f"{op} on {DTYPE_NAMES[dtype]}: {e}")
    return wrong


def _defined(op: str, dtype: torch.dtype, given: tuple[Tensor, ...]) -> Tensor:
    """Where PyTorch says what the op's words say."""
    x, y, z = given
    everywhere = torch.ones(len(x), dtype=torch.bool)
    if op == "fma":
        return (x.abs() < 100) & (y.abs() < 100) & (z.abs() < 100) & (x.abs() > 1e-2) & (z.abs() > 1e-2)
    if op == "mod" and dtype.is_floating_point:
        return ~y.isinf()  # torch.remainder gives NaN there, Python's % does not
    return everywhere


ULPS = {"lgamma": 64, "erfinv": 64, "pow": 32, "tan": 16}


def compare(found: Tensor, want: Tensor, op: str) -> None:
    """Within a few units in the last place; sqrt, div and operations without rounding are exact; signs of zeros too."""
    if not want.dtype.is_floating_point:
        bad = found != want
        assert not bad.any(), f"{found[bad][:5].tolist()} is not {want[bad][:5].tolist()}"
        return
    exact = op in (
        "add",
        "sub",
        "mul",
        "div",
        "sqrt",
        "reciprocal",
        "fma",
        "neg",
        "abs",
        "floor",
        "ceil",
        "trunc",
        "round",
        "where",
        "minimum",
        "maximum",
        "copysign",
        "nextafter",
        "fmod",
        "sign",
    )
    eps = 0.0 if exact else torch.finfo(want.dtype).eps * ULPS.get(op, 6)
    tiny = 0.0 if exact else torch.finfo(want.dtype).tiny * 1e-6 if op != "lgamma" else eps
    torch.testing.assert_close(found, want, rtol=eps, atol=tiny, equal_nan=True)
    if op in ("neg", "abs", "copysign", "mul", "trunc", "round", "floor", "ceil"):
        a, b = found.signbit() & ~found.isnan(), want.signbit() & ~want.isnan()
        assert torch.equal(a, b), f"the sign of a zero: {found[a != b][:5].tolist()}"


def check_casts(device: str, *, rounding: bool = True) -> list[str]:
    """What casts between dtypes got wrong, a line each: truncation, wrapping and, with ``rounding``, ties to even.

    Triton's interpreter rounds to bfloat16 without carrying into the exponent, so it is spared that.
    """
    dtypes = (*FLOATS, torch.float16, torch.bfloat16, *INTS, *WIDE_UNSIGNED, torch.bool)
    wrong = []
    for source in dtypes:
        d = DTYPE_NAMES[source]
        outs = [f"out{k}: {DTYPE_NAMES[t]}[N]" for k, t in enumerate(dtypes)]
        lines = [f"kernel casts(in0: {d}[N]) -> ({', '.join(outs)}):", "  parallel i0 < N:", "    %0 = load in0[i0]"]
        for k, t in enumerate(dtypes):
            lines += [f"    %{k + 1} = cast %0 : {DTYPE_NAMES[t]}", f"    store out{k}[i0] %{k + 1}"]
        kernel = sized("\n".join(lines) + "\n", N=None)
        x = _castable(source)
        found = [torch.zeros(len(x), dtype=t, device=device) for t in dtypes]
        (launch,) = build([Source(kernel, render(kernel))])
        launch(x.to(device), *found, len(x))
        for t, f in zip(dtypes, found, strict=True):
            inside = _fits(x, t) & (x.to(t).to(source) == x if t == torch.bfloat16 and not rounding else True)
            got, want = f.cpu()[inside], x[inside].to(t)
            if not torch.equal(got.double().nan_to_num(1e300), want.double().nan_to_num(1e300)):
                wrong.append(f"{d} to {DTYPE_NAMES[t]}: {got.tolist()} is not {want.tolist()}")
    return wrong


def _castable(dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False])
    if dtype.is_floating_point:
        return torch.tensor([0.0, 1.0, -1.0, 0.5, 2.75, -2.75, 100.5, -128.0, 255.0, 3000.0, INF, -INF, NAN]).to(dtype)
    info = torch.iinfo(dtype)
    return torch.tensor([0, 1, 2, 100, info.max, *((-1, -100, info.min) if dtype.is_signed else ())], dtype=dtype)


def _fits(x: Tensor, target: torch.dtype) -> Tensor:
    """Where a float is in the range of an integer dtype; all other casts are defined everywhere."""
    if not x.dtype.is_floating_point or target.is_floating_point or target == torch.bool:
        return torch.ones(len(x), dtype=torch.bool)
    info = torch.iinfo(target)
    return (x.double() >= info.min) & (x.double() <= info.max)
