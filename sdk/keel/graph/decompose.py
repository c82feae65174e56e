"""Decomposes one call. The results have exactly the types of the call's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from keel.torch_adapter import (
    Decomposition,
    NotRecorded,
    expression,
    hint_of,
    holds,
    late,
    of_some,
    record,
    rename,
    same,
    symbols_of,
)
from keel.types import Call

aten = torch.ops.aten


def decompose_call(node: fx.Node, decomposition: Decomposition, mode: Any) -> fx.Graph:
    """Returns the graph of ``decomposition`` on the arguments of ``node``. Its placeholders are the nodes among the
    arguments, in order; its output is a tuple of the results. A data-dependent size keeps the symbol that it has in the
    type of the call. Raises NotRecorded if the decomposition's results do not have the types of the call's.
    """
    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _value)
    promised = node.meta["val"]
    names = SymbolMap(symbols_of(mode))

    def faithful(*args: Any, **kwargs: Any) -> Any:
        names.replacements.clear()
        results = decomposition(*args, **kwargs)
        if results is NotImplemented:
            return results
        if not isinstance(promised, tuple | list):
            return match_type(results, promised, names)
        if not isinstance(results, tuple | list) or len(results) != len(promised):
            raise NotRecorded("Its decomposition returns another number of results.")
        return tuple(match_type(f, p, names) for f, p in zip(results, promised, strict=True))

    parts = record(faithful, args, kwargs, mode)
    if names.replacements:
        rename(mode, names.replacements)
    return parts


@dataclass
class SymbolMap:
    """Maps new symbols of a decomposition to those in the promised types. Recorded operators give unbacked sizes new
    symbols, which are not in ``known``.
    """

    known: frozenset[sympy.Symbol] = frozenset()
    replacements: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)

    def learn(self, size: int | torch.SymInt, promised: int | torch.SymInt) -> None:
        """Maps the new symbol of a size to the promised size."""
        actual, expected = expression(size).xreplace(self.replacements), expression(promised)
        if actual.is_Symbol and late(actual) - self.known and not expected.free_symbols - self.known:
            self.replacements[actual] = expected

    def equal(self, a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
        """True if a size of the decomposition equals the promised one."""
        return len(a) == len(b) and all(
            self._known(x) == expression(y) or same(x, y) for x, y in zip(a, b, strict=True)
        )

    def laid_out(self, result: torch.Tensor, promised: MemoryLayout) -> bool:
        """True if two tensors of equal sizes have the same layout, or no elements."""
        sizes = [expression(n) for n in promised.sizes]
        actual, expected = (
            _layout(MemoryLayout.of(result), [self._known(n) for n in result.shape]),
            _layout(promised, sizes),
        )
        return len(actual) == len(expected) and all(
            of_some(self._known(x), sizes) == of_some(expression(y), sizes) or same(x, y)
            for x, y in zip(actual, expected, strict=True)
        )

    def _known(self, size: int | torch.SymInt) -> sympy.Expr:
        return expression(size).xreplace(self.replacements)


def _value(arg: Any) -> Any:
    if not isinstance(arg, fx.Node):
        return arg
    if "val" not in arg.meta:
        raise NotRecorded("It takes a graph.")
    return arg.meta["val"]


def match_type(result: Any, promised: Any, names: SymbolMap) -> Any:
    """Returns ``result`` with the strides of ``promised``; copies it if it has others. Raises NotRecorded if the types
    differ otherwise.
    """
    if promised is None:
        return None
    if all(isinstance(n, int | torch.SymInt) for n in (result, promised)):
        names.learn(result, promised)
        if names.equal([result], [promised]):
            return result
    if not isinstance(result, torch.Tensor) or not isinstance(promised, torch.Tensor):
        raise NotRecorded("Its decomposition returns a number or None for a tensor result.")
    if result.dtype != promised.dtype or result.device != promised.device:
        raise NotRecorded(
            f"Its decomposition returns {result.dtype} on {result.device}, not {promised.dtype} on {promised.device}."
        )
    for actual, expected in zip(result.shape, promised.shape, strict=False):
        names.learn(actual, expected)
    if not names.equal(result.shape, promised.shape):
        raise NotRecorded(f"Its decomposition returns the shape {list(result.shape)}, not {list(promised.shape)}.")
    names.learn(result.storage_offset(), promised.storage_offset())
    if (laid := _laid(result, MemoryLayout.of(promised), names)) is None:
        raise NotRecorded("Its decomposition returns a layout that cannot be copied to the promised one.")
    return laid


@dataclass(frozen=True)
class MemoryLayout:
    """The layout of a tensor's elements."""

    sizes: tuple[int | torch.SymInt, ...]
    strides: tuple[int | torch.SymInt, ...]
    start: int | torch.SymInt

    @classmethod
    def of(cls, t: torch.Tensor) -> MemoryLayout:
        return cls(tuple(t.shape), t.stride(), t.storage_offset())


