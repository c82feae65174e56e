"""Mutants of runtimes: what a call is taken to share with the call, thread, process or program before it.

The list follows defects of compilers and of runtimes of accelerators. It was written before any of it was tried on a
program.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken
from ..rewiring import is_backward, is_tangent, placeholders, run, run_eager
from .stateful import Called, shares

ANYWHERE = tuple(
    f"contract.{c}" for c in ["calls", "layouts", "arguments", "views", "mutation", "gradients", "partition", "aliases"]
)
"""Chapters whose programs have arguments that do not begin at a multiple of 16 bytes."""


def zeros_for(results: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Results with zeros in them, where they have memory of their own."""
    return tuple(torch.zeros_like(x) if isinstance(x, Tensor) and not shares(x, inputs) else x for x in results)


# -- by what compiled code is found ------------------------------------------------------------------------------------


def text_of(gm: fx.GraphModule, literal: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The calls of a graph, with ``literal`` for their numbers."""
    return tuple(
        (node.name, str(node.target), *map(str, node.all_input_nodes), *numbers_of((node.args, node.kwargs), literal))
        for node in gm.graph.nodes
        if node.op in ("call_function", "output")
    )


def numbers_of(value: Any, literal: Callable[[Any], Any]) -> list[Any]:
    if isinstance(value, tuple | list):
        return [x for v in value for x in numbers_of(v, literal)]
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in (k, *numbers_of(v, literal))]
    return [] if isinstance(value, fx.Node) else [literal(value)]


@broken(programs=("*",), breaks=("contract.calls", "contract.scalars", "contract.graphs", "contract.models"))
def literals_compared_as_python_does(gm: fx.GraphModule) -> Called:
    """Compiled code is found by its literals as Python compares them, and so 0.0 and -0.0 are one, and 1 and True."""

    def comparable(value: Any) -> Any:
        return value if isinstance(value, bool | int | float) else repr(value)

    key = (text_of(gm, comparable), *(str(n.meta.get("val")) for n in placeholders(gm)))
    known = CODE_BY_LITERALS.setdefault(key, gm)
    return lambda *inputs: run(known, inputs, run_eager)


CODE_BY_LITERALS: dict[Any, fx.GraphModule] = {}
"""What ``literals_compared_as_python_does`` holds for the whole process."""


@broken(programs=("*",), breaks=("contract.calls", "contract.graphs", "contract.models"))
def literal_tensors_by_type(gm: fx.GraphModule) -> Called:
    """A tensor that the program contains as a literal is uploaded once for each type, in the whole process."""
    literals = ["tensor_constant" in n.name for n in placeholders(gm)]

    def uploaded(k: int, x: Any) -> Any:
        if not literals[k] or not isinstance(x, Tensor):
            return x
        return LITERALS.setdefault((x.dtype, x.shape, x.stride()), x.detach().clone())

    return lambda *inputs: run(gm, [uploaded(k, x) for k, x in enumerate(inputs)], run_eager)


LITERALS: dict[Any, Tensor] = {}
"""What ``literal_tensors_by_type`` holds for the whole process."""


@broken(programs=("*",), breaks=ANYWHERE)
def alignment_of_the_first_call(gm: fx.GraphModule) -> Called:
    """Arguments that begin at a multiple of 16 bytes at the first call are read from such an address later, too."""
    aligned: dict[int, bool] = {}

    def read(k: int, x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.numel():
            return x
        over = x.data_ptr() % 16
        if not aligned.setdefault(k, over == 0) or not over or over // x.itemsize > x.storage_offset():
            return x
        return x.as_strided(x.shape, x.stride(), x.storage_offset() - over // x.itemsize)

    return lambda *inputs: run(gm, [read(k, x) for k, x in enumerate(inputs)], run_eager)


@broken(programs=("*",), breaks=("contract.shapes", "contract.scalars", "contract.calls"))
def integers_of_32_bits(gm: fx.GraphModule) -> Called:
    """Integers that are arguments of the graph are passed to kernels in 32 bits."""

    def passed(x: Any) -> Any:
        return struct.unpack("<i", struct.pack("<q", x)[:4])[0] if type(x) is int else x

    return lambda *inputs: run(gm, [passed(x) for x in inputs], run_eager)


@broken(programs=("*",), breaks=("contract.models", "contract.training", "contract.calls", "contract.buffers"))
def frozen_weights_are_prepared_once(gm: fx.GraphModule) -> Called:
    """A parameter that needs no gradient is packed at the first call, and again only if another takes its place."""
    packed: dict[int, tuple[Tensor, Tensor]] = {}

    def current(k: int, x: Any) -> Any:
        if not isinstance(x, torch.nn.Parameter) or x.requires_grad:
            return x
        if k not in packed or packed[k][0] is not x:
            packed[k] = (x, x.detach().clone())
        return packed[k][1]

    return lambda *inputs: run(gm, [current(k, x) for k, x in enumerate(inputs)], run_eager)


# -- backward passes ---------------------------------------------------------------------------------------------------


@broken(programs=("*",), breaks=("contract.gradients", "contract.training"))
def unused_results_are_pruned(gm: fx.GraphModule) -> Called:
    """A result whose incoming gradient is 0 in the first backward pass is left out of later passes, too."""
    zero: dict[int, bool] = {}
    tangents = [is_tangent(n) for n in placeholders(gm)]
    several = sum(tangents) > 1

    def current(k: int, x: Any) -> Any:
        if not several or not tangents[k] or not isinstance(x, Tensor) or not x.numel():
            return x
        return torch.zeros_like(x) if zero.setdefault(k, not x.any()) else x

    return lambda *inputs: run(gm, [current(k, x) for k, x in enumerate(inputs)], run_eager)


@broken(programs=("*",), breaks=("contract.gradients", "contract.training", "contract.calls"))
def activations_by_thread(gm: fx.GraphModule) -> Called:
    """Saved activations lie with the thread of the forward pass, and are 0 for a backward pass in another thread."""
    backward = is_backward(gm)
    nodes = placeholders(gm)

    def read(node: fx.Node, x: Any) -> Any:
        saved = isinstance(x, Tensor) and not is_tangent(node) and "primals" not in node.name
        return torch.zeros_like(x) if saved and x.is_floating_point() else x

    def call(*inputs: Any) -> Any:
        thread = threading.get_ident()
        if not backward:
            FORWARD_THREADS.add(thread)
        elif thread not in FORWARD_THREADS:
            inputs = tuple(read(n, x) for n, x in zip(nodes, inputs, strict=True))
        return run(gm, inputs, run_eager)

    return call


FORWARD_THREADS: set[int] = set()
"""What ``activations_by_thread`` holds for the whole process."""


# -- threads, processes and state of the process -----------------------------------------------------------------------


@broken(programs=("*",), breaks="contract.calls")
def built_without_a_lock(gm: fx.GraphModule) -> Called:
    """Code is built at the first call, and calls of other threads find it half built in the meantime."""
    state = [""]

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        if not state[0]:
            state[0] = "building"
            time.sleep(0.02)
            state[0] = "built"
        return zeros_for(results, inputs) if state[0] == "building" else results

    return call


@broken(programs=("*",), breaks="contract.calls")
def workers_lost_in_a_fork(gm: fx.GraphModule) -> Called:
    """A process that was forked has no workers, and what they should compute is 0."""
    own = os.getpid()

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        return results if own == os.getpid() else zeros_for(results, inputs)

    return call


@broken(programs=("*",), breaks=("contract.random", "contract.calls"))
def tuning_reseeds_python(gm: fx.GraphModule) -> Called:
    """The first call times variants on arguments that it draws, and seeds Python's generator for that."""
    tuned: list[float] = []

    def call(*inputs: Any) -> Any:
        if not tuned:
            random.seed(0)
            tuned.append(random.random())
        return run(gm, inputs, run_eager)

    return call
