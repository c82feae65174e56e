"""Memory that outlives a call: arenas by the sizes that they are made for, and where they are made.

What one call makes and another one uses must not be marked by the first: a tensor made in inference mode cannot be
written in a plain call, one made under a fake mode has no memory, one made for a default device may be elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from keel.runtime.index_errors import host_error_buffer
from keel.runtime.launch_program import LaunchProgram
from keel.schedule.memory_plan import Lifetime, pack
from keel.symbols import evaluate
from keel.torch_adapter import without_modes
from keel.types import Dim

BINDINGS = 32
"""How many sets of sizes keep their arenas."""


@contextmanager
def lasting() -> Iterator[None]:
    """Where tensors that outlive a call are made: outside inference mode and every mode that the user has on."""
    with without_modes(), torch.inference_mode(False), torch.no_grad():
        yield


class Arenas:
    """Arenas by sizes, each lent to one call at a time; the sizes used least recently are let go."""

    def __init__(self, make: Callable[[tuple[int, ...]], list[Any]]):
        self.make = make
        self.free: OrderedDict[tuple[int, ...], list[list[Any]]] = OrderedDict()

    def take(self, key: tuple[int, ...]) -> list[Any]:
        try:
            return self.free[key].pop()
        except (KeyError, IndexError):
            with lasting():
                return self.make(key)

    def give(self, key: tuple[int, ...], arena: list[Any]) -> None:
        if key not in self.free:
            if len(self.free) >= BINDINGS:
                self.free.popitem(last=False)
            self.free[key] = []
        self.free[key].append(arena)


def arena(program: LaunchProgram, values: Sequence[int]) -> list[Any]:
    """Fresh memory for one call with these values of the arena's key: the kept tensors, the views into them, then what
    checks record in and a look at that, if it is part of the arena."""
    plan, tensors = program.arena, program.tensors
    sizes = dict(zip(plan.key, values, strict=True))
    extents = [evaluate(tensors[k.tensor].extent, sizes) for k in plan.kept]
    offsets, total = pack(
        [
            Lifetime(extent * tensors[k.tensor].dtype.itemsize, k.first, k.last)
            for k, extent in zip(plan.kept, extents, strict=True)
        ]
    )
    made: dict[int, torch.Tensor] = {}
    if plan.kept:
        memory = torch.empty(total, dtype=torch.uint8, device=tensors[plan.kept[0].tensor].device)
    for kept, extent, offset in zip(plan.kept, extents, offsets, strict=True):
        type = tensors[kept.tensor]
        flat = memory[offset : offset + extent * type.dtype.itemsize].view(type.dtype)
        made[kept.tensor] = flat.as_strided(_ints(type.shape, sizes), _ints(type.strides, sizes))
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
