"""A row of the support table: the calls that it takes, and what adds their nodes to an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import map_aggregate

from keel import Rule
from keel_onnxruntime.onnx_values import BITS, BOOL, Value, computed_in

if TYPE_CHECKING:  # a machine without onnx can import this module
    from keel_onnxruntime.onnx_graph import OnnxGraph

MADE = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking")
"""Parameters that only the type of the result depends on."""
Emit = Callable[..., Any]
"""Adds the nodes of a call: a function of the graph, of the results and of the arguments."""


@dataclass(frozen=True)
class Row:
    """A row of the support table, and what adds the nodes of its calls. ``native`` are the dtypes that it adds them
    for: operands of other dtypes are converted to one that has all their values, and the results are converted back.
    """

    rule: Rule
    add: Emit
    native: Collection[torch.dtype]

    def emit(self, g: OnnxGraph, out: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds the nodes of a call, and returns its results. Results without elements need no nodes."""
        results = [out] if isinstance(out, torch.Tensor) else out
        if any(like.numel() for like in results):
            inside: Any = map_aggregate((args, kwargs), lambda x: self._converted(g, x))
            values = self.add(g, out, *inside[0], **inside[1])
            values = [values] if isinstance(out, torch.Tensor) else values
            values = [value and g.cast(value, like.dtype) for value, like in zip(values, results, strict=True)]
        else:
            values = [g.value(torch.empty(like.shape, dtype=like.dtype)) for like in results]
        return values[0] if isinstance(out, torch.Tensor) else values

    def _converted(self, g: OnnxGraph, x: Any) -> Any:
        return g.cast(x, computed_in(g.dtypes[x], self.native)) if isinstance(x, Value) else x


def row(
    names: str,
    dtypes: frozenset[torch.dtype],
    add: Emit | str,
    native: Collection[torch.dtype] | None = None,
    **limits: Any,
) -> Row:
    """A row for operators, of calls on ``dtypes``. ``add`` may be the kind of a node; ``native`` is ``dtypes`` if
    ONNX Runtime has kernels for all of them. ``limits`` are fields of the rule.
    """
    ops = tuple(map(_full, names.split()))
    every: dict[str, Any] = {"static": True, "one_dtype": True, "optional": ()}
    emit: Emit = (lambda g, out, *xs: g.node(add, *xs)) if isinstance(add, str) else add
    return Row(Rule(ops=ops, dtypes=dtypes, **every | limits), emit, dtypes if native is None else native)


def _full(name: str) -> str:
    """The full name of an overload, whose namespace and whose ``default`` may be left out."""
    space, _, rest = name.rpartition("::")
    return f"{space or 'aten'}.{rest if '.' in rest else f'{rest}.default'}"


def emitters(rows: Iterable[Row]) -> Mapping[str, Emit]:
    """What adds the nodes of a call, by overload."""
    by_overload: dict[str, list[Row]] = {}
    for each in rows:
        for op in each.rule.ops:
            by_overload.setdefault(op, []).append(each)
    return {op: partial(_emit_by_dtype, each) for op, each in by_overload.items()}


def _emit_by_dtype(rows: list[Row], g: OnnxGraph, out: Any, *args: Any, **kwargs: Any) -> Any:
    """Emits a call by the row that takes the dtype of its first operand, or of its result if it has none."""
    first = out if isinstance(out, torch.Tensor) else out[0]
    flat = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])]
    dtype = next((g.dtypes[x] for x in flat if isinstance(x, Value)), first.dtype)
    taking = next(each for each in rows if each.rule.dtypes is None or dtype in each.rule.dtypes)
    return taking.emit(g, out, *args, **kwargs)


def select(g: OnnxGraph, condition: Any, x: Any, y: Any) -> Any:
    """The elements of ``x`` where a condition holds, and those of ``y`` elsewhere. One of them is a value, the other
    may be a number. Floats are chosen as bits: ONNX Runtime's own kernel for floats loses the sign of zeros.
    """
    dtype = next(g.dtypes[each] for each in (x, y) if isinstance(each, Value))
    x, y = (g.value(each, dtype) for each in (x, y))
    if dtype in BOOL:
        return g.node("Or", g.node("And", condition, x), g.node("And", g.node("Not", condition), y))
    bits = BITS.get(dtype, dtype)
    x, y = (g.cast(each, bits, "BitCast") for each in (x, y))
    if bits == torch.int16:  # which ONNX Runtime has no kernel for
        x, y = (g.cast(each, torch.int32) for each in (x, y))
    return g.cast(g.cast(g.node("Where", condition, x, y), bits), dtype, "BitCast")


def expand(g: OnnxGraph, x: Any, sizes: Iterable[int]) -> Any:
    """ONNX Runtime has no kernel that expands bfloat16: its bits are expanded."""
    dtype = g.dtypes[x]
    wide = torch.int16 if dtype == torch.bfloat16 else dtype
    return g.cast(g.node("Expand", g.cast(x, wide, "BitCast"), list(sizes)), dtype, "BitCast")
