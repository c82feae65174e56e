"""Reduces or scans tensors with a monoid, along their last dimension.

The common monoids use a torch reduction. Others combine neighbors in pairs until one state is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from keel.loops.monoids import MONOIDS
from keel.loops.scalar_ops import SCALARS
from keel.loops.scalar_semantics import WIDE_UNSIGNED, evaluate_op

State = tuple[Tensor, ...]
Dtypes = tuple[torch.dtype, ...]


def identity(monoid: str, dtypes: Dtypes, shape: tuple[int, ...]) -> State:
    """The state of the empty fold."""
    literals = MONOIDS[monoid].identity(dtypes)
    return tuple(torch.tensor(v, dtype=d).expand(shape) for v, d in zip(literals, dtypes, strict=True))


def combine(monoid: str, left: State, right: State) -> State:
    """Two states combined by the monoid's steps."""
    form = MONOIDS[monoid]
    values = [*left, *right]
    for op, numbers in form.steps:
        args = tuple(values[n] for n in numbers)
        values.append(evaluate_op(op, args, torch.bool if SCALARS[op].result == "bool" else args[-1].dtype))
    return tuple(values[n] for n in form.outputs)


def fold(monoid: str, states: Sequence[Tensor], *, native: bool = True) -> State:
    """The fold along the last dimension of ``states``, which broadcast. Without ``native``, uses only the monoid's
    steps.
    """
    dtypes = tuple(s.dtype for s in states)
    states = torch.broadcast_tensors(*states)
    if states[0].shape[-1] == 0:
        return identity(monoid, dtypes, tuple(states[0].shape[:-1]))
    if native and monoid in _NATIVE and WIDE_UNSIGNED.isdisjoint(dtypes):
        return _NATIVE[monoid](*states)
    if native and monoid in _UNSIGNED:
        return (
            torch.from_numpy(
                np.asarray(_UNSIGNED[monoid].reduce(states[0].numpy(), axis=-1, dtype=None)).astype(
                    states[0].numpy().dtype
                )
            ),
        )
    return _halved(monoid, tuple(states))


def _halved(monoid: str, states: State) -> State:
    """Combines neighbors until one state is left. The order of the elements is kept."""
    while (length := states[0].shape[-1]) > 1:
        even = length // 2 * 2
        pairs = combine(monoid, tuple(s[..., 0:even:2] for s in states), tuple(s[..., 1:even:2] for s in states))
        states = tuple(torch.cat((p, s[..., even:]), -1) for p, s in zip(pairs, states, strict=True))
    return tuple(s[..., 0] for s in states)


def scan(monoid: str, states: Sequence[Tensor], *, native: bool = True) -> State:
    """The inclusive running fold along the last dimension."""
    states = torch.broadcast_tensors(*states)
    dtypes = {s.dtype for s in states}
    if native and monoid in _RUNNING and WIDE_UNSIGNED.isdisjoint(dtypes):
        return (_RUNNING[monoid](states[0]),)
    # Hillis and Steele, Data parallel algorithms, 1986: after each round an element covers twice as many elements.
    result, step = tuple(states), 1
    while step < states[0].shape[-1]:
        joined = combine(monoid, tuple(s[..., :-step] for s in result), tuple(s[..., step:] for s in result))
        result = tuple(torch.cat((s[..., :step], j), -1) for s, j in zip(result, joined, strict=True))
        step *= 2
    return result


def _best(better: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], State]:
    def run(value: Tensor, position: Tensor) -> State:
        best = _extreme(better)(value)[0]
        here = (value == best[..., None]) | ((value != value) & (best != best)[..., None])
        last = torch.tensor(torch.iinfo(position.dtype).max, dtype=position.dtype)
        return best, torch.where(here, position, last).amin(-1)

    return run


def _extreme(rule: Callable[..., Tensor]) -> Callable[[Tensor], State]:
    def run(value: Tensor) -> State:
        result = rule(value.to(torch.uint8) if value.dtype == torch.bool else value, dim=-1)
        return (result.to(value.dtype),)

    return run


def _welford(average: Tensor, squares: Tensor, count: Tensor) -> State:
    """Two passes in float64: the mean of the means, then the deviations from it."""
    means, counts = average.double(), count.double()
    total = counts.sum(-1)
    center = torch.where(total == 0, 0.0, (means * counts).sum(-1) / total)
    deviations = means - center[..., None]
    spread = squares.double().sum(-1) + (counts * deviations * deviations).sum(-1)
    return center.to(average.dtype), spread.to(squares.dtype), total.to(count.dtype)


_NATIVE: Mapping[str, Callable[..., State]] = {
    "sum": lambda x: (x.sum(-1, dtype=x.dtype),),
    "prod": lambda x: (x.prod(-1, dtype=x.dtype),),
    "max": _extreme(torch.amax),
    "min": _extreme(torch.amin),
    "any": lambda x: (x.any(-1),),
    "all": lambda x: (x.all(-1),),
    "argmax": _best(torch.amax),
    "argmin": _best(torch.amin),
    "welford": _welford,
}
_UNSIGNED: Mapping[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "xor": np.bitwise_xor,
}
_RUNNING: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.cumsum(-1, dtype=x.dtype),
    "prod": lambda x: x.cumprod(-1, dtype=x.dtype),
}
