"""The work of a call: its floating-point operations, its elements, and the bytes that it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from keel.spec import MEMBERS, OPSET, bind
from keel.types import Call, Dim, SymType, TensorType, leaves

UNKNOWN = 1024
"""The value of an unknown size."""

IMAGE = 4
"""The least rank of images, with batch and channels."""

Sizes = Mapping[str, int]
"""Typical values of size symbols, by name."""


@dataclass(frozen=True)
class Work:
    """The work of a call: floating-point operations of contractions, elements of other operators, and the bytes of each
    tensor that it reads and writes, in the order of its arguments and results.
    """

    dtype: torch.dtype
    flops: float
    scalars: float
    read: tuple[float, ...]
    written: tuple[float, ...]


def work_of(call: Call, sizes: Sizes = MappingProxyType({})) -> Work:
    """The work of ``call``. Symbols that are not in ``sizes`` count as ``UNKNOWN``.

    A gather from an operand reads as many elements as there are indices. A scatter into an operand is work for the
    indexed elements; the rest is copied, which is traffic.
    """
    results = [t for t in call.out if isinstance(t, TensorType)]
    dtype = next((t.dtype for t in (*call.tensors, *results)), torch.float32)
    flops, places, picked = _flops(call, sizes), _places(call, sizes), picked_tensors(call)
    read = [size_of(t, sizes) for t in call.tensors]
    for i in picked:
        read[i] = min(read[i], places * call.tensors[i].dtype.itemsize)
    most = max((elements(t, sizes) for t in (*call.tensors, *results)), default=0.0)
    scalars = most * _weight(call, most) if math.isnan(places) else places
    if _tagged(call, "pooling"):
        scalars = max(most, _window(call) * sum(elements(t, sizes) for t in results[:1]))
    return Work(
        dtype,
        flops or 0.0,
        0.0 if flops is not None else scalars,
        tuple(read),
        tuple(size_of(t, sizes) for t in results),
    )


def picks(call: Call) -> str | None:
    """The parameter that is read only at indices which are data, so that a fused loop reads it from memory."""
    member = OPSET.get(call.op)
    return None if member is None or member.places is None else member.places.of


def picked_tensors(call: Call) -> tuple[int, ...]:
    """The numbers of the tensor arguments that ``picks`` is about."""
    name = picks(call)
    argument = None if name is None else bind(call)[name]
    return tuple(i for i, t in enumerate(call.tensors) if t is argument)[:1]


def _places(call: Call, sizes: Sizes) -> float:
    """The number of elements that the call reads or writes at indices which are data; NaN if unknown."""
    member = OPSET.get(call.op)
    if member is None or member.places is None:
        return math.nan
    if member.places.count is not None:
        return math.prod(float(value_of(n, sizes)) for n in member.places.count.of(bind(call)))
    return sum(elements(t, sizes) for t in call.out[:1] if isinstance(t, TensorType))


def elements(t: TensorType, sizes: Sizes) -> float:
    """The number of elements of a tensor in memory: expanded dimensions count once."""
    return math.prod(float(value_of(n, sizes)) for n, s in zip(t.shape, t.strides, strict=True) if s != 0)


def size_of(t: TensorType, sizes: Sizes) -> float:
    """The bytes that reading a tensor moves."""
    return elements(t, sizes) * t.dtype.itemsize


def value_of(dim: Dim, sizes: Sizes) -> int:
    """The value of a size."""
    if isinstance(dim, int):
        return dim
    return max(int(dim.subs({s: sizes.get(str(s), UNKNOWN) for s in dim.free_symbols})), 0)


def _flops(call: Call, sizes: Sizes) -> float | None:
    """Counts matrix products, convolutions and attention by PyTorch's formulas, and factorizations and transforms by
    the usual counts (Golub and Van Loan, "Matrix Computations", 4th edition; Cooley and Tukey, 1965). None for any
    other call.
    """
    from torch.utils.flop_counter import flop_registry  # it imports Triton if that is installed

    if call.name in _GRADIENTS:
        return _gradients(call, sizes)
    formula = flop_registry.get(getattr(call.op, "overloadpacket", None))
    if formula is not None:
        args = [_shape(a, sizes) for a in call.args]
        out = tuple(_shape(t, sizes) for t in call.out)
        try:
            return float(
                formula(
                    *args,
                    **{k: _shape(v, sizes) for k, v in call.kwargs.items()},
                    out_val=out[0] if len(out) == 1 else out,
                )
            )
        except (AssertionError, TypeError, ValueError, IndexError, AttributeError):
            return None  # the formula does not support this form of the call
    member = OPSET.get(call.op)
    if member is not None and member.factors is not None and call.tensors and call.tensors[0].rank >= 2:
        *batch, m, n = (value_of(d, sizes) for d in call.tensors[0].shape)
        return member.factors * math.prod(batch) * m * n * min(m, n)
    if call.name.startswith("aten._fft_") and call.tensors:
        t = call.tensors[0]
        along = math.prod(value_of(t.shape[d], sizes) for d in call.args[1])
        return 5.0 * elements(t, sizes) * math.log2(max(along, 2))
    return None


def _gradients(call: Call, sizes: Sizes) -> float:
    """Each gradient of a convolution takes as many as the convolution. (PyTorch's formula counts each group's channels
    as all.)
    """
    args = bind(call)
    out, weight = args["grad_output"], args["weight"]
    if args["transposed"]:
        out = args["input"]
    assert isinstance(out, TensorType) and isinstance(weight, TensorType)
    each = 2 * elements(out, sizes) * elements(weight, sizes) / max(value_of(weight.shape[0], sizes), 1)
    return each * sum(map(bool, args["output_mask"][:2]))


def named(call: Call) -> tuple[str, ...]:
    """The names of a call on a sheet, the most specific first: its overload, its packet, its kind, and the tags of the
    operator set. Convolutions and their gradients (with ``backward``) have kinds. A ``depthwise`` convolution has one
    channel per group, so each element that is read is used for one channel of results. A ``pointwise`` convolution has
    a window of one element, so it is a matrix product. Others with several groups are ``grouped``.
    """
    member = OPSET.get(call.op)
    tags = sorted(member.tags if member is not None else ())
    kinds = _convolution(call) if "convolution" in tags else ()
    back = [f"{kind} backward" for kind in (*kinds, "convolution")] if call.name in _GRADIENTS else ()
    return call.name, call.name.rpartition(".")[0], *back, *kinds, *tags


@cache
def call_kinds() -> frozenset[str]:
    """The names that ``named`` may return in addition to overloads and packets."""
    kinds = ("convolution", *(f"{kind} convolution" for kind in ("depthwise", "pointwise", "grouped")))
    return frozenset({*kinds, *(f"{kind} backward" for kind in kinds), *(t for m in MEMBERS.values() for t in m.tags)})


_GRADIENTS = frozenset({"aten.convolution_backward.default"})


def _convolution(call: Call) -> tuple[str, ...]:
    args = bind(call)
    weight = args.get("weight")
    if not isinstance(weight, TensorType) or weight.rank < 3:
        return ()
    if args.get("groups", 1) != 1:
        return ("depthwise convolution", "grouped convolution")[weight.shape[1] != 1 :]
    return ("pointwise convolution",) if all(n == 1 for n in weight.shape[2:]) else ()


def _shape(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, TensorType):
        return torch.Size([value_of(n, sizes) for n in value.shape])
    if isinstance(value, SymType):
        return value_of(value.expr, sizes) if value.kind == "int" else 1
    return type(value)(_shape(v, sizes) for v in value) if isinstance(value, list | tuple) else value


def _window(call: Call) -> float:
    """The number of elements in a pooling window; 1 if unknown."""
    return math.prod(float(n) for n in leaves([bind(call).get("kernel_size", 1)]) if isinstance(n, int))


def _weight(call: Call, most: float) -> float:
    """The cost of an element relative to an addition."""
    return math.log2(max(most, 2.0)) if _tagged(call, "sort") else 1.0


def is_free(call: Call) -> bool:
    """True if a call is free wherever its operand is: a view."""
    return bool(getattr(call.op, "is_view", False))


def convolves(call: Call) -> bool:
    """True if a call is a convolution or its gradient."""
    return _tagged(call, "convolution")


def fusable(call: Call) -> bool:
    """True if a call is a loop over elements, which a backend that fuses can merge with its neighbors."""
    member = OPSET.get(call.op)
    return member is not None and (not _LOOPS.isdisjoint(member.tags) or member.family in _LOOP_FAMILIES)


_LOOPS = frozenset({"pointwise", "creation", "reduction", "shape", "indexing", "random"})
_LOOP_FAMILIES = frozenset({"statistics", "normalization", "batch norm", "losses"})


def _tagged(call: Call, tag: str) -> bool:
    member = OPSET.get(call.op)
    return member is not None and tag in member.tags
