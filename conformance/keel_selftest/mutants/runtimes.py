"""Mutants of runtimes: what wraps a compiled graph keeps, identifies, hands out and leaves behind wrongly.

The list follows what goes wrong in runtimes of accelerators. It was written before any of it was tried on a program.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx

from ..mutant import broken
from ..rewiring import is_backward, packet, placeholders, run, run_eager
from .stateful import Called, copied, shapes, shares

# -- weights -----------------------------------------------------------------------------------------------------------


@broken(breaks=("contract.models", "contract.training", "contract.calls"))
def weights_refreshed_by_version(gm: fx.GraphModule) -> Called:
    """Weights are uploaded once, and again only if their version or their address has changed."""
    uploaded: dict[int, tuple[tuple[int, int], Tensor]] = {}

    def current(k: int, x: Any) -> Any:
        if not isinstance(x, torch.nn.Parameter):
            return x
        key = (x.data_ptr(), x._version)
        if k not in uploaded or uploaded[k][0] != key:
            uploaded[k] = (key, x.detach().clone())
        return uploaded[k][1]

    return lambda *inputs: run(gm, [current(k, x) for k, x in enumerate(inputs)], run_eager)


@broken(breaks=("contract.models", "contract.training"))
def weights_packed_by_object(gm: fx.GraphModule) -> Called:
    """Packed weights are found by the identity of the Python object, which a later weight may have again."""

    def packed(x: Any) -> Any:
        if not isinstance(x, torch.nn.Parameter):
            return x
        key = (id(x), x.shape, x.dtype)
        if key not in PACKED or PACKED[key][0] != x._version:
            PACKED[key] = (x._version, x.detach().clone())
        return PACKED[key][1]

    return lambda *inputs: run(gm, [packed(x) for x in inputs], run_eager)


PACKED: dict[Any, tuple[int, Tensor]] = {}
"""What ``weights_packed_by_object`` holds for the whole process."""


@broken(breaks=("contract.models", "contract.modes", "contract.training"))
def casts_of_weights_are_kept(gm: fx.GraphModule) -> Called:
    """A weight that the graph converts to another dtype is converted once."""
    converted: dict[Any, Tensor] = {}

    def do(node: fx.Node, args: Sequence[Any], kwargs: Any) -> Any:
        if packet(node) in ("aten._to_copy", "prims.convert_element_type") and isinstance(args[0], torch.nn.Parameter):
            return converted.setdefault((node, id(args[0])), run_eager(node, args, kwargs))
        return run_eager(node, args, kwargs)

    return lambda *inputs: run(gm, inputs, do)


# -- memory ------------------------------------------------------------------------------------------------------------


@broken(breaks=("contract.calls", "contract.views"))
def block_freed_with_the_result_object(gm: fx.GraphModule) -> Called:
    """A result's memory is used again when the result is dropped, though views of it are still alive."""
    free: dict[Any, list[Tensor]] = {}

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        for k, x in enumerate(results):
            if not isinstance(x, Tensor) or shares(x, inputs) or not x.numel() or x.requires_grad:
                continue
            key = (k, x.shape, x.stride(), x.dtype)
            blocks = free.setdefault(key, [])
            block = blocks.pop() if blocks else copied([x])[0]
            block.copy_(x)
            results[k] = block.as_strided(block.shape, block.stride())
            weakref.finalize(results[k], blocks.append, block)
        return tuple(results)

    return call


@broken(breaks="contract.calls")
def results_in_a_ring_of_three(gm: fx.GraphModule) -> Called:
    """Results lie in one of three memories in turn, so that the third call after it overwrites a result."""
    ring: list[list[Any]] = []
    turn = [0]

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        if len(ring) < 3:
            ring.append(results)
            return tuple(results)
        turn[0] += 1
        slot = ring[(turn[0] - 1) % 3]
        for k, (memory, x) in enumerate(zip(slot, results, strict=True)):
            if isinstance(x, Tensor) and not shares(x, inputs) and shapes([x]) == shapes([memory]):
                results[k] = memory.detach().copy_(x)
        return tuple(results)

    return call


