"""Movement and indexed writes in terms of primitives: what selects, fills, adds and reduces at indices, and gradients
of what moves elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause, Stated
from keel.spec.dtype_groups import BOOLS, COMPLEX, INTS
from keel.spec.op import UNORDERED, Family, Places
from keel.spec.preconditions import gradient_of
from keel.spec.pytorch_kernels import EVERY_DEVICE, REDUCES_REALS, CudaKernel, lacks
from keel.spec.rules import Args, ShapeRule, canonical, shape_of
from keel.spec.rules_shape import DIAGONAL, SELECTED, SLICED, WINDOWS

aten = torch.ops.aten
family = Family("structure")
Tensor = torch.Tensor

INDEXING, SHAPE = frozenset({"indexing"}), frozenset({"shape"})


def _along(args: Args) -> Sequence[Any]:
    x, index = args["self"], args["index"]
    at = canonical(args["dim"], x.rank)
    return *(n for d, n in enumerate(x.shape) if d != at), index.numel


_ALONG = ShapeRule("the elements of index, and shape(self) but for dim", _along)
_PICKED, _SLICES = Places(count=shape_of("index")), Places(count=shape_of("source"))


def _theirs(name: str, *overloads: str, doc: str, clauses: Stated, **more: Any) -> None:
    """A composite whose decomposition in PyTorch is sound."""
    family.composite(name, *overloads, doc=doc, clauses=clauses, **{"tags": SHAPE, **more})


_theirs(
    "roll",
    "roll.default",
    doc="Elements moved along dimensions, those that fall off coming back.",
    clauses=("Without dims the elements are moved in row-major order.", "Elements keep their bits."),
)
_theirs(
    "rot90", "rot90.default", doc="A plane of dimensions turned by quarters.", clauses=("Elements keep their bits.",)
)
for _name, _doc in (
    ("tril", "The elements on and below a diagonal, 0 elsewhere."),
    ("triu", "The elements on and above a diagonal, 0 elsewhere."),
):
    _theirs(
        _name,
        f"{_name}.default",
        doc=_doc,
        clauses=(
            Clause("diagonal counts from the main one, upwards.", parameters=("diagonal",)),
            Clause("NaN outside gives 0: it is replaced, not multiplied.", About.NONFINITE),
        ),
    )
_theirs(
    "block_diag",
    "block_diag.default",
    doc="Matrices along the diagonal of one, 0 elsewhere.",
    clauses=(
        Clause("A vector counts as a row, a scalar as a matrix of one element.", About.SCALAR),
        Clause("Dtypes are promoted.", About.PROMOTION),
    ),
)
_theirs(
    "diag_embed",
    "diag_embed.default",
    doc="Vectors as diagonals of matrices, 0 elsewhere.",
    clauses=("dim1 and dim2 are where the matrix's dimensions stand.",),
)
_theirs(
    "stack",
    "stack.default",
    doc="Tensors of equal sizes along a new dimension.",
    clauses=(Clause("Dtypes are promoted.", About.PROMOTION), Clause("dim counts in the result.", parameters=("dim",))),
)
_theirs(
    "chunk_cat",
    "_chunk_cat.default",
    doc="Chunks of tensors, padded to equal sizes and joined.",
    clauses=("Padding is 0.",),
)
_theirs(
    "narrow_copy",
    "narrow_copy.default",
    doc="A copy of length elements along a dimension.",
    clauses=(
        "It begins at start.",
        "A negative start counts from the end.",
    ),
)
_theirs(
    "resize_as",
    "resize_as.default",
    doc="resize to the sizes of another tensor.",
    clauses=(Clause("Elements beyond the operand's are not specified.", About.UNSPECIFIED),),
)
_theirs(
    "select_backward",
    "select_backward.default",
    doc="The gradient at one index of a dimension, 0 elsewhere.",
    clauses=("It is the gradient of select.",),
    requires=(gradient_of(SELECTED),),
)
_theirs(
    "slice_backward",
    "slice_backward.default",
    doc="The gradient at a slice, 0 elsewhere.",
    clauses=("It is the gradient of slice.",),
    requires=(gradient_of(SLICED),),
)
_theirs(
    "diagonal_backward",
    "diagonal_backward.default",
    doc="The gradient at a diagonal, 0 elsewhere.",
    clauses=("It is the gradient of diagonal.",),
    requires=(gradient_of(DIAGONAL),),
)
_theirs(
    "unfold_backward",
    "unfold_backward.default",
    doc="The gradients of windows added up where they overlap.",
    tags=SHAPE | UNORDERED,
    clauses=(
        "It is the gradient of sliding_window.",
        Clause("The order of additions is not specified.", About.UNSPECIFIED),
        "A gradient of one element in another dimension than dim is repeated.",
    ),
    requires=(gradient_of(WINDOWS, repeated=True),),
)
for _dims in (1, 2, 3):
    _theirs(
        f"reflection_pad{_dims}d",
        f"reflection_pad{_dims}d.default",
        clauses=("The border element itself is not repeated.", "Padding is less than the dimension."),
        doc="The operand with its mirror image around it.",
    )
    _theirs(
        f"reflection_pad{_dims}d_backward",
        f"reflection_pad{_dims}d_backward.default",
        clauses=("It is the gradient of reflection_pad: what an element was copied to adds up.",),
        doc="The gradient of padding with the mirror image.",
    )
    _theirs(
        f"replication_pad{_dims}d",
        f"replication_pad{_dims}d.default",
        clauses=("Each place around has the nearest element of the operand.",),
        doc="The operand with its border repeated.",
    )
_theirs(
    "index_add",
    "index_add.default",
    doc="Slices added, times alpha, at indices of a dimension.",
    tags=INDEXING | UNORDERED,
    places=_SLICES,
    clauses=("What goes to one place is all added up, in no specified order.",),
    libraries=EVERY_DEVICE,
)
_theirs(
    "index_copy",
    "index_copy.default",
    tags=INDEXING,
    doc="Slices written at indices of a dimension.",
    places=_SLICES,
    clauses=(
        Clause("Where indices are equal, one of the slices stands there; which one is not specified.", About.TIES),
    ),
)
_theirs(
    "index_fill",
    "index_fill.int_Scalar",
    "index_fill.int_Tensor",
    tags=INDEXING,
    doc="A value written at indices of a dimension.",
    places=Places(count=_ALONG),
    clauses=("Negative indices count from the end.",),
)
_theirs(
    "unsafe_masked_index",
    "_unsafe_masked_index.default",
    tags=INDEXING,
    places=Places("self"),
    doc="index where a mask is true, fill elsewhere.",
    clauses=("Indices where the mask is false are not looked at.",),
)
_theirs(
    "unsafe_masked_index_put",
    "_unsafe_masked_index_put_accumulate.default",
    tags=INDEXING | UNORDERED,
    doc="index_put with accumulate, of values where a mask is true.",
    places=Places(count=shape_of("values")),
    clauses=(
        "Indices where the mask is false are not looked at.",
        Clause("The order of additions is not specified.", About.UNSPECIFIED),
    ),
)
_theirs(
    "embedding_dense_backward",
    "embedding_dense_backward.default",
    tags=INDEXING | UNORDERED,
    places=Places(count=shape_of("grad_output")),
    doc="The gradient of embedding with respect to its table.",
    clauses=(
        "What goes to one row adds up, in no specified order; the row padding_idx gets 0.",
        Clause(
            "With scale_grad_by_freq each row's gradient is divided by how often it was taken.",
            parameters=("scale_grad_by_freq",),
        ),
    ),
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=lacks(*BOOLS, *INTS, *COMPLEX)),
)
_theirs(
    "isin",
    "isin.Tensor_Tensor",
    "isin.Tensor_Scalar",
    "isin.Scalar_Tensor",
    tags=INDEXING,
    doc="Whether elements are among others.",
    clauses=(
        Clause("NaN equals nothing.", About.NONFINITE),
        Clause("invert gives the opposite.", parameters=("invert",)),
    ),
)
_theirs(
    "renorm",
    "renorm.default",
    tags=frozenset({"reduction"}),
    doc="Slices along a dimension whose norm is above maxnorm, scaled down to it.",
    clauses=("The factor is maxnorm / (norm + 1e-7).", "Other slices stay."),
)
_theirs(
    "nansum",
    "nansum.default",
    tags=frozenset({"reduction"}),
    doc="The sum of the elements that are not NaN.",
    clauses=(Clause("It is sum, NaN counting as 0.", About.NONFINITE),),
)
_theirs(
    "logsumexp",
    "logsumexp.default",
    tags=frozenset({"reduction"}),
    doc="The logarithm of the sum of exponentials.",
    clauses=(
        Clause("It does not overflow where the result does not.", About.NONFINITE),
        Clause("All elements -inf give -inf.", About.NONFINITE),
        Clause("+inf gives +inf.", About.NONFINITE),
        Clause("NaN gives NaN.", About.NONFINITE),
    ),
)


@family("take.default", tags=INDEXING, places=Places("self"), clauses=("Negative indices count from the end.",))
def take(x: Tensor, index: Tensor) -> Tensor:
    """Elements at indices into the whole in row-major order."""
    return aten.index.Tensor(aten.reshape.default(x, [x.numel()]), [index])


# -- writes at indices ------------------------------------------------------------------------------------------------

_NAMES = {"add": "sum", "multiply": "prod"}


@family(
    "scatter.reduce",
    tags=INDEXING | UNORDERED,
    places=_PICKED,
    clauses=("It is scatter_reduce with sum (add) or prod (multiply), the operand's elements included.",),
    libraries=EVERY_DEVICE,
    cuda=REDUCES_REALS,
)
def scatter_with(x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    """Elements added or multiplied at given indices along a dimension."""
    return aten.scatter_reduce.two(x, dim, index, src, _NAMES[reduce])


@family(
    "scatter.value_reduce",
    tags=INDEXING | UNORDERED,
    places=_PICKED,
    clauses=("It is scatter.reduce of a tensor of equal elements.",),
    libraries=EVERY_DEVICE,
    cuda=REDUCES_REALS,
)
def scatter_value_with(x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str) -> Tensor:
    """A value added or multiplied at given indices along a dimension."""
    src = aten.full.default(list(index.shape), value, dtype=x.dtype, device=x.device)
    return aten.scatter_reduce.two(x, dim, index, src, _NAMES[reduce])


@family(
    "index_reduce.default",
    tags=INDEXING | UNORDERED,
    places=_SLICES,
    clauses=(
        Clause(
            "reduce is prod, mean, amax or amin over the slices that go to a place, and with include_self the "
            "operand's too.",
            parameters=("include_self", "reduce"),
        ),
        Clause("A mean of integers is rounded towards minus infinity.", About.INTEGER),
        "The order of the reduction is not specified, and means in float32 may treat subnormal numbers as 0.",
    ),
    libraries=EVERY_DEVICE,
    cuda=REDUCES_REALS,
)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Slices reduced into indices of a dimension."""
    if not x.dim():
        row = [aten.reshape.default(t, [1]) for t in (x, source)]
        result = aten.scatter_reduce.two(
            row[0], 0, aten.reshape.default(index, [1]), row[1], reduce, include_self=include_self
        )
        return aten.reshape.default(result, [])
    dim = dim % x.dim()
    along = [index.numel() if d == dim else 1 for d in range(x.dim())]
    at = aten.expand.default(aten.reshape.default(index.to(torch.int64), along), list(source.shape))
    return aten.scatter_reduce.two(x, dim, at, source, reduce, include_self=include_self)


