"""What depends on data: results whose size only the run tells, numbers read on the host, checks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from keel.spec.clause import About, Clause
from keel.spec.dtype_groups import ALL, COMPLEX
from keel.spec.numerics import Numerics
from keel.spec.op import UNORDERED, Budget, Family, Requires, Sample
from keel.spec.pytorch_kernels import EVERY_DEVICE, CudaKernel, lacks
from keel.spec.rules import INT64, Args, LayoutRule, Out, ShapeRule, like
from keel.spec.rules_shape import unknown
from keel.spec.samples import drawn, specials
from keel.spec.samples_shape import shaped
from keel.torch_adapter import hint_of, promise
from keel.types import SymType, Type

aten = torch.ops.aten
family = Family("dynamic")
Tensor = torch.Tensor

DYNAMIC = frozenset({"data-dependent", "indexing"})
HOST = frozenset({"data-dependent", "host"})
EFFECT = frozenset({"host", "effect"})


def _tensors(dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((specials(dtype),))
    for x in shaped(dtype):
        yield Sample((x,))


def _nonzero_type(args: Args) -> Any:
    return 0 if args["self"].numel == 0 else unknown()


family.primitive(
    "nonzero",
    "nonzero.default",
    doc="The indices of the elements that are not zero.",
    no_loops="The data determine the size of its result.",
    clauses=(
        "Each element that is not zero has a row of indices, in row-major order.",
        Clause("NaN is not zero; zeros of both signs are.", About.NONFINITE | About.ZERO),
        Clause("A scalar gives rows without indices.", About.SCALAR),
    ),
    out=(
        Out(
            INT64,
            ShapeRule("[how many there are, rank(self)]", lambda args: (_nonzero_type(args), args["self"].rank)),
            LayoutRule("column-major", lambda args, shape: (1, shape[0])),
        ),
    ),
    dtypes=ALL,
    samples=_tensors,
    tags=DYNAMIC,
    budget={d: Budget(ulps=0) for d in ALL},
    numerics=Numerics(steps=True),
    sized_by="data",
    libraries=EVERY_DEVICE,
)


def _items(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (1,), (1, 1)):
        yield Sample((drawn(dtype, *shape),))


def _number(args: Args) -> tuple[Type | None, ...]:
    """A number on the host: a float of a float, a bool of a bool, an int of any other dtype."""
    dtype = args["self"].dtype
    kind = "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "int"
    return (SymType(unknown(), kind),)  # type: ignore[arg-type]


family.primitive(
    "item",
    "_local_scalar_dense.default",
    doc="The one element of a tensor, as a number on the host.",
    clauses=(
        "The host waits for the tensor.",
        "A float is exact: 16- and 32-bit floats are widened to 64 bits.",
        Clause("Bools give a bool, integers an int.", About.BOOL),
    ),
    out=_number,
    dtypes=tuple(d for d in ALL if d not in COMPLEX),
    samples=_items,
    tags=HOST,
    requires=(
        Requires(
            "one-element",
            "The tensor has one element.",
            lambda args: args["self"].numel == 1 or not isinstance(args["self"].numel, int),
        ),
    ),
    budget={d: Budget(ulps=0) for d in ALL},
)


def _conditions(dtype: torch.dtype) -> Iterator[Sample]:
    for shape in ((), (1,)):
        yield Sample((torch.ones(shape, dtype=dtype), "it holds", torch.zeros(3)))


_ASSERTS = (
    "A condition that does not hold stops the program, with the message; no later effect is visible.",
    Clause("A NaN holds, a zero of either sign does not.", About.NONFINITE | About.ZERO),
    "A check is neither moved before what comes first, nor left out because its result is not used.",
)
_TOKEN = (
    Out(
        like("dep_token"),
        ShapeRule("shape(dep_token)", lambda args: args["dep_token"].shape),
        LayoutRule("strides(dep_token)", lambda args, shape: args["dep_token"].strides),
    ),
)
family.primitive(
    "assert_async",
    "_functional_assert_async.msg",
    doc="Goes on if a condition holds; gives its token.",
    clauses=_ASSERTS,
    out=_TOKEN,
    dtypes=ALL,
    samples=_conditions,
    tags=EFFECT,
)
family.primitive(
    "assert_now",
    "_assert_async.msg",
    "_assert_async.default",
    doc="Goes on if a condition holds.",
    clauses=_ASSERTS,
    out=(),
    dtypes=ALL,
    tags=EFFECT,
)
family.primitive(
    "assert_number",
    "_assert_scalar.default",
    doc="Goes on if a number on the host is not zero.",
    clauses=_ASSERTS[::2],
    out=(),
    tags=EFFECT,
)
family.primitive(
    "assert_number_token",
    "_functional_assert_scalar.default",
    doc="Goes on if a number on the host is not zero; gives its token.",
    clauses=_ASSERTS[::2],
    tags=EFFECT,
    out=_TOKEN,
)
_RANGES = (
    "min and max, where given, are bounds that the number may have itself.",
    "A number outside stops the program; afterwards it may be relied on to lie inside.",
)
family.primitive(
    "constrain_range",
    "sym_constrain_range.default",
    "sym_constrain_range_for_size.default",
    doc="A promise that a number on the host lies within bounds.",
    clauses=_RANGES,
    out=(),
    tags=EFFECT,
)
family.primitive(
    "constrain_range_token",
    "_functional_sym_constrain_range.default",
    "_functional_sym_constrain_range_for_size.default",
    doc="A promise that a number on the host lies within bounds; gives its token.",
    clauses=_RANGES,
    tags=EFFECT,
    out=_TOKEN,
)
family.primitive(
    "assert_metadata",
    "_assert_tensor_metadata.default",
    doc="Goes on if a tensor has the sizes, strides, dtype, device and layout given.",
    clauses=("What is not given is not checked.", "It can be checked before the program runs."),
    out=(),
    tags=EFFECT,
)


# -- composites -------------------------------------------------------------------------------------------------------


@family(
    "masked_select.default",
    tags=DYNAMIC,
    sized_by="data",
    clauses=(
        Clause(
            "Operand and mask are broadcast; the elements where the mask is true come in row-major order.",
            About.BROADCAST,
        ),
    ),
    libraries=EVERY_DEVICE,
)
def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask is true."""
    shape = list(torch.broadcast_shapes(x.shape, mask.shape))
    flat = [aten.reshape.default(aten.expand.default(t, shape), [-1]) for t in (x, mask)]
    places = aten.squeeze.dims(aten.nonzero.default(flat[1]), [1])
    return aten.index.Tensor(flat[0], [places])


