"""Operators that put elements elsewhere in memory of their own: joined, padded, reversed, copied, written into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from keel.spec.clause import About, Clause, Stated
from keel.spec.dtype_groups import ALL
from keel.spec.numerics import Numerics, Results
from keel.spec.op import Budget, Family, Requires, Sample, Samples
from keel.spec.rules import Args, LayoutRule, Out, Shape, canonical, like, preserved, shape_of
from keel.spec.rules_shape import (
    JOINED,
    PADDED,
    extent_of,
    formatted,
    promoted_list,
    spanned,
    suggested,
)
from keel.spec.samples import drawn, specials
from keel.spec.samples_shape import each, shaped, swapped
from keel.types import TensorType

aten = torch.ops.aten
family = Family("shape")
Tensor = torch.Tensor

SAME = like("self")
TAGS = frozenset({"shape"})
_BITS = "Elements keep their bits."
EXACT = {d: Budget(ulps=0) for d in ALL}


def _declare(name: str, *overloads: str, doc: str, out: Out, samples: Samples, clauses: Stated, **more: Any) -> None:
    family.primitive(
        name,
        *overloads,
        doc=doc,
        clauses=clauses,
        out=(out,),
        samples=samples,
        tags=TAGS,
        dtypes=ALL,
        budget=EXACT,
        numerics=Numerics(results=Results.MOVED),
        **more,
    )


def _joins(dtype: torch.dtype) -> Iterator[Sample]:
    def x(*shape: int) -> Tensor:
        return drawn(dtype, *shape, seed=sum(shape))

    yield Sample(([specials(dtype), x(3)],))
    yield Sample(([x(0), x(0)],))
    yield Sample(([x(2, 3), x(4, 3), x(1, 3)],))
    yield Sample(([x(2, 3), x(2, 0)], -1))
    yield Sample(([x(0), x(2, 3)], 1))  # what has shape [0] does not count
    yield Sample(([x(2, 3, 4).transpose(0, 2), x(4, 3, 2)], 1))
    yield Sample(([swapped(x(2, 3)), swapped(x(2, 3))],))
    image = x(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield Sample(([image, image], 1))
    yield Sample(([image, image.contiguous()], 1))
    yield Sample(([x(3), drawn(torch.float32, 2), drawn(torch.int64, 2)],))


def _joinable(args: Args) -> bool:
    shapes = [t.shape for t in args["tensors"] if t.shape != (0,)]
    if not shapes:
        return bool(args["tensors"])
    d = canonical(args["dim"], len(shapes[0]))
    return (
        len(shapes[0]) > 0
        and len({len(s) for s in shapes}) == 1
        and all(len({s[i] for s in shapes if isinstance(s[i], int)}) < 2 for i in range(len(shapes[0])) if i != d)
    )


_declare(
    "cat",
    "cat.default",
    doc="Tensors one after the other along a dimension.",
    clauses=(
        _BITS,
        Clause("Tensors of different dtypes are converted to their common one first.", About.PROMOTION),
        "A tensor of shape [0] does not count, whatever the rank of the others.",
    ),
    requires=(
        Requires(
            "shapes-fit",
            "There is a tensor; all have the same rank, 1 or more, and the same sizes but along dim.",
            _joinable,
        ),
    ),
    out=Out(promoted_list("tensors"), JOINED, suggested("tensors")),
    samples=_joins,
)
_declare(
    "flip",
    "flip.default",
    doc="The order of elements reversed along dimensions.",
    clauses=(
        _BITS,
        "Element i along a named dimension of size n is element n - 1 - i of the operand.",
        "Without dimensions the result is a copy.",
    ),
    requires=(
        Requires(
            "dims-unique",
            "No dimension is named twice.",
            lambda args: len({canonical(d, args["self"].rank) for d in args["dims"]}) == len(args["dims"]),
        ),
    ),
    out=Out(SAME, shape_of("self"), preserved()),
    samples=each(
        ((), ([],)),
        ((1,), ([0],)),
        ((7,), ([-1],)),
        ((2, 3, 4), ([0, 2],)),
        ((2, 3, 4), ([],)),
        ((2, 0, 3), ([1],)),
        ((3, 1, 4, 5), ([1, -1],)),
    ),
)


def _pad_layout(args: Args, shape: Shape) -> Sequence[Any]:
    x, pad = args["self"], args["pad"]
    if any(not isinstance(n, int) or n > 0 for n in pad):
        return suggested("self").of(args, shape)
    cut = TensorType(x.dtype, shape, x.strides, x.device)  # only cut: a copy of a view
    return preserved().of({"self": cut}, shape)


def _pads(dtype: torch.dtype) -> Iterator[Sample]:
    cases: tuple[tuple[tuple[int, ...], list[int], float], ...] = (
        ((), [], 0),
        ((1,), [0, 0], 1),
        ((7,), [1, 2], 3),
        ((7,), [-1, -2], 0),
        ((7,), [-3, 5], 2),
        ((2, 3), [1, 0, 0, 2], 0),
        ((2, 3, 4), [0, 1, -1, 1], 1),
        ((2, 0, 3), [1, 1, 1, 1], 0),
        ((2, 3), [], 0),
    )
    for shape, pad, value in cases:
        yield Sample((drawn(dtype, *shape), pad, value))
        if len(shape) > 1:
            yield Sample((swapped(drawn(dtype, *shape)), pad, value))
    image = drawn(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield Sample((image, [1, 1]))
    yield Sample((image, [-1, -1]))


_declare(
    "pad",
    "constant_pad_nd.default",
    doc="The operand with a constant around it.",
    clauses=(
        Clause("pad has the numbers before and after, for the last dimension first.", parameters=("pad",)),
        Clause("Negative numbers cut elements off.", About.EDGE),
        "The elements keep the operand's bits, and around them is value, converted to the operand's dtype.",
    ),
    requires=(
        Requires(
            "pad-length",
            "pad has two numbers for each of at most all dimensions.",
            lambda args: len(args["pad"]) % 2 == 0 and len(args["pad"]) <= 2 * args["self"].rank,
        ),
    ),
    out=Out(
        SAME,
        PADDED,
        LayoutRule("channels last if self is, else row-major; preserve(self) where it is only cut", _pad_layout),
    ),
    samples=_pads,
)


def _copies(dtype: torch.dtype) -> Iterator[Sample]:
    for x in (specials(dtype), *shaped(dtype)):
        yield Sample((x,))
        yield Sample((x,), {"memory_format": torch.contiguous_format})
        if x.dim() == 4:
            yield Sample((x,), {"memory_format": torch.channels_last})
    yield Sample((drawn(dtype, 2, 3, 4, 5),), {"memory_format": torch.channels_last})
    yield Sample((drawn(dtype, 2, 3, 2, 4, 5),), {"memory_format": torch.channels_last_3d})


_declare(
    "copy_layout",
    "clone.default",
    doc="A copy, laid out as memory_format says.",
    clauses=(_BITS, "The result shares no memory with the operand."),
    out=Out(SAME, shape_of("self"), formatted()),
    samples=_copies,
)


def _writes(dtype: torch.dtype) -> Iterator[Sample]:
    cases: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], ...] = (
        ((7,), (3,), (0, 1, 4)),
        ((7,), (3,), (0, -3, 2**63 - 1)),
        ((7,), (0,), (0, 5, 2)),
        ((8, 3), (4, 3), (0, 1, 2**63 - 1, 2)),
        ((2, 4), (2, 4), (1, None, None)),
        ((1,), (1,), (0, 0, 9)),
        ((2, 0, 3), (2, 0, 3), (1, 0, 2)),
    )
    for shape, part, where in cases:
        x, src = drawn(dtype, *shape), drawn(dtype, *part, seed=1)
        yield Sample((x, src, *where))
        yield Sample((swapped(x), src, *where))
    yield Sample((drawn(dtype, 3, 1).expand(3, 4), drawn(dtype, 3, 2), 1, 0, 2))
    yield Sample((drawn(dtype, 6, 8)[::2, 1::3], drawn(dtype, 3, 1), 1, 0, 1))


def _part(args: Args) -> bool:
    x, src = args["self"], args["src"]
    d = canonical(args["dim"], x.rank)
    want = [extent_of(args) if i == d else n for i, n in enumerate(x.shape)]
    return len(want) == src.rank and all(
        a == b or not isinstance(a, int) or not isinstance(b, int) for a, b in zip(want, src.shape, strict=True)
    )


_declare(
    "slice_scatter",
    "slice_scatter.default",
    doc="The operand with a slice of it replaced.",
    clauses=(
        "Where slice would read, the result has the elements of src, converted to the operand's dtype; elsewhere the "
        "operand's.",
        "Bounds are those of slice.",
        "The result shares no memory with the operand.",
    ),
    requires=(Requires("source-fits", "src has the sizes of the slice.", _part),),
    out=Out(SAME, shape_of("self"), spanned()),
    samples=_writes,
)


# -- composites -------------------------------------------------------------------------------------------------------


@family(
    "select_scatter.default",
    tags=TAGS,
    clauses=("Where select would read, the result has the elements of src; elsewhere the operand's.",),
)
def select_scatter(x: Tensor, src: Tensor, dim: int, index: Any) -> Tensor:
    """The operand with what stands at one index of a dimension replaced."""
    dim = dim % x.dim()
    index = index + x.shape[dim] if index < 0 else index
    src = aten.expand.default(aten.unsqueeze.default(src, dim), [1 if d == dim else n for d, n in enumerate(x.shape)])
    return aten.slice_scatter.default(x, src, dim, index, index + 1)


@family(
    "diagonal_scatter.default",
    tags=TAGS,
    clauses=("Where diagonal would read, the result has the elements of src; elsewhere the operand's.",),
)
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The operand with a diagonal of it replaced."""
    d1, d2 = dim1 % x.dim(), dim2 % x.dim()
    rest = [d for d in range(x.dim()) if d not in (d1, d2)]
    last = aten.permute.default(x, [*rest, d1, d2])
    rows, columns = last.shape[-2:]
    row = aten.unsqueeze.default(aten.arange.default(rows, device=x.device), 1)
    column = aten.arange.default(columns, device=x.device)
    # At most one element of each row is replaced, by the source's element at min(row, column).
    length = src.shape[-1]
    padded = aten.constant_pad_nd.default(src.to(x.dtype), [max(-offset, 0), rows - length - max(-offset, 0)])
    result = aten.where.self(aten.eq.Tensor(column, row + offset), aten.unsqueeze.default(padded, -1), last)
    back = [*rest, d1, d2]
    return aten.permute.default(result, [back.index(d) for d in range(x.dim())])


