"""Domains of random members: sizes, dtypes, and parameters at the ends of their ranges. A case does not fix the values
that are drawn. Large cases are marked ``statistics``, so that their distribution is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from keel.opset import Op

from ...by_member import ByMember
from ..domain import Domain, InvalidCall, Levels, Rule
from ..shapes import shapes
from ..values import SeededValues
from .call_templates import FLOATS, OWN, CallTemplate, TensorArg, always, domain, invalid_call

SHAPES = shapes(
    "129x8",
    "7x33",
    "2x3x4x50",
    "70001",
    "1025",
    "33x65",
    "1000",
    "255",
    "127x3",
    "50x1x9",
    "257",
    "2x0x3",
    "17",
    "0d",
    "1",
    "0",
)
FEW = ("17", "0d", "1", "0", "2x0x3")
"""Sizes of so few draws that these say little: not in each layout."""
PAIRS: Mapping[str, tuple[float, float]] = {
    "usual": (0.0, 1.0),
    "apart": (-3.0, 5.0),
    "narrow": (0.25, 0.75),
    "below": (-8.0, -1.0),
}
BOUNDS: Mapping[str, tuple[int, int]] = {
    "coin": (0, 2),
    "one": (5, 6),
    "signed": (-7, 8),
    "byte": (0, 127),
    "below": (-100, -50),
    "wide": (-(2**41), 2**42 + 3),
}
SHARES: Mapping[str, float] = {"half": 0.5, "none": 0.0, "all": 1.0, "few": 0.1, "most": 0.9}
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.float32, torch.float64)
RANGES = ("own", "to_coin", "to_byte", "to_high")
"""Of integers in a tensor's own dtype: all that it holds, or those up to a number. No graph that PyTorch writes as
Python has the overload with a lower bound, whose name is ``from``.
"""
ROWS = shapes("20000x3", "1025x5", "33x65", "7x2", "50x1x9", "3", "257x33", "129x8", "2x0x3", "0x4", "400x2")
"""Sizes whose last dimension is drawn together."""
ALPHAS: Mapping[str, tuple[float, float]] = {
    "small": (0.3, 0.9),
    "usual": (0.5, 4.0),
    "large": (20.0, 100.0),
    "ones": (1.0, 1.0),
}
_Make = Callable[[Levels, tuple[int, ...]], tuple[tuple[Any, ...], dict[str, Any]]]


def _share(levels: Levels) -> TensorArg:
    """Probabilities, 0 and 1 among them."""

    def drawn(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
        n = prod(shape)
        p = draw.uniform(n)
        which = draw.integers(n, 0, 6)
        return torch.where(which == 0, 0.0, torch.where(which == 1, 1.0, p)).to(dtype)

    return TensorArg(SHAPES[levels["shape"]], draw=drawn, lies="any")


def _counts(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    return draw.integers(prod(shape), 0, 30).to(dtype)


def _chosen(levels: Levels, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of 9 with replacement as many as the sizes say, or 20 of 33 without."""
    if levels["again"] == "with":
        return (TensorArg((2, 9), 0.1, 4.0, kind="random"), max(prod(shape), 1), True), {}
    return (TensorArg((max(shape[:1], default=1) % 8 + 1, 33), 0.1, 4.0, kind="random"), 20, False), {}


