"""Rules of what is computed element by element: the function on the exact value, and at the corners of the errors.

A function that is monotone in each operand takes its extremes over a box of operands at the box's corners; for a convex
one the distance from the middle does. Whatever is neither has its own treatment below (``_broken``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from keel.opset import Op, Pole, Results

from ..by_member import ByMember
from .error_rules import INF, CallContext, ErrorBound, NoRule, Rule, uncertain, widened
from .mpmath_reference import precise
from .tracked_tensor import (
    BITS,
    Tracked,
    error_of,
    errors,
    inexact,
    lost_of,
    overflow,
    plain_of,
    sums_in,
    ulp,
    unit,
    wide,
    wide_dtype,
)

rule: ByMember[Rule] = ByMember()


def elementwise(call: CallContext) -> Sequence[ErrorBound]:
    """One result; ``ulps`` of it are the budget of the member."""
    member, out = call.member, call.outs[0]
    assert member is not None
    names = list(member.operands) or [n for n in ("self", "x", "other") if n in call.named]
    over = _compute_dtype(call, names)
    arguments = [call.named[n] for n in names]
    values, gaps = zip(*(operand(x, over) for x in arguments), strict=True)

    reference = precise_at.declared.get(member.name)

    def at(*operands: Any) -> Tensor:
        result: Tensor = call_with(call, dict(zip(names, operands, strict=True)))[0]
        return result if reference is None else reference(operands[0], result)

    if member.numerics.steps:
        return [
            _step(
                member,
                at,
                values,
                [g if lost_of(x) is None else error_of(x) for x, g in zip(arguments, gaps, strict=True)],
            )
        ]
    error: Tensor | None
    if any(
        g is not None and (v.is_complex() if isinstance(v, Tensor) else False)
        for v, g in zip(values, gaps, strict=True)
    ):
        value, error = _complex(member.name, at, values, gaps)
    else:
        value, error = corners(at, values, gaps)
        error = _broken(member, value, error, values, gaps)
        error = _overflowed(at, values, value, error, [lost_of(x) for x in arguments], out.dtype)
    error = _added(error, _scaled(call, value, over))
    error = _added(error, _conditioned(member, at, values, value, out.dtype))
    if call.named.get("rounding_mode") == "trunc" and inexact(over):
        error = _added(error, _truncated(values, value, over))
    if not inexact(out.dtype):
        return [ErrorBound(None, error)]
    sure = len(values) == 1 and gaps[0] is None and lost_of(arguments[0]) is None
    if sure and out.dtype == torch.float64 and (better := precise(member.name, values[0], value)) is not None:
        error = _added(error, 0.5 * ulp(better, torch.float64) * (better != 0))
        return [ErrorBound(better, error, budget(member, out.dtype))]
    burst = _burst(member, values, value) if BITS[out.dtype] == 53 else None
    value, error = _reference(member, value, error, out.dtype)
    return [ErrorBound(value, error, budget(member, out.dtype), burst)]


@rule("iota")
def counted(call: CallContext) -> Sequence[ErrorBound]:
    """start + k step: exact where all of it are integers that the dtype holds, else within the member's budget."""
    out, named = call.outs[0], call.named
    value = call.op(*call.args, **{**call.kwargs, "dtype": torch.float64})
    ends = [n for n in (named.get("start", 0), named.get("step", 1), *value[-1:].tolist()) if n is not None]
    exact = all(float(n).is_integer() and abs(n) <= 2.0 ** BITS[out.dtype] for n in ends)
    return [ErrorBound(value, None, 0.0 if exact else budget(call.member, out.dtype))]


def budget(member: Any, dtype: torch.dtype) -> float:
    """The ulps that the member allows itself in results of ``dtype``. Raises NoRule if its budget is no such."""
    budget_of_dtype = member.budget.get(dtype)
    ulps = (
        budget_of_dtype.ulps
        if budget_of_dtype is not None
        else max((b.ulps for b in member.budget.values() if b.ulps is not None), default=None)
    )
    if ulps is None:
        raise NoRule(f"{member.name} has no budget in ulps.")
    return float(ulps)