@family(
    "copy.default",
    tags=TAGS,
    clauses=(
        Clause(
            "src is broadcast to the operand's sizes and converted to its dtype.", About.BROADCAST, parameters=("src",)
        ),
    ),
)
def copy(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The elements of src, laid out like the operand."""
    if src.device != x.device:
        return NotImplemented
    return aten.clone.default(aten.expand.default(src.to(x.dtype), list(x.shape)))


@family(
    "resize.default",
    tags=TAGS,
    clauses=("Elements keep their places in row-major order; elements beyond the operand's are not specified.",),
)
def resize(x: Tensor, size: Sequence[Any], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """Other sizes, with more or fewer elements."""
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format) or not x.is_contiguous():
        return NotImplemented
    count: Any = 1
    for n in size:
        count = count * n
    flat = aten.reshape.default(x, [x.numel()])
    if count <= x.numel():
        return aten.reshape.default(aten.slice.Tensor(flat, 0, 0, count), list(size))
    return aten.reshape.default(aten.constant_pad_nd.default(flat, [0, count - x.numel()]), list(size))


_COPIES: dict[str, tuple[str, Any]] = {
    "alias_copy.default": ("alias", lambda x: x),
    "detach_copy.default": ("alias", lambda x: x),
    "as_strided_copy.default": ("as_strided", aten.as_strided.default),
    "diagonal_copy.default": ("diagonal", aten.diagonal.default),
    "expand_copy.default": ("expand", lambda x, size, *, implicit=False: aten.expand.default(x, size)),
    "permute_copy.default": ("permute", aten.permute.default),
    "select_copy.int": ("select", aten.select.int),
    "slice_copy.Tensor": ("slice", aten.slice.Tensor),
    "squeeze_copy.default": ("squeeze_all", aten.squeeze.default),
    "squeeze_copy.dim": ("squeeze_dim", aten.squeeze.dim),
    "squeeze_copy.dims": ("squeeze", aten.squeeze.dims),
    "t_copy.default": ("t", aten.t.default),
    "transpose_copy.int": ("transpose", aten.transpose.int),
    "unfold_copy.default": ("sliding_window", aten.unfold.default),
    "unsqueeze_copy.default": ("unsqueeze", aten.unsqueeze.default),
    "view_copy.default": ("view", aten.view.default),
    "view_copy.dtype": ("bitcast", aten.view.dtype),
    "_reshape_copy.default": ("reshape", aten.reshape.default),
}


_ROW_MAJOR: dict[str, bool | tuple[str, ...]] = {
    "as_strided_copy.default": True,
    "view_copy.dtype": True,
    "view_copy.default": ("view_copy",),
}


def _copied(view: Any) -> Any:
    def decompose(x: Tensor, *args: Any, **keywords: Any) -> Tensor:
        return aten.clone.default(view(x, *args, **keywords), memory_format=torch.contiguous_format)

    return decompose


for _overload, (_of, _view) in _COPIES.items():
    family.composite(
        _overload.partition(".")[0].strip("_")
        + ("_as" if _overload.endswith(".dtype") else "")
        + ("_dims" if _overload.endswith("dims") else "_dim" if _overload.endswith("dim") else ""),
        _overload,
        doc=f"A copy of what {_of} gives.",
        tags=TAGS,
        decompose=_copied(_view),
        clauses=("The result shares no memory with the operand.",),
        row_major=_ROW_MAJOR.get(_overload, False),
    )


@family(
    "repeat.default",
    tags=TAGS,
    clauses=(
        "Element i along a dimension of size n is element i mod n of the operand.",
        "New dimensions come in front.",
        Clause("A dimension repeated 0 times has no elements.", About.EMPTY),
    ),
)
def repeat(x: Tensor, repeats: Sequence[Any]) -> Tensor:
    """The operand several times over, along every dimension."""
    new = len(repeats) - x.dim()
    padded_shape = [1] * new + list(x.shape)
    pairs = [(r, n) for r, n in zip(repeats, padded_shape, strict=True)]
    viewed = aten.view.default(
        aten.clone.default(x, memory_format=torch.contiguous_format), [m for _, n in pairs for m in (1, n)]
    )
    wide = aten.expand.default(viewed, [m for r, n in pairs for m in (r, n)])
    return aten.view.default(aten.clone.default(wide, memory_format=torch.contiguous_format), [r * n for r, n in pairs])