def _before(x: Tensor) -> Tensor:
    """Along dimension 0, what stands one place before; at the first place, anything."""
    rest = [0, 0] * (x.dim() - 1)
    return aten.constant_pad_nd.default(aten.constant_pad_nd.default(x, [*rest, 1, 0]), [*rest, 0, -1])


def _breaks(x: Tensor) -> Tensor:
    """Along dimension 0, whether an element is not equal to the one before; True for the first one."""
    first = aten.eq.Scalar(aten.arange.default(x.shape[0], device=x.device), 0)
    return aten.logical_or.default(
        aten.ne.Tensor(x, _before(x)), aten.reshape.default(first, [x.shape[0], *[1] * (x.dim() - 1)])
    )


def _runs(begins: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where the runs of equal neighbors begin, the number of each element's run, and the runs' lengths; ``begins``
    says of each element whether it begins one.
    """
    n = begins.shape[0]
    starts = aten.squeeze.dims(aten.nonzero.default(begins), [1])
    number = aten.cumsum.default(begins.to(torch.int64), 0) - 1
    after = aten.constant_pad_nd.default(aten.constant_pad_nd.default(starts - n, [0, 1]), [-1, 0]) + n
    return starts, number, after - starts


def _nothing(x: Tensor) -> Tensor:
    return aten.full.default([0], 0, dtype=torch.int64, device=x.device)


def _values_and(
    x: Tensor,
    values: Tensor,
    inverse: Tensor | None,
    counts: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return values, _nothing(x) if inverse is None else inverse, _nothing(x) if counts is None else counts


_UNIQUE = (
    "The values come in ascending order.",
    Clause(
        "inverse says which value each element has, counts how often each value occurs; results not asked for have no "
        "elements.",
        About.TIES,
    ),
    Clause("NaN is not equal to anything, not even itself.", About.NONFINITE),
)


@family(
    "_unique2.default",
    tags=DYNAMIC,
    clauses=_UNIQUE,
    libraries=EVERY_DEVICE,
    cuda=CudaKernel(refuses=lacks(torch.bool)),
)
def _unique2(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct values of all elements."""
    flat = aten.reshape.default(x, [x.numel()])
    ordered, order = aten.sort.stable(flat, stable=True)
    starts, number, lengths = _runs(_breaks(ordered))
    inverse = aten.reshape.default(aten.scatter.src(number, 0, order, number), list(x.shape))
    values = aten.index.Tensor(ordered, [starts])
    return _values_and(x, values, inverse if return_inverse else None, lengths if return_counts else None)


@family("_unique.default", tags=DYNAMIC, clauses=_UNIQUE[:1], libraries=EVERY_DEVICE)
def _unique(x: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """The distinct values of all elements, and which of them each element has."""
    return _unique2(x, sorted, return_inverse)[:2]


@family(
    "unique_consecutive.default",
    tags=DYNAMIC,
    clauses=("One element of each run of equal neighbors is kept, in order.", *_UNIQUE[1:]),
    libraries=EVERY_DEVICE,
)
def unique_consecutive(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The operand without elements, or slices along ``dim``, equal to the one before."""
    if dim is not None:
        return unique_dim_consecutive(x, dim, return_inverse, return_counts)
    flat = aten.reshape.default(x, [x.numel()])
    starts, number, lengths = _runs(_breaks(flat))
    return _values_and(
        x,
        aten.index.Tensor(flat, [starts]),
        aten.reshape.default(number, list(x.shape)) if return_inverse else None,
        lengths if return_counts else None,
    )


@family(
    "unique_dim_consecutive.default",
    tags=DYNAMIC,
    clauses=("One slice of each run of equal neighboring slices along dim is kept, in order.", *_UNIQUE[1:]),
    libraries=EVERY_DEVICE,
)
def unique_dim_consecutive(
    x: Tensor,
    dim: int,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The operand without slices equal to the one before."""
    dim = dim % max(x.dim(), 1)
    if _is_empty(x.shape[dim]):
        return aten.clone.default(x), _nothing(x), _nothing(x)
    starts, number, lengths = _runs(aten.any.dims(_breaks(_rows(x, dim)), [1]))
    values = aten.index_select.default(x, dim, starts)
    return _slices_and(x, values, number, lengths, return_inverse, return_counts)


@family(
    "unique_dim.default",
    tags=DYNAMIC,
    clauses=(
        "Equal slices along dim come once, in lexicographic order.",
        *_UNIQUE[1:-1],
        Clause(
            "With NaN among the elements, their order, and which equal ones come once, are not specified.",
            About.NONFINITE,
        ),
    ),
    libraries=EVERY_DEVICE,
)
def unique_dim(
    x: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct slices along a dimension."""
    dim = dim % max(x.dim(), 1)
    if _is_empty(x.shape[dim]):
        return aten.clone.default(x), _nothing(x), _nothing(x)
    rows = _rows(x, dim)
    if (width := _width(rows)) is None:
        return NotImplemented  # the number of rounds is that of width's digits
    ranks = _ranks(aten.constant_pad_nd.default(rows, [0, width - rows.shape[1]]))
    while width > 1:  # of pairs of neighboring columns, and of pairs of these
        width //= 2
        high, low = aten.unbind.int(aten.reshape.default(ranks, [x.shape[dim], width, 2]), 2)
        ranks = _ranks(high * x.shape[dim] + low)
    inverse = aten.squeeze.dims(ranks, [1])
    ordered, order = aten.sort.stable(inverse, stable=True)
    starts, _, lengths = _runs(_breaks(ordered))
    values = aten.index_select.default(x, dim, aten.index.Tensor(order, [starts]))
    return _slices_and(x, values, inverse, lengths, return_inverse, return_counts)


def _slices_and(
    x: Tensor,
    values: Tensor,
    inverse: Tensor,
    counts: Tensor,
    return_inverse: bool,
    return_counts: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """ATen's CPU kernels give places and counts of slices even if they are not asked for."""
    always = x.device.type == "cpu"
    return _values_and(
        x, values, inverse if always or return_inverse else None, counts if always or return_counts else None
    )


def _is_empty(size: Any) -> bool:
    return isinstance(size, int) and size == 0


def _rows(x: Tensor, dim: int) -> Tensor:
    rest = [d for d in range(x.dim()) if d != dim]
    return aten.reshape.default(aten.permute.default(x, [dim, *rest]), [x.shape[dim], prod(x.shape[d] for d in rest)])


def _width(rows: Tensor) -> int | None:
    """The least power of two that is at least the number of columns; None where only the run tells how many."""
    columns: Any = rows.shape[1]
    hint = hint_of(columns)
    if hint is None:
        return None
    width = 1 << max(hint - 1, 0).bit_length()
    return width if columns <= width else None  # of symbolic sizes, a guard


def _ranks(keys: Tensor) -> Tensor:
    """For each column, how many smaller values it has than an element."""
    ordered, order = aten.sort.stable(keys, stable=True, dim=0)
    number = aten.cumsum.default(_breaks(ordered).to(torch.int64), 0) - 1
    return aten.scatter.src(number, 0, order, number)


@family(
    "repeat_interleave.Tensor",
    tags=DYNAMIC,
    clauses=(
        "Index i comes repeats[i] times; output_size, where given, is how many there are in all.",
        "Numbers of repeats are 0 or more.",
    ),
    libraries=EVERY_DEVICE,
)
def repeat_interleave(repeats: Tensor, *, output_size: Any = None) -> Tensor:
    """Each index as often as its number of repeats says."""
    ends = aten.cumsum.default(repeats, 0)
    if output_size is None:
        output_size = aten._local_scalar_dense.default(aten.sum.dim_IntList(repeats, [0]))
        promise(output_size >= 0)
    places = aten.arange.default(output_size, dtype=ends.dtype, device=repeats.device)
    return aten.searchsorted.Tensor(ends, places, right=True).to(repeats.dtype)


@family(
    "bincount.default",
    tags=DYNAMIC | UNORDERED,
    clauses=(
        "The number of counts is the greatest element plus 1, and at least minlength.",
        "Elements are 0 or more.",
        Clause(
            "With weights, these are added up, in no specified order, in float64 unless they are float32.",
            parameters=("weights",),
        ),
    ),
    libraries=EVERY_DEVICE,
)
def bincount(x: Tensor, weights: Tensor | None = None, minlength: Any = 0) -> Tensor:
    """How often each integer occurs."""
    size: Any = minlength
    if not _is_empty(x.numel()):
        places = x.to(torch.int64)
        if hint_of(x.numel()) is None:
            places = aten.constant_pad_nd.default(places, [0, 1], -1)  # without elements there are 0
        least = aten.full.default([], minlength, dtype=torch.int64, device=x.device)
        size = aten._local_scalar_dense.default(aten.maximum.default(aten.amax.default(places) + 1, least))
        promise(size >= 0)
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    ones = aten.full.default(list(x.shape), 1, dtype=dtype, device=x.device)
    base = aten.full.default([size], 0, dtype=dtype, device=x.device)
    return aten.scatter_add.default(base, 0, x.to(torch.int64), ones if weights is None else weights.to(dtype))
