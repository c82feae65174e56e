"""Elementwise functions of two operands, each a tensor or a number, with PyTorch's promotion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, BOOLS, COMPLEX, FLOATS, HALVES, INTS, NUMBERS, REALS
from keel.spec.numerics import UNSTATED, Numerics, Pole, Results
from keel.spec.op import Budget, Family, Requires, Sample, Samples
from keel.spec.preconditions import broadcasts, no_complex, only
from keel.spec.rules import (
    BOOL,
    Args,
    DtypeRule,
    Out,
    broadcast,
    elementwise,
    floating,
    promoted,
)
from keel.spec.samples import binary, drawn, specials
from keel.spec.unspecified import Unspecified, by_zero
from keel.types import TensorType

family = Family("elementwise binary")

PAIR = promoted("self", "other")
FLOATING = floating(PAIR)
_NAN = Clause("NaN in an operand gives NaN.", About.NONFINITE)
_WRAP = Clause("Integers wrap around.", About.INTEGER_EDGE | About.INTEGER)
_MIXED = Clause("Operands are converted to the promoted dtype first.", About.PROMOTION)
_BY_ZERO = Clause("An integer divided by 0 is an error or any value.", About.INTEGER_EDGE | About.INTEGER)


# -- samples ------------------------------------------------------------------------------------------


def mixed(dtype: torch.dtype, numbers: Iterable[Any], partners: Iterable[torch.dtype]) -> Iterator[Sample]:
    """Numbers as second operands, and tensors of other dtypes with and without dimensions."""
    for n in numbers:
        yield Sample((drawn(dtype, 2, 3, seed=7, low=1), n))
        yield Sample((drawn(dtype, seed=8, low=1), n))
    for other in partners:
        yield Sample((drawn(dtype, 2, 3, seed=9, low=1), drawn(other, 3, seed=10, low=1)))
        yield Sample((drawn(dtype, 2, 3, seed=11, low=1), drawn(other, seed=12, low=1)))
        yield Sample((drawn(dtype, seed=13, low=1), drawn(other, 3, seed=14, low=1)))


def numbers(dtype: torch.dtype) -> Iterator[Sample]:
    """Pairs of one dtype, then of several, and numbers of every kind."""
    yield from binary(dtype)
    kinds: list[Any] = [2, 2.5] if dtype not in COMPLEX else [2, 2.5, 1 + 2j]
    partners = (torch.int8, torch.int64, torch.float32, torch.float64, torch.bfloat16)
    yield from mixed(dtype, kinds, partners if dtype not in (*HALVES, *COMPLEX) else (torch.int64, torch.float64))


def tensors(dtype: torch.dtype) -> Iterator[Sample]:
    """For an operator that takes no numbers."""
    yield from (s for s in numbers(dtype) if isinstance(s.args[1], torch.Tensor))


def scaled(dtype: torch.dtype) -> Iterator[Sample]:
    """With a factor for the second operand."""
    yield from numbers(dtype)
    x, y = drawn(dtype, 2, 3, seed=15), drawn(dtype, 3, seed=16)
    factors: list[Any] = [3, -2] if dtype in (torch.int64, torch.int8) else [2] if dtype in (*INTS, *BOOLS) else [-0.5]
    for alpha in factors:
        yield Sample((x, y), {"alpha": alpha})


def integral(dtype: torch.dtype) -> Iterator[Sample]:
    yield from binary(dtype)
    yield from mixed(dtype, [True] if dtype == torch.bool else [3, True], (torch.bool, torch.int8, torch.int64))


def divided(dtype: torch.dtype) -> Iterator[Sample]:
    """As ``numbers``; integers are divided by no 0, nor the least by -1."""
    for sample in numbers(dtype):
        x, y = sample.args
        if (
            isinstance(y, torch.Tensor)
            and not y.is_floating_point()
            and not y.is_complex()
            and not (isinstance(x, torch.Tensor) and x.is_floating_point())
        ):
            y = torch.where((y == 0) | (y == -1), torch.ones((), dtype=y.dtype), y)
        yield Sample((x, y))


def rounded(dtype: torch.dtype) -> Iterator[Sample]:
    yield from divided(dtype)
    if not dtype.is_complex and dtype != torch.bool:
        for sample in divided(dtype):
            if sample.args[0].numel() < 1000:
                yield from (Sample(sample.args, {"rounding_mode": mode}) for mode in ("floor", "trunc"))


def powers(dtype: torch.dtype) -> Iterator[Sample]:
    """Integers with exponents that are not negative."""
    if dtype.is_floating_point or dtype.is_complex:
        yield from numbers(dtype)
        return
    yield from (Sample((x, y.abs().clamp(max=7) if dtype in INTS else y)) for x, y in (s.args for s in binary(dtype)))
    yield from mixed(dtype, [3, 0.5], (torch.float32, torch.float64, torch.int64))


def shifts(dtype: torch.dtype) -> Iterator[Sample]:
    """By less than nothing, by the width and more too."""
    bits = torch.iinfo(dtype).bits
    amounts = [n for n in (0, 1, 3, bits - 1, bits, bits + 1, 100, -1) if n >= torch.iinfo(dtype).min]
    yield Sample((specials(dtype)[:, None], torch.tensor(amounts, dtype=dtype)))
    yield from (Sample((x, y.abs() if dtype != torch.uint8 else y)) for x, y in (s.args for s in binary(dtype)))
    yield Sample((drawn(dtype, 2, 3, seed=7), 2))
    yield Sample((drawn(dtype, 2, 3, seed=7), drawn(torch.int64, 3, seed=7, low=0)))


# -- declarations -------------------------------------------------------------------------------------


def _declare(
    name: str,
    doc: str,
    *clauses: Clause | str,
    overloads: tuple[str, ...] = ("Tensor", "Scalar"),
    aten: str = "",
    dtypes: tuple[torch.dtype, ...],
    dtype: DtypeRule = PAIR,
    ulps: float = 0.0,
    complex_ulps: float | None = None,
    samples: Samples = numbers,
    operands: tuple[str, str] = ("self", "other"),
    compute: DtypeRule | None = None,
    requires: tuple[Requires, ...] = (),
    more: tuple[str, ...] = (),
    numerics: Numerics = UNSTATED,
    unspecified: Unspecified | None = None,
) -> None:
    """``ulps`` are those of floats of 32 and 64 bits, of a complex number's distance from 0; 16-bit floats are computed
    in float32 and rounded once; integers are exact. ``compute`` is the result's dtype unless another is given.
    """
    integer_ulps = 0.0 if dtype in (PAIR, BOOL) else ulps
    packet = aten or name
    family.primitive(
        name,
        *(f"{packet}.{o}" for o in overloads),
        *more,
        doc=doc,
        clauses=clauses,
        out=(Out(dtype, broadcast(*operands), elementwise(*operands)),),
        operands=operands,
        compute=compute or dtype,
        dtypes=dtypes,
        samples=samples,
        requires=(broadcasts(*operands), *requires),
        tags=frozenset({"pointwise"}),
        numerics=numerics,
        unspecified=unspecified,
        budget={
            d: Budget(
                ulps=min(ulps, 1.0)
                if d in HALVES
                else ulps
                if d in FLOATS
                else integer_ulps
                if d not in COMPLEX
                else complex_ulps or ulps
            )
            for d in dtypes
        },
    )


_SUM = Numerics(overflows=True, exact_zero=True, rounded_once=True, identities=(0.0, 0.0), keeps_dyadics=True)
_declare(
    "add",
    "self + alpha * other.",
    _NAN,
    _WRAP,
    Clause("Infinities of different signs give NaN.", About.NONFINITE),
    Clause("A sum of 0 from operands that are not both -0 is +0.", About.ZERO),
    Clause("For bools it is self or (alpha and other).", About.BOOL),
    Clause("A float alpha needs float operands.", parameters=("alpha",)),
    _MIXED,
    dtypes=ALL,
    ulps=1,
    samples=scaled,
    numerics=_SUM,
)


def _no_bool(args: Args) -> bool:
    return not any(
        isinstance(v, bool) or (isinstance(v, TensorType) and v.dtype == torch.bool)
        for v in (args["self"], args["other"])
    )


_declare(
    "sub",
    "self - alpha * other.",
    _NAN,
    _WRAP,
    Clause("Infinities of the same sign give NaN.", About.NONFINITE),
    Clause("A difference of equal finite numbers is +0.", About.NONFINITE | About.ZERO),
    Clause("A float alpha needs float operands.", parameters=("alpha",)),
    _MIXED,
    dtypes=NUMBERS,
    ulps=1,
    samples=scaled,
    requires=(Requires("no-bool", "No operand is a bool.", _no_bool),),
    numerics=replace(_SUM, subtracts="other"),
)
_declare(
    "mul",
    "self * other.",
    _NAN,
    _WRAP,
    Clause("0 times an infinity gives NaN.", About.NONFINITE),
    "The sign of a result, zero too, is that of self xor that of other.",
    Clause("For bools it is self and other.", About.BOOL),
    Clause(
        "For complex numbers it is (ac - bd) + (ad + bc)i; how infinities combine is not specified.",
        About.NONFINITE | About.COMPLEX,
    ),
    _MIXED,
    dtypes=ALL,
    ulps=2,
    numerics=Numerics(overflows=True, rounded_once=True, identities=(1.0, 1.0), keeps_dyadics=True, zero_absorbs=True),
)


def _quotient(args: Args) -> torch.dtype:
    return (PAIR if args.get("rounding_mode") else FLOATING).of(args)


_declare(
    "div",
    "self / other, rounded to an integer if rounding_mode says so.",
    _NAN,
    Clause("Integers and bools are converted to the default float first, without a rounding mode.", About.INTEGRAL),
    Clause(
        "A finite number over a zero gives the infinity of the product of the signs; 0 / 0 gives NaN.",
        About.NONFINITE | About.ZERO,
    ),
    Clause("An infinity over an infinity gives NaN.", About.NONFINITE),
    Clause(
        "For complex numbers, how infinities, NaN and what overflows combine is not specified.",
        About.NONFINITE | About.COMPLEX,
    ),
    'The mode "floor" rounds the exact quotient down, however self / other rounds.',
    Clause(
        'The mode "trunc" rounds towards zero; a quotient within rounding of an integer may become it first.',
        parameters=("rounding_mode",),
    ),
    _BY_ZERO,
    Clause("The least signed integer over -1 is that integer or an error.", About.INTEGER_EDGE | About.INTEGER),
    _MIXED,
    overloads=("Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    dtypes=ALL,
    ulps=2,
    complex_ulps=4,
    samples=rounded,
    dtype=DtypeRule(f"{PAIR.text} with a rounding mode, else {FLOATING.text}", _quotient),
    requires=(
        Requires(
            "rounding-mode",
            'rounding_mode is None, "floor" or "trunc".',
            lambda args: args.get("rounding_mode") in (None, "floor", "trunc"),
        ),
    ),
    numerics=Numerics(overflows=True, pole=Pole(1), quotient="exact", rounded_once=True, identities=(None, 1.0)),
    unspecified=by_zero,
)
_declare(
    "remainder",
    "self - other * floor(self / other): the remainder with the sign of other.",
    _NAN,
    Clause("A result of zero has the sign of self.", About.ZERO),
    Clause("For floats, a divisor of 0 gives NaN.", About.NONFINITE | About.ZERO),
    Clause("An infinite self gives NaN.", About.NONFINITE),
    Clause("An infinite other gives self where the signs agree or self is 0, else other.", About.NONFINITE),
    _BY_ZERO,
    _MIXED,
    overloads=("Tensor", "Scalar", "Scalar_Tensor"),
    dtypes=REALS,
    ulps=1,
    samples=divided,
    requires=(no_complex("self", "other"),),
    numerics=Numerics(steps=True, quotient="floor"),
    unspecified=by_zero,
)
_declare(
    "fmod",
    "self - other * trunc(self / other): the remainder with the sign of self, exactly.",
    _NAN,
    Clause("A result of zero has the sign of self.", About.ZERO),
    Clause("For floats, a divisor of 0 gives NaN.", About.NONFINITE | About.ZERO),
    Clause("An infinite self gives NaN, an infinite other self.", About.NONFINITE),
    _BY_ZERO,
    _MIXED,
    dtypes=REALS,
    samples=divided,
    requires=(no_complex("self", "other"),),
    numerics=Numerics(steps=True, quotient="trunc"),
    unspecified=by_zero,
)


def _is_integral(args: Args) -> bool:
    exponent, base = args["exponent"], args["self"]
    integral = isinstance(base, TensorType) and not base.dtype.is_floating_point and not base.dtype.is_complex
    return not (integral and isinstance(exponent, int) and exponent < 0)


_declare(
    "pow",
    "self to the power of exponent.",
    Clause("An exponent of 0 gives 1, for NaN too.", About.NONFINITE | About.EDGE, parameters=("exponent",)),
    Clause("A base of 1 gives 1, for an exponent of NaN too.", About.NONFINITE | About.EDGE),
    Clause("Otherwise NaN in an operand gives NaN.", About.NONFINITE),
    Clause("A negative base with an exponent that is not an integer gives NaN.", About.NONFINITE | About.EDGE),
    Clause(
        "A zero to a negative exponent gives inf, with the sign of the zero where the exponent is odd.",
        About.NONFINITE | About.ZERO,
    ),
    Clause("-1 to an infinite exponent gives 1.", About.NONFINITE | About.ZERO),
    _WRAP,
    Clause(
        "For complex numbers it is exp(exponent * log(self)), with the error that the size of the exponent brings.",
        About.COMPLEX,
    ),
    Clause("An integer to a negative exponent, both tensors, gives 0, but for the bases 1 and -1.", About.INTEGER),
    _MIXED,
    overloads=("Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    dtypes=NUMBERS,
    ulps=4,
    complex_ulps=32,
    dtype=promoted("self", "exponent"),
    operands=("self", "exponent"),
    samples=powers,
    requires=(Requires("exponent-not-negative", "No integer is raised to a negative number.", _is_integral),),
    numerics=Numerics(overflows=True, free_zero_sign=True, pole=Pole(negative=1)),
)
_declare(
    "atan2",
    "The angle of the point (other, self), in radians between -pi and pi.",
    _NAN,
    Clause(
        "Signed zeros and infinities are as in IEEE 754: (0, -0) gives pi, (-0, -0) gives -pi, (inf, inf) gives pi/4.",
        About.NONFINITE | About.ZERO,
    ),
    "A result has the sign of self.",
    Clause("Integers and bools are converted to the default float first.", About.INTEGRAL),
    overloads=("default",),
    dtypes=(*REALS, *BOOLS),
    dtype=FLOATING,
    ulps=4,
    samples=tensors,
    requires=(no_complex("self", "other"),),
    numerics=Numerics(free_zero_sign=True, cut=True),
)
for _name, _doc, _bools in (("maximum", "The larger operand.", "or"), ("minimum", "The smaller operand.", "and")):
    _declare(
        _name,
        _doc,
        _NAN,
        Clause("Which zero results from zeros of both signs is not specified.", About.ZERO | About.UNSPECIFIED),
        Clause(f"For bools it is self {_bools} other.", About.BOOL),
        _MIXED,
        overloads=("default",),
        dtypes=(*REALS, *BOOLS),
        samples=tensors,
        requires=(no_complex("self", "other"),),
        numerics=Numerics(free_zero_sign=True, results=Results.CHOSEN),
    )
for _name, _doc in (("eq", "Whether self = other."), ("ne", "Whether self and other differ.")):
    _declare(
        _name,
        _doc,
        Clause("NaN is not equal to anything, itself included.", About.NONFINITE),
        "Zeros of both signs are equal.",
        Clause("Operands are compared in the promoted dtype; a number is rounded to it.", About.PROMOTION),
        dtypes=ALL,
        dtype=BOOL,
        compute=PAIR,
        numerics=Numerics(steps=True, point=True),
    )
for _name, _doc in (
    ("lt", "Whether self < other."),
    ("le", "Whether self <= other."),
    ("gt", "Whether self > other."),
    ("ge", "Whether self >= other."),
):
    _declare(
        _name,
        _doc,
        Clause("NaN in an operand gives False.", About.NONFINITE),
        "Zeros of both signs are equal.",
        Clause("Operands are compared in the promoted dtype; a number is rounded to it.", About.PROMOTION),
        Clause("False is less than True.", About.BOOL),
        dtypes=(*REALS, *BOOLS),
        dtype=BOOL,
        compute=PAIR,
        requires=(no_complex("self", "other"),),
        numerics=Numerics(steps=True),
    )
_BITS = only("self", "other", dtypes=(*INTS, *BOOLS), which="integers or bools")
for _name in ("and", "or", "xor"):
    _declare(
        f"bitwise_{_name}",
        f"Bit by bit, self {_name} other.",
        Clause("Negative integers are in two's complement.", About.INTEGER),
        Clause("For bools the operation is logical.", About.BOOL),
        _MIXED,
        overloads=("Tensor", "Scalar", "Scalar_Tensor"),
        dtypes=(*INTS, *BOOLS),
        samples=integral,
        requires=(_BITS,),
        numerics=Numerics(steps=True),
    )
_ON_INTEGERS = only("self", "other", dtypes=INTS, which="integers")
_declare(
    "shift_left",
    "self with its bits moved up by other.",
    "Bits shifted out are lost, and zeros are shifted in.",
    "A negative amount, or one of the width or more, gives 0.",
    _MIXED,
    overloads=("Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    aten="bitwise_left_shift",
    more=("__lshift__.Tensor", "__lshift__.Scalar"),
    dtypes=INTS,
    samples=shifts,
    requires=(_ON_INTEGERS,),
    numerics=Numerics(steps=True),
)
_declare(
    "shift_right",
    "self with its bits moved down by other.",
    "Bits shifted out are lost, and the sign bit is shifted in.",
    Clause(
        "A negative amount, or one of the width or more, leaves nothing but the sign: 0, or -1 for negative integers.",
        About.INTEGER,
    ),
    _MIXED,
    overloads=("Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    aten="bitwise_right_shift",
    more=("__rshift__.Tensor", "__rshift__.Scalar"),
    dtypes=INTS,
    samples=shifts,
    requires=(_ON_INTEGERS,),
    numerics=Numerics(steps=True),
)
_declare(
    "copysign",
    "The magnitude of self with the sign of other.",
    Clause("The sign of zeros and of NaN in other counts.", About.NONFINITE | About.ZERO),
    Clause("NaN in self gives NaN.", About.NONFINITE),
    Clause("Integers and bools are converted to the default float first.", About.INTEGRAL),
    dtypes=(*REALS, *BOOLS),
    dtype=FLOATING,
    requires=(no_complex("self", "other"),),
    numerics=Numerics(steps=True),
)
_declare(
    "nextafter",
    "The next number after self towards other.",
    _NAN,
    Clause("Equal operands give other.", About.TIES),
    Clause(
        "From a zero it goes to the smallest subnormal, from an infinity to the largest finite number.",
        About.NONFINITE | About.ZERO,
    ),
    overloads=("default",),
    dtypes=FLOATS,
    samples=binary,
    requires=(only("self", "other", dtypes=FLOATS, which="floats"),),
    numerics=Numerics(steps=True),
)
_declare(
    "gcd",
    "The greatest common divisor, not negative.",
    Clause("For two zeros it is 0, for x and 0 it is |x|.", About.ZERO),
    Clause("Where the result does not fit, it wraps around.", About.INTEGER_EDGE),
    _MIXED,
    overloads=("default",),
    dtypes=INTS,
    samples=binary,
    requires=(_ON_INTEGERS,),
    numerics=Numerics(steps=True),
)
