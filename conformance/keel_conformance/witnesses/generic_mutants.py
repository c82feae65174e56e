"""Generic mutants: what a backend does that mistreats one class of values or sizes, whatever the operator.

Each is a function of a call and its right results. It returns the results of a backend with that mistake, or None if
the call has nothing of the class. Most compute the operator with changed arguments: a backend that takes NaN for a
number computes what PyTorch computes from that number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel.opset import Op

from ..cases.case import Inputs
from ..cases.layout_classes import with_strides
from ..oracles.error_rules import flat
from ..pytree import tensor_leaves, tree_map

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64,)
TRUTH = (torch.bool,)
DTYPES = (*FLOATS, *INTEGERS, *TRUTH)
"""Dtypes in which every class is to be shown."""
VECTOR = 8
"""Elements of a vector: what is left over behind the last whole one is the tail."""
MANY = 2**16
"""Places that an index of 16 bits tells apart."""
GARBAGE = 0x5A
"""The bytes of memory that nobody wrote."""


@dataclass(frozen=True)
class Execution:
    """A call of the overload ``target`` of ``member`` in a ``dtype``, and its right results, flat."""

    member: Op
    target: Callable[..., Any]
    dtype: torch.dtype
    inputs: Inputs
    right: tuple[Any, ...]

    def with_tensors(self, change: Callable[[Tensor], Tensor | None]) -> tuple[Any, ...] | None:
        """The results for tensors that ``change`` returns in place of those of the call's dtype; it returns None for a
        tensor that stays. None if all stay. Tensors of other dtypes stay: they are mostly indices, and an operator may
        read any memory by wrong ones.
        """
        changed = list[Tensor]()

        def replaced(x: Any) -> Any:
            new = change(x) if isinstance(x, Tensor) and x.dtype == self.dtype else None
            if new is None:
                return x
            changed.append(new)
            return new

        args, kwargs = tree_map(tuple(self.inputs.args), replaced), tree_map(dict(self.inputs.kwargs), replaced)
        return flat(self.target(*args, **kwargs)) if changed else None


Mistake = Callable[[Execution], Sequence[Any] | None]


@dataclass(frozen=True)
class WitnessClass:
    """A class of values or sizes: its name, what a backend does wrong with it, the dtypes that have it. Calls of
    the class are likely among those with the levels of a hint.
    """

    name: str
    mistake: str
    dtypes: tuple[torch.dtype, ...]
    wrong: Mistake
    hints: tuple[Mapping[str, str], ...] = ()


# -- values ------------------------------------------------------------------------------------------------------------


def _elements(which: Callable[[Tensor], Tensor], instead: Callable[[Tensor], Tensor]) -> Mistake:
    """Takes elements ``which`` for others."""

    def change(x: Tensor) -> Tensor | None:
        chosen = which(x)
        return _lying_as(x, torch.where(chosen, instead(x), x)) if bool(chosen.any()) else None

    return lambda call: call.with_tensors(change)


def _lying_as(x: Tensor, values: Tensor) -> Tensor:
    return with_strides(values, x.stride(), int(x.storage_offset()))


def _least(x: Tensor) -> float:
    return float(torch.finfo(x.dtype).smallest_normal)


def _most(x: Tensor) -> float:
    return float(torch.finfo(x.dtype).max)


def _coarse(x: Tensor) -> Tensor:
    """``x`` with the lower half of the bits of its significands cleared."""
    bits, integer = {
        torch.float32: (12, torch.int32),
        torch.bfloat16: (4, torch.int16),
        torch.float16: (5, torch.int16),
    }[x.dtype]
    return (x.contiguous().view(integer) & -(1 << bits)).view(x.dtype)


def _again(x: Tensor) -> Tensor:
    """How many elements before each one, in row-major order, are equal to it."""
    flat = x.reshape(-1)
    ordered, order = flat.sort(stable=True)
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    place = torch.arange(len(flat))
    first = torch.where(fresh, place, 0).cummax(0).values
    return torch.empty_like(place).scatter_(0, order, place - first).reshape(x.shape)


def _told_apart(x: Tensor) -> Tensor:
    """Equal elements made different: the later, the greater."""
    count = _again(x)
    if not x.dtype.is_floating_point:
        return x + count
    step = torch.finfo(x.dtype).eps * torch.where(x == 0, 1.0, x.abs().double())
    return (x.double() + count * step).to(x.dtype)


def _lone(x: Tensor) -> Tensor:
    """The one element that differs from all others."""
    true = int(x.sum())
    return x if true == 1 else ~x if true == x.numel() - 1 else torch.zeros_like(x)


def _farther(x: Tensor) -> Tensor:
    return torch.nextafter(x, x.sign() * torch.inf)


def _values(*names: str) -> tuple[Mapping[str, str], ...]:
    """Hints by classes of values."""
    return tuple({"values": name} for name in names)


_RARE = _values("specials", "nonfinite", "all", "random")
VALUES = (
    WitnessClass("NaN", "takes NaN for 0", FLOATS, _elements(Tensor.isnan, torch.zeros_like), _RARE),
    WitnessClass(
        "infinity",
        "takes infinities for the greatest finite numbers",
        FLOATS,
        _elements(Tensor.isinf, lambda x: x.clamp(-_most(x), _most(x))),
        _RARE,
    ),
    WitnessClass(
        "negative zero",
        "loses the sign of zero",
        FLOATS,
        _elements(lambda x: (x == 0) & x.signbit(), torch.zeros_like),
        _RARE,
    ),
    WitnessClass(
        "subnormal",
        "takes subnormal numbers for 0",
        FLOATS,
        _elements(lambda x: (x != 0) & (x.abs() < _least(x)), torch.zeros_like),
        _values("tiny", "specials", "all", "random"),
    ),
    WitnessClass(
        "large",
        "overflows where the square of a number does",
        FLOATS,
        _elements(lambda x: x.isfinite() & (x.abs() > _most(x) ** 0.5), lambda x: x.sign() * torch.inf),
        _values("huge", "wide", "specials", "all"),
    ),
    WitnessClass(
        "small",
        "underflows where the square of a number does",
        FLOATS,
        _elements(lambda x: (x.abs() >= _least(x)) & (x.abs() < _least(x) ** 0.5), torch.zeros_like),
        _values("tiny", "wide", "specials", "all"),
    ),
    WitnessClass(
        "low bits",
        "reads half of the significand",
        FLOATS,
        _elements(lambda x: x.isfinite() & (x != _coarse(x)), _coarse),
        _values("random", "shifted"),
    ),
    WitnessClass(
        "halfway",
        "rounds what is halfway between integers up",
        FLOATS,
        _elements(
            lambda x: x.isfinite() & ((2 * x).remainder(2) == 1),
            lambda x: torch.nextafter(x, torch.full_like(x, torch.inf)),
        ),
        _values("ties", "specials", "random"),
    ),
    WitnessClass(
        "zero",
        "takes zeros for the least normal numbers",
        FLOATS,
        _elements(lambda x: x == 0, lambda x: torch.full_like(x, _least(x)).copysign(x)),
        _RARE,
    ),
    WitnessClass(
        "one",
        "takes 1 and -1 for their neighbors farther from 0",
        FLOATS,
        _elements(lambda x: x.abs() == 1, _farther),
        _values("specials", "exact", "all", "ties"),
    ),
    WitnessClass(
        "equal",
        "takes equal elements for different ones",
        (*FLOATS, *INTEGERS),
        _elements(lambda x: _again(x) > 0, _told_apart),
        _values("duplicates", "exact", "ties"),
    ),
    WitnessClass(
        "0",
        "takes 0 for 1",
        INTEGERS,
        _elements(lambda x: x == 0, torch.ones_like),
        _values("specials", "duplicates", "random"),
    ),
    WitnessClass(
        "negative",
        "takes negative integers for unsigned ones",
        INTEGERS,
        _elements(lambda x: x < 0, lambda x: x & torch.iinfo(x.dtype).max),
        _values("random", "specials", "wide"),
    ),
    WitnessClass(
        "wide",
        "reads 32 of 64 bits",
        INTEGERS,
        _elements(lambda x: x != x.int(), lambda x: x.int().long()),
        _values("wide", "specials"),
    ),
    WitnessClass(
        "odd above 2^53",
        "computes integers in float64",
        INTEGERS,
        _elements(lambda x: (x.abs() < 2**62) & (x.double().long() != x), lambda x: x.double().long()),
        _values("wide"),
    ),
    WitnessClass(
        "extreme",
        "takes the greatest and the least integer for their neighbors",
        INTEGERS,
        _elements(lambda x: (x == torch.iinfo(x.dtype).max) | (x == torch.iinfo(x.dtype).min), lambda x: x - x.sign()),
        _values("specials", "wide"),
    ),
    WitnessClass(
        "true", "takes true for false", TRUTH, _elements(lambda x: x, torch.zeros_like), _values("true", "random")
    ),
    WitnessClass(
        "false", "takes false for true", TRUTH, _elements(lambda x: ~x, torch.ones_like), _values("false", "random")
    ),
    WitnessClass(
        "lone", "misses the one element that differs", TRUTH, _elements(_lone, lambda x: ~x), _values("true", "false")
    ),
)


# -- sizes -------------------------------------------------------------------------------------------------------------


def _unwritten(is_of_class: Callable[[Tensor], bool]) -> Mistake:
    """Writes no result if a tensor argument is of the class; if no result has elements, it raises an error."""

    def wrong(call: Execution) -> Sequence[Any] | None:
        if not any(map(is_of_class, tensor_leaves((call.inputs.args, dict(call.inputs.kwargs))))):
            return None
        if not any(isinstance(x, Tensor) and x.numel() for x in call.right):
            raise RuntimeError("There are no elements.")
        return [_garbage(x) if isinstance(x, Tensor) else x for x in call.right]

    return wrong


def _garbage(x: Tensor) -> Tensor:
    result = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    if x.dtype == torch.bool:
        return result.copy_(~x)
    result.untyped_storage().fill_(GARBAGE)  # type: ignore[attr-defined]  # missing in the stubs
    return result


def _places(moved: Callable[[Tensor], Tensor]) -> Mistake:
    """Reads elements at other places: ``moved`` is a function of the places in row-major order."""

    def change(x: Tensor) -> Tensor | None:
        n = x.numel()
        here = torch.arange(n)
        there = moved(here)
        return None if torch.equal(here, there) else _lying_as(x, x.reshape(-1)[there].reshape(x.shape))

    return lambda call: call.with_tensors(change)


def _head(places: Tensor) -> Tensor:
    end = len(places) // VECTOR * VECTOR
    return torch.where(places >= end, 0, places) if end else places


def _crossed(exchanged: Callable[[Tensor, int], Tensor | None]) -> Mistake:
    """Takes a row of ``n`` elements for a column, or the reverse, where another argument has ``n`` of both."""

    def wrong(call: Execution) -> Sequence[Any] | None:
        tensors = tensor_leaves((call.inputs.args, dict(call.inputs.kwargs)))
        extents = {n for x in tensors for n in x.shape[-1:] if n > 1 and _square(tensors, n)}
        for n in extents:
            result = call.with_tensors(lambda x, n=n: exchanged(x, n))  # type: ignore[misc]
            if result is not None:
                return result
        return None

    return wrong


def _square(tensors: Sequence[Tensor], n: int) -> bool:
    """Whether the arguments have ``n`` rows and ``n`` columns together."""
    return any(x.shape[-1:] == (n,) for x in tensors) and any(x.shape[-2:-1] == (n,) for x in tensors)


def _row_as_column(x: Tensor, n: int) -> Tensor | None:
    is_row = x.shape[-1:] == (n,) and x.shape[-2:-1] in ((), (1,))
    return x.reshape(*x.shape[:-2], n, 1).contiguous() if is_row else None


def _column_as_row(x: Tensor, n: int) -> Tensor | None:
    return x.reshape(*x.shape[:-2], 1, n).contiguous() if x.shape[-2:] == (n, 1) else None


def _in_row_major_order(x: Tensor) -> Tensor | None:
    """What stands in the memory of ``x`` one element after another."""
    if x.is_contiguous() or not x.numel():
        return None
    memory = x.as_strided((_reach(x),), (1,))
    return _lying_as(x, memory[torch.arange(x.numel()).clamp(max=len(memory) - 1)].reshape(x.shape))


def _reach(x: Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))


def _from_the_start(x: Tensor) -> Tensor | None:
    """What stands in the memory of ``x`` if its storage offset is taken for 0."""
    offset = int(x.storage_offset())
    return _lying_as(x, x.as_strided(x.shape, x.stride(), 0)) if offset and x.numel() else None


def _sizes(*shapes: str, **more: str) -> tuple[Mapping[str, str], ...]:
    """Hints by sizes, where they are of a whole tensor, and where they are of one dimension."""
    plain = {"values": "random", "layout": "contiguous", "partner": "alike", **more}
    extents = {n for name in shapes for n in (name.split("x")[0], name.split("x")[-1])}
    return (
        *({**plain, "shape": name} for name in shapes),
        *({**plain, "extent": n, "place": place} for n in extents for place in ("alone", "last", "first")),
    )


def _laid(*layouts: str) -> tuple[Mapping[str, str], ...]:
    """Hints by layouts."""
    return tuple({"values": "random", "layout": name} for name in layouts)


def _next_to(*partners: str) -> tuple[Mapping[str, str], ...]:
    """Hints by the shapes of operands that broadcast."""
    return tuple({"values": "random", "layout": "contiguous", "shape": "17x17", "partner": name} for name in partners)


SIZES = (
    WitnessClass("empty", "writes nothing for no elements", DTYPES, _unwritten(lambda x: x.shape == (0,)), _sizes("0")),
    WitnessClass(
        "no rows",
        "writes nothing for matrices without rows",
        DTYPES,
        _unwritten(lambda x: x.dim() > 1 and not x.numel() and x.shape[-1] > 0),
        _sizes("0x3"),
    ),
    WitnessClass(
        "no columns",
        "writes nothing for rows without elements",
        DTYPES,
        _unwritten(lambda x: x.dim() > 1 and x.shape[-1] == 0),
        _sizes("3x0"),
    ),
    WitnessClass(
        "0-d", "writes nothing for tensors without dimensions", DTYPES, _unwritten(lambda x: not x.dim()), _sizes("0d")
    ),
    WitnessClass(
        "one element",
        "writes nothing for one element",
        DTYPES,
        _unwritten(lambda x: x.dim() > 0 and x.numel() == 1),
        _sizes("1"),
    ),
    WitnessClass(
        "tail", f"reads whole vectors of {VECTOR} elements only", DTYPES, _places(_head), _sizes("17x65", "257")
    ),
    WitnessClass("many", "indexes with 16 bits", DTYPES, _places(lambda places: places % MANY), _sizes("70001")),
    WitnessClass(
        "row", "takes a row for a column", DTYPES, _crossed(_row_as_column), _next_to("row", "outer", "column")
    ),
    WitnessClass(
        "column", "takes a column for a row", DTYPES, _crossed(_column_as_row), _next_to("column", "outer", "row")
    ),
    WitnessClass(
        "strides",
        "ignores strides",
        DTYPES,
        lambda call: call.with_tensors(_in_row_major_order),
        _laid("transposed", "gapped", "rows_apart"),
    ),
    WitnessClass(
        "offset",
        "ignores the storage offset",
        DTYPES,
        lambda call: call.with_tensors(_from_the_start),
        _laid("offset", "gapped", "reversed"),
    ),
)
CLASSES: Mapping[str, WitnessClass] = {c.name: c for c in (*VALUES, *SIZES)}