@broken(breaks=("contract.calls", "contract.lifetimes"))
def arenas_by_thread_number(gm: fx.GraphModule) -> Called:
    """Each thread has memory for results that its next call overwrites, and a later thread may have its number."""
    arenas: dict[Any, list[Any]] = {}

    def call(*inputs: Any) -> Any:
        results = list(run(gm, inputs, run_eager))
        if threading.current_thread() is threading.main_thread():
            return tuple(results)
        arena = arenas.setdefault((threading.get_ident(), shapes(inputs)), copied(results))
        for k, (memory, x) in enumerate(zip(arena, results, strict=True)):
            if isinstance(x, Tensor) and not shares(x, inputs):
                results[k] = memory.copy_(x)
        return tuple(results)

    return call


@broken(breaks=("contract.lifetimes", "contract.calls"))
def last_arguments_held(gm: fx.GraphModule) -> Called:
    """The arguments of the last call stay alive until the next one."""
    held: list[Any] = []

    def call(*inputs: Any) -> Any:
        held[:] = [x for x in inputs if isinstance(x, Tensor)]
        return run(gm, inputs, run_eager)

    return call


@broken(breaks=("contract.lifetimes", "contract.calls"))
def last_results_held(gm: fx.GraphModule) -> Called:
    """The results of the last call stay alive until the next one."""
    held: list[Any] = []

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        held[:] = [x for x in results if isinstance(x, Tensor)]
        return results

    return call


@broken(breaks=("contract.lifetimes", "contract.gradients"))
def saved_tensors_held_by_the_backward(gm: fx.GraphModule) -> Called:
    """What a backward pass read stays alive after it."""
    held: list[Any] = []
    backward = is_backward(gm)

    def call(*inputs: Any) -> Any:
        if backward:
            held[:] = inputs
        return run(gm, inputs, run_eager)

    return call


# -- what is written and how -------------------------------------------------------------------------------------------


@broken(breaks=("contract.dtypes", "contract.layouts"))
def true_is_all_ones(gm: fx.GraphModule) -> Called:
    """True is the byte 255 in results, as comparisons of vectors leave it."""

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        for x in results:
            if isinstance(x, Tensor) and x.dtype == torch.bool and not shares(x, inputs):
                x.view(torch.uint8).mul_(255)
        return results

    return call


@broken(breaks=("contract.modes", "contract.gradients"))
def results_are_inference_tensors(gm: fx.GraphModule) -> Called:
    """The graph runs under inference_mode, and so its results cannot take part in later training."""
    writes = any(packet(n) == "aten.copy_" for n in gm.graph.nodes if n.op == "call_function")

    def call(*inputs: Any) -> Any:
        if writes or any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            return run(gm, inputs, run_eager)
        with torch.inference_mode():
            return run(gm, inputs, run_eager)

    return call


# -- random numbers ----------------------------------------------------------------------------------------------------


def draws(gm: fx.GraphModule) -> bool:
    """Whether the graph draws random numbers."""
    names = [packet(n) for n in gm.graph.nodes if n.op == "call_function"]
    return any(part in name for name in names for part in ("rand", "bernoulli", "dropout", "normal", "uniform"))


