"""Grouped products of matrices, and products of quantized ones: scaled, of integers, of weights with scales."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from keel.spec.clause import About, Clause
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.ops.contraction import FP8, MATRIX, alike, inner, matrices, rank
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import EVERY_DEVICE, CudaKernel, Library
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
from keel.spec.samples import drawn
from keel.types import as_dim, contiguous_strides

aten = torch.ops.aten
family = Family("contraction")

Tensor = torch.Tensor


def _unlike_sizes(args: Args, dtype: torch.dtype | None) -> str | None:
    (rows, shared), (_, columns) = args["self"].shape, args["mat2"].shape
    multiples = all(n and n % 8 == 0 for n in (shared, columns) if isinstance(n, int))
    fits = multiples and not (isinstance(rows, int) and rows <= 16)
    return None if fits else "cuBLAS multiplies int8 of more than 16 rows, by multiples of 8, alone."


def _unlike_float8(args: Args, dtype: torch.dtype | None) -> str | None:
    if args["self"].dtype == args["mat2"].dtype == torch.float8_e5m2:
        return "cuBLAS multiplies no two float8_e5m2."
    biased = args.get("bias") is not None and dtype == torch.float32
    return "cuBLAS adds no bias to a product of float32." if biased else None


quantized = Family("contraction", profile="quantized")
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
    samples=matrices,
    requires=(rank("self", 2), rank("mat2", 2), inner("self", "mat2"), alike("self", "mat2")),
    budget={torch.int8: Budget(ulps=0)},
    tags=frozenset({"contraction"}),
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=_unlike_sizes),
)


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
        rank("self", 2),
        rank("mat2", 2),
        inner("self", "mat2"),
        Requires(
            "no-scale-result",
            "scale_result is not given: devices differ in whether it multiplies or divides.",
            lambda args: args.get("scale_result") is None,
        ),
    ),
    budget={d: Budget(times=2.0) for d in FP8},
    tags=frozenset({"contraction"}),
    libraries=(Library(("_scaled_mm",)),),
    cuda=CudaKernel(refuses=_unlike_float8),
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
    no_loops="The data determine where its groups end.",
    clauses=_GROUPS,
    out=(Out(chosen(like("self"), "out_dtype"), GROUPS, GROUP_ROWS),),
    dtypes=(torch.bfloat16,),
    samples=_grouped,
    budget={torch.bfloat16: Budget(times=2.0)},
    requires=(Requires("no-bias", "bias is not given.", lambda args: args["bias"] is None),),
    tags=frozenset({"contraction"}),
    row_major=True,
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
