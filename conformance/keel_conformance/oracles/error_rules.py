"""What a rule of error analysis is: of a call, the exact value of each result and how far a computation may be off.

A rule gets the call with its arguments tracked, and what eager PyTorch gives in the working dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from keel import Call
from keel.opset import Op, bind
from keel.plugin import Arithmetic

from ..pytree import tree_leaves, tree_map
from .tracked_tensor import BITS, error_of, errors, inexact, plain_of, ulp, wide

INF = float("inf")
IEEE = Arithmetic()


class NoRule(Exception):
    """The error of a call is not analyzed: why."""


@dataclass(frozen=True)
class CallContext:
    """A call of ``op`` in an ``arithmetic``. ``outs`` are eager's results in the working dtypes, flat; ``coarse`` is
    the dtype in which they may be rounded where it is less precise than their own.
    """

    op: Any
    member: Op | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outs: tuple[Any, ...]
    arithmetic: Arithmetic = IEEE
    coarse: torch.dtype | None = None

    @cached_property
    def named(self) -> Mapping[str, Any]:
        """Arguments by parameter name, defaults filled in."""
        return bind(Call(self.op, tuple(self.args), dict(self.kwargs), ()))

    @property
    def exact(self) -> bool:
        """Whether no argument has an error."""
        return all(error_of(x) is None for x in tree_leaves((self.args, self.kwargs)))

    def again(self, change: Callable[[Any], Any]) -> tuple[Any, ...]:
        """The results, flat, on changed leaves of the arguments; dtypes asked for become wide."""
        args, kwargs = tree_map(tuple(self.args), change), tree_map(dict(self.kwargs), change)
        return flat(self.op(*args, **kwargs))

    def widely(self) -> tuple[Any, ...]:
        """The results in float64."""
        return self.again(widened)


@dataclass(frozen=True)
class ErrorBound:
    """The exact value of a result, and how far it may be off (None: not at all); before the result is rounded to its
    dtype by ``ulps``. ``burst`` is where the value has left the range of float64: it is right that a result is infinite
    there, but not known what is made of it by another way.
    """

    value: Tensor | None
    error: Tensor | None
    ulps: float = 0.0
    overflowed: Tensor | None = None


Rule = Callable[[CallContext], Sequence[ErrorBound]]


def flat(out: Any) -> tuple[Any, ...]:
    """Results as a tuple; lists of tensors among them one by one."""
    return tuple(tree_leaves(out)) if isinstance(out, (tuple, list)) else (out,)


def widened(x: Any) -> Any:
    """An argument for the same call in float64."""
    if isinstance(x, Tensor):
        return wide(x)
    if isinstance(x, torch.dtype) and inexact(x):
        return torch.complex128 if x.is_complex else torch.float64
    return x


def narrowed(x: Any) -> Any:
    """An argument for the same call in float32, of one in float64."""
    halves = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    if isinstance(x, Tensor):
        return plain_of(x).to(halves.get(x.dtype, x.dtype))
    return halves.get(x, x) if isinstance(x, torch.dtype) else x


def magnitudes(x: Any) -> Any:
    """As ``widened``, float tensors by their magnitudes; what is not finite counts as 0."""
    if isinstance(x, Tensor) and inexact(x.dtype):
        result = wide(x).abs()
        return torch.where(result.isfinite(), result, 0.0)
    return widened(x)


def upper(x: Any) -> Any:
    """As ``magnitudes``, each with its error on top."""
    return magnitudes(x) + errors(x) if isinstance(x, Tensor) and inexact(x.dtype) else widened(x)


def ones(x: Any) -> Any:
    """As ``magnitudes``, but all 1."""
    return torch.ones(x.shape, dtype=torch.float64) if isinstance(x, Tensor) and inexact(x.dtype) else widened(x)


def tracked_errors(x: Any) -> Any:
    """The errors of tensors, as float64; integers and numbers as they are."""
    return errors(x) if isinstance(x, Tensor) and inexact(x.dtype) else widened(x)


def uncertain(*tensors: Any) -> bool:
    """True if an integer or bool tensor among them has unknown elements."""
    return any(isinstance(x, Tensor) and not inexact(x.dtype) and error_of(x) is not None for x in tree_leaves(tensors))


def unknown(out: Tensor) -> ErrorBound:
    """Nothing is known of any element."""
    return ErrorBound(wide(out), torch.full(out.shape, INF, dtype=torch.float64))


def coarser(dtype: torch.dtype, coarse: torch.dtype | None) -> torch.dtype:
    """The less precise of two real dtypes; ``dtype`` if ``coarse`` is None."""
    return dtype if coarse is None or dtype.is_complex or BITS[coarse] >= BITS[dtype] else coarse


def rounded(value: Tensor, error: Tensor | None, dtype: torch.dtype, ulps: float | Tensor) -> Tensor:
    """``error`` and a rounding by ``ulps`` of ``dtype`` of whatever lies within it.

    A rounding of x is off by ulps * ulp(x), and |x| <= |value| + error; 0 is not rounded.
    """
    before = torch.zeros(value.shape, dtype=torch.float64) if error is None else error
    reach = value.abs() + torch.where(before.isfinite(), before, 0.0)
    return before + torch.where(reach == 0, 0.0, ulps * ulp(reach, dtype))


__all__ = [
    "IEEE",
    "INF",
    "CallContext",
    "ErrorBound",
    "NoRule",
    "Rule",
    "coarser",
    "flat",
    "magnitudes",
    "ones",
    "plain_of",
    "rounded",
    "tracked_errors",
    "uncertain",
    "unknown",
    "upper",
    "widened",
]
