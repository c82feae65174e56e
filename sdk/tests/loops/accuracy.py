"""How far a program of scalar ops is from the truth, in units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mpmath
import torch
from torch import Tensor

from keel.loops.ir import Const
from keel.loops.legalize_scalars import Program
from keel.loops.scalar_semantics import evaluate_op

Meaning = Callable[[str, tuple[Tensor, ...], torch.dtype], Tensor]


def rounded(op: str, args: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    """The op, correctly rounded on f32 (computed in float64); on f64 as good as torch's own."""
    if dtype == torch.float32 and op not in ("bitcast", "nextafter", "cast", "where"):
        wide = evaluate_op(op, tuple(a.double() for a in args), torch.float64)
        return wide.to(torch.float32)
    return evaluate_op(op, args, dtype)


def run(program: Program, operands: tuple[Tensor, ...], meaning: Meaning = rounded) -> Tensor:
    """The program's first output on tensors of one shape."""
    values = list(operands)
    for step in program.steps:
        if isinstance(step, Const):
            values.append(torch.tensor(step.value, dtype=step.dtype))
        else:
            values.append(meaning(step.op, tuple(values[a] for a in step.args), step.dtype))
    return values[program.outputs[0]].expand(operands[0].shape)


MARKS = (0.5, 0.75, 1.0, 2.0**0.5, 2.0, 3.0, 4.0, 10.0, 20.0, 88.0, 88.7, 709.0, 2.0**23, 2.0**28)


def numbers(dtype: torch.dtype, count: int, low: float, high: float, seed: int = 1) -> Tensor:
    """Numbers between ``low`` and ``high``: of all magnitudes, near 1, evenly spread, and where methods change."""
    g = torch.Generator().manual_seed(seed)
    info = torch.finfo(dtype)

    def uniform() -> Tensor:
        return torch.rand(count // 3, generator=g, dtype=torch.float64)

    def sign() -> Tensor:
        return torch.where(uniform() < 0.5, -1.0, 1.0).double()

    magnitudes = 2.0 ** ((uniform() - 0.5) * (250 if dtype == torch.float32 else 2040)) * sign()
    near = 2.0 ** ((uniform() - 0.7) * 20) * sign()
    even = max(low, -120.0) + uniform() * (min(high, 120.0) - max(low, -120.0))
    close = torch.tensor(
        [s * m * (1 + k * info.eps) for m in MARKS for k in range(-3, 4) for s in (1, -1)], dtype=torch.float64
    )
    found = torch.cat((magnitudes, near, even, close)).to(dtype)
    return found[(found >= low) & (found <= high)]


TRUTH: Mapping[str, Callable[..., mpmath.mpf]] = {
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2),
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erfinv": mpmath.erfinv,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "atan2": mpmath.atan2,
    "pow": mpmath.power,
    "fma": lambda x, y, z: x * y + z,
}
RANGES: Mapping[str, tuple[float, float]] = {
    "rsqrt": (0, 1e308),
    "log": (0, 1e308),
    "log2": (0, 1e308),
    "log10": (0, 1e308),
    "log1p": (-1 + 1e-12, 1e308),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "acosh": (1, 1e308),
    "atanh": (-1 + 1e-12, 1 - 1e-12),
    "erfinv": (-1 + 1e-12, 1 - 1e-12),
    "tan": (-100, 100),
    "erf": (-30, 30),
    "erfc": (-30, 30),
    "pow": (1e-300, 1e300),
}


def worst(op: str, got: Tensor, operands: tuple[Tensor, ...]) -> tuple[float, tuple[float, ...]]:
    """The greatest error of ``got`` over operands whose true result is normal, in ulp, and where it is."""
    info = torch.finfo(got.dtype)
    bits = 24 if got.dtype == torch.float32 else 53
    found: tuple[float, tuple[float, ...]] = (0.0, ())
    with mpmath.workprec(140):
        least, greatest = mpmath.mpf(info.smallest_normal), mpmath.mpf(info.max)
        for value, *at in zip(got.tolist(), *(o.tolist() for o in operands), strict=True):
            true = TRUTH[op](*map(mpmath.mpf, at))
            if not least <= abs(true) <= greatest:
                continue
            ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(true), 2)) + 1 - bits)
            error = float(abs(value - true) / ulp) if value == value else float("inf")
            found = max(found, (error, tuple(at)))
    return found