def _laid(result: torch.Tensor, like: MemoryLayout, names: SymbolMap) -> torch.Tensor | None:
    """Returns ``result``, or a copy of it, with the layout ``like``; None if no copy has that layout."""
    if names.laid_out(result, like):
        return result
    for copied in (_permuted, _spread, _repeated):
        candidate = copied(result, like)
        if candidate is not None and names.laid_out(candidate, like):
            return candidate
    return None


def _permuted(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor:
    """A dense copy whose dimensions have the same order in memory as those of ``like``."""
    order = _order(like)
    back = [order.index(d) for d in range(len(order))]
    dense = aten.clone.default(aten.permute.default(result, order), memory_format=torch.contiguous_format)
    placed: torch.Tensor = aten.permute.default(dense, back)
    return placed


def _spread(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor | None:
    """A copy with the same gaps between elements as ``like``, filled with zeros. None if elements of ``like`` may
    overlap, or if its layout is data-dependent.
    """
    start, sizes, strides = like.start, list(like.sizes), list(like.strides)
    if any(late(expression(n)) for n in (start, *sizes, *strides)) or not _never_overlaps(like):
        return None
    extent: Any = start + 1
    for n, s in zip(sizes, strides, strict=True):
        extent = extent + (n - 1) * s
    memory = aten.full.default([extent], 0, dtype=result.dtype, device=result.device)
    filled = aten.as_strided_scatter.default(memory, result, sizes, strides, start)
    placed: torch.Tensor = aten.as_strided.default(filled, sizes, strides, start)
    return placed


def _repeated(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor | None:
    """Expands dimensions that have stride 0 in ``like`` from one element. None if there is no such dimension."""
    repeated = [
        d for d, (n, s) in enumerate(zip(like.sizes, like.strides, strict=True)) if same(s, 0) and not same(n, 1)
    ]
    if not repeated:
        return None
    for d in repeated:
        result = aten.slice.Tensor(result, d, 0, 1)
    once = MemoryLayout(tuple(1 if d in repeated else n for d, n in enumerate(like.sizes)), like.strides, like.start)
    laid = _laid(result, once, SymbolMap())
    return None if laid is None else aten.expand.default(laid, list(like.sizes))


def never_overlaps(x: torch.Tensor) -> bool:
    """True if the strides of a tensor of known sizes prove that no two elements share memory, but those along a
    dimension with stride 0, which are one element.
    """
    once = [(n, s) for n, s in zip(x.shape, x.stride(), strict=True) if s != 0]
    return x.numel() == 0 or _never_overlaps(MemoryLayout(tuple(n for n, _ in once), tuple(s for _, s in once), 0))


def _never_overlaps(m: MemoryLayout) -> bool:
    """True if the strides prove that no two elements share memory: each stride exceeds the extent of the inner
    dimensions.
    """
    below: Any = 1
    for d in reversed(_order(m)):
        if same(m.sizes[d], 1):
            continue
        if not holds(m.strides[d] >= below):
            return False
        below = below + (m.sizes[d] - 1) * m.strides[d]
    return True


def _layout(m: MemoryLayout, sizes: Sequence[sympy.Expr]) -> list[Any]:
    """The offset of the tensor, and the strides that matter: not those of dimensions with one element, and none of an
    empty tensor.
    """
    if any(n == 0 for n in sizes):
        return []
    return [m.start, *(s for n, s in zip(sizes, m.strides, strict=True) if n != 1)]


def _order(m: MemoryLayout) -> list[int]:
    """The dimensions from the outermost to the innermost in memory."""

    def size(d: int) -> tuple[int, int]:
        stride = hint_of(m.strides[d])
        if stride is None:  # it may have several elements
            expr = expression(m.strides[d])
            stride = int(expr.xreplace(dict.fromkeys(expr.free_symbols, sympy.Integer(_MANY))))
        return -stride, d

    return sorted(range(len(m.sizes)), key=size)


_MANY = 1 << 12
"""The value that is assumed for a data-dependent size."""

Lookup = Callable[[Call], Decomposition | None]
"""Returns the decomposition of a call, or None."""
