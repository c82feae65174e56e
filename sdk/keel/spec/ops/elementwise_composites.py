"""Elementwise functions that are made of others: PyTorch's decompositions where they are sound, ours where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause, Stated
from keel.spec.dtype_groups import ALL, BOOLS, COMPLEX, FLOATS, INTS, NUMBERS, REALS
from keel.spec.numerics import Numerics
from keel.spec.op import Family, Sample, Samples
from keel.spec.ops.elementwise_binary import divided, numbers, tensors
from keel.spec.ops.operands import common_dtype, floating_dtype, in_math, like
from keel.spec.samples import INF, binary, drawn, unary
from keel.spec.unspecified import by_zero, nan_between_bounds

aten = torch.ops.aten
family = Family("elementwise composites")

Tensor = torch.Tensor
_NAN = Clause("NaN in an operand gives NaN.", About.NONFINITE)
_FLOAT = Clause("Integers and bools are converted to the default float first.", About.INTEGRAL)
_TRUTH = Clause("0 of either sign is false, all else true, NaN too.", About.NONFINITE | About.ZERO)
_TAGS = frozenset({"pointwise"})
ANY_REAL = (*REALS, *BOOLS)


def _declare(
    name: str,
    *overloads: str,
    doc: str,
    clauses: Stated,
    samples: Samples = unary,
    dtypes: tuple[torch.dtype, ...] = ANY_REAL,
    **more: Any,
) -> None:
    """One whose decomposition is PyTorch's."""
    family.composite(
        name, *(overloads or (name,)), doc=doc, clauses=clauses, samples=samples, dtypes=dtypes, tags=_TAGS, **more
    )


def ours(
    *overloads: str, clauses: Stated, samples: Samples = unary, dtypes: tuple[torch.dtype, ...] = ANY_REAL, **more: Any
) -> Callable[..., Any]:
    return family(*overloads, clauses=clauses, samples=samples, dtypes=dtypes, tags=_TAGS, **more)


def triples(dtype: torch.dtype) -> Iterator[Sample]:
    for i, sample in enumerate(binary(dtype)):
        x, y = sample.args
        yield Sample((x, y, drawn(dtype, *torch.broadcast_shapes(x.shape, y.shape), seed=30 + i)))


# -- arithmetic ---------------------------------------------------------------------------------------

_declare(
    "rsub",
    "rsub.Tensor",
    "rsub.Scalar",
    doc="other - alpha * self.",
    clauses=("It is sub with its operands exchanged.",),
    samples=numbers,
    dtypes=NUMBERS,
)
_declare(
    "floor_divide",
    "floor_divide",
    "floor_divide.Scalar",
    doc="self / other, rounded down.",
    clauses=('It is div with the rounding mode "floor".',),
    samples=divided,
    dtypes=REALS,
    unspecified=by_zero,
    numerics=Numerics(quotient="floor"),
)
_declare(
    "frac",
    doc="self - trunc(self).",
    clauses=(
        Clause("NaN gives NaN.", About.NONFINITE),
        Clause("An infinity gives NaN.", About.NONFINITE),
        "A result has the sign of self.",
    ),
    dtypes=FLOATS,
)
_declare("deg2rad", doc="Degrees as radians.", clauses=(Clause("NaN gives NaN.", About.NONFINITE), _FLOAT))
_declare("rad2deg", doc="Radians as degrees.", clauses=(Clause("NaN gives NaN.", About.NONFINITE), _FLOAT))
_declare(
    "addcdiv",
    doc="self + value * tensor1 / tensor2.",
    clauses=(
        "value times tensor1 is divided by tensor2, and the quotient added.",
        _NAN,
        Clause("Integer operands are not supported.", About.INTEGER),
    ),
    samples=triples,
    dtypes=(*FLOATS, *COMPLEX),
)
_declare(
    "round_decimals",
    "round.decimals",
    doc="The nearest number with as many decimals.",
    clauses=(
        Clause("NaN gives NaN.", About.NONFINITE),
        Clause("Ties go to the even neighbor of self * 10 ** decimals.", About.HALFWAY),
        "Negative decimals round to tens, hundreds and so on.",
    ),
    samples=lambda dtype: (Sample(s.args, {"decimals": n}) for s in unary(dtype) for n in (0, 2, -1)),
    dtypes=FLOATS,
    numerics=Numerics(interval=(-99.0, 99.0)),
)
_declare(
    "lcm",
    doc="The least common multiple, not negative.",
    clauses=(
        "If an operand is 0, it is 0.",
        Clause("Where the result does not fit, it wraps around.", About.INTEGER_EDGE),
    ),
    samples=lambda dtype: (
        Sample(tuple(a.clamp(-11, 11) if dtype != torch.uint8 else a.clamp(max=11) for a in s.args))
        for s in binary(dtype)
    ),
    dtypes=INTS,
)


