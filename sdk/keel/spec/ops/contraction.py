"""Contractions: the products of matrices that libraries have, and what is made of them.

A product of a matrix and a vector reads every element once, so no library does better than a sum of products that fuses
with what surrounds it: ``mv``, ``dot`` and ``vdot`` are made of that. ``addmm`` and its like are a product and a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtypes import COMPLEX, FLOATS, INTS, NUMBERS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.ops.statistics import accurate
from keel.spec.rules import (
    DENSE,
    Args,
    LayoutRule,
    Out,
    Shape,
    ShapeRule,
    chosen,
    fixed,
    like,
)
from keel.spec.samples import INF, NAN, drawn
from keel.types import as_dim, contiguous_strides

aten = torch.ops.aten
family = Family("contraction")
quantized = Family("contraction", profile="quantized")

Tensor = torch.Tensor
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_ADDS = (
    "Each element is the sum over k of the products; the order of the sum, and whether products are rounded before it, "
    "are the implementation's.",
    Clause("16-bit floats are summed in float32 or better, and rounded once.", About.HALF | About.FLOAT32),
    Clause("Every product counts: 0 times an infinity or NaN gives NaN.", About.NONFINITE),
    Clause("Integers wrap around in their own dtype.", About.INTEGER_EDGE | About.INTEGER),
    Clause("With nothing to sum the result is 0.", About.EMPTY),
)
_BUDGET = {d: Budget(times=2.0) for d in (*FLOATS, *COMPLEX)} | {d: Budget(ulps=0) for d in INTS}


def _rank(name: str, rank: int) -> Requires:
    return Requires(f"{name}-rank", f"{name} has {rank} dimensions.", lambda args: args[name].rank == rank)


def _alike(a: str, b: str) -> Requires:
    return Requires("same-dtype", f"{a} and {b} have the same dtype.", lambda args: args[a].dtype == args[b].dtype)


def _inner(a: str, b: str) -> Requires:
    return Requires(
        "inner-sizes",
        f"The last size of {a} is the last but one of {b}.",
        lambda args: args[a].shape[-1] == args[b].shape[-2],
    )


MATRIX = ShapeRule("[self.size(0), mat2.size(1)]", lambda args: (args["self"].shape[0], args["mat2"].shape[1]))


def _matrices(dtype: torch.dtype) -> Iterator[Sample]:
    for n, k, m in ((3, 5, 4), (1, 7, 1), (0, 3, 2), (3, 0, 2), (2, 3, 0), (33, 65, 17)):
        yield Sample((drawn(dtype, n, k, seed=1), drawn(dtype, k, m, seed=2)))
    yield Sample((drawn(dtype, 6, 5, seed=3).t(), drawn(dtype, 7, 6, seed=4).t()))
    yield Sample((drawn(dtype, 4, 12, seed=5)[:, ::2], drawn(dtype, 12, 3, seed=6)[::2]))
    if dtype.is_floating_point:
        x = drawn(dtype, 3, 3, seed=7)
        x[0, 1], x[1, 1] = INF, NAN
        y = drawn(dtype, 3, 2, seed=8)
        y[1, 0] = 0.0
        yield Sample((x, y))


def _batches(dtype: torch.dtype) -> Iterator[Sample]:
    for b, n, k, m in ((2, 3, 5, 4), (1, 1, 7, 1), (0, 2, 3, 2), (2, 3, 0, 2), (3, 9, 33, 17)):
        yield Sample((drawn(dtype, b, n, k, seed=1), drawn(dtype, b, k, m, seed=2)))
    yield Sample((drawn(dtype, 2, 6, 5, seed=3).mT, drawn(dtype, 2, 7, 6, seed=4).mT))
    yield Sample((drawn(dtype, 1, 3, 4, seed=5).expand(2, 3, 4), drawn(dtype, 4, 2, 3, seed=6).permute(1, 0, 2)))


family.primitive(
    "mm",
    "mm",
    "mm.dtype",
    doc="The product of two matrices.",
    clauses=_ADDS,
    out=(Out(chosen(like("self"), "out_dtype"), MATRIX, DENSE),),
    dtypes=NUMBERS,
    samples=_matrices,
    budget=_BUDGET,
    requires=(_rank("self", 2), _rank("mat2", 2), _inner("self", "mat2"), _alike("self", "mat2")),
    tags=frozenset({"contraction"}),
    numerics=Numerics(results=Results.SUMS),
    blas=True,
)
family.primitive(
    "bmm",
    "bmm",
    "bmm.dtype",
    doc="The products of matrices in two batches, pair by pair.",
    clauses=_ADDS,
    out=(
        Out(
            chosen(like("self"), "out_dtype"),
            ShapeRule(
                "[self.size(0), self.size(1), mat2.size(2)]",
                lambda args: (*args["self"].shape[:2], args["mat2"].shape[2]),
            ),
            DENSE,
        ),
    ),
    dtypes=NUMBERS,
    samples=_batches,
    budget=_BUDGET,
    requires=(_rank("self", 3), _rank("mat2", 3), _inner("self", "mat2"), _alike("self", "mat2")),
    tags=frozenset({"contraction"}),
    numerics=Numerics(results=Results.SUMS),
    blas=True,
)
quantized.primitive(
    "int_mm",
    "_int_mm",
    doc="The product of two int8 matrices, in int32.",
    clauses=(
        Clause("Products are summed in int32, which wraps around.", About.INTEGER_EDGE),
        Clause("With nothing to sum the result is 0.", About.EMPTY),
    ),
    out=(Out(fixed(torch.int32), MATRIX, DENSE),),
    dtypes=(torch.int8,),
    samples=_matrices,
    requires=(_rank("self", 2), _rank("mat2", 2), _inner("self", "mat2"), _alike("self", "mat2")),
    budget={torch.int8: Budget(ulps=0)},
    tags=frozenset({"contraction"}),
)


# -- scaled and grouped products --------------------------------------------------------------------------------------


def _scaled(dtype: torch.dtype) -> Iterator[Sample]:
    one = torch.tensor(0.5)
    for m, k, n in ((16, 32, 64), (3, 16, 16), (1, 64, 32)):
        a, b = drawn(torch.float32, m, k, seed=1).to(dtype), drawn(torch.float32, n, k, seed=2).to(FP8[0]).t()
        for out in (None, torch.float32, torch.bfloat16):
            yield Sample((a, b, one, one), {"out_dtype": out})
        rows, columns = drawn(torch.float32, m, 1, low=0.1), drawn(torch.float32, 1, n, low=0.1)
        yield Sample((a, b, rows, columns, drawn(torch.float32, n)), {"out_dtype": torch.float32})


quantized.primitive(
    "scaled_mm",
    "_scaled_mm",
    "_scaled_mm_v2",
    doc="The product of two float8 matrices whose elements have scales.",
    clauses=(
        "An element of self or mat2 is its value times its scale: one scale for all, one per row of self and one per "
        "column of mat2, or one per block.",
        Clause(
            "Products are summed in float32 or better, or cut at 2^-13 of the largest addend before they are; bias "
            "is added before the one rounding to out_dtype.",
            About.FLOAT32,
        ),
        "Values beyond the range of a float8 out_dtype saturate to its largest.",
        "use_fast_accum allows sums of less precision.",
    ),
    out=(Out(chosen(chosen(like("self"), "output_dtype"), "out_dtype"), MATRIX, DENSE),),
    dtypes=FP8,
    samples=_scaled,
    requires=(
        _rank("self", 2),
        _rank("mat2", 2),
        _inner("self", "mat2"),
        Requires(
            "no-scale-result",
            "scale_result is not given: devices differ in whether it multiplies or divides.",
            lambda args: args.get("scale_result") is None,
        ),
    ),
    budget={d: Budget(times=2.0) for d in FP8},
    tags=frozenset({"contraction"}),
)


def _group_sizes(args: Args) -> Shape:
    a, b, offs = args["self"], args["mat2"], args["offs"]
    if a.rank == 2 and b.rank == 2:
        return (offs.shape[0], a.shape[0], b.shape[1])
    if a.rank == 3 and b.rank == 3:
        return (*a.shape[:2], b.shape[2])
    return (a.shape[-2], b.shape[-1])


def _group_strides(args: Args, shape: Shape) -> Shape:
    """Rows begin at multiples of 16 bytes where PyTorch is built for CUDA."""
    if torch.version.cuda is None:
        return contiguous_strides(shape)
    dtype = args.get("out_dtype") or (torch.bfloat16 if "scale_a" in args else args["self"].dtype)
    unit = 16 // dtype.itemsize
    padded = as_dim((shape[-1] + unit - 1) // unit * unit)
    return contiguous_strides((*shape[:-1], padded))


GROUPS = ShapeRule(
    "[groups, self.size(0), mat2.size(1)] of two matrices, [self.size(-2), mat2.size(-1)] of one and a "
    "batch, those of bmm of two batches",
    _group_sizes,
)
GROUP_ROWS = LayoutRule(
    "row-major, rows beginning at multiples of 16 bytes where PyTorch is built for CUDA", _group_strides
)
_GROUPS = (
    Clause(
        "offs has the end of each group along the dimension that is grouped: rows of a matrix self against a batch "
        "mat2, columns of mat2 against a batch self, or the dimension summed over of two matrices.",
        parameters=("offs",),
    ),
    Clause("offs does not decrease; a group may be empty.", About.EMPTY),
    "Rows or columns after the last group are unspecified.",
    Clause("16-bit floats are summed in float32 or better, and rounded once.", About.HALF | About.FLOAT32),
)


def _grouped(dtype: torch.dtype) -> Iterator[Sample]:
    ends = torch.tensor([2, 6], dtype=torch.int32)
    yield Sample((drawn(dtype, 6, 16, seed=1), drawn(dtype, 2, 16, 8, seed=2), ends))
    yield Sample((drawn(dtype, 2, 3, 16, seed=3), drawn(dtype, 2, 16, 8, seed=4)))
    yield Sample((drawn(dtype, 4, 16, seed=5), drawn(dtype, 16, 8, seed=6), ends * 2))
    yield Sample((drawn(dtype, 2, 3, 16, seed=7), drawn(dtype, 16, 8, seed=8), torch.tensor([8, 8], dtype=torch.int32)))


family.primitive(
    "grouped_mm",
    "_grouped_mm",
    doc="Products of groups of rows, or of columns, each with a matrix of its own.",
    clauses=_GROUPS,
    out=(Out(chosen(like("self"), "out_dtype"), GROUPS, GROUP_ROWS),),
    dtypes=(torch.bfloat16,),
    samples=_grouped,
    budget={torch.bfloat16: Budget(times=2.0)},
    requires=(Requires("no-bias", "bias is not given.", lambda args: args["bias"] is None),),
    tags=frozenset({"contraction"}),
)


def _scaled_groups(dtype: torch.dtype) -> Iterator[Sample]:
    a, b = drawn(torch.float32, 16, 32, seed=1).to(dtype), drawn(torch.float32, 2, 64, 32, seed=2).to(dtype)
    ends = torch.tensor([8, 16], dtype=torch.int32)
    yield Sample((a, b.mT, drawn(torch.float32, 16, low=0.1), drawn(torch.float32, 2, 64, low=0.1), ends))


quantized.primitive(
    "scaled_grouped_mm",
    "_scaled_grouped_mm",
    "_scaled_grouped_mm_v2",
    doc="grouped_mm of float8 matrices whose elements have scales.",
    clauses=(*_GROUPS, "Scales are per row of self and per column of mat2, within each group."),
    out=(Out(chosen(fixed(torch.bfloat16), "out_dtype"), GROUPS, GROUP_ROWS),),
    dtypes=FP8[:1],
    samples=_scaled_groups,
    requires=(Requires("no-bias", "bias is not given.", lambda args: args["bias"] is None),),
    budget={FP8[0]: Budget(times=2.0)},
    tags=frozenset({"contraction"}),
    cpu="2.14",
)


def _nibbles(dtype: torch.dtype) -> Iterator[Sample]:
    packed = torch.arange(4 * 4 * 32 * 4, dtype=torch.int32).view(4, 4, 32, 4)
    yield Sample((drawn(dtype, 6, 256), packed, 32, drawn(dtype, 8, 32, 2)))


quantized.primitive(
    "weight_int4_mm",
    "_weight_int4pack_mm",
    doc="x w^T of a packed 4-bit weight, with a scale and a zero per group.",
    clauses=(
        "The packed weight is what _convert_weight_to_int4pack of the same device gave, in a layout of its own.",
        "A weight is (nibble - 8) * scale + zero, of its group of qGroupSize elements along the dimension summed over.",
    ),
    out=(
        Out(
            like("self"),
            ShapeRule(
                "[self.size(0), 8 mat2.size(0)]",
                lambda args: (args["self"].shape[0], as_dim(args["mat2"].shape[0] * 8)),
            ),
            DENSE,
        ),
    ),
    dtypes=(torch.bfloat16,),
    samples=_nibbles,
    budget={torch.bfloat16: Budget(times=2.0)},
    tags=frozenset({"contraction"}),
    cpu=None,
)


@quantized(
    "_weight_int8pack_mm",
    clauses=(
        "The result is (x w^T) * scales, the weight's rows being output columns.",
        "The sum is rounded to x's dtype once, before or after scaling.",
    ),
    tags=frozenset({"contraction"}),
)
def weight_int8_mm(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x w^T of an int8 weight with a scale per row."""
    product = aten.mm.default(accurate(x), aten.permute.default(weight.to(accurate(x).dtype), [1, 0]))
    return (product * accurate(scales)).to(x.dtype)