def _reference(member: Any, value: Tensor, error: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """What float64 itself may be off by: as much as the member allows a float64 result."""
    if dtype not in (torch.float64, torch.complex128):
        return value, error
    own = ulp(value, torch.float64) * budget(member, dtype)
    if member.numerics.exact_zero:
        own = torch.where(value == 0, 0.0, own)
    return value, own if error is None else error + own


precise_at: ByMember[Callable[[Tensor, Tensor], Tensor]] = ByMember()
"""Of members whose float64 eager PyTorch loses somewhere: the result, made of the operand and eager's."""


@precise_at("sigmoid")
def _subnormal(x: Tensor, value: Tensor) -> Tensor:
    """The exponential, which sigmoid is there to the last place; PyTorch has 1 / (1 + exp(-x)), whose exponential
    overflows before the result is subnormal.
    """
    return torch.where(x < -40.0, x.exp(), value) if x.dtype == value.dtype == torch.float64 else value


def call_with(call: CallContext, operands: Mapping[str, Any]) -> tuple[Any, ...]:
    """The results, flat, with some parameters replaced and the rest in float64."""
    names = list(call.named)
    args = [
        operands.get(n, widened(a)) if not isinstance(a, (list, tuple)) else a
        for n, a in zip(names, call.args, strict=False)
    ]
    kwargs = {n: operands.get(n, widened(a)) for n, a in call.kwargs.items()}
    out = call.op(*args, **kwargs)
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def _compute_dtype(call: CallContext, names: Sequence[str]) -> torch.dtype:
    out = call.outs[0]
    if inexact(out.dtype):
        return out.dtype  # type: ignore[no-any-return]
    arguments = [plain_of(call.named[n]) for n in names]
    return torch.result_type(*arguments) if len(arguments) == 2 else arguments[0].dtype


def operand(x: Any, over: torch.dtype) -> tuple[Any, Tensor | None]:
    """Value and error in the dtype computed in. Integers are converted to it first, and so may numbers be."""
    if isinstance(x, Tensor):
        if inexact(over) and not inexact(x.dtype):
            return plain_of(x).to(over).to(wide_dtype(over)), _twice(plain_of(x), over, error_of(x))
        if inexact(over) and over.is_complex and not x.dtype.is_complex:
            return wide(x).to(torch.complex128), error_of(x)
        return _settled(x, over)
    if not inexact(over) or isinstance(x, (bool, complex)):
        return x, None
    near = float(torch.tensor(float(x), dtype=torch.float64).to(over).abs()) * math.copysign(1.0, x)
    off = abs(near - x) if math.isfinite(near) else 0.0
    return x, torch.tensor(off, dtype=torch.float64) if off else None


def _twice(x: Tensor, over: torch.dtype, error: Tensor | None) -> Tensor | None:
    """``error`` of integers that are converted, and an ulp more where they are next to the middle of two numbers: eager
    PyTorch rounds to float32 first, which may end exactly there, and convert.C7 asks for the nearest.
    """
    if BITS[over] >= 24 or x.dtype == torch.bool:
        return error
    value = x.double()
    step = ulp(value, over)
    off_middle = (value - x.to(over).double()).abs() - step / 2
    twice = (value.abs() > 2.0**24) & (off_middle.abs() <= 2 * unit(torch.float32) * value.abs())
    return torch.where(twice, step, 0.0 if error is None else error) if bool(twice.any()) else error


def _settled(x: Tensor, over: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """A tensor of another float dtype may be rounded to the one computed in."""
    value, error = wide(x), x.error if isinstance(x, Tracked) else None
    over = over.to_complex() if x.dtype.is_complex and not over.is_complex and inexact(over) else over
    if x.dtype == over or not inexact(x.dtype) or not inexact(over):
        return value, error
    near = value.to(over).to(value.dtype)
    off = torch.where(near.isfinite() & value.isfinite(), (near - value).abs(), 0.0)
    if not off.any():
        return value, error
    return value, off if error is None else off + error


def corners(
    at: Callable[..., Tensor], values: Sequence[Any], gaps: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """The function on the values, and how far it is from that at the corners of the box of errors at the most.

    Infinity where an operand is not known at all, or where a corner is of another class (NaN, infinite).
    """
    center = at(*values)
    moving = [i for i, g in enumerate(gaps) if g is not None]
    if not moving:
        return center, None
    worst = torch.zeros(center.shape, dtype=torch.float64)
    for signs in product((-1.0, 1.0), repeat=len(moving)):
        moved = list(values)
        for i, sign in zip(moving, signs, strict=True):
            moved[i] = _by(values[i], sign * gaps[i].nan_to_num(INF))  # type: ignore[union-attr]
        worst = torch.maximum(worst, distance(at(*moved), center))
    for i in moving:
        worst = torch.where(gaps[i].isinf(), INF, worst)  # type: ignore[union-attr]
    return center, worst


def _overflowed(
    at: Callable[..., Tensor],
    values: Sequence[Any],
    center: Tensor,
    error: Tensor | None,
    losts: Sequence[Tensor | None],
    dtype: torch.dtype,
) -> Tensor | None:
    """The error where operands may have become infinite: the function is looked at there too. A result that is itself
    beyond the range of ``dtype``, on the same side, is as infinite as the other.
    """
    lost = [i for i, at_ in enumerate(losts) if at_ is not None]
    if not lost or center.is_complex():
        return _unknown(error, losts, center)
    error = torch.zeros(center.shape, dtype=torch.float64) if error is None else error
    reach = overflow(dtype) if inexact(dtype) else INF
    for which in product((False, True), repeat=len(lost)):
        moved = list(values)
        for i, gone in zip(lost, which, strict=True):
            if gone:
                moved[i] = torch.where(losts[i], values[i].sign() * INF, values[i])  # type: ignore[arg-type]
        there = at(*moved)
        beyond = there.isinf() & (center.abs() >= reach) & (there.sign() == center.sign())
        error = torch.where(beyond, error, torch.maximum(error, distance(there, center)))
    return error


def _burst(member: Op, values: Sequence[Any], value: Tensor) -> Tensor | None:
    """Where finite operands give what is not finite, poles left out: the range of float64 ends there."""
    if not member.numerics.overflows or bool(value.isfinite().all()):
        return None
    pole = torch.tensor(False)
    if (at := member.numerics.pole) is not None:
        pole = torch.as_tensor(values[at.operand]) == at.at
    finite = [torch.as_tensor(v).isfinite() for v in values]
    result = ~value.isfinite() & ~pole
    for known in finite:
        result = result & known
    return result if bool(result.any()) else None


def _unknown(error: Tensor | None, losts: Sequence[Tensor | None], center: Tensor) -> Tensor | None:
    for lost in losts:
        if lost is not None:
            error = torch.where(lost, INF, torch.zeros(center.shape, dtype=torch.float64) if error is None else error)
    return error


def _by(x: Any, gap: Tensor) -> Any:
    return _number(x) + gap if isinstance(x, Tensor) else x + gap.item()


def _number(x: Any) -> Any:
    return x.to(torch.float64) if isinstance(x, Tensor) and not inexact(x.dtype) else x


def distance(a: Tensor, b: Tensor) -> Tensor:
    """|a - b| in float64; 0 for equal infinities and two NaNs, infinity for different classes."""
    a, b = (x if inexact(x.dtype) else x.to(torch.float64) for x in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return torch.where(same, 0.0, (a - b).abs().nan_to_num(INF, INF, INF))


def _straddles(value: Any, gap: Tensor | None) -> Tensor | None:
    return None if gap is None else (_absolute(value) <= gap) & (gap > 0)


def _absolute(x: Any) -> Any:
    return x.abs() if isinstance(x, Tensor) else torch.tensor(abs(x), dtype=torch.float64)


def _broken(
    member: Op, value: Tensor, error: Tensor | None, values: Sequence[Any], gaps: Sequence[Tensor | None]
) -> Tensor | None:
    """The error where a function has a pole or a cut within the box, or is neither monotone nor convex."""
    if error is None:
        return None
    if (most := member.numerics.lipschitz) is not None:
        return torch.where(error.isfinite(), torch.minimum(torch.as_tensor(most) * gaps[0], torch.tensor(2.0)), error)  # type: ignore[operator]
    bad = None if member.numerics.pole is None else _on_pole(member.numerics.pole, values, gaps)
    if member.numerics.cut:
        bad = _on_cut(values, gaps)
    return error if bad is None else torch.where(bad.broadcast_to(error.shape), INF, error)


def _on_pole(pole: Pole, values: Sequence[Any], gaps: Sequence[Tensor | None]) -> Tensor | None:
    """Where a pole lies within the box."""
    value, gap = values[pole.operand], gaps[pole.operand]
    if gap is None:
        return None
    if pole.every is not None:
        there = _crosses((value - pole.at) / pole.every, gap, 1 / pole.every)
    else:
        there = (_absolute(value - pole.at) <= gap) & (gap > 0)
    if pole.most < math.inf:
        there = there & (value - gap <= pole.most)
    return there if pole.negative is None else there & (torch.as_tensor(values[pole.negative]) < 0)


def _on_cut(values: Sequence[Any], gaps: Sequence[Tensor | None]) -> Tensor | None:
    """Where the first operand changes its sign within the box beside a second one that is not positive."""
    side = _straddles(values[0], gaps[0])
    left = values[1] - (0.0 if gaps[1] is None else gaps[1]) <= 0
    bad = None if side is None else side & left
    if gaps[1] is not None:
        other = (values[0] == 0) & (_absolute(values[1]) <= gaps[1])
        bad = other if bad is None else bad | other
    return bad


def _crosses(value: Tensor, gap: Tensor | None, scale: float = 1.0) -> Tensor:
    """Whether an integer lies within the error."""
    assert gap is not None
    return torch.floor(value - gap * scale) != torch.floor(value + gap * scale)


def _step(member: Op, at: Callable[..., Tensor], values: Sequence[Any], gaps: Sequence[Tensor | None]) -> ErrorBound:
    """A function that jumps: exact where it is the same at all corners, else nothing is known.

    A remainder that stays on one piece moves with its operands; else it is within other of 0 on both sides.
    """
    facts = member.numerics
    value, error = corners(at, values, gaps)
    retained = value if inexact(value.dtype) else None
    if error is None:
        return ErrorBound(retained, None)
    if facts.quotient is not None:

        def quotient(x: Any, y: Any) -> Tensor:
            q = torch.as_tensor(x / y)
            return q.floor() if facts.quotient == "floor" else q.trunc()

        _, jump = corners(quotient, values, gaps)
        assert jump is not None  # for there is an error
        twice = 2 * _absolute(values[1]) + (0.0 if gaps[1] is None else gaps[1])
        return ErrorBound(retained, torch.where(torch.as_tensor(jump > 0), twice, error))
    if facts.monotone:
        return ErrorBound(retained, error)
    if facts.point:
        both = [torch.zeros((), dtype=torch.float64) if g is None else g for g in gaps]
        near = (_number(values[0]) - _number(values[1])) if not isinstance(values[0], bool) else error
        reach = both[0] + both[1]
        return ErrorBound(
            None, torch.where((torch.as_tensor(near).abs() <= reach) & (reach > 0), INF, 0.0).broadcast_to(value.shape)
        )
    return ErrorBound(retained, torch.where(error > 0, INF, 0.0))


def _complex(
    name: str, at: Callable[..., Tensor], values: Sequence[Any], gaps: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    """Discs instead of boxes (Henrici's circular arithmetic): the error bounds the distance in the plane."""
    value = at(*values)
    if (radius := disc.declared.get(name)) is None:
        raise NoRule(f"The error of {name} of inexact complex numbers is not analyzed.")
    radii = [torch.zeros((), dtype=torch.float64) if g is None else g for g in gaps]
    return value, radius(value, [torch.as_tensor(v) for v in values], radii).broadcast_to(value.shape)


Disc = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], Tensor]
"""The radius of a result's disc, from the result, the operands and the radii of their discs."""
disc: ByMember[Disc] = ByMember()


@disc("add", "sub")
def _sum_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    return radii[0] + radii[1]


@disc("neg", "abs")
def _same_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    return radii[0]


@disc("mul")
def _product_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    (x, y), (ex, ey) = operands, radii
    return ex * y.abs() + ey * x.abs() + ex * ey


@disc("div")
def _quotient_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    room = operands[1].abs() - radii[1]
    return torch.where(room > 0, (radii[0] + value.abs() * radii[1]) / room, INF)


@disc("reciprocal")
def _reciprocal_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    room = operands[0].abs() - radii[0]
    return torch.where(room > 0, value.abs() * radii[0] / room, INF)


@disc("exp")
def _exp_disc(value: Tensor, operands: Sequence[Tensor], radii: Sequence[Tensor]) -> Tensor:
    return value.abs() * torch.expm1(radii[0])


def _added(error: Tensor | None, more: Tensor | None) -> Tensor | None:
    if error is None or more is None:
        return error if more is None else more
    return error + more


STEP = 2.0**-20


def _conditioned(
    member: Any, at: Callable[..., Tensor], values: Sequence[Any], value: Tensor, dtype: torch.dtype
) -> Tensor | None:
    """k u |x f'(x)| of each operand: a mixed forward and backward error of k ulps (Higham 2002, section 1.5), k being
    the budget of the member.

    For complex results, and for functions that come from series. The slope is that of a chord over 2^-20 of the
    operand, in four directions for complex ones.  Where squares of a complex number leave the range of the dtype
    nothing is known: how overflow combines is left open.
    """
    if not inexact(dtype) or not (dtype.is_complex or member.numerics.series):
        return None
    ways = (1, -1, 1j, -1j) if dtype.is_complex else (1, -1)
    total = torch.zeros(value.shape, dtype=torch.float64)
    for i in range(len(values)):
        moved = [at(*(v * (1 + STEP * w) if j == i else v for j, v in enumerate(values))) for w in ways]
        chord = torch.stack([distance(m, value) for m in moved]).amax(0) / STEP
        part = budget(member, dtype) * unit(dtype) * chord
        total = total + part.nan_to_num(INF if dtype.is_complex else 0.0, INF)
    if dtype.is_complex:
        facts = torch.finfo(dtype)
        reach = [torch.as_tensor(v).abs() for v in (*values, value)]
        for r in reach:
            wild = ((r > 0) & (r * r < facts.smallest_normal / facts.eps)) | (r * r > facts.max * facts.eps)
            total = torch.where(wild, INF, total)
        return torch.where(value.isfinite(), total, INF)
    return torch.where(value.isfinite() & total.isfinite(), total, 0.0)


def _truncated(values: Sequence[Any], value: Tensor, over: torch.dtype) -> Tensor:
    """A quotient within rounding of an integer may become it before it is rounded towards zero (div's clause)."""
    quotient = torch.as_tensor(values[0] / values[1])
    ends = [(quotient * (1 + s * 2 * unit(over))).trunc() for s in (-1.0, 1.0)]
    return torch.maximum(*(distance(e, quotient.trunc()) for e in ends)).broadcast_to(value.shape)


def _scaled(call: CallContext, value: Tensor, over: torch.dtype) -> Tensor | None:
    """alpha * other and value * tensor1 may be rounded once before the sum, in what sums are computed in. Where that
    overflows and the sum does not, nothing is known.
    """
    factor = call.named.get("alpha", call.named.get("value", 1))
    scaled = call.named.get("other", call.named.get("tensor1"))
    if factor in (1, -1) or not inexact(over) or scaled is None:
        return None
    by = call.named.get("tensor2", 1)
    part = torch.as_tensor(wide(scaled) if isinstance(scaled, Tensor) else scaled) * factor
    off = 2 * ulp(part.to(torch.complex128 if part.is_complex() else torch.float64), sums_in(over))
    off = (off * (wide(by).abs() if isinstance(by, Tensor) else abs(by))).nan_to_num(0.0, 0.0, 0.0)
    if not value.is_complex() and not part.is_complex():
        most, factors = (
            overflow(sums_in(over)),
            [torch.as_tensor(wide(x) if isinstance(x, Tensor) else x) for x in (scaled, by)],
        )
        subtracted = call.member is not None and call.member.numerics.subtracts is not None
        side = part.sign() * factors[1].sign() * (-1 if subtracted else 1)
        surely = (value.abs() >= most) & (value.sign() == side)
        off = torch.where((part.abs() >= most) & factors[0].isfinite() & ~surely, INF, off)
    return off.broadcast_to(value.shape)


def elementwise_or_unknown(call: CallContext) -> Sequence[ErrorBound]:
    """Of integers and bools with unknown elements too: the greater of two is as far off as they are."""
    if uncertain(call.args, call.kwargs) and not inexact(call.outs[0].dtype):
        shape = call.outs[0].shape
        retained = call.member is not None and call.member.numerics.results is Results.CHOSEN
        gaps = [errors(x) for x in (*call.args, *call.kwargs.values()) if isinstance(x, Tensor)]
        worst = torch.zeros(shape, dtype=torch.float64)
        for g in gaps:
            worst = torch.maximum(worst, (g if retained else torch.where(g > 0, INF, 0.0)).broadcast_to(shape))
        return [ErrorBound(None, worst)]
    return elementwise(call)