@contextmanager
def drawing_from(state: Tensor) -> Iterator[None]:
    """Draws come from a generator in this state; the default generator is as it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield
        state.copy_(torch.get_rng_state())


@broken(breaks=("contract.random", "contract.calls"))
def seed_read_at_the_first_call(gm: fx.GraphModule) -> Called:
    """Random numbers come from a generator that is seeded at the first call, whatever is seeded later."""
    states: list[Tensor] = []

    def call(*inputs: Any) -> Any:
        if not states:
            states.append(torch.get_rng_state())
        with drawing_from(states[0]):
            return run(gm, inputs, run_eager)

    return call if draws(gm) else lambda *inputs: run(gm, inputs, run_eager)


@broken(breaks=("contract.random", "contract.calls"))
def draws_leave_the_generator(gm: fx.GraphModule) -> Called:
    """Draws follow the seed and a count of calls, and the default generator does not move on."""
    count: dict[bytes, int] = {}

    def call(*inputs: Any) -> Any:
        state = torch.get_rng_state()
        key = bytes(state.numpy().tobytes())
        number = count[key] = count.get(key, -1) + 1
        with torch.random.fork_rng(devices=[]):
            for _ in range(number):
                torch.rand(7)
            return run(gm, inputs, run_eager)

    return call if draws(gm) else lambda *inputs: run(gm, inputs, run_eager)


@broken(breaks=("contract.random", "contract.calls"))
def states_of_the_generator_ignored(gm: fx.GraphModule) -> Called:
    """Draws follow manual_seed, but not a state that the caller sets."""
    streams: dict[int, Tensor] = {}

    def call(*inputs: Any) -> Any:
        seed = torch.initial_seed()
        if seed not in streams:
            streams.clear()
            streams[seed] = torch.Generator().manual_seed(seed).get_state()
        with drawing_from(streams[seed]):
            result = run(gm, inputs, run_eager)
        torch.rand(3)
        return result

    return call if draws(gm) else lambda *inputs: run(gm, inputs, run_eager)


# -- by what compiled code is found ------------------------------------------------------------------------------------


@broken(breaks=("contract.shapes", "contract.calls"))
def launch_size_of_a_neighbor(gm: fx.GraphModule) -> Called:
    """The number of rows that are computed is that of the first call whose half size is the same."""
    rows: dict[Any, int] = {}

    def call(*inputs: Any) -> Any:
        results = run(gm, inputs, run_eager)
        for k, x in enumerate(results):
            if isinstance(x, Tensor) and x.dim() and not shares(x, inputs) and x.is_floating_point():
                first = rows.setdefault((k, len(x) // 2, *x.shape[1:]), len(x))
                x.detach()[first:] = 0
        return results

    return call


@broken(breaks=("contract.layouts", "contract.calls", "contract.models"))
def strides_of_the_first_of_a_shape(gm: fx.GraphModule) -> Called:
    """Compiled code is found by shapes, dtypes and operators, and has the strides of the first call in it."""
    code = tuple(str(n.target) for n in gm.graph.nodes if n.op == "call_function")

    def call(*inputs: Any) -> Any:
        key = (code, tuple((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in inputs))
        first = STRIDES.setdefault(key, [x.stride() if isinstance(x, Tensor) else None for x in inputs])
        return run(gm, [_read(x, s) for x, s in zip(inputs, first, strict=True)], run_eager)

    return call


STRIDES: dict[Any, list[Any]] = {}
"""What ``strides_of_the_first_of_a_shape`` holds for the whole process."""


def _read(x: Any, strides: Any) -> Any:
    """``x`` read by other strides, where its memory is large enough."""
    if not isinstance(x, Tensor) or x.stride() == strides or isinstance(x, torch.nn.Parameter) or not x.numel():
        return x
    end = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True))
    return x.as_strided(x.shape, strides) if end < x.untyped_storage().nbytes() // x.itemsize else x


@broken(breaks=("contract.models", "contract.scalars", "contract.calls", "contract.graphs"))
def numbers_rounded_in_the_key(gm: fx.GraphModule) -> Called:
    """Compiled code is found by a text in which numbers have no digits after the point."""

    def text(x: Any) -> str:
        if isinstance(x, float):
            return f"{x:.0f}"
        if isinstance(x, list | tuple):
            return ",".join(map(text, x))
        return str(x)

    types = tuple(str(n.meta.get("val")) for n in placeholders(gm))
    calls = tuple(
        (str(n.target), text(n.args), text(list(n.kwargs.items()))) for n in gm.graph.nodes if n.op == "call_function"
    )
    known = COMPILED.setdefault((types, calls), gm)
    return lambda *inputs: run(known, inputs, run_eager)


COMPILED: dict[Any, fx.GraphModule] = {}
"""What ``numbers_rounded_in_the_key`` holds for the whole process."""


# -- threads -----------------------------------------------------------------------------------------------------------


@broken(breaks=("contract.calls", "contract.models"))
def one_table_of_arguments_for_all_threads(gm: fx.GraphModule) -> Called:
    """Arguments are put into one table, from which a launch reads them a little later."""
    table: list[Any] = []

    def call(*inputs: Any) -> Any:
        table[:] = inputs
        if threading.active_count() > 1:
            time.sleep(0.001)
        return run(gm, tuple(table), run_eager)

    return call