def _weights(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in triples(dtype):
        yield sample
        yield Sample((*sample.args[:2], 0.75))


@ours(
    "lerp.Tensor",
    "lerp.Scalar",
    clauses=(
        "It is measured from the nearer end, so that the weights 0 and 1 give self and end exactly.",
        _NAN,
        "The operands have one dtype.",
    ),
    samples=_weights,
    dtypes=(*FLOATS, *COMPLEX),
)
def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """self + weight * (end - self)."""
    dtype = common_dtype(start, end)
    first, last, w = in_math(dtype, start, end, weight)
    near = aten.lt.Scalar(aten.abs.default(w), 0.5)
    origin = aten.where.self(near, first, last)
    return aten.addcmul.default(origin, aten.where.self(near, w, w - 1), last - first).to(dtype)


@ours(
    "hypot",
    clauses=(
        Clause("An infinity gives +inf, even with a NaN.", About.NONFINITE),
        Clause("Otherwise NaN gives NaN.", About.NONFINITE),
        Clause("Nothing overflows or underflows on the way.", About.NONFINITE),
    ),
    samples=binary,
    dtypes=FLOATS,
)
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(self^2 + other^2)."""
    dtype = common_dtype(x, y)
    left, right = (aten.abs.default(t) for t in in_math(dtype, x, y))
    high, low = aten.maximum.default(left, right), aten.minimum.default(left, right)
    ratio = low / high
    length = high * aten.sqrt.default(aten.addcmul.default(like(1.0, high), ratio, ratio))
    length = aten.where.self(aten.eq.Scalar(high, 0), like(0.0, high), length)
    endless = aten.bitwise_or.Tensor(aten.eq.Scalar(left, INF), aten.eq.Scalar(right, INF))
    return aten.where.self(endless, like(INF, high), length).to(dtype)


def _exponents(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in unary(dtype):
        for reach in (5.0, 40.0, 300.0) if dtype.is_floating_point else (5.0,):
            yield Sample((*sample.args, drawn(torch.int32, *sample.args[0].shape, seed=40, low=-reach, high=reach)))
    yield Sample((drawn(dtype, 2, 3), drawn(dtype, 3, seed=41)))
    for other in (torch.float32, torch.float64):
        yield Sample((drawn(dtype, 2, 3), drawn(other, 2, 3, seed=42)))
    yield Sample((drawn(dtype), drawn(torch.int32, 3, 2, seed=43).t()))


@ours(
    "ldexp.Tensor",
    clauses=(
        Clause("It overflows and underflows only where the result does.", About.NONFINITE),
        Clause("NaN gives NaN.", About.NONFINITE),
        "An exponent may be a fraction.",
    ),
    samples=_exponents,
    dtypes=ANY_REAL,
)
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """self * 2 ** other."""
    if x.is_complex() or exponent.is_complex():
        integral = not (exponent.is_floating_point() or exponent.is_complex())
        return x * aten.pow.Scalar(2.0, exponent.to(x.dtype) if integral else exponent)
    dtype = floating_dtype(x, exponent if exponent.is_floating_point() else 1.0)
    (value,) = in_math(dtype, x)
    exponent = exponent.to(torch.int32) if exponent.dtype == torch.bool else exponent
    reach = 2300 if value.dtype == torch.float64 else 400
    high, low = min(reach, _most(exponent.dtype)), -min(reach, _least(exponent.dtype))
    bounded = aten.maximum.default(aten.minimum.default(exponent, like(high, exponent)), like(low, exponent))
    integral = bounded.to(value.dtype)
    part = aten.trunc.default(integral * 0.25)  # four factors, none of which overflows by itself
    step = aten.exp2.default(part)
    rest = aten.exp2.default(integral - part * 3)
    return (value * rest * step * step * step).to(dtype)


def _most(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max


def _least(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point else -torch.iinfo(dtype).min


# -- logarithms ---------------------------------------------------------------------------------------

_declare(
    "xlogy",
    "xlogy.Tensor",
    "xlogy.Scalar_Self",
    "xlogy.Scalar_Other",
    doc="self * log(other).",
    clauses=(
        Clause("NaN in other gives NaN.", About.NONFINITE),
        Clause("A self of 0 gives 0, unless other is NaN.", About.NONFINITE, parameters=("self",)),
        _FLOAT,
    ),
    samples=numbers,
)
for _name, _doc in (("logaddexp", "log(exp(self) + exp(other))"), ("logaddexp2", "log2(2 ** self + 2 ** other)")):
    _declare(
        _name,
        doc=f"{_doc}, without overflow.",
        clauses=(
            _NAN,
            Clause("Equal infinities give that infinity.", About.NONFINITE),
            "The larger operand is at most the result.",
        ),
        samples=binary,
        dtypes=FLOATS,
    )


def _probabilities(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in unary(dtype):
        yield sample
        yield Sample((*sample.args, 0.1))
    if dtype.is_floating_point:
        yield Sample((drawn(dtype, 300, low=0, high=1),))
        yield Sample((drawn(dtype, 300, low=0, high=1), 0.7))


_declare(
    "logit",
    doc="log(self / (1 - self)).",
    clauses=(
        Clause("NaN gives NaN.", About.NONFINITE),
        Clause("0 gives -inf and 1 gives +inf; outside [0, 1] it gives NaN.", About.NONFINITE | About.ZERO),
        Clause(
            "With eps, elements below eps become eps, and other elements above 1 - eps become 1 - eps.",
            parameters=("eps",),
        ),
        _FLOAT,
    ),
    samples=_probabilities,
    numerics=Numerics(interval=(-0.25, 1.25)),
)


@ours(
    "logit_backward",
    clauses=(
        Clause("With eps it is 0 outside [eps, 1 - eps].", parameters=("eps",)),
        Clause("Without, it is NaN outside [0, 1], and infinite at 0 and 1.", About.NONFINITE),
        Clause(
            "With eps, the result for NaN is not specified: PyTorch's vectors give 0, its scalar code and CUDA NaN.",
            About.NONFINITE,
            parameters=("eps",),
        ),
        "A negative eps counts as none.",
    ),
    samples=lambda dtype: (
        Sample((drawn(dtype, 300, seed=1), drawn(dtype, 300, low=-0.2, high=1.2, seed=2), eps))
        for eps in (None, 0.1, -1.0)
    ),
    dtypes=FLOATS,
    unspecified=nan_between_bounds,
)
def logit_backward(grad: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """The gradient of logit: grad / (self * (1 - self))."""
    dtype = common_dtype(grad, x)
    slope, value = in_math(dtype, grad, x)
    low, outside = (0.0, float("nan")) if eps is None or eps < 0 else (eps, 0.0)
    inside = aten.bitwise_and.Tensor(aten.ge.Scalar(value, low), aten.le.Scalar(value, 1.0 - low))
    return aten.where.self(inside, slope / (value * (1.0 - value)), like(outside, slope)).to(dtype)


_declare(
    "sinc",
    doc="sin(pi self) / (pi self).",
    clauses=(Clause("NaN and infinities give NaN.", About.NONFINITE), Clause("0 gives 1.", About.ZERO), _FLOAT),
)


# -- parts and signs ----------------------------------------------------------------------------------

_declare(
    "heaviside",
    doc="0 below 0, 1 above, values at 0.",
    clauses=(
        Clause("A zero of either sign counts as 0.", About.ZERO),
        Clause("NaN in self gives NaN or 0.", About.NONFINITE),
        "The operands have one dtype.",
    ),
    samples=binary,
)
_declare(
    "isposinf", doc="Whether an element is +inf.", clauses=(Clause("An integer or bool never is.", About.INTEGRAL),)
)
_declare(
    "isneginf", doc="Whether an element is -inf.", clauses=(Clause("An integer or bool never is.", About.INTEGRAL),)
)


@ours(
    "signbit",
    clauses=(
        Clause("The sign bit of floats counts, that of zeros and of NaN too.", About.NONFINITE),
        Clause("For integers it is x < 0.", About.INTEGER),
        Clause("For bool and unsigned integers it is false.", About.INTEGRAL | About.UINT8),
    ),
)
def signbit(x: Tensor) -> Tensor:
    """Whether an element has its sign bit set."""
    if x.dtype == torch.bool:
        return aten.full.default(x.shape, False, dtype=torch.bool, device=x.device)
    return aten.lt.Scalar(aten.copysign.Tensor(like(1.0, x), x) if x.is_floating_point() else x, 0)


def _replacements(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in unary(dtype):
        yield sample
        yield Sample((*sample.args, 1.0, 2.0, 3.0))


_declare(
    "nan_to_num",
    doc="NaN and infinities replaced by numbers.",
    clauses=(
        Clause("NaN becomes nan, or 0 without one.", About.NONFINITE),
        Clause(
            "+inf becomes posinf, or the largest finite number; -inf becomes neginf, or the least.", About.NONFINITE
        ),
        Clause("Other elements, integers and bools stay.", About.INTEGRAL),
    ),
    samples=_replacements,
)
_declare(
    "masked_fill",
    "masked_fill.Scalar",
    "masked_fill.Tensor",
    doc="value where mask holds, else self.",
    clauses=(
        Clause("value has no dimensions, and is converted to the dtype of self.", About.SCALAR, parameters=("value",)),
    ),
    samples=lambda dtype: (Sample((*s.args, drawn(torch.bool, *s.args[0].shape), 1)) for s in unary(dtype)),
    dtypes=ALL,
)


# -- truth --------------------------------------------------------------------------------------------

_CONVERTED = Clause(
    "Operands are converted to their common dtype first: an integer without dimensions may wrap to 0.",
    About.SCALAR | About.PROMOTION,
)


def _truths(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    dtype = common_dtype(x, y)
    return x.to(dtype).to(torch.bool), y.to(dtype).to(torch.bool)


@ours("logical_and", clauses=(_TRUTH, _CONVERTED), samples=tensors, dtypes=ALL)
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """Whether self and other."""
    return aten.bitwise_and.Tensor(*_truths(x, y))


@ours("logical_or", clauses=(_TRUTH, _CONVERTED), samples=tensors, dtypes=ALL)
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    """Whether self or other."""
    return aten.bitwise_or.Tensor(*_truths(x, y))


@ours("logical_xor", clauses=(_TRUTH, _CONVERTED), samples=tensors, dtypes=ALL)
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    """Whether self or other, and not both."""
    return aten.bitwise_xor.Tensor(*_truths(x, y))


_declare("logical_not", doc="Whether an element is false.", clauses=(_TRUTH,), dtypes=ALL)


def _number_over_nan(x: Tensor, y: Tensor, better: Callable[..., Tensor]) -> Tensor:
    dtype = common_dtype(x, y)
    left, right = x.to(dtype), y.to(dtype)
    best = better(left, right)
    if not dtype.is_floating_point:
        return best
    best = aten.where.self(aten.isnan.default(right), left, best)
    return aten.where.self(aten.isnan.default(left), right, best)


_LOSES = (
    Clause("NaN and a number give the number; two NaNs give NaN.", About.NONFINITE),
    Clause("Which zero results from zeros of both signs is not specified.", About.ZERO | About.UNSPECIFIED),
)


@ours("fmax", clauses=_LOSES, samples=tensors)
def fmax(x: Tensor, y: Tensor) -> Tensor:
    """The larger operand; NaN counts as none."""
    return _number_over_nan(x, y, aten.maximum.default)


@ours("fmin", clauses=_LOSES, samples=tensors)
def fmin(x: Tensor, y: Tensor) -> Tensor:
    """The smaller operand; NaN counts as none."""
    return _number_over_nan(x, y, aten.minimum.default)


# -- gradients of primitives --------------------------------------------------------------------------


def _in_range(dtype: torch.dtype) -> Iterator[Sample]:
    """Gradients, and results of a function between -1 and 1 (0 and 1)."""
    for i, shape in enumerate(((), (7,), (2, 0), (300,))):
        yield Sample((drawn(dtype, *shape, seed=50 + i), drawn(dtype, *shape, seed=60 + i, low=0, high=1)))
        yield Sample((drawn(dtype, *shape, seed=50 + i), 1 - drawn(dtype, *shape, seed=60 + i, low=0, high=0.01)))


_declare(
    "sigmoid_backward",
    doc="grad * (1 - output) * output.",
    clauses=(Clause("output is what sigmoid gave.", parameters=("output",)),),
    samples=_in_range,
    dtypes=(*FLOATS, *COMPLEX),
)


@ours(
    "tanh_backward",
    clauses=(Clause("output is what tanh gave.", parameters=("output",)), "It does not cancel where output is near 1."),
    samples=_in_range,
    dtypes=(*FLOATS, *COMPLEX),
)
def tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    """grad * (1 - output^2)."""
    dtype = common_dtype(grad, output)
    g, y = in_math(dtype, grad, output)
    slope = (1 - y) * (1 + y)
    return (g * (aten.conj_physical.default(slope) if slope.is_complex() else slope)).to(dtype)
