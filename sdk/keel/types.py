"""Types of values that are known at compile time: dtype, shape, strides and device of tensors, and expressions of
numbers.

Known sizes are ``int``; others are sympy expressions over positive integer symbols. Plain arithmetic works on both, so
a rule is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul
from typing import Any, Literal, TypeAlias

import sympy
import torch

Dim: TypeAlias = int | sympy.Expr

DTYPE_NAMES: Mapping[torch.dtype, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}
DTYPES_BY_NAME: Mapping[str, torch.dtype] = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def symbol(name: str) -> sympy.Symbol:
    """The size symbol of that name: integer and positive, as PyTorch's are."""
    return sympy.Symbol(name, integer=True, positive=True)


def as_dim(value: object) -> Dim:
    """``value`` as a Dim: sympy integers become ``int``. Raises TypeError for anything that is not an integer
    expression.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, sympy.Integer):
        return int(value)
    if isinstance(value, sympy.Expr):
        return value
    raise TypeError(f"{value!r} is not a size.")


def product(sizes: Iterable[Dim]) -> Dim:
    return as_dim(reduce(mul, sizes, 1))


def contiguous_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Row-major strides, in elements; sizes of 0 count as 1, as PyTorch does."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        if size != 0:
            step = as_dim(step * size)
    return tuple(reversed(strides))


def symbols_of(dims: Iterable[Dim]) -> tuple[str, ...]:
    """The names of the symbols that occur in ``dims``, sorted."""
    names = {str(s) for d in dims if not isinstance(d, int) for s in d.free_symbols}
    return tuple(sorted(names))


@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype, shape and strides (both in elements, ``int`` or symbolic), device."""

    dtype: torch.dtype
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    device: torch.device

    @staticmethod
    def dense(dtype: torch.dtype, shape: Iterable[Dim], device: torch.device | str = "cpu") -> TensorType:
        """A row-major contiguous type."""
        sizes = tuple(shape)
        return TensorType(dtype, sizes, contiguous_strides(sizes), torch.device(device))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        return product(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps; strides of dimensions of size 1 do not count."""
        want = contiguous_strides(self.shape)
        return all(n == 1 or have == need for n, have, need in zip(self.shape, self.strides, want, strict=True))

    @property
    def extent(self) -> Dim:
        """The number of elements of storage from the tensor's first element to its last."""
        if any(n == 0 for n in self.shape):
            return 0
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return span if isinstance(span, int) else as_dim(sympy.expand(span))

    @property
    def is_static(self) -> bool:
        """True if no size or stride is symbolic."""
        return all(isinstance(d, int) for d in self.shape) and all(isinstance(d, int) for d in self.strides)

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of((*self.shape, *self.strides))

    def __str__(self) -> str:
        text = f"{DTYPE_NAMES[self.dtype]}[{', '.join(map(str, self.shape))}]"
        if not self.is_contiguous:
            text += f"{{{', '.join(map(str, self.strides))}}}"
        return text if self.device.type == "cpu" else f"{text} on {self.device}"


@dataclass(frozen=True, slots=True)
class SymType:
    """A number that is an expression over size symbols: an integer, or a ``float`` or ``bool`` computed from
    integers.
    """

    expr: Any
    kind: Literal["int", "float", "bool"] = "int"

    def __str__(self) -> str:
        return f"sym({self.expr})"


Type = TensorType | SymType


def operator_name(op: Callable[..., Any]) -> str:
    """The full name: ``aten.mm.default``, or ``higher_order.cond.default`` for a higher-order operator."""
    name = str(op)
    return name if "." in name else f"higher_order.{name}.default"


@dataclass(frozen=True, eq=False)
class Call:
    """One operator applied to arguments whose types are known.

    ``op`` is a ``torch.ops`` overload. ``args`` and ``kwargs`` are the graph node's, with a ``TensorType`` for each
    tensor and a ``SymType`` for each symbolic integer (inside lists and tuples too); ``out`` has one type per
    output, None for an output that is not produced.
    """

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: tuple[Type | None, ...]

    @cached_property
    def name(self) -> str:
        """The full name of the operator."""
        return operator_name(self.op)

    @cached_property
    def tensors(self) -> tuple[TensorType, ...]:
        """The types of all tensor arguments, in order, lists flattened."""
        return tuple(v for v in leaves((*self.args, *self.kwargs.values())) if isinstance(v, TensorType))

    @cached_property
    def is_static(self) -> bool:
        """True if no size, stride or number in it is symbolic."""
        values = leaves((*self.args, *self.kwargs.values(), *self.out))
        return all(v.is_static if isinstance(v, TensorType) else not isinstance(v, SymType) for v in values)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """A hashable key: the operator and the types of all arguments and results."""
        return self.name, freeze(self.args), freeze(tuple(self.kwargs.items())), self.out

    def __str__(self) -> str:
        args = [_show(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(args)}) -> {', '.join(map(str, self.out))}"


def leaves(value: Any) -> Iterator[Any]:
    """The values in nested lists and tuples, in order."""
    if isinstance(value, list | tuple):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def freeze(value: Any) -> Any:
    """A hashable form of nested lists and tuples of hashable values. 1, 1.0 and True have different forms."""
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    return (type(value).__name__, repr(value)) if isinstance(value, float | bool) else value


def _show(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_show, value))}]"
    return str(value)
