"""Type rules: what dtype, sizes and strides a result has, as small pieces that print as formulas.

A rule is plain Python over arguments by parameter name, with a TensorType for each tensor. Sizes are ``int`` or sympy
expressions, and the same arithmetic serves both. Where a rule must know which of two strides is larger (the order of
dimensions of an elementwise result), symbols count as large and distinct, as PyTorch's own hints usually are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import sympy
import torch

from keel.types import Dim, SymType, TensorType, Type, as_dim, contiguous_strides, leaves

Args = Mapping[str, Any]
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class DtypeRule:
    """The dtype of a result, and the formula that the docs print."""

    text: str
    of: Callable[[Args], torch.dtype]


@dataclass(frozen=True)
class ShapeRule:
    """The sizes of a result."""

    text: str
    of: Callable[[Args], Sequence[Any]]


@dataclass(frozen=True)
class LayoutRule:
    """The strides of a result of known sizes.

    ``exact`` says whether an implementation must keep them (a view, or what eager promises); otherwise any dense layout
    serves, and these are eager's.
    """

    text: str
    of: Callable[[Args, Shape], Sequence[Dim]]
    exact: bool = True


@dataclass(frozen=True)
class Out:
    """The type of one result."""

    dtype: DtypeRule
    shape: ShapeRule
    layout: LayoutRule
    when: Callable[[Args], bool] | None = None  # the result is None where this does not hold

    def type(self, args: Args) -> Type | None:
        if self.when is not None and not self.when(args):
            return None
        shape = tuple(as_dim(n) for n in self.shape.of(args))
        strides = tuple(as_dim(s) for s in self.layout.of(args, shape))
        return TensorType(self.dtype.of(args), shape, strides, device_of(args))


# -- arguments --------------------------------------------------------------------------------------------------------


def tensors(args: Args) -> list[TensorType]:
    """All tensor arguments in order, those in lists too."""
    return [v for v in leaves(list(args.values())) if isinstance(v, TensorType)]


def device_of(args: Args) -> torch.device:
    """That of the arguments with dimensions, else of the first tensor, else the one asked for."""
    operands = tensors(args)
    ranked = [t for t in operands if t.rank] or operands
    if not ranked or args.get("device") is not None:
        return torch.device(args.get("device") or "cpu")
    return ranked[0].device


def number(value: Any) -> Any:
    """A size or scalar argument as a number: symbolic ones as their expression."""
    return value.expr if isinstance(value, SymType) else value


def sizes(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(number(v) for v in values)


def canonical(dim: int, rank: int) -> int:
    """``dim`` counted from the front; a scalar counts as having one dimension."""
    return dim % max(rank, 1)


def canonicals(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """Dimensions counted from the front, sorted; None or none given means all."""
    if isinstance(dims, int):
        dims = [dims]
    return sorted(canonical(d, rank) for d in dims) if dims else list(range(rank))


def typical(value: Dim, draw: int = 0) -> int:
    """A number that stands for a size or stride: symbols count as large and distinct."""
    if isinstance(value, int):
        return value
    symbols = sorted(value.free_symbols, key=str)
    return int(value.subs({s: sympy.prime(1000 + 37 * i + 211 * draw) for i, s in enumerate(symbols)}))


def alike(a: Dim, b: Dim) -> bool:
    """Whether sizes or strides are equal; where sympy cannot tell, whether they are for what symbols stand for."""
    if (difference := as_dim(sympy.expand(a - b))) == 0 or isinstance(difference, int):
        return difference == 0
    return all(typical(difference, draw) == 0 for draw in range(3))


# -- dtypes -----------------------------------------------------------------------------------------------------------


def like(name: str) -> DtypeRule:
    return DtypeRule(f"dtype({name})", lambda args: _first(args[name]).dtype)


def fixed(dtype: torch.dtype) -> DtypeRule:
    return DtypeRule(str(dtype).removeprefix("torch."), lambda args: dtype)


BOOL = fixed(torch.bool)
INT64 = fixed(torch.int64)


def chosen(default: DtypeRule, name: str = "dtype") -> DtypeRule:
    """The dtype argument if there is one."""
    return DtypeRule(f"{name} or {default.text}", lambda args: args.get(name) or default.of(args))


def promoted(*names: str) -> DtypeRule:
    """PyTorch's type promotion: category first (bool, int, float, complex), then tensors with dimensions before scalar
    tensors before Python numbers.
    """
    return DtypeRule(f"promote({', '.join(names)})", lambda args: promote([args[n] for n in names]))


def floating(rule: DtypeRule) -> DtypeRule:
    """The default float where ``rule`` gives an integer or bool."""
    return DtypeRule(f"float({rule.text})", lambda args: _floating(rule.of(args)))


def summed(rule: DtypeRule) -> DtypeRule:
    """int64 where ``rule`` gives an integer or bool: sums and products of integers do not overflow their dtype."""
    return DtypeRule(f"sum({rule.text})", lambda args: _summed(rule.of(args)))


def real(rule: DtypeRule) -> DtypeRule:
    """The float that a complex number is made of."""
    return DtypeRule(f"real({rule.text})", lambda args: REAL.get(rule.of(args), rule.of(args)))


REAL: Mapping[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def promote(values: Sequence[Any]) -> torch.dtype:
    """The promoted dtype of tensor types and numbers, as ``torch.result_type`` says of two:
    https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc.
    """
    ranked = [v.dtype for v in values if isinstance(v, TensorType) and v.rank]
    scalars = [v.dtype for v in values if isinstance(v, TensorType) and not v.rank]
    numbers = [_number_like(v) for v in values if not isinstance(v, TensorType) and v is not None]
    stand_ins = [
        torch.empty((1,) * rank, dtype=reduce(torch.promote_types, group), device="meta")
        for rank, group in ((1, ranked), (0, scalars))
        if group
    ]
    result: torch.dtype = reduce(_both, [*stand_ins, *numbers]).dtype
    return result


def _both(a: Any, b: Any) -> torch.Tensor:
    shape = (1,) if any(isinstance(v, torch.Tensor) and v.dim() for v in (a, b)) else ()
    return torch.empty(shape, dtype=torch.result_type(a, b), device="meta")


def _number_like(value: Any) -> Any:
    """A number of the same kind, for promotion looks at nothing else."""
    return {"int": 1, "float": 1.0, "bool": True}[value.kind] if isinstance(value, SymType) else value


def _floating(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def _summed(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def _first(value: Any) -> TensorType:
    return next(v for v in leaves(value) if isinstance(v, TensorType))


# -- shapes -----------------------------------------------------------------------------------------------------------


def shape_of(name: str) -> ShapeRule:
    return ShapeRule(f"shape({name})", lambda args: _first(args[name]).shape)


def broadcast(*names: str) -> ShapeRule:
    return ShapeRule(
        f"broadcast({', '.join(names)})",
        lambda args: broadcast_shapes([v.shape for n in names for v in leaves(args[n]) if isinstance(v, TensorType)]),
    )


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """Aligned at the last dimension; a size of 1 gives way to any other."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            out[i] = n if out[i] == 1 else out[i]
    return tuple(out)


