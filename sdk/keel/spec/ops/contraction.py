"""Contractions: the products of matrices that libraries have, and what is made of them.

A product of a matrix and a vector reads every element once, so no library does better than a sum of products that fuses
with what surrounds it: ``mv``, ``dot`` and ``vdot`` are made of that. ``addmm`` and its like are a product and a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.device_facts import GELU_BY_TANH
from keel.spec.dtype_groups import COMPLEX, FLOATS, INTS, NUMBERS
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample
from keel.spec.ops.statistics import accurate
from keel.spec.pytorch_kernels import NO_INTEGERS, Library, Packed
from keel.spec.rules import (
    DENSE,
    Args,
    Out,
    ShapeRule,
    chosen,
    like,
)
from keel.spec.samples import INF, NAN, drawn

aten = torch.ops.aten
family = Family("contraction")

Tensor = torch.Tensor
PACKED_ELEMENTS = 2**12
"""A matrix with fewer elements is not packed: the call takes longer than the product."""
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


def rank(name: str, rank: int) -> Requires:
    return Requires(f"{name}-rank", f"{name} has {rank} dimensions.", lambda args: args[name].rank == rank)


def alike(a: str, b: str) -> Requires:
    return Requires("same-dtype", f"{a} and {b} have the same dtype.", lambda args: args[a].dtype == args[b].dtype)


def inner(a: str, b: str) -> Requires:
    return Requires(
        "inner-sizes",
        f"The last size of {a} is the last but one of {b}.",
        lambda args: args[a].shape[-1] == args[b].shape[-2],
    )


MATRIX = ShapeRule("[self.size(0), mat2.size(1)]", lambda args: (args["self"].shape[0], args["mat2"].shape[1]))


def matrices(dtype: torch.dtype) -> Iterator[Sample]:
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


def _worth_packing(args: Args) -> bool:
    """True for a product with a matrix of some size, plus a number for each column or nothing."""
    weight, bias = args["mat2"], args["self"] if "mat1" in args else None
    if not all(isinstance(n, int) for n in weight.shape) or weight.shape[0] * weight.shape[1] < PACKED_ELEMENTS:
        return False
    return bias is None or (args["beta"] == args["alpha"] == 1 and bias.shape == (weight.shape[1],))


family.primitive(
    "mm",
    "mm",
    "mm.dtype",
    doc="The product of two matrices.",
    clauses=_ADDS,
    out=(Out(chosen(like("self"), "out_dtype"), MATRIX, DENSE),),
    dtypes=NUMBERS,
    samples=matrices,
    budget=_BUDGET,
    requires=(rank("self", 2), rank("mat2", 2), inner("self", "mat2"), alike("self", "mat2")),
    tags=frozenset({"contraction"}),
    numerics=Numerics(results=Results.SUMS),
    blas=True,
    libraries=(
        Library(("mm",), "cpu", packed=Packed(kind="linear", weight=1, bias=None, worth=_worth_packing, channels=1)),
        Library(("mm.dtype",), "cuda"),
    ),
    cuda=NO_INTEGERS,
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
    requires=(rank("self", 3), rank("mat2", 3), inner("self", "mat2"), alike("self", "mat2")),
    tags=frozenset({"contraction"}),
    numerics=Numerics(results=Results.SUMS),
    blas=True,
    libraries=(Library(("bmm.dtype",), "cuda"),),
    cuda=NO_INTEGERS,
)
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
    libraries=(
        Library(
            ("addmm",),
            "cpu",
            packed=Packed(kind="linear", image=1, weight=2, bias=0, worth=_worth_packing, channels=1),
        ),
    ),
    clauses=_PLUS,
    forms={"aten.addmm.dtype": _addmm_dtype},
    tags=frozenset({"contraction"}),
    cuda=NO_INTEGERS,
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
    cuda=NO_INTEGERS,
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
    clauses=(*_PLUS, "Then relu, or gelu: on CUDA by tanh, elsewhere by erf."),
    tags=frozenset({"contraction"}),
)
def addmm_activation(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Tensor:
    """addmm with relu or gelu after it."""
    out = aten.addmm.default(x, a, b, beta=beta, alpha=alpha)
    if use_gelu:
        return aten.gelu.default(out, approximate="tanh" if x.device.type in GELU_BY_TANH else "none")
    return aten.relu.default(out)


# -- sums of products -------------------------------------------------------------------------------------------------


def _summed(products: Tensor, dims: list[int], dtype: torch.dtype) -> Tensor:
    return (aten.sum.dim_IntList(products, dims) if dims else products).to(dtype)


_SUM = (
    Clause("16-bit floats are multiplied and summed in float32, and rounded once.", About.HALF | About.FLOAT32),
    Clause("Integers wrap around.", About.INTEGER_EDGE | About.INTEGER),
    Clause("With nothing to sum the result is 0.", About.EMPTY),
)


@family("mv", blas=True, clauses=_SUM, tags=frozenset({"contraction"}), cuda=NO_INTEGERS)
def mv(x: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return _summed(accurate(x) * accurate(vec), [1], x.dtype)


@family("addmv", blas=True, clauses=(_PLUS[0], *_SUM), tags=frozenset({"contraction"}), cuda=NO_INTEGERS)
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The product of a matrix and a vector, added to what broadcasts to it."""
    product = aten.sum.dim_IntList(accurate(mat) * accurate(vec), [1])
    if not (mat.dtype.is_floating_point or mat.dtype.is_complex):
        product = product.to(mat.dtype)
    return _plus(x, product, beta, alpha, mat.dtype)


@family("dot", blas=True, clauses=_SUM, tags=frozenset({"contraction"}), cuda=NO_INTEGERS)
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
    operands = []
    for x, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        x = accurate(x)
        for d in sorted(places):
            x = aten.unsqueeze.default(x, d)
        operands.append(x)
    return _summed(operands[0] * operands[1] * operands[2], list(sumdim), i1.dtype)
