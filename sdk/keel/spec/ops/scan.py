"""Scans: each element becomes the reduction of those up to it along a dimension."""

from __future__ import annotations

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, BOOLS, COMPLEX, FLOATS, REALS
from keel.spec.numerics import UNSTATED, Numerics, Results
from keel.spec.op import Budget, Family
from keel.spec.pytorch_kernels import EVERY_DEVICE, NARROW_SUMS, CudaKernel, Library, lacks
from keel.spec.rules import DENSE, INT64, Out, chosen, like, shape_of, summed
from keel.spec.samples_shape import one_dim

family = Family("scan")

TAGS = frozenset({"scan"})
SAME = like("self")
_NAN = Clause("NaN gives NaN from there on.", About.NONFINITE)
_ORDER = "How partial results are associated is not specified, and may differ from call to call."

for _name, _doc, _sentence, _numerics in (
    (
        "cumsum",
        "The sum of the elements so far.",
        Clause("Infinities of both signs give NaN from there on.", About.NONFINITE),
        Numerics(results=Results.SUMS),
    ),
    (
        "cumprod",
        "The product of the elements so far.",
        Clause("Zero times infinity gives NaN from there on.", About.NONFINITE),
        UNSTATED,
    ),
):
    family.primitive(
        _name,
        _name,
        doc=_doc,
        clauses=(
            _NAN,
            _sentence,
            Clause(
                "Integers and bools are computed in int64 unless dtype says otherwise, and wrap around.",
                About.INTEGER_EDGE | About.INTEGRAL,
            ),
            Clause("With dtype the elements are converted to it first.", parameters=("dtype",)),
            Clause(
                "16-bit floats are accumulated in float32 or better, and every result is rounded once.",
                About.HALF | About.FLOAT32,
            ),
            _ORDER,
            Clause("A scalar counts as a row of one element.", About.SCALAR),
        ),
        out=(Out(chosen(summed(SAME)), shape_of("self"), DENSE),),
        dtypes=ALL,
        samples=one_dim(dtype=torch.float32),
        tags=TAGS,
        budget={d: Budget(times=2.0) for d in ALL},
        numerics=_numerics,
        libraries=(Library(device="cuda"),),  # a scan in loops runs one row per thread
        cuda=NARROW_SUMS,
    )
for _name, _most in (("cummax", "greatest"), ("cummin", "least")):
    family.primitive(
        _name,
        _name,
        doc=f"The {_most} element so far, and its index.",
        clauses=(
            _NAN,
            Clause(
                "Among equal extremes, zeros of both signs included, the index is that of the last; the same holds "
                "for NaNs.",
                About.NONFINITE | About.ZERO | About.TIES,
            ),
            Clause("A scalar gives itself and index 0.", About.SCALAR),
        ),
        out=(Out(SAME, shape_of("self"), DENSE), Out(INT64, shape_of("self"), DENSE)),
        dtypes=(*REALS, *BOOLS),
        samples=one_dim(),
        tags=TAGS,
        budget={d: Budget(ulps=0) for d in (*REALS, *BOOLS)},
        numerics=Numerics(free_zero_sign=True, results=Results.CHOSEN),
        libraries=EVERY_DEVICE,
    )
family.primitive(
    "logcumsumexp",
    "logcumsumexp",
    doc="The logarithm of the sum of exponentials so far.",
    clauses=(
        _NAN,
        Clause("-inf adds nothing: as long as all elements are -inf, so is the result.", About.NONFINITE),
        Clause("+inf gives +inf from there on, until a NaN.", About.NONFINITE),
        Clause("It does not overflow where the result does not.", About.NONFINITE),
        _ORDER,
    ),
    out=(Out(SAME, shape_of("self"), DENSE),),
    dtypes=(*FLOATS, *COMPLEX),
    samples=one_dim(),
    tags=TAGS,
    budget={d: Budget(times=2.0) for d in (*FLOATS, *COMPLEX)},
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=lacks(*COMPLEX), narrow_sums=True),
)