def reduced(name: str = "self", dims: str = "dim", keepdim: str = "keepdim") -> ShapeRule:
    """``dims`` gone, or 1 under ``keepdim``; all dimensions where none is given."""

    def of(args: Args) -> Shape:
        shape = args[name].shape
        over = canonicals(args.get(dims), len(shape))
        if args.get(keepdim):
            return tuple(1 if i in over else n for i, n in enumerate(shape))
        return tuple(n for i, n in enumerate(shape) if i not in over)

    return ShapeRule(f"reduce({name}, {dims}, {keepdim})", of)


# -- layouts ----------------------------------------------------------------------------------------------------------

DENSE = LayoutRule("row-major", lambda args, shape: contiguous_strides(shape))
ANY = LayoutRule("any dense", lambda args, shape: contiguous_strides(shape), exact=False)


def elementwise(*names: str) -> LayoutRule:
    """Dense, dimensions in the order of the arguments' strides; TensorIterator's rule."""
    return LayoutRule(
        f"elementwise({', '.join(names)})",
        lambda args, shape: elementwise_strides(
            [v for n in names for v in leaves(args[n]) if isinstance(v, TensorType)], shape
        ),
    )


def preserved(name: str = "self") -> LayoutRule:
    """The argument's strides if it is dense without overlap, else those of an elementwise result."""

    def of(args: Args, shape: Shape) -> Sequence[Dim]:
        operand = _first(args[name])
        return operand.strides if is_dense(operand) else elementwise_strides([operand], shape)

    return LayoutRule(f"preserve({name})", of)


def is_dense(t: TensorType) -> bool:
    """Whether the elements fill a block of memory, each once, in some order of dimensions."""
    step: Dim = 1
    for n, s in sorted(
        ((n, s) for n, s in zip(t.shape, t.strides, strict=True) if n != 1),
        key=lambda ns: (typical(ns[1]), typical(ns[0])),
    ):
        if not alike(s, step):
            return False
        step = as_dim(sympy.expand(step * n))
    return True


def elementwise_strides(operands: Sequence[TensorType], shape: Shape) -> Shape:
    """Strides of an elementwise result of sizes ``shape`` (``TensorIteratorBase::reorder_dimensions``)."""
    rank = len(shape)
    rows = [_aligned(t, rank) for t in operands]
    if all(t.is_contiguous and t.shape == shape for t in operands) or not rank:
        return contiguous_strides(shape)
    same = [t for t in operands if t.rank]
    if same and all(t.shape == shape and t.strides == same[0].strides for t in same) and is_dense(same[0]):
        return same[0].strides
    order = list(range(rank - 1, -1, -1))  # fastest first

    def swaps(a: int, b: int) -> int:
        for strides in rows:
            x, y = typical(strides[a]), typical(strides[b])
            if x == 0 or y == 0:
                continue
            if x != y:
                return -1 if x < y else 1
            if typical(shape[a]) > typical(shape[b]):
                return 1
        return 0

    for i in range(1, rank):  # insertion sort that passes over ambiguous pairs
        at = i
        for j in range(i - 1, -1, -1):
            swapped = swaps(order[j], order[at])
            if swapped > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif swapped < 0:
                break
    strides: list[Dim] = [1] * rank
    step: Dim = 1
    for d in order:
        strides[d] = step
        if shape[d] != 0:
            step = as_dim(step * shape[d])
    return tuple(strides)


def _aligned(t: TensorType, rank: int) -> Shape:
    """Strides of ``t`` as broadcast to ``rank`` dimensions: 0 where it is repeated."""
    own = [0 if n == 1 else s for n, s in zip(t.shape, t.strides, strict=True)]
    return (0,) * (rank - t.rank) + tuple(own)
