"""One call written out as the calls of its decomposition, with results of exactly the types that the call promised."""

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
    """The graph of ``decomposition`` on the arguments of ``node``.

    Placeholders stand for the nodes among the arguments, in order; the output is a tuple of the results.  A size that
    only a run tells has the symbol that the operator promises.  Raises NotRecorded where the decomposition does not
    give what the operator promises.
    """
    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _value)
    promised = node.meta["val"]
    names = SymbolMap(symbols_of(mode))

    def faithful(*args: Any, **kwargs: Any) -> Any:
        names.found.clear()
        found = decomposition(*args, **kwargs)
        if found is NotImplemented:
            return found
        if not isinstance(promised, tuple | list):
            return match_type(found, promised, names)
        if not isinstance(found, tuple | list) or len(found) != len(promised):
            raise NotRecorded("Its decomposition gives another number of results.")
        return tuple(match_type(f, p, names) for f, p in zip(found, promised, strict=True))

    parts = record(faithful, args, kwargs, mode)
    if names.found:
        rename(mode, names.found)
    return parts


@dataclass
class SymbolMap:
    """What symbols of a decomposition's own are in terms of the promised ones.

    Recorded operators give unbacked sizes new symbols, which are not among those ``known`` before."""

    known: frozenset[sympy.Symbol] = frozenset()
    found: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)

    def learn(self, size: int | torch.SymInt, promised: int | torch.SymInt) -> None:
        """Takes a size that has a symbol of its own for the promised one."""
        actual, expected = expression(size).xreplace(self.found), expression(promised)
        if actual.is_Symbol and late(actual) - self.known and not expected.free_symbols - self.known:
            self.found[actual] = expected

    def equal(self, a: Sequence[int | torch.SymInt], b: Sequence[int | torch.SymInt]) -> bool:
        """Whether sizes that a decomposition gives are the promised ones."""
        return len(a) == len(b) and all(
            self._known(x) == expression(y) or same(x, y) for x, y in zip(a, b, strict=True)
        )

    def laid_out(self, result: torch.Tensor, promised: MemoryLayout) -> bool:
        """True if tensors of equal sizes have their elements at the same places; also if they have no elements."""
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
        return expression(size).xreplace(self.found)


def _value(arg: Any) -> Any:
    if not isinstance(arg, fx.Node):
        return arg
    if "val" not in arg.meta:
        raise NotRecorded("It takes a graph.")
    return arg.meta["val"]


def match_type(result: Any, promised: Any, names: SymbolMap) -> Any:
    """``result`` with the strides of ``promised``, copied if it has others.  Raises NotRecorded where types differ."""
    if promised is None:
        return None
    if all(isinstance(n, int | torch.SymInt) for n in (result, promised)):
        names.learn(result, promised)
        if names.equal([result], [promised]):
            return result
    if not isinstance(result, torch.Tensor) or not isinstance(promised, torch.Tensor):
        raise NotRecorded("Its decomposition gives a number, or nothing, for a result.")
    if result.dtype != promised.dtype or result.device != promised.device:
        raise NotRecorded(
            f"Its decomposition gives {result.dtype} on {result.device}, not {promised.dtype} on {promised.device}."
        )
    for actual, expected in zip(result.shape, promised.shape, strict=False):
        names.learn(actual, expected)
    if not names.equal(result.shape, promised.shape):
        raise NotRecorded(f"Its decomposition gives the shape {list(result.shape)}, not {list(promised.shape)}.")
    names.learn(result.storage_offset(), promised.storage_offset())
    if (laid := _laid(result, MemoryLayout.of(promised), names)) is None:
        raise NotRecorded("Its decomposition gives a layout that no copy turns into the promised one.")
    return laid


@dataclass(frozen=True)
class MemoryLayout:
    """Where a tensor's elements lie."""

    sizes: tuple[int | torch.SymInt, ...]
    strides: tuple[int | torch.SymInt, ...]
    start: int | torch.SymInt

    @classmethod
    def of(cls, t: torch.Tensor) -> MemoryLayout:
        return cls(tuple(t.shape), t.stride(), t.storage_offset())


def _laid(result: torch.Tensor, like: MemoryLayout, names: SymbolMap) -> torch.Tensor | None:
    """``result``, or a copy of it, whose elements lie as ``like`` says; None if no copy's do."""
    if names.laid_out(result, like):
        return result
    for copied in (_permuted, _spread, _repeated):
        candidate = copied(result, like)
        if candidate is not None and names.laid_out(candidate, like):
            return candidate
    return None


def _permuted(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor:
    """A copy without gaps whose dimensions lie in memory in the order that those of ``like`` do."""
    order = _order(like)
    back = [order.index(d) for d in range(len(order))]
    dense = aten.clone.default(aten.permute.default(result, order), memory_format=torch.contiguous_format)
    placed: torch.Tensor = aten.permute.default(dense, back)
    return placed


def _spread(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor | None:
    """A copy with the gaps between elements that ``like`` has, filled with zeros; None where those of ``like`` overlap,
    or may, or where only the run tells where they lie.
    """
    start, sizes, strides = like.start, list(like.sizes), list(like.strides)
    if any(late(expression(n)) for n in (start, *sizes, *strides)) or not _apart(like):
        return None
    extent: Any = start + 1
    for n, s in zip(sizes, strides, strict=True):
        extent = extent + (n - 1) * s
    memory = aten.full.default([extent], 0, dtype=result.dtype, device=result.device)
    filled = aten.as_strided_scatter.default(memory, result, sizes, strides, start)
    placed: torch.Tensor = aten.as_strided.default(filled, sizes, strides, start)
    return placed


def _repeated(result: torch.Tensor, like: MemoryLayout) -> torch.Tensor | None:
    """One element of each dimension along which all lie in one place in ``like``, repeated: in one place they are
    equal.  None where no dimension is such.
    """
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


def _apart(m: MemoryLayout) -> bool:
    """Whether no two elements share memory: each stride is known to be past all that lies below it."""
    below: Any = 1
    for d in reversed(_order(m)):
        if same(m.sizes[d], 1):
            continue
        if not holds(m.strides[d] >= below):
            return False
        below = below + (m.sizes[d] - 1) * m.strides[d]
    return True


def _layout(m: MemoryLayout, sizes: Sequence[sympy.Expr]) -> list[Any]:
    """Where the tensor of these sizes starts in its memory, and the strides that matter: not those of dimensions with
    one element, nor any of a tensor with none.
    """
    if any(n == 0 for n in sizes):
        return []
    return [m.start, *(s for n, s in zip(sizes, m.strides, strict=True) if n != 1)]


def _order(m: MemoryLayout) -> list[int]:
    """The dimensions from the outermost to the innermost in memory."""

    def size(d: int) -> tuple[int, int]:
        stride = hint_of(m.strides[d])
        if stride is None:  # of several elements, as far as one can tell
            expr = expression(m.strides[d])
            stride = int(expr.xreplace(dict.fromkeys(expr.free_symbols, sympy.Integer(_MANY))))
        return -stride, d

    return sorted(range(len(m.sizes)), key=size)


_MANY = 1 << 12
"""What stands for a size that only a run tells."""

Lookup = Callable[[Call], Decomposition | None]
"""What a call is written out as, if anything."""
