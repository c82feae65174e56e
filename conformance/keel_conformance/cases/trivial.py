"""Calls whose right results a backend that computes nothing could have: their second call uses other values.

A case with one element, with equal values, or with values at the ends of the range often has a trivial result: all 0,
all 1, NaN, the argument itself, or only unspecified elements. The first call of such a case stays. The second is drawn
again until it shares no trivial result with the first.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from keel.opset import Op, Results

from ..num_threads import threads
from ..pytree import tensor_leaves

NEAR = 2.0**-7
"""So near to what nothing gives, relatively, 16-bit results may be no other."""
FIRST = 16
EXTREME, EMPTY = "extreme", "empty"
"""No element is of a magnitude at which all is decided; there are no elements."""


TrivialOutcomes = tuple[frozenset[str], str]


def is_deterministic(op: Op) -> bool:
    """Whether eager PyTorch gives the same results again: they are neither drawn nor uninitialized memory."""
    return "random" not in op.tags and op.numerics.results is not Results.UNINITIALIZED


def trivial_outcomes(op: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TrivialOutcomes | None:
    """What eager PyTorch's results, all of them, are no other than: ``zeros``, ``ones``, ``nan``, ``identity`` (the
    first argument's elements), ``extreme``; or ``empty``. And of what types they are, by which a call has to be like
    the one before. None where eager PyTorch refuses the call.
    """
    with warnings.catch_warnings(), torch.no_grad(), threads(1):
        warnings.simplefilter("ignore")
        try:
            results = tensor_leaves(op(*args, **kwargs))
        except Exception:  # of whatever kind
            return None
        arguments = tensor_leaves((args, dict(kwargs)))
        outcomes = _matching_outcomes([x.reshape(-1) for x in results if x.numel()], arguments)
        types = repr((_bare(list(args)), {name: _bare(v) for name, v in kwargs.items()}, [_bare(x) for x in results]))
        _poison(results, arguments)
    return outcomes, types


def _matching_outcomes(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> frozenset[str]:
    """Most have none, and the first few elements show it."""
    if not results:
        return frozenset({EMPTY})
    left = list(_SIGNS)
    for most in (FIRST, None):
        left = [name for name in left if all(_SIGNS[name](x[:most], arguments) for x in results)]
    return frozenset(left)


def _bare(value: Any) -> Any:
    """What is the same in all calls of a case."""
    match value:
        case Tensor():
            return (value.dtype, value.shape, value.stride())
        case list() | tuple():
            return [_bare(v) for v in value]
    return value


def _poison(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> None:
    """Overwrites right results in memory, so that a backend that writes nothing cannot return them."""
    retained = {x.untyped_storage().data_ptr() for x in arguments if x.data_ptr()}  # one known to be 0 has no memory
    for x in results:
        if x.data_ptr() and x.untyped_storage().data_ptr() not in retained:
            x.untyped_storage().fill_(0x5A)  # type: ignore[attr-defined]  # missing in the stubs


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def _inexact(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def _all_near(x: Tensor, y: Any) -> bool:
    """Whether all elements are what ``y`` has there, floats nearly."""
    if not _inexact(x):
        return bool((x == y).all())
    least = torch.finfo(x.dtype).smallest_normal
    y = torch.as_tensor(y).to(torch.complex128 if x.is_complex() else torch.float64)
    wide = x.to(y.dtype)
    return bool(((wide == y) | (wide.isnan() & y.isnan()) | ((wide - y).abs() <= NEAR * y.abs() + 4 * least)).all())


def _zeros(x: Tensor, arguments: Sequence[Tensor]) -> bool:
    return _all_near(x, 0)


def _ones(x: Tensor, arguments: Sequence[Tensor]) -> bool:
    return _all_near(x, 1)


def _nan(x: Tensor, arguments: Sequence[Tensor]) -> bool:
    """NaN, the least integer, or true."""
    if _inexact(x):
        return bool(x.isnan().all())
    return bool((x == (True if x.dtype == torch.bool else torch.iinfo(x.dtype).min)).all())


def _identity(x: Tensor, arguments: Sequence[Tensor]) -> bool:
    """The first argument's elements one after another, as often as it takes."""
    if not arguments or not arguments[0].numel():
        return _all_near(x, 0)
    flat = arguments[0].reshape(-1)
    flat = flat.real if flat.is_complex() and not x.is_complex() else flat
    again = flat[torch.arange(x.numel()) % flat.numel()].reshape(x.shape)
    return _all_near(x, again.to(x.dtype))


def _extreme(x: Tensor, arguments: Sequence[Tensor]) -> bool:
    if not _inexact(x):
        return False
    facts, size = torch.finfo(x.dtype), x.abs().to(torch.float64)
    return not bool(((size > facts.smallest_normal**0.5) & (size < facts.max**0.5)).any())


_SIGNS: Mapping[str, Callable[[Tensor, Sequence[Tensor]], bool]] = {
    "zeros": _zeros,
    "ones": _ones,
    "nan": _nan,
    "identity": _identity,
    EXTREME: _extreme,
}
