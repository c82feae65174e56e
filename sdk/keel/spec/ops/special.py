"""Special functions: those that eager computes by series and recurrences of its own, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import BOOLS, FLOATS, INTS, REALS
from keel.spec.numerics import UNSTATED, Numerics
from keel.spec.op import Budget, Family, Sample, Samples
from keel.spec.ops.operands import floating_dtype, in_math, like, math_dtype
from keel.spec.preconditions import broadcasts, only
from keel.spec.rules import Out, broadcast, elementwise, floating, promoted, shape_of
from keel.spec.rules import like as dtype_of
from keel.spec.samples import drawn, layouts, unary

aten = torch.ops.aten
family = Family("special functions", "special")

Tensor = torch.Tensor
_NAN = Clause("NaN gives NaN.", About.NONFINITE)
_FLOAT = Clause("Integers and bools are converted to the default float first.", About.INTEGRAL)
_TAGS = frozenset({"pointwise"})
WIDE = (torch.float32, torch.float64, *INTS, *BOOLS)  # what eager has kernels for


# -- of one operand -----------------------------------------------------------------------------------


def _declare(
    name: str,
    doc: str,
    *clauses: Clause | str,
    aten: str = "",
    dtypes: tuple[torch.dtype, ...] = WIDE,
    operand: str = "self",
    budget: Budget,
    numerics: Numerics = UNSTATED,
) -> None:
    dtype = floating(dtype_of(operand))
    family.primitive(
        name,
        aten or f"special_{name}",
        doc=doc,
        clauses=(_NAN, *clauses, _FLOAT),
        out=(Out(dtype, shape_of(operand), elementwise(operand)),),
        dtypes=dtypes,
        samples=unary,
        operands=(operand,),
        compute=dtype,
        budget=dict.fromkeys(dtypes, budget),
        tags=_TAGS,
        numerics=numerics,
    )


_SMOOTH, _WAVES = Budget(ulps=24), Budget(times=2.0)
_SERIES = Numerics(series=True)
_declare(
    "i0",
    "The modified Bessel function of the first kind, of order 0.",
    Clause("It is even, and 1 at 0.", About.ZERO),
    Clause("An infinity gives +inf or NaN.", About.NONFINITE),
    aten="i0",
    dtypes=(*REALS, *BOOLS),
    budget=_SMOOTH,
    numerics=_SERIES,
)
_declare(
    "i0e",
    "exp(-|x|) * i0(x).",
    Clause("It is even, and 1 at 0.", About.ZERO),
    Clause("An infinity gives 0.", About.NONFINITE),
    dtypes=(*REALS, *BOOLS),
    budget=_SMOOTH,
    numerics=_SERIES,
)
_declare(
    "i1",
    "The modified Bessel function of the first kind, of order 1.",
    Clause("It is odd, and 0 at 0.", About.ZERO),
    Clause("An infinity gives an infinity or NaN.", About.NONFINITE),
    dtypes=(*REALS, *BOOLS),
    budget=_SMOOTH,
    numerics=_SERIES,
)
_declare(
    "i1e",
    "exp(-|x|) * i1(x).",
    Clause("It is odd, and 0 at 0.", About.ZERO),
    Clause("An infinity gives 0.", About.NONFINITE),
    dtypes=(*REALS, *BOOLS),
    budget=_SMOOTH,
    numerics=_SERIES,
)
for _order in ("0", "1"):
    _declare(
        f"modified_bessel_k{_order}",
        f"The modified Bessel function of the second kind, of order {_order}.",
        Clause("0 gives +inf.", About.NONFINITE | About.ZERO),
        Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
        Clause("+inf gives 0.", About.NONFINITE),
        budget=_SMOOTH,
        numerics=_SERIES,
    )
    _declare(
        f"scaled_modified_bessel_k{_order}",
        f"exp(x) * modified_bessel_k{_order}(x).",
        Clause("0 gives +inf.", About.NONFINITE | About.ZERO),
        Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
        Clause("+inf gives 0.", About.NONFINITE),
        operand="x",
        budget=_SMOOTH,
        numerics=_SERIES,
    )
    _declare(
        f"bessel_j{_order}",
        f"The Bessel function of the first kind, of order {_order}.",
        Clause(f"It is {'odd' if int(_order) else 'even'}, and {1 - int(_order)} at 0.", About.ZERO),
        budget=_WAVES,
    )
    _declare(
        f"bessel_y{_order}",
        f"The Bessel function of the second kind, of order {_order}.",
        Clause("0 gives -inf.", About.NONFINITE | About.ZERO),
        Clause("A negative number gives NaN.", About.NONFINITE | About.EDGE),
        budget=_WAVES,
    )
_declare(
    "airy_ai", "The Airy function Ai.", "It solves y'' = x y and falls off to the right.", operand="x", budget=_WAVES
)
_declare(
    "erfcx",
    "exp(x^2) * erfc(x), without overflow of the factors.",
    Clause("+inf gives 0.", About.NONFINITE),
    Clause("-inf gives +inf.", About.NONFINITE),
    budget=_SMOOTH,
    numerics=_SERIES,
)
_declare(
    "ndtri",
    "The argument at which the normal distribution function is x.",
    Clause("0 gives -inf and 1 gives +inf.", About.NONFINITE | About.ZERO),
    Clause("Outside [0, 1] it gives NaN.", About.NONFINITE | About.EDGE),
    budget=_SMOOTH,
    numerics=_SERIES,
)


# -- of two -------------------------------------------------------------------------------------------


def _orders(dtype: torch.dtype) -> Iterator[Sample]:
    """Arguments, and orders that are small whole numbers."""
    for shape, other in (((), ()), ((7,), (7,)), ((2, 3), (3,)), ((2, 1, 3), (5, 1)), ((0,), (1,))):
        yield Sample(
            (
                drawn(dtype, *shape, seed=1, low=0, high=2),
                drawn(dtype, *other, seed=2, low=0, high=9).to(torch.float64).floor().to(dtype),
            )
        )
    for x in layouts(dtype, 3):
        yield Sample((x, drawn(dtype, *x.shape, seed=4, low=0, high=9)))
    yield Sample((drawn(dtype, 3, seed=5), 3))
    yield Sample((drawn(dtype, 3, seed=5), drawn(torch.int64, 3, seed=6, low=0)))
    yield Sample((0.5, drawn(dtype, 3, seed=6, low=0)))


def _of_two(
    name: str,
    doc: str,
    *clauses: Clause | str,
    operands: tuple[str, str] = ("self", "other"),
    overloads: tuple[str, ...],
    dtypes: tuple[torch.dtype, ...] = WIDE,
    samples: Samples = _orders,
    budget: Budget,
    numerics: Numerics = UNSTATED,
    **more: Any,
) -> None:
    dtype = floating(promoted(*operands))
    family.primitive(
        name,
        *overloads,
        doc=doc,
        clauses=(*clauses, _FLOAT),
        out=(Out(dtype, broadcast(*operands), elementwise(*operands)),),
        operands=operands,
        compute=dtype,
        dtypes=dtypes,
        samples=samples,
        budget=dict.fromkeys(dtypes, budget),
        tags=_TAGS,
        numerics=numerics,
        requires=(broadcasts(*operands), *more.get("requires", ())),
    )


def _exponents(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _orders(dtype):
        x, q = sample.args
        yield Sample((x + 1.5 if isinstance(x, float) or x.is_floating_point() else x, q))


def _shapes(dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _orders(dtype):
        if isinstance(sample.args[0], torch.Tensor) and isinstance(sample.args[1], torch.Tensor):
            a, x = sample.args
            yield Sample((a.abs() + 0.25, x.abs().to(dtype)))


_of_two(
    "zeta",
    "The Hurwitz zeta function: the sum of (other + k) ** -self over k = 0, 1 ...",
    Clause("NaN in an operand gives NaN.", About.NONFINITE),
    Clause("A self of 1 gives +inf, less than 1 gives NaN.", About.NONFINITE, parameters=("self",)),
    Clause("Where other is 0 or a negative integer it gives +inf.", About.NONFINITE),
    Clause("A negative other that is not an integer gives NaN unless self is an integer.", About.NONFINITE),
    overloads=("special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar"),
    samples=_exponents,
    budget=_SMOOTH,
    numerics=_SERIES,
)
_FLOATS_ONLY = (only("self", "other", dtypes=FLOATS, which="floats"),)
_of_two(
    "igamma",
    "The lower incomplete gamma function of shape self up to other, over gamma(self).",
    Clause("NaN in an operand gives NaN.", About.NONFINITE),
    Clause("A negative operand gives NaN, two zeros too.", About.NONFINITE | About.ZERO),
    Clause("A self of 0 gives 1 and an other of 0 gives 0.", parameters=("self",)),
    Clause("An other of +inf gives 1.", About.NONFINITE, parameters=("other",)),
    overloads=("igamma",),
    dtypes=FLOATS,
    samples=_shapes,
    budget=_WAVES,
    requires=_FLOATS_ONLY,
)
_of_two(
    "igammac",
    "The upper incomplete gamma function of shape self from other, over gamma(self).",
    Clause("NaN in an operand gives NaN.", About.NONFINITE),
    Clause("A negative operand gives NaN, two zeros too.", About.NONFINITE | About.ZERO),
    Clause("A self of 0 gives 0 and an other of 0 gives 1.", parameters=("self",)),
    Clause("An other of +inf gives 0.", About.NONFINITE, parameters=("other",)),
    overloads=("igammac",),
    dtypes=FLOATS,
    samples=_shapes,
    budget=_WAVES,
    requires=_FLOATS_ONLY,
)
for _name, _doc, _first in (
    ("chebyshev_polynomial_t", "The Chebyshev polynomial of the first kind", "1, x"),
    ("chebyshev_polynomial_u", "The Chebyshev polynomial of the second kind", "1, 2x"),
    ("chebyshev_polynomial_v", "The Chebyshev polynomial of the third kind", "1, 2x - 1"),
    ("chebyshev_polynomial_w", "The Chebyshev polynomial of the fourth kind", "1, 2x + 1"),
    ("shifted_chebyshev_polynomial_t", "chebyshev_polynomial_t of 2x - 1", "1, 2x - 1"),
    ("shifted_chebyshev_polynomial_u", "chebyshev_polynomial_u of 2x - 1", "1, 4x - 2"),
    ("shifted_chebyshev_polynomial_v", "chebyshev_polynomial_v of 2x - 1", "1, 4x - 3"),
    ("shifted_chebyshev_polynomial_w", "chebyshev_polynomial_w of 2x - 1", "1, 4x - 1"),
    ("hermite_polynomial_h", "The Hermite polynomial of physics", "1, 2x"),
    ("hermite_polynomial_he", "The Hermite polynomial of probability", "1, x"),
    ("laguerre_polynomial_l", "The Laguerre polynomial", "1, 1 - x"),
    ("legendre_polynomial_p", "The Legendre polynomial", "1, x"),
):
    _of_two(
        _name,
        f"{_doc}, of degree n at x.",
        f"Those of degree 0 and 1 are {_first}.",
        "A negative degree gives 0; a degree that is not an integer is rounded towards zero.",
        operands=("x", "n"),
        overloads=tuple(f"special_{_name}.{o}" for o in ("default", "n_scalar", "x_scalar")),
        budget=_WAVES,
    )


# -- made of these ------------------------------------------------------------------------------------


@family("special_modified_bessel_i0", clauses=("It is i0.",), samples=unary, dtypes=WIDE, tags=_TAGS)
def modified_bessel_i0(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 0."""
    return aten.i0.default(x)


