"""Memory that outlives a call: arenas, one for each set of sizes.

Modes of the call that allocates an arena must not affect later calls. A tensor made in inference mode cannot be written
in a plain call, one made under a fake mode has no memory, and one made under a default device may be on the wrong
device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from keel.runtime.device_tensors import DeviceTensors
from keel.runtime.index_errors import host_error_buffer
from keel.runtime.launch_program import LaunchProgram
from keel.schedule.memory_plan import Lifetime, pack
from keel.symbols import evaluate
from keel.torch_adapter import captured_work, without_modes
from keel.types import Dim

BINDINGS = 32
"""The number of sets of sizes whose arenas are kept."""


@contextmanager
def lasting() -> Iterator[None]:
    """A context for making tensors that outlive a call: outside inference mode and every mode of the user."""
    with without_modes(), torch.inference_mode(False), torch.no_grad():
        yield


class Arenas:
    """Arenas by sizes. Each is used by one call at a time. The least recently used sizes are freed. A device graph that
    is captured has arenas of its own, in its memory pool.
    """

    def __init__(self, make: Callable[[tuple[int, ...]], list[Any]]):
        self.make = make
        self.free: OrderedDict[tuple[int, ...], list[list[Any]]] = OrderedDict()

    def take(self, key: tuple[int, ...]) -> list[Any]:
        if captured_work() is None:
            try:
                return self.free[key].pop()
            except (KeyError, IndexError):
                pass
        with lasting():
            return self.make(key)

    def give(self, key: tuple[int, ...], arena: list[Any]) -> None:
        if captured_work() is not None:
            return
        if key not in self.free:
            if len(self.free) >= BINDINGS:
                self.free.popitem(last=False)
            self.free[key] = []
        self.free[key].append(arena)


def arena(program: LaunchProgram, hidden: DeviceTensors | None, values: Sequence[int]) -> list[Any]:
    """Allocates memory for calls with these values of the arena's key: the arena's tensors and the views into them. If
    checks record in the arena, also the buffer that they record in and the function that reads it. ``hidden`` makes
    tensors in memory that PyTorch does not know.
    """
    plan, tensors = program.arena, program.tensors
    sizes = dict(zip(plan.key, values, strict=True))
    extents = [evaluate(tensors[k.tensor].extent, sizes) for k in plan.tensors]
    offsets, total = pack(
        [
            Lifetime(extent * tensors[k.tensor].dtype.itemsize, k.first, k.last)
            for k, extent in zip(plan.tensors, extents, strict=True)
        ]
    )
    made: dict[int, torch.Tensor] = {}
    if plan.tensors:
        device = tensors[plan.tensors[0].tensor].device
        memory = hidden.block(total) if hidden else torch.empty(total, dtype=torch.uint8, device=device)
    for retained, extent, offset in zip(plan.tensors, extents, offsets, strict=True):
        type = tensors[retained.tensor]
        flat = memory[offset : offset + extent * type.dtype.itemsize].view(type.dtype)
        made[retained.tensor] = flat.as_strided(_ints(type.shape, sizes), _ints(type.strides, sizes))
    for view in plan.views:
        type, base = tensors[view.tensor], made[view.base]
        made[view.tensor] = base.as_strided(
            _ints(type.shape, sizes), _ints(type.strides, sizes), base.storage_offset() + evaluate(view.offset, sizes)
        )
    if program.checks.at_once:
        record, look = host_error_buffer(len(program.checks.sites))
        return [*made.values(), *(record[place] for place in program.checks.places.values()), look]
    return list(made.values())


def _ints(dims: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(d, sizes) for d in dims)
