"""A program run by eager PyTorch and compiled: everything that its caller can see afterwards is to be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import keel
from keel import Backend

Make = Callable[[], Sequence[Any]]


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in results or arguments, with the parameters and buffers of modules."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.state_dict(keep_vars=True).values()
    elif isinstance(value, tuple | list):
        for v in value:
            yield from tensors(v)


def seen(results: Sequence[Tensor], inputs: Sequence[Tensor]) -> dict[str, Any]:
    """What there is to see of tensors: contents, shapes and strides, gradients, what autograd knows, shared memory."""
    every = [*results, *inputs]
    places = [t.untyped_storage().data_ptr() or id(t) for t in every]
    return {
        "contents": [t.detach().clone() for t in every],
        "laid out": [(t.shape, t.stride(), t.storage_offset()) for t in every],
        "gradients": [t.grad.clone() if t.is_leaf and t.grad is not None else None for t in every],
        "autograd": [(t.requires_grad, t.is_leaf) for t in every],
        "memory": [places.index(p) for p in places],
    }


def observe(
    program: Callable[..., Any],
    make: Make,
    backward: int,
    between: Callable[..., None] | None,
) -> list[dict[str, Any]]:
    """What is seen after ``program`` and after each run of its backward; ``between`` changes inputs before these."""
    torch.manual_seed(0)
    arguments = make()
    results, inputs = list(tensors((program(*arguments),))), list(tensors(arguments))
    found = [seen(results, inputs)]
    for _ in range(backward):
        if between is not None:
            with torch.no_grad():
                between(*arguments)
        total: Any = sum((t.sum() * (i + 1) for i, t in enumerate(results) if t.requires_grad))
        total.backward(retain_graph=True)
        found.append(seen(results, inputs))
    return found


def assert_like_eager(
    program: Callable[..., Any],
    make: Make,
    backends: Sequence[str | Backend],
    backward: int = 0,
    between: Callable[..., None] | None = None,
    **compiling: Any,
) -> None:
    """Raises AssertionError where a compiled ``program`` leaves anything else behind than eager PyTorch."""
    want = observe(program, make, backward, between)
    torch.compiler.reset()
    got = observe(keel.compile(program, backends=backends, **compiling), make, backward, between)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        when = f"after backward {i}" if i else "after forward"
        for what, wanted in w.items():
            if what in ("contents", "gradients"):
                torch.testing.assert_close(
                    g[what],
                    wanted,
                    rtol=1e-4,
                    atol=1e-5,
                    equal_nan=True,
                    msg=lambda why, what=what, when=when: f"{what} {when}: {why}",
                )
            else:
                assert g[what] == wanted, f"{what} {when}"