def _sized(levels: Levels, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ([*shape],), {"dtype": OWN}


def _pair(levels: Levels) -> tuple[float, float]:
    return PAIRS[levels["pair"]]


def _in_own_dtype(levels: Levels) -> CallTemplate:
    x, kind = TensorArg(SHAPES[levels["shape"]], kind="random"), levels["range"]
    return (
        CallTemplate("aten.random.default", (x,))
        if kind == "own"
        else CallTemplate("aten.random.to", (x, HIGHS[kind.removeprefix("to_")]))
    )


def _drawn_high(draw: SeededValues, dtype: torch.dtype, shape: tuple[int, ...], values: str) -> torch.Tensor:
    """Another number at each call."""
    return draw.integers(1, 2, 120).to(dtype)


def _below_a_tensor(levels: Levels) -> CallTemplate:
    high = TensorArg((), dtype={"i64": torch.int64, "i32": torch.int32}[levels["high"]], lies="none", draw=_drawn_high)
    return CallTemplate("aten.randint_like.Tensor", (TensorArg(SHAPES[levels["shape"]], kind="random"), high))


def _together(levels: Levels) -> CallTemplate:
    low, high = ALPHAS[levels["alpha"]]
    return CallTemplate("aten._sample_dirichlet.default", (TensorArg(ROWS[levels["rows"]], low, high, kind="random"),))


def _spread(levels: Levels) -> tuple[float, float]:
    low, high = PAIRS[levels["pair"]]
    return low, high - low


def _like(*more: Callable[[Levels], tuple[Any, ...]]) -> _Make:
    return lambda levels, shape: ((TensorArg(shape), *(v for m in more for v in m(levels))), {})


def _bounds(levels: Levels) -> tuple[int, int]:
    return BOUNDS[levels["bounds"]]


RATES: Mapping[str, tuple[float, float]] = {"few": (0.0, 20.0), "many": (110.0, 170.0)}
"""Rates of Poisson's distribution. exp(-rate) underflows in float32 above 103, and bfloat16 has all integers up to 256.
"""
SURE = ("none", "all")
"""Probabilities with which the result is certain: 0 and 1."""
_P = {"p": tuple(SHARES)}
_PAIRED, _BOUNDED = {"pair": tuple(PAIRS)}, {"bounds": tuple(BOUNDS)}
_COUNTS = {"bounds": ("coin", "byte", "high")}
HIGHS = {"coin": 2, "byte": 127, "high": 100}


def _permutation(levels: Levels) -> CallTemplate:
    return CallTemplate("aten.randperm.default", (int(levels["n"]),), {"dtype": OWN})


def _written(
    op: Op,
    factors: Mapping[str, tuple[str, ...]],
    ask: Callable[[Levels], CallTemplate],
    dtypes: tuple[torch.dtype, ...],
) -> Domain:
    """Of one whose calls are written out."""
    few = Rule(("shape", "layout"), lambda shape, layout: shape not in FEW or layout == "contiguous")
    held = Rule(("dtype", "n"), lambda dtype, n: int(n) < 128 or dtype in ("i64", "i32"))
    rules = (few,) if "shape" in factors else (held,) if "n" in factors else ()
    return domain(
        op,
        factors,
        ask,
        dtypes=dtypes,
        kinds=("own",),
        rules=rules,
        covers=always(op),
        priority=(
            {"dtype": "i64", "shape": "70001", "range": "to_high"},
            {"dtype": "f32", "shape": "33x65", "range": "own"},
            {"dtype": "i8", "range": "own"},
            {"dtype": "f64", "rows": "20000x3"},
        )
        if "n" not in factors
        else (),
    )


def _drawn(
    op: Op,
    overload: str,
    factors: Mapping[str, tuple[str, ...]],
    make: _Make,
    dtypes: tuple[torch.dtype, ...],
    negatives: tuple[InvalidCall, ...],
) -> Domain:
    def ask(levels: Levels) -> CallTemplate:
        shape = SHAPES[levels["shape"]]
        args, kwargs = make(levels, shape)
        notes = frozenset({"statistics"} if prod(shape) > 65_536 else ())
        return CallTemplate(f"aten.{overload}", args, kwargs, notes=notes)

    tensor_args = [
        a for a in make({"shape": "17", **{f: v[0] for f, v in factors.items()}}, (17,))[0] if isinstance(a, TensorArg)
    ]
    rules = [Rule(("shape", "layout"), lambda shape, layout: shape not in FEW or layout == "contiguous")]
    if "bounds" in factors:
        rules.append(Rule(("dtype", "bounds"), lambda dtype, bounds: bounds != "wide" or dtype == "i64"))
    if "p" in factors:
        rules += [
            Rule(("p", "layout"), lambda p, layout: p not in SURE or layout == "contiguous"),
            Rule(("p", "values"), lambda p, values: p not in SURE or values != "specials"),
        ]
    return domain(
        op,
        {"shape": tuple(SHAPES), **factors},
        ask,
        dtypes=dtypes,
        rules=tuple(rules),
        kinds=("random", "specials") if any(not a.kind and a.draw is None for a in tensor_args) else ("own",),
        invalid_calls=negatives,
        priority=({"dtype": "f32", "shape": "70001"}, {"dtype": "f64", "shape": "33x65"}),
        added=({"dtype": "i64", "shape": "70001", "bounds": "wide"},) if "wide" in factors.get("bounds", ()) else (),
        covers=always(op),
    )


BUILD: ByMember[Callable[[Op], Domain]] = ByMember()
declare = BUILD.declare


def _declare(
    name: str,
    overload: str,
    factors: Mapping[str, tuple[str, ...]],
    make: _Make,
    dtypes: tuple[torch.dtype, ...],
    negatives: tuple[InvalidCall, ...] = (),
) -> None:
    declare(name, lambda op: _drawn(op, overload, factors, make, dtypes, negatives))


_declare("uniform", "rand.default", {}, _sized, FLOATS)
_declare("normal", "randn.default", {}, _sized, FLOATS)
_declare(
    "randint", "randint.low", _BOUNDED, lambda levels, shape: ((*_bounds(levels), [*shape]), {"dtype": OWN}), _INTEGERS
)
_declare(
    "randint_from_0",
    "randint.default",
    _COUNTS,
    lambda levels, shape: ((HIGHS[levels["bounds"]], [*shape]), {"dtype": OWN}),
    _INTEGERS,
)
_declare("rand_like", "rand_like.default", {}, _like(), FLOATS)
_declare("randn_like", "randn_like.default", {}, _like(), FLOATS)
_declare("randint_like", "randint_like.default", _COUNTS, _like(lambda levels: (HIGHS[levels["bounds"]],)), _INTEGERS)
_declare("randint_like_between", "randint_like.low_dtype", _BOUNDED, _like(_bounds), _INTEGERS)
_declare("uniform_between", "uniform.default", _PAIRED, _like(_pair), FLOATS)
_declare("normal_functional", "normal_functional.default", _PAIRED, _like(_spread), FLOATS)
_declare(
    "normal_of_size",
    "normal.float_float",
    _PAIRED,
    lambda levels, shape: ((*_spread(levels), [*shape]), {"dtype": OWN}),
    FLOATS,
)
_declare("log_normal", "log_normal.default", {"pair": ("usual",)}, _like(_pair), FLOATS)
_declare("exponential", "exponential.default", _P, _like(lambda levels: (SHARES[levels["p"]] + 0.5,)), FLOATS)
_declare("cauchy", "cauchy.default", _PAIRED, _like(_spread), FLOATS)
_declare(
    "geometric",
    "geometric.default",
    {"p": ("half", "few", "most")},
    _like(lambda levels: (SHARES[levels["p"]],)),
    FLOATS,
    tuple(
        invalid_call(f"p of {p}", "p is between 0 and 1.", CallTemplate("aten.geometric.default", (TensorArg((3,)), p)))
        for p in (1.5, 0.0, -0.25)
    ),
)
_declare("bernoulli", "bernoulli.default", {}, lambda levels, shape: ((_share(levels),), {}), FLOATS)
_declare("bernoulli_like", "bernoulli.p", _P, _like(lambda levels: (SHARES[levels["p"]],)), FLOATS)
_declare(
    "native_dropout",
    "native_dropout.default",
    {**_P, "train": ("train", "not")},
    lambda levels, shape: ((TensorArg(shape), SHARES[levels["p"]], levels["train"] == "train"), {}),
    FLOATS,
)
_declare(
    "poisson",
    "poisson.default",
    {"rate": tuple(RATES)},
    lambda levels, shape: ((TensorArg(shape, *RATES[levels["rate"]], kind="random"),), {}),
    FLOATS,
)
_declare(
    "binomial",
    "binomial.default",
    {},
    lambda levels, shape: ((TensorArg(shape, draw=_counts), _share(levels)), {}),
    FLOATS[:2],
)
_declare(
    "normal_around",
    "normal.Tensor_Tensor",
    {},
    lambda levels, shape: ((TensorArg(shape, kind="random"), TensorArg(shape, 0.1, 3.0, kind="random")), {}),
    FLOATS,
)
_declare("multinomial", "multinomial.default", {"again": ("with", "without")}, _chosen, FLOATS)
# rrelu of other floats: eager PyTorch has the noise of these wrong
_declare(
    "rrelu",
    "rrelu_with_noise_functional.default",
    {"train": ("train", "not")},
    lambda levels, shape: (
        (
            TensorArg(shape, lies="none"),
            TensorArg(shape, kind="random", lies="none"),
            0.125,
            0.5,
            levels["train"] == "train",
        ),
        {},
    ),
    FLOATS[:2],
)
_declare(
    "gamma",
    "_standard_gamma.default",
    {},
    lambda levels, shape: ((TensorArg(shape, 0.05, 9.0, kind="random"),), {}),
    FLOATS[:2],
)
declare(
    "randperm",
    lambda op: _written(
        op,
        {"n": ("17", "0", "1", "2", "7", "8", "9", "33", "65", "100", "127", "120", "40009", "50021", "70001")},
        _permutation,
        _INTEGERS,
    ),
)
declare(
    "random_integers",
    lambda op: _written(
        op, {"shape": tuple(SHAPES), "range": RANGES}, _in_own_dtype, (*_INTEGERS, torch.float16, torch.bfloat16)
    ),
)
declare(
    "randint_like_tensor",
    lambda op: _written(op, {"shape": tuple(SHAPES), "high": ("i64", "i32")}, _below_a_tensor, _INTEGERS),
)
declare(
    "sample_dirichlet", lambda op: _written(op, {"rows": tuple(ROWS), "alpha": tuple(ALPHAS)}, _together, FLOATS[:2])
)