@family(
    "masked_scatter_backward.default",
    tags=INDEXING,
    clauses=(
        "It is the gradient of masked_scatter with respect to source: the elements where the mask is true, "
        "one after the "
        "other, then 0.",
    ),
)
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    """The elements of a gradient that masked_scatter took from its source."""
    count: Any = 1
    for n in sizes:
        count = count * n
    there = aten.reshape.default(aten.expand.default(mask, list(grad.shape)), [grad.numel()])
    rest = aten.full.default([], count, dtype=torch.int64, device=grad.device)
    place = aten.where.self(there, aten.cumsum.default(there.to(torch.int64), 0) - 1, rest)
    base = aten.full.default([count + 1], 0, dtype=grad.dtype, device=grad.device)  # the last place takes the rest
    result = aten.scatter.src(base, 0, place, aten.reshape.default(grad, [grad.numel()]))
    return aten.reshape.default(aten.slice.Tensor(result, 0, 0, count), list(sizes))


# -- gradients of padding ---------------------------------------------------------------------------------------------


def _replication_backward(dims: int) -> Any:
    def decompose(grad: Tensor, x: Tensor, padding: Sequence[Any]) -> Tensor:
        for i in range(dims):
            d = x.dim() - 1 - i
            places = aten.arange.default(grad.shape[d], device=grad.device) - padding[2 * i]
            source = aten.clamp.default(places, 0, x.shape[d] - 1)
            base = aten.full.default(
                [x.shape[d] if k == d else n for k, n in enumerate(grad.shape)], 0, dtype=grad.dtype, device=grad.device
            )
            grad = aten.index_add.default(base, d, source, grad)
        return grad

    return decompose


for _dims in (1, 2, 3):
    family.composite(
        f"replication_pad{_dims}d_backward",
        f"replication_pad{_dims}d_backward.default",
        doc="The gradient of padding with the border.",
        decompose=_replication_backward(_dims),
        tags=SHAPE | UNORDERED,
        clauses=(
            "It is the gradient of replication_pad: what an element was copied to adds up, in no specified order.",
        ),
    )
