"""Backends that are wrong, each in one way, and one that is right."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

import keel_interp
from keel import Backend, Rule, Source, Support, loop_backend

ALL = Support((Rule(ops=("*",)),))
NEVER_ENDS = 600


def backend(name: str, change: Callable[[Callable[..., Any], Sequence[Any]], Any]) -> Backend:
    """Eager PyTorch, but for what ``change`` makes of it: it is given the graph's function, and its inputs."""
    return Backend(
        name=name, device="*", supports=ALL, compile=lambda gm: lambda *inputs: tuple(change(gm.forward, inputs))
    )


def _tail(x: Tensor) -> Tensor:
    """The last element of more than eight is off by one."""
    if x.numel() > 8 and x.is_floating_point():
        x = x.clone()
        x[tuple(n - 1 for n in x.shape)] += 1
    return x


def _big(x: Tensor) -> Tensor:
    """Elements of more than two are off."""
    return torch.where(x > 2, x * 1.5, x) if x.is_floating_point() else x


def _raise(*_: Any) -> Any:
    raise ValueError("no juice is left")


def _write(run: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    found = run(*inputs)
    for x in inputs:
        if isinstance(x, Tensor) and x.numel():
            x.as_strided((1,), (1,), x.storage_offset()).fill_(5)
    return found


def _beside(run: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    for x in inputs:
        if isinstance(x, Tensor) and x.numel():
            x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(5)
    return run(*inputs)


def _kept(gm: fx.GraphModule) -> Any:
    """The results of the first call, at every call."""
    held: list[Any] = []

    def run(*inputs: Any) -> Any:
        if not held:
            held.extend(gm.forward(*inputs))
        return tuple(x.clone() if isinstance(x, Tensor) else x for x in held)

    return run


def _one_memory(gm: fx.GraphModule) -> Any:
    held: dict[int, Tensor] = {}
    return lambda *inputs: tuple(
        held.setdefault(k, x.clone()).copy_(x) if isinstance(x, Tensor) else x
        for k, x in enumerate(gm.forward(*inputs))
    )


def _tires(gm: fx.GraphModule) -> Any:
    calls = itertools.count()

    def run(*inputs: Any) -> Any:
        off = next(calls) == 2
        return tuple(
            x + 2**-20 * off if isinstance(x, Tensor) and x.is_floating_point() else x for x in gm.forward(*inputs)
        )

    return run


def _fuses(gm: fx.GraphModule) -> Any:
    """Multiplies by two where a graph has a relu somewhere after a sum."""
    names = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    wrong = any("relu" in b for k, a in enumerate(names) if "sum" in a for b in names[k:])
    return lambda *inputs: tuple(
        x * 2 if wrong and isinstance(x, Tensor) and x.is_floating_point() else x for x in gm.forward(*inputs)
    )


right = backend("right", lambda run, inputs: run(*inputs))
tail = backend("tail", lambda run, inputs: [_tail(x) for x in run(*inputs)])
big = backend("big", lambda run, inputs: [_big(x) for x in run(*inputs)])
error = backend("error", _raise)
dies = backend("dies", lambda run, inputs: os.abort())
writes = backend("writes", _write)
beside = backend("beside", _beside)
aliases = backend("aliases", lambda run, inputs: [inputs[0] for _ in run(*inputs)])
pairs = backend("pairs", lambda run, inputs: [run(*inputs)[0]] * 2)
strides = backend("strides", lambda run, inputs: [x.T.contiguous().T if x.dim() == 2 else x for x in run(*inputs)])
dtypes = backend("dtypes", lambda run, inputs: [x.double() if x.dtype == torch.float32 else x for x in run(*inputs)])
fewer = backend("fewer", lambda run, inputs: [x[:1] if x.dim() else x for x in run(*inputs)])
elsewhere = replace(tail, name="elsewhere", device="cuda")
caches = Backend(name="caches", device="*", supports=ALL, compile=_kept)
reuses = Backend(name="reuses", device="*", supports=ALL, compile=_one_memory)
tires = Backend(name="tires", device="*", supports=ALL, compile=_tires)
fuses = Backend(name="fuses", device="*", supports=ALL, compile=_fuses)


def _misbuilt(change: Callable[[Tensor], None]) -> Backend:
    """A loop target whose kernels change what they have written."""

    def build(sources: Sequence[Source]) -> list[Any]:
        def wrong(source: Source, launch: Any) -> Any:
            def run(*args: Any) -> None:
                launch(*args)
                for b, x in zip(source.kernel.buffers, args, strict=False):
                    if b.role != "in":
                        change(x)

            return run

        return [wrong(s, launch) for s, launch in zip(sources, keel_interp.target.build(sources), strict=True)]

    return loop_backend(replace(keel_interp.target, build=build))


def _last_changed(x: Tensor) -> None:
    x[-1:] = 1 - x[-1:] if x.dtype != torch.bool else ~x[-1:]


def _unbuilt(sources: Sequence[Source]) -> list[Any]:
    raise ValueError("no juice is left")


kernels_right = _misbuilt(lambda x: None)
kernels_off = _misbuilt(_last_changed)
kernels_beyond = _misbuilt(lambda x: x.as_strided((1,), (1,), x.storage_offset() + len(x)).fill_(1))
kernels_unbuilt = loop_backend(replace(keel_interp.target, build=_unbuilt))
