"""Random numbers: uniform, normal and integer draws, permutations, keys; all other distributions are made of them.

A primitive draws from the generator of its device. A composite says how a distribution comes from its draws; other
ways are as good, so what is promised is the distribution, not the bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import COMPLEX, FLOATS, INTS
from keel.spec.op import Family, Requires, Sample
from keel.spec.pytorch_kernels import EVERY_DEVICE, Library
from keel.spec.rules import (
    DENSE,
    Args,
    DtypeRule,
    Out,
    ShapeRule,
    like,
    number,
    preserved,
    shape_of,
    sizes,
)
from keel.spec.samples import drawn

family = Family("random", profile="random")

Tensor = torch.Tensor
_RANDOM = frozenset({"random"})
_SEEDED = (
    "The same seed and the same calls in the same order give the same results, on one version of one backend "
    "and one kind of device; no bits are promised beyond that."
)
_INDEPENDENT = "The draws are independent of each other and of all others from that seed."
_ORDER = "A draw is neither left out, nor merged with an equal one, nor exchanged with another in order."
_PROMISES = (_SEEDED, _INDEPENDENT, _ORDER)
_OWN = Requires(
    "no-generator",
    "No generator is given: draws come from the device's own.",
    lambda args: args.get("generator") is None,
)

SIZE = ShapeRule("size", lambda args: sizes(args["size"]))
FLOAT = DtypeRule("dtype or the default float", lambda args: args["dtype"] or torch.get_default_dtype())
INT = DtypeRule("dtype or int64", lambda args: args["dtype"] if isinstance(args["dtype"], torch.dtype) else torch.int64)


# -- primitives -------------------------------------------------------------------------------------------------------


def _sized(dtype: torch.dtype) -> Iterator[Sample]:
    for size in ([], [0], [7], [2, 3], [3, 0, 2], [65, 33]):
        yield Sample((size,), {"dtype": dtype})
    yield Sample(([4],))


family.primitive(
    "uniform",
    "rand",
    "rand.generator",
    doc="Numbers between 0 and 1, all equally probable.",
    clauses=(
        "0 may be drawn, 1 may not.",
        Clause(
            "Every number drawn is a multiple of 2^-24 (float64: 2^-53; 16-bit floats: epsilon / 2), or the "
            "distribution is finer.",
            About.HALF,
        ),
        Clause("For a complex dtype both parts are drawn.", About.COMPLEX),
        *_PROMISES,
    ),
    out=(Out(FLOAT, SIZE, DENSE),),
    requires=(_OWN,),
    dtypes=(*FLOATS, *COMPLEX),
    samples=_sized,
    tags=_RANDOM,
    libraries=EVERY_DEVICE,
)

family.primitive(
    "normal",
    "randn",
    "randn.generator",
    doc="Numbers of the normal distribution of mean 0 and variance 1.",
    clauses=(
        Clause("All draws are finite.", About.NONFINITE),
        Clause("For a complex dtype both parts are drawn with variance 1/2.", About.COMPLEX),
        *_PROMISES,
    ),
    out=(Out(FLOAT, SIZE, DENSE),),
    requires=(_OWN,),
    dtypes=(*FLOATS, *COMPLEX),
    samples=_sized,
    tags=_RANDOM,
    libraries=EVERY_DEVICE,
)


def _integers(dtype: torch.dtype) -> Iterator[Sample]:
    for size in ([], [0], [7], [3, 0, 2], [5, 6]):
        yield Sample((1, 5, size), {"dtype": dtype})
    yield Sample((-3, 100, [4]))


def _spans(args: Args) -> bool:
    low, high = number(args.get("low")) or 0, number(args["high"])
    return not (isinstance(low, int) and isinstance(high, int)) or low < high


family.primitive(
    "randint",
    "randint.low",
    "randint.low_generator",
    doc="Integers from low on and less than high, all equally probable.",
    clauses=(
        "low may be drawn, high may not.",
        Clause("A dtype that cannot hold the integers is an error.", parameters=("dtype",)),
        Clause("The probabilities of two integers differ by 2^-32 at most.", About.INTEGER),
        *_PROMISES,
    ),
    out=(Out(INT, SIZE, DENSE),),
    requires=(_OWN, Requires("low-below-high", "low is less than high.", _spans)),
    dtypes=(*INTS, *FLOATS),
    samples=_integers,
    tags=_RANDOM,
    libraries=(Library(("randint.low",)),),
)


def _counts(dtype: torch.dtype) -> Iterator[Sample]:
    for n in (0, 1, 7, 100):
        yield Sample((n,), {"dtype": dtype})
    yield Sample((5,))


family.primitive(
    "randperm",
    "randperm",
    "randperm.generator",
    doc="The integers from 0 on and less than n in random order.",
    clauses=(
        "Each occurs once.",
        "All orders are equally probable, as far as the generator tells orders apart.",
        *_PROMISES,
    ),
    out=(Out(INT, ShapeRule("[n]", lambda args: sizes([args["n"]])), DENSE),),
    requires=(_OWN,),
    dtypes=(torch.int64, torch.int32, torch.int16, torch.int8, torch.float32, torch.float64),
    samples=_counts,
    tags=_RANDOM,
    libraries=(Library(("randperm",)),),
)


def _rates(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (0,), (7,), (3, 1, 4)):
        yield Sample((drawn(dtype, *shape, low=0.25, high=8.0),))
    yield Sample((drawn(dtype, 6, 4, low=0.25, high=8.0).t(),))
    yield Sample((drawn(dtype, 4, 1, low=0.25, high=8.0).expand(4, 6),))


_ROWS = (Out(like("self"), shape_of("self"), DENSE),)
_LIKE = (Out(like("self"), shape_of("self"), preserved("self")),)

family.primitive(
    "gamma",
    "_standard_gamma",
    doc="Numbers of the gamma distribution with shape parameters self and scale 1.",
    clauses=(
        "All draws are positive: what would round to 0 is the smallest normal number.",
        Clause("A shape parameter that is NaN gives NaN.", About.NONFINITE),
        *_PROMISES,
    ),
    out=_ROWS,
    requires=(_OWN,),
    dtypes=(torch.float32, torch.float64),
    samples=_rates,
    tags=_RANDOM,
)

family.primitive(
    "poisson",
    "poisson",
    doc="Counts of the Poisson distribution with rates self.",
    clauses=(
        "The counts are integers in the dtype of the rates.",
        "A rate of 0 gives 0.",
        "A negative rate is an error.",
        *_PROMISES,
    ),
    out=_ROWS,
    requires=(_OWN,),
    dtypes=FLOATS,
    samples=_rates,
    tags=_RANDOM,
    libraries=EVERY_DEVICE,
)


def _trials(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (0,), (7,), (3, 1, 4)):
        yield Sample((drawn(dtype, *shape, low=1.0, high=40.0).floor(), drawn(dtype, *shape, low=0.0, high=1.0)))
    yield Sample((drawn(dtype, 6, 4, low=1.0, high=40.0).floor().t(), drawn(dtype, 6, low=0.0, high=1.0)))


family.primitive(
    "binomial",
    "binomial",
    doc="Counts of successes in count independent trials of probability prob.",
    clauses=(
        "The counts are integers in the dtype of count, from 0 to count.",
        "A probability of 0 gives 0, one of 1 gives count.",
        Clause("prob is broadcast to the sizes of count.", About.BROADCAST, parameters=("prob",)),
        "A negative count or a probability outside [0, 1] is an error.",
        *_PROMISES,
    ),
    out=(Out(like("count"), shape_of("count"), DENSE),),
    requires=(
        _OWN,
        Requires(
            "same-dtype", "count and prob have the same dtype.", lambda args: args["count"].dtype == args["prob"].dtype
        ),
    ),
    dtypes=(torch.float32, torch.float64),
    samples=_trials,
    tags=_RANDOM,
)


# -- keys -------------------------------------------------------------------------------------------------------------

_KEYED = "The result is a function of the arguments alone: equal keys give equal results on one version of one backend."
_KEY = Requires(
    "key-form",
    "A key is two uint64, and a batch of keys has them in its last dimension.",
    lambda args: args["key"].dtype == torch.uint64 and args["key"].rank >= 1 and args["key"].shape[-1] == 2,
)


def _key(*batch: int) -> Tensor:
    size = (*batch, 2)
    return drawn(torch.int64, *size, seed=len(batch), low=0, high=2.0**40).to(torch.uint64)


def _split(dtype: torch.dtype) -> Iterator[Sample]:
    for batch in ((), (1,), (3,), (2, 3)):
        for n in (1, 4):
            yield Sample((_key(*batch), n))


family.primitive(
    "rng_key_split",
    "_philox_key_split",
    doc="num_splits new keys from each key.",
    clauses=(_KEYED, "Draws from different new keys, and from the old one, are independent."),
    out=(
        Out(
            like("key"),
            ShapeRule("[num_splits, *shape(key)]", lambda args: (args["num_splits"], *args["key"].shape)),
            DENSE,
        ),
    ),
    requires=(_KEY, Requires("splits-positive", "num_splits is positive.", lambda args: args["num_splits"] > 0)),
    dtypes=(torch.uint64,),
    samples=_split,
    tags=_RANDOM,
    cpu="2.14",
)

family.primitive(
    "rng_key_fold_in",
    "_philox_key_fold_in",
    doc="A new key from each key and an integer.",
    clauses=(_KEYED, "Draws from the keys of different integers are independent."),
    out=(Out(like("key"), shape_of("key"), preserved("key")),),
    requires=(_KEY,),
    dtypes=(torch.uint64,),
    samples=_split,
    tags=_RANDOM,
    cpu="2.14",
)


def _keyed(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (0,), (7,), (3, 1, 4)):
        yield Sample((drawn(dtype, *shape), _key()))
    yield Sample((drawn(dtype, 6, 4).t(), _key(4, 1)))


for _name, _overload, _doc in (
    ("rng_uniform", "_philox_uniform", "Numbers from low to high, all equally probable, drawn with a key."),
    ("rng_normal", "_philox_normal", "Numbers of the normal distribution of a mean and std, drawn with a key."),
):
    family.primitive(
        _name,
        _overload,
        doc=_doc,
        out=_LIKE,
        requires=(_KEY,),
        dtypes=FLOATS,
        samples=_keyed,
        tags=_RANDOM,
        cpu="2.14",
        clauses=(
            "Only sizes, strides and dtype of self are read, not its values.",
            _KEYED,
            "Different elements are independent, and so are different keys.",
            Clause(
                "A batch of keys broadcasts to self: each element draws from the key of its place.", About.BROADCAST
            ),
        ),
    )