@family("special_modified_bessel_i1", clauses=("It is i1.",), samples=unary, dtypes=WIDE, tags=_TAGS)
def modified_bessel_i1(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind, of order 1."""
    return aten.special_i1.default(x)


@family(
    "special_spherical_bessel_j0",
    clauses=(_NAN, Clause("0 gives 1.", About.ZERO), Clause("An infinity gives 0.", About.NONFINITE), _FLOAT),
    samples=unary,
    dtypes=WIDE,
    tags=_TAGS,
)
def spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x."""
    (value,) = in_math(floating_dtype(x), x)
    ratio = aten.where.self(aten.isinf.default(value), like(0.0, value), aten.sin.default(value) / value)
    return aten.where.self(aten.eq.Scalar(value, 0), like(1.0, value), ratio).to(floating_dtype(x))


@family(
    "special_log_ndtr",
    clauses=(
        _NAN,
        Clause("+inf gives 0 and -inf gives -inf.", About.NONFINITE),
        "Far below 0 it is about -x^2 / 2, without underflow on the way.",
        _FLOAT,
    ),
    samples=unary,
    dtypes=WIDE,
    tags=_TAGS,
)
def log_ndtr(x: Tensor) -> Tensor:
    """The logarithm of the normal distribution function."""
    (value,) = in_math(floating_dtype(x), x)
    scaled = value * math.sqrt(0.5)
    below = aten.log.default(aten.special_erfcx.default(aten.neg.default(scaled)) * 0.5)
    below = aten.addcmul.default(below, scaled, scaled, value=-1)
    above = aten.log1p.default(aten.erfc.default(scaled) * -0.5)
    return aten.where.self(aten.lt.Scalar(value, -1), below, above).to(floating_dtype(x))


@family(
    "polygamma",
    clauses=(
        _NAN,
        "Degree 0 is digamma.",
        Clause("0 and negative integers give an infinity or a large number, and NaN for degree 0.", About.NONFINITE),
        _FLOAT,
    ),
    samples=lambda dtype: (Sample((n, *s.args)) for s in unary(dtype) for n in (0, 1, 2, 5)),
    dtypes=WIDE,
    tags=_TAGS,
)
def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma."""
    dtype = floating_dtype(x)
    (value,) = in_math(dtype, x)
    if n == 0:
        return aten.digamma.default(value).to(dtype)
    if n == 1:
        return _trigamma(value).to(dtype)
    order = aten.full.default([], n + 1.0, dtype=math_dtype(dtype), device=x.device)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    return (aten.special_zeta.default(order, value) * (factorial if n % 2 else -factorial)).to(dtype)


def _trigamma(x: Tensor) -> Tensor:
    """zeta(2, x), and left of 1/2 by the reflection pi^2 / sin^2(pi x) - zeta(2, 1 - x)."""
    left = aten.lt.Scalar(x, 0.5)
    right = aten.special_zeta.default(like(2.0, x), aten.where.self(left, 1 - x, x))
    sine = aten.sin.default((x - aten.round.default(x)) * math.pi)
    reflected = math.pi**2 / (sine * sine) - right
    return aten.where.self(left, reflected, right)


family.composite(
    "special_entr",
    "special_entr",
    doc="-x * log(x).",
    clauses=(
        _NAN,
        Clause("0 gives 0.", About.ZERO),
        Clause("A negative number gives -inf.", About.NONFINITE | About.EDGE),
        _FLOAT,
    ),
    samples=unary,
    dtypes=(*REALS, *BOOLS),
    tags=_TAGS,
)
family.composite(
    "special_xlog1py",
    *(f"special_xlog1py{o}" for o in ("", ".other_scalar", ".self_scalar")),
    doc="self * log1p(other).",
    clauses=(
        Clause("NaN in other gives NaN.", About.NONFINITE),
        Clause("A self of 0 gives 0, unless other is NaN.", About.NONFINITE, parameters=("self",)),
        _FLOAT,
    ),
    samples=lambda dtype: (Sample((drawn(dtype, 2, 3, seed=n), drawn(dtype, 3, seed=n + 1))) for n in range(3)),
    dtypes=(*REALS, *BOOLS),
    tags=_TAGS,
)
family.composite(
    "mvlgamma",
    "mvlgamma",
    doc="The logarithm of the multivariate gamma function of dimension p.",
    clauses=(
        "It is p (p - 1) / 4 * log(pi) plus the sum of lgamma(x - j / 2) over j < p.",
        "Every element is more than (p - 1) / 2.",
    ),
    samples=lambda dtype: (Sample((drawn(dtype, 2, 3, seed=n, low=3, high=9), n + 1)) for n in range(4)),
    dtypes=FLOATS,
    tags=_TAGS,
)
