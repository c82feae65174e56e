"""Backends that do what none should, each in one way; most of them only to float64, so that one case is the culprit."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from keel import Backend, Rule, Support
from keel.plugin import Arithmetic
from keel_selftest import crashes

ALL = Support((Rule(ops=("*",)),))
Ran = Callable[..., Sequence[Any]]


def backend(name: str, change: Callable[[Ran, Sequence[Any]], Any], *, supports: Any = ALL) -> Backend:
    """Eager PyTorch, but for what ``change`` makes of it: it is given the graph's function, and its inputs."""
    return Backend(
        name=name, device="*", supports=supports, compile=lambda gm: lambda *inputs: tuple(change(gm.forward, inputs))
    )


def deed(name: str, do: Callable[[], Any]) -> Backend:
    """Does it before it computes something of float64."""

    def change(run: Ran, inputs: Sequence[Any]) -> Any:
        if crashes.touched(inputs):
            do()
        return run(*inputs)

    return backend(name, change)


def raises() -> None:
    raise ValueError("no juice is left")


well = backend("well", lambda run, inputs: run(*inputs))


def flushing(run: Ran, inputs: Sequence[Any]) -> Any:
    """What the processor gives if it takes subnormals for 0."""
    torch.set_flush_denormal(True)
    try:
        return run(*inputs)
    finally:
        torch.set_flush_denormal(False)


flushes = backend("flushes", flushing)
declares = replace(
    flushes,
    name="declares",
    arithmetic=Arithmetic(flushes_subnormals=(torch.float32, torch.float64, torch.bfloat16), float64=False),
)
flushes_more = replace(
    backend("flushes_more", lambda run, inputs: [r.where(r.abs() > 1e-4, 0 * r) for r in run(*inputs)]),
    arithmetic=declares.arithmetic,
)
refuses = backend("refuses", lambda run, inputs: run(*inputs), supports=lambda call: "None of it is for me.")
segfault = deed("segfault", crashes.segment.deed)
abort = deed("abort", crashes.abort.deed)
leave = deed("leave", crashes.leave.deed)
sleep = deed("sleep", crashes.sleep.deed)
hog = deed("hog", crashes.hunger.deed)
stack = deed("stack", crashes.depth.deed)
error = deed("error", raises)
quits = deed("quits", lambda: sys.exit(0))


def _fails_to_compile(gm: fx.GraphModule) -> Any:
    if crashes.touched([n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]):
        raises()
    return gm.forward


compiles = Backend(name="compiles", device="*", supports=ALL, compile=_fails_to_compile)


def writes_input(run: Ran, inputs: Sequence[Any]) -> Any:
    found = run(*inputs)
    for x in inputs:
        if isinstance(x, Tensor) and x.dtype == torch.float64:
            x.zero_()
    return found


def writes_beside(run: Ran, inputs: Sequence[Any]) -> Any:
    for x in inputs:
        if isinstance(x, Tensor) and x.dtype == torch.float64:
            x.as_strided((1,), (1,), x.storage_offset() - 1).zero_()
    return run(*inputs)


def gives_inputs(run: Ran, inputs: Sequence[Any]) -> Any:
    return [
        x if isinstance(x, Tensor) and x.dtype == torch.float64 else y
        for x, y in zip(inputs, run(*inputs), strict=True)
    ]


def of_f64(change: Callable[[int, Tensor], Tensor]) -> Callable[[fx.GraphModule], Any]:
    """Compiles a graph whose float64 results are changed: ``change`` is given which one it is, and its tensor."""

    def compile(gm: fx.GraphModule) -> Any:
        return lambda *inputs: tuple(
            change(k, x) if x.dtype == torch.float64 else x for k, x in enumerate(gm.forward(*inputs))
        )

    return compile


def _same_memory(gm: fx.GraphModule) -> Any:
    """Each result is at the same place in every call."""
    held: dict[int, Tensor] = {}
    return of_f64(lambda k, x: held.setdefault(k, x.clone()).copy_(x))(gm)


def _first_again(gm: fx.GraphModule) -> Any:
    """The results of the first call, at every call."""
    held: dict[int, Tensor] = {}
    return of_f64(lambda k, x: held.setdefault(k, x).clone())(gm)


def _worse_at_the_third(gm: fx.GraphModule) -> Any:
    calls = itertools.count()
    return of_f64(lambda k, x: x + 1 if next(calls) == 2 else x)(gm)


_graphs = itertools.count()


def _tires(gm: fx.GraphModule) -> Any:
    """Wrong in every process that has compiled before."""
    tired = next(_graphs) > 0
    return lambda *inputs: tuple(torch.zeros_like(x) if tired else x for x in gm.forward(*inputs))


mutates = backend("mutates", writes_input)
oversteps = backend("oversteps", writes_beside)
aliases = backend("aliases", gives_inputs)
reuses = Backend(name="reuses", device="*", supports=ALL, compile=_same_memory)
caches = Backend(name="caches", device="*", supports=ALL, compile=_first_again)
third = Backend(name="third", device="*", supports=ALL, compile=_worse_at_the_third)
tires = Backend(name="tires", device="*", supports=ALL, compile=_tires)
zeros = backend("zeros", lambda run, inputs: [torch.zeros_like(x) for x in run(*inputs)])
slow = backend("slow", lambda run, inputs: (time.sleep(0.05), run(*inputs))[1])
refuses = backend("refuses", lambda run, inputs: run(*inputs), supports=lambda call: "refuses takes nothing.")


def _together(gm: fx.GraphModule) -> Any:
    """Dies of graphs of more than one call."""
    if len(list(gm.graph.find_nodes(op="placeholder"))) > 1:
        os.abort()
    return gm.forward


crowd = Backend(name="crowd", device="*", supports=ALL, compile=_together)
