"""Arguments of rules: type promotion, literals, canonical dimensions, and the refusal of unsupported arguments.

Promotion is PyTorch's: tensors with dimensions outrank 0-d tensors, which outrank Python numbers, within one category
of bool, integer, float (https://docs.pytorch.org/docs/stable/tensor_attributes.html).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeAlias

import torch

from keel.loops.builder import SMALL_FLOATS, Builder, NotLowerable, Number, Operand, Rule, Value
from keel.loops.clamp_bounds import keeps_all, keeps_none
from keel.types import Dim, TensorType

Argument: TypeAlias = Operand | Number | Dim


def not_lowerable(b: Builder, why: str) -> NoReturn:
    """Raises NotLowerable with the sentence ``aten.pow.Tensor_Tensor <why>``. ``why`` begins with a verb and ends with
    a full stop.
    """
    raise NotLowerable(f"{b.call.name} {why}")


def out_dtype(b: Builder, n: int = 0) -> torch.dtype:
    """The dtype of result number ``n``."""
    out = b.call.out[n]
    assert isinstance(out, TensorType)
    return out.dtype


def math_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which arithmetic on ``dtype`` is done."""
    return torch.float32 if dtype in SMALL_FLOATS else dtype


# -- promotion ---------------------------------------------------------------------------------------


def result_dtype(*args: Argument) -> torch.dtype:
    """The dtype that PyTorch promotes ``args`` to."""
    ranks: list[torch.dtype | None] = [None, None, None]  # dimensioned tensors, 0-d tensors, numbers
    for a in args:
        rank, dtype = _ranked(a)
        had = ranks[rank]
        ranks[rank] = dtype if had is None else torch.promote_types(had, dtype)
    result = _outranked(ranks[0], _outranked(ranks[1], ranks[2]))
    assert result is not None
    return result


def _ranked(a: Argument) -> tuple[int, torch.dtype]:
    if isinstance(a, Operand):
        return (0 if a.type.rank else 1), a.type.dtype
    if isinstance(a, bool):
        return 2, torch.bool
    return 2, torch.get_default_dtype() if isinstance(a, float) else torch.int64


def _outranked(high: torch.dtype | None, low: torch.dtype | None) -> torch.dtype | None:
    if high is None or low is None:
        return low if high is None else high
    if high.is_floating_point:
        return high
    return torch.promote_types(high, low) if high == torch.bool or low.is_floating_point else high


# -- values ------------------------------------------------------------------------------------------


def promote(b: Builder, a: Argument, dtype: torch.dtype) -> Value:
    """The element of ``a``, broadcast to the result, rounded to ``dtype`` and ready for arithmetic."""
    if isinstance(a, Operand):
        return b.math(b.cast(b.broadcast(a), dtype))
    return literal(b, a, dtype)


def literal(b: Builder, a: Number | Dim, dtype: torch.dtype) -> Value:
    """A number in the dtype that arithmetic on ``dtype`` is done in, not rounded to a 16-bit float; integers wrap."""
    if isinstance(a, complex) or (dtype.is_complex and a != 0):
        not_lowerable(b, f"makes the complex number {a}; loops have none but 0.")
    if not isinstance(a, bool | int | float) and not a.is_integer:
        return b.cast(b.real(a), math_dtype(dtype))
    return b.number(wrap_to_dtype(a, dtype), math_dtype(dtype))


def rounded(b: Builder, a: Argument, dtype: torch.dtype) -> Value:
    """Like ``promote``, but numbers are rounded to ``dtype`` too, as comparisons need it."""
    if isinstance(a, bool | int | float) and dtype in SMALL_FLOATS:
        a = float(torch.tensor(float(a), dtype=torch.float64).to(dtype))
    return promote(b, a, dtype)


def wrap_to_dtype(a: Number | Dim, dtype: torch.dtype) -> Number | Dim:
    """``a`` as C converts it to the integer ``dtype``; unchanged for other dtypes and for symbolic sizes."""
    if not isinstance(a, bool | int | float) or dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return a
    info = torch.iinfo(dtype)
    return (int(a) - info.min) % (1 << info.bits) + info.min


def exact(b: Builder, a: Number | Dim, dtype: torch.dtype) -> Number | Dim:
    """Returns ``a`` if ``dtype`` can represent it. Otherwise the call is not lowered, because eager raises an error."""
    if isinstance(a, bool | int | float) and dtype != torch.bool and not dtype.is_floating_point | dtype.is_complex:
        unsigned = torch.iinfo(dtype).min == 0
        if not math.isfinite(a):
            not_lowerable(b, f"cannot hold {a} in {str(dtype).removeprefix('torch.')}.")
        if wrap_to_dtype(a, dtype) != int(a) and not (unsigned and -torch.iinfo(dtype).max <= a < 0):
            not_lowerable(b, f"cannot hold {a} in {str(dtype).removeprefix('torch.')}.")
    return a


def store(b: Builder, value: Value, n: int = 0) -> Value:
    """``value`` in the dtype of result number ``n``."""
    return b.cast(value, out_dtype(b, n))


# -- dimensions --------------------------------------------------------------------------------------


def canonical_dim(dim: int, rank: int) -> int:
    """``dim`` counted from the front; a 0-d tensor counts as one dimension."""
    return dim % max(rank, 1)


def canonical_dims(dims: int | Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """The sorted dimensions, counted from the front. None and an empty list mean all."""
    listed = [dims] if isinstance(dims, int) else list(dims or range(rank))
    return tuple(sorted(canonical_dim(d, rank) for d in listed)) if rank else ()


# -- tables ------------------------------------------------------------------------------------------


def overloads(packet: Any, rule: Rule, *names: str) -> dict[Any, Rule]:
    """Maps the overloads of ``packet`` that this PyTorch has to ``rule``."""
    return {getattr(packet, name): rule for name in names if name in packet.overloads()}


def bounds(b: Builder, low: Any, high: Any, dtype: torch.dtype) -> Iterator[tuple[str, Any]]:
    """Returns a lower and an upper bound (None: unbounded), each with the scalar operator that applies it, without
    bounds beyond the range of ``dtype``. Raises NotLowerable for a bound that no value of ``dtype`` meets.
    """
    for bound, scalar, upper in ((low, "maximum", False), (high, "minimum", True)):
        if keeps_none(bound, dtype, upper=upper):
            not_lowerable(b, f"cannot hold {bound} in {str(dtype).removeprefix('torch.')}.")
        if bound is not None and not keeps_all(bound, dtype, upper=upper):
            yield scalar, bound
