"""The module ``torch.example``: what PyTorch and programs ask of the device ``example``.

Importing it registers the device. PyTorch has one name for PrivateUse1 in a process, so no other such device can be
used in the same process.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

from keel_privateuse1.extension import build
from keel_privateuse1.operator_list import OPERATORS

NAME = "example"
backend_registration.rename_privateuse1_backend(NAME)
native: Any = build()
native.add_kernels(set(OPERATORS))


@dataclass(frozen=True)
class Counters:
    """What the devices have done since ``reset_counters``: copies by direction, waits of the host, replays of graphs,
    and the calls of operators that fell back to the host, by name.

    A wait is a synchronization, a value that is read (``item``), or a copy that blocks.
    """

    to_device: int
    to_host: int
    on_device: int
    synchronizations: int
    replays: int
    fallbacks: Mapping[str, int]


class Graph:
    """What ``torch.accelerator.Graph`` is from PyTorch 2.13 on: work on a stream, captured to be replayed."""

    def __init__(self, *, pool: tuple[int, int] | None = None):
        self._pool, self._graph = pool or (0, 0), native.Graph()

    def capture_begin(self) -> None:
        self._graph.capture_begin(self._pool)

    def capture_end(self) -> None:
        self._graph.capture_end()

    def replay(self) -> None:
        self._graph.replay()

    def reset(self) -> None:
        self._graph.reset()

    def pool(self) -> tuple[int, int]:
        first, second = self._graph.pool()
        return first, second


class DeviceModule(ModuleType):
    """``torch.example``."""

    Graph = Graph  # for older versions of PyTorch

    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(native.device_count)
    current_device = staticmethod(native.current_device)
    reset_counters = staticmethod(native.reset_counters)
    _is_in_bad_fork = staticmethod(lambda: False)
    _lazy_init = staticmethod(lambda: None)  # before it has called this, PyTorch 2.11 synchronizes nothing
    _initialized = True  # activation checkpoints ask this before they save states of generators

    @staticmethod
    def counters() -> Counters:
        return Counters(**native.counters(), fallbacks=native.fallbacks())

    @staticmethod
    def set_device(device: Any) -> None:
        native.set_device(_index(device))

    @staticmethod
    def device(device: Any) -> AbstractContextManager[Any]:
        """Makes a device the current one in a ``with`` statement."""
        return torch.accelerator.device_index(_index(device))

    @staticmethod
    def synchronize(device: Any = None) -> None:
        torch.accelerator.synchronize(_index(device))

    @staticmethod
    def Stream(priority: int = 0) -> torch.Stream:  # noqa: N802  # a class in the modules of other devices
        return torch.Stream(device=torch.device(NAME, _index(None)), priority=priority)

    @staticmethod
    def Event(enable_timing: bool = False) -> torch.Event:  # noqa: N802  # likewise
        return torch.Event(NAME, enable_timing=enable_timing)

    @staticmethod
    def current_stream(device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream(_index(device))

    @staticmethod
    def stream(stream: torch.Stream) -> AbstractContextManager[Any]:
        """Makes a stream the current one in a ``with`` statement."""
        return stream

    @staticmethod
    def is_current_stream_capturing() -> bool:
        return bool(native.is_capturing())

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @staticmethod
    def manual_seed(seed: int) -> None:
        native.default_generator(-1).manual_seed(seed)

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        for index in range(native.device_count()):
            native.default_generator(index).manual_seed(seed)

    @staticmethod
    def get_rng_state(device: Any = None) -> torch.Tensor:
        state: torch.Tensor = native.default_generator(_index(device)).get_state()
        return state

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
        native.default_generator(_index(device)).set_state(state)


def _index(device: Any) -> int:
    """The number of a device, which may be a name, a torch.device or a number; that of the current one for None."""
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return int(native.current_device() if index is None else index)


torch._register_device_module(NAME, DeviceModule(f"torch.{NAME}"))
backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