# -- a product and a sum ----------------------------------------------------------------------------------------------

_PLUS = (
    Clause("The result is beta * x + alpha * the product; x is not read if beta is 0.", parameters=("beta",)),
    Clause("For integers, beta and alpha are truncated to integers.", About.INTEGER),
    "The product may be rounded to the result's dtype before the sum.",
)


def _plus(x: Tensor, product: Tensor, beta: Any, alpha: Any, dtype: torch.dtype) -> Tensor:
    """The product leads, so that its layout is the result's."""
    if not (dtype.is_floating_point or dtype.is_complex):
        beta, alpha = int(beta), int(alpha)
    out = accurate(product) if dtype.is_floating_point else product
    out = out if alpha == 1 else out * alpha
    if beta != 0:
        x = x.to(dtype)
        more = accurate(x) if dtype.is_floating_point else x
        out = out + (more if beta == 1 else more * beta)
    return aten.expand.default(out, list(product.shape)).to(dtype)


def _addmm_dtype(x: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _plus(x, aten.mm.dtype(a, b, out_dtype), beta, alpha, out_dtype)


def _baddbmm_dtype(x: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _plus(x, aten.bmm.dtype(a, b, out_dtype), beta, alpha, out_dtype)


@family(
    "addmm",
    "addmm.dtype",
    blas=True,
    clauses=_PLUS,
    forms={"aten.addmm.dtype": _addmm_dtype},
    tags=frozenset({"contraction"}),
)
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The product of two matrices, added to what broadcasts to it."""
    return _plus(x, aten.mm.default(a, b), beta, alpha, a.dtype)


@family(
    "baddbmm",
    "baddbmm.dtype",
    blas=True,
    clauses=_PLUS,
    forms={"aten.baddbmm.dtype": _baddbmm_dtype},
    tags=frozenset({"contraction"}),
)
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The products of two batches of matrices, added to what broadcasts to them."""
    return _plus(x, aten.bmm.default(a, b), beta, alpha, a.dtype)


@family(
    aten.addbmm.default,
    clauses=(
        Clause(
            "The result is beta * x + alpha * the sum over the batch of batch1[i] @ batch2[i]; x is not read if beta "
            "is 0.",
            parameters=("beta",),
        ),
    ),
    tags=frozenset({"contraction"}),
)
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The batch is one more dimension contracted over."""
    b, n, k = batch1.shape
    rows = aten.reshape.default(aten.permute.default(batch1, [1, 0, 2]), [n, b * k])
    columns = aten.reshape.default(batch2, [b * k, batch2.shape[2]])
    return aten.addmm.default(x, rows, columns, beta=beta, alpha=alpha)


@family(
    "_addmm_activation",
    clauses=(*_PLUS, "Then relu, or gelu: on CPU by erf, elsewhere by tanh."),
    tags=frozenset({"contraction"}),
)
def addmm_activation(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Tensor:
    """addmm with relu or gelu after it."""
    out = aten.addmm.default(x, a, b, beta=beta, alpha=alpha)
    if use_gelu:
        return aten.gelu.default(out, approximate="none" if x.device.type == "cpu" else "tanh")
    return aten.relu.default(out)


# -- sums of products -------------------------------------------------------------------------------------------------


def _summed(products: Tensor, dims: list[int], dtype: torch.dtype) -> Tensor:
    return (aten.sum.dim_IntList(products, dims) if dims else products).to(dtype)


_SUM = (
    Clause("16-bit floats are multiplied and summed in float32, and rounded once.", About.HALF | About.FLOAT32),
    Clause("Integers wrap around.", About.INTEGER_EDGE | About.INTEGER),
    Clause("With nothing to sum the result is 0.", About.EMPTY),
)


@family("mv", blas=True, clauses=_SUM, tags=frozenset({"contraction"}))
def mv(x: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return _summed(accurate(x) * accurate(vec), [1], x.dtype)


@family("addmv", blas=True, clauses=(_PLUS[0], *_SUM), tags=frozenset({"contraction"}))
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The product of a matrix and a vector, added to what broadcasts to it."""
    product = aten.sum.dim_IntList(accurate(mat) * accurate(vec), [1])
    if not (mat.dtype.is_floating_point or mat.dtype.is_complex):
        product = product.to(mat.dtype)
    return _plus(x, product, beta, alpha, mat.dtype)


@family("dot", blas=True, clauses=_SUM, tags=frozenset({"contraction"}))
def dot(x: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements."""
    return _summed(accurate(x) * accurate(other), [0], x.dtype)


@family(
    "vdot",
    clauses=(*_SUM, Clause("For complex vectors the first is conjugated.", About.COMPLEX)),
    tags=frozenset({"contraction"}),
)
def vdot(x: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of the first vector's conjugate and the second."""
    return dot(aten._conj_physical.default(x) if x.dtype.is_complex else x, other)


@family(
    "addr",
    clauses=(
        Clause(
            "The result is beta * x + alpha * the products of every element of vec1 with every one of vec2; x is not "
            "read if beta is 0.",
            parameters=("beta",),
        ),
        Clause("For bools, products are their conjunction and the sum is their disjunction.", About.BOOL),
    ),
    tags=frozenset({"contraction", "pointwise"}),
)
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The outer product of two vectors, added to what broadcasts to it."""
    dtype = torch.result_type(vec1, vec2)
    dtype = dtype if beta == 0 else torch.promote_types(x.dtype, dtype)
    rows, columns = aten.unsqueeze.default(vec1.to(dtype), 1), aten.unsqueeze.default(vec2.to(dtype), 0)
    if dtype == torch.bool:
        product = aten.bitwise_and.Tensor(rows, columns) if alpha else aten.mul.Tensor(rows, False)
        more = aten.expand.default(x, list(product.shape)) if beta else None
        return product if more is None else aten.bitwise_or.Tensor(product, more)
    product = accurate(rows) * accurate(columns) if dtype.is_floating_point else rows * columns
    return _plus(x, product, beta, alpha, dtype)


@family(
    "_trilinear",
    clauses=(
        Clause(
            "The operands get a dimension of size 1 at each place in their expand list, and broadcast; the result is "
            "the sum over sumdim of their products.",
            About.BROADCAST,
        ),
        Clause("16-bit floats are multiplied and summed in float32, and rounded once.", About.HALF | About.FLOAT32),
    ),
    tags=frozenset({"contraction"}),
)
def trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum of the products of three operands' elements; ``unroll_dim`` is eager's own affair."""
    given = []
    for x, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        x = accurate(x)
        for d in sorted(places):
            x = aten.unsqueeze.default(x, d)
        given.append(x)
    return _summed(given[0] * given[1] * given[2], list(sumdim), i1.dtype)
