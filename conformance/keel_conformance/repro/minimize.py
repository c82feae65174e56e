"""Smaller failures: delta debugging over nodes, then sizes, then values, as long as they fail for the same reason.

The search is that of ``keel.minify``, which reduces models, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from keel.minify import SMALL, Deadline, cut_where, cuts, ddmin, greedy_descent

from ..cases.case import Inputs
from ..pytree import tree_map
from .replay import FailingCalls


def of_calls(
    calls: FailingCalls,
    at: Sequence[int] | None,
    fails: Callable[[FailingCalls], bool],
    deadline: Deadline | None = None,
) -> FailingCalls:
    """Fewer calls, smaller tensors, plainer values. ``at`` is where the wrong element of the result is, if known."""
    deadline = deadline or Deadline()
    if len(calls.inputs) > 1:
        calls = greedy_descent(calls, _fewer, fails, deadline)
    if at is not None and not deadline.over:
        for one in _at(calls, at):
            if fails(one):
                calls = one
                break
    calls = greedy_descent(calls, _smaller, fails, deadline)
    calls = greedy_descent(calls, _straighter, fails, deadline)
    calls = _plainer(calls, fails, deadline)
    return _drawn(calls, fails, deadline)


def _fewer(calls: FailingCalls) -> Iterator[FailingCalls]:
    for k in range(len(calls.inputs) - 1, -1, -1):
        if len(calls.inputs) > 1:
            yield replace(calls, inputs=calls.inputs[:k] + calls.inputs[k + 1 :])


def size_of(calls: FailingCalls) -> int:
    return sum(x.numel() for t in calls.inputs for x in t.tensors)


def _changed(calls: FailingCalls, change: Callable[[Tensor], Tensor]) -> FailingCalls:
    """The calls with tensors changed; one that is an argument twice stays so."""

    def over(inputs: Inputs) -> Inputs:
        made: dict[int, Tensor] = {}

        def one(x: Any) -> Any:
            return made.setdefault(id(x), change(x)) if isinstance(x, Tensor) else x

        return replace(inputs, args=tree_map(tuple(inputs.args), one), kwargs=tree_map(dict(inputs.kwargs), one))

    return replace(calls, inputs=tuple(map(over, calls.inputs)))


def _at(calls: FailingCalls, at: Sequence[int]) -> Iterator[FailingCalls]:
    """The one element of each tensor from which, where all goes by elements, the wrong one is computed; with its row,
    if that is not enough.
    """

    def cut(x: Tensor, keep: int) -> Tensor:
        for back in range(1, min(x.dim(), len(at)) + 1):
            n = x.shape[-back]
            if n > 1 and back > keep:
                place = at[-back]
                if place >= n:
                    return x
                x = x.narrow(x.dim() - back, place, 1)
        return x

    for keep in range(max((x.dim() for t in calls.inputs for x in t.tensors), default=0)):
        yield _changed(calls, lambda x, keep=keep: cut(x, keep))  # type: ignore[misc]


def _smaller(calls: FailingCalls) -> Iterator[FailingCalls]:
    """Each size that several dimensions may share cut to 1, to its halves, by one at an end; then single tensors."""
    sizes = sorted({n for t in calls.inputs for x in t.tensors for n in x.shape if n > 1}, reverse=True)
    for n in sizes:
        for start, length in cuts(n):
            yield _changed(calls, lambda x, n=n, s=start, k=length: cut_where(x, n, s, k))  # type: ignore[misc]
    for which in range(max((len(t.tensors) for t in calls.inputs), default=0)):
        shrunk = {id(t.tensors[which]) for t in calls.inputs if len(t.tensors) > which}
        for n in {n for t in calls.inputs for x in t.tensors if id(x) in shrunk for n in x.shape if n > 1}:
            for start, length in cuts(n):
                yield _changed(
                    calls,
                    lambda x, n=n, s=start, k=length, shrunk=shrunk: (  # type: ignore[misc]
                        cut_where(x, n, s, k) if id(x) in shrunk else x
                    ),
                )


def _straighter(calls: FailingCalls) -> Iterator[FailingCalls]:
    """Tensors in row-major order in memory of their own, all, then one by one."""

    def plain(x: Tensor) -> bool:
        fills_storage = x.untyped_storage().nbytes() == x.numel() * x.itemsize
        return x.layout != torch.strided or (x.is_contiguous() and fills_storage)

    def straight(x: Tensor) -> Tensor:
        return x if plain(x) else x.clone(memory_format=torch.contiguous_format)

    odd = [id(x) for t in calls.inputs for x in t.tensors if not plain(x)]
    if odd:
        yield _changed(calls, straight)
    for one in odd if len(odd) > 1 else ():
        yield _changed(calls, lambda x, one=one: straight(x) if id(x) == one else x)  # type: ignore[misc]


def _plainer(calls: FailingCalls, fails: Callable[[FailingCalls], bool], deadline: Deadline) -> FailingCalls:
    """As many elements as can be replaced by 1, or rounded, in the order of ``ddmin``, tensor by tensor."""
    for k, inputs in enumerate(calls.inputs):
        for n, x in enumerate(inputs.tensors):
            if deadline.over or not x.numel() or x.dtype == torch.bool or x.numel() > 4096:
                continue
            for value in (lambda v: torch.ones_like(v), lambda v: v.round() if v.is_floating_point() else v):
                calls = _with_values(calls, k, n, value, fails, deadline)
    return calls


def _with_values(
    calls: FailingCalls,
    k: int,
    n: int,
    value: Callable[[Tensor], Tensor],
    fails: Callable[[FailingCalls], bool],
    deadline: Deadline,
) -> FailingCalls:
    def made(keep: Sequence[int]) -> FailingCalls:
        def change(x: Tensor) -> Tensor:
            if x is not calls.inputs[k].tensors[n]:
                return x
            flat, plain = x.reshape(-1), value(x).reshape(-1).clone()
            plain[list(keep)] = flat[list(keep)]
            return (
                plain.reshape(x.shape)
                if x.is_contiguous()
                else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(plain.reshape(x.shape))
            )

        return _changed(calls, change)

    x = calls.inputs[k].tensors[n]
    if 0 in x.stride() and x.numel() > 1:
        return calls
    retained = ddmin(range(x.numel()), lambda keep: fails(made(keep)), deadline)
    return made(retained) if len(retained) < x.numel() else calls


def _drawn(calls: FailingCalls, fails: Callable[[FailingCalls], bool], deadline: Deadline) -> FailingCalls:
    """Large tensors by a recipe with a seed, where that fails too."""
    for k, inputs in enumerate(calls.inputs):
        for n, x in enumerate(inputs.tensors):
            if x.numel() <= SMALL or not x.is_floating_point() or not x.is_contiguous() or deadline.over:
                continue
            shape, seed = tuple(x.shape), k * 16 + n
            text = f"torch.randn({shape}, generator=torch.Generator().manual_seed({seed})).to({x.dtype})"
            made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(x.dtype)
            one = _changed(calls, lambda y, x=x, made=made: made if y is x else y)  # type: ignore[misc]
            one = replace(one, recipes=(*calls.recipes, ((k, n), text)))
            if fails(one):
                calls = one
    return calls
