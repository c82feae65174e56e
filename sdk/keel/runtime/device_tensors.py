"""Parts on memory that PyTorch does not know: tensors in it, and the transfers of inputs, constants and results.

A tensor in such memory is one without data, of the device ``meta``. Its storage has the handle of a block as an
attribute, so that views of it, and arenas, are made as on any device, and the block lives as long as the storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from keel.plugin.device_memory import DeviceMemory, memory_of
from keel.runtime.index_errors import index_error
from keel.schedule.tensor_graph import CheckSite
from keel.torch_adapter import Allocator, LastingValue

META = torch.device("meta")


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last one of a tensor."""
    return 0 if 0 in sizes else 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))


class DeviceTensors:
    """Makes tensors in a device's memory."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory

    def allocator(self) -> Allocator:
        """A function that allocates a tensor of given sizes, strides and dtype."""
        return self._allocate

    def block(self, size: int) -> torch.Tensor:
        """A tensor of ``size`` bytes."""
        return _on(self.memory.allocate(size), (size,), (1,), torch.uint8)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A host tensor in the device's memory."""
        return _on(self.memory.put(_bytes(tensor)), tensor.size(), tensor.stride(), tensor.dtype)

    def on_host(self, tensor: torch.Tensor, blocks: dict[Any, torch.Tensor]) -> torch.Tensor:
        """A tensor of the device on the host. ``blocks`` are the bytes of blocks by storage, to which this adds."""
        sizes, strides, dtype = tensor.size(), tensor.stride(), tensor.dtype
        if tensor.numel() == 0:
            return torch.empty_strided(sizes, strides, dtype=dtype)
        handle, start = memory_of(tensor)
        storage = tensor.untyped_storage()
        if storage not in blocks:
            blocks[storage] = self.memory.get(handle)
        end = start + extent(sizes, strides) * dtype.itemsize
        return blocks[storage][start:end].view(dtype).as_strided(sizes, strides)

    def wait(self) -> None:
        """Waits for all launches so far."""
        self.memory.get(self.memory.allocate(0))

    def error_buffer(self, sites: Sequence[CheckSite]) -> tuple[torch.Tensor, Callable[[bool], None]]:
        """Memory in which kernels record errors, and a function that reads it after a call, as
        ``index_errors.error_buffer``.
        """
        record = self.copy(torch.zeros(len(sites), dtype=torch.int64))

        def settle(after: bool) -> None:
            if after and any(look := self.on_host(record, {}).tolist()):
                fresh = self.memory.put(_bytes(torch.zeros(len(sites), dtype=torch.int64)))
                record.untyped_storage().keel_memory = fresh  # type: ignore[attr-defined]
                raise index_error(sites, look, {})

        return record, settle

    def _allocate(self, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return _on(self.memory.allocate(extent(sizes, strides) * dtype.itemsize), sizes, strides, dtype)


def with_transfers(
    run: Callable[..., tuple[Any, ...]], tensors: DeviceTensors, constants: Sequence[int]
) -> Callable[..., tuple[Any, ...]]:
    """A function of host tensors, of a part's function of ``tensors`` of a device. The inputs at the positions
    ``constants`` stay in the device's memory until one of them changes. A result that is a view of an input is a view
    of the host's tensor.
    """
    lasting = LastingValue(lambda *values: [*map(tensors.copy, values)])

    def call(*inputs: Any) -> tuple[Any, ...]:
        arguments = [*inputs]
        for position, value in zip(constants, lasting.of(*[inputs[i] for i in constants]), strict=True):
            arguments[position] = value
        arguments = [tensors.copy(x) if _is_on_host(x) else x for x in arguments]
        pairs = zip(arguments, inputs, strict=True)
        sources = {x.untyped_storage(): host for x, host in pairs if isinstance(x, torch.Tensor)}
        blocks = dict[Any, torch.Tensor]()

        def result(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            host = sources.get(value.untyped_storage())
            if host is None:
                return tensors.on_host(value, blocks)
            start = host.storage_offset() + value.storage_offset()
            return host.as_strided(value.size(), value.stride(), start)

        try:
            results = run(*arguments)
        except BaseException:
            tensors.wait()  # what was launched may still read inputs, which their owners may free now
            raise
        return tuple(map(result, results))

    return call


def launcher_with_transfers(launcher: Callable[..., None], tensors: DeviceTensors) -> Callable[..., None]:
    """A launcher that takes host tensors, of one that takes ``tensors`` of a device."""

    def launch(*arguments: Any) -> None:
        moved = [tensors.copy(x.clone()) if _is_on_host(x) else x for x in arguments]
        launcher(*moved)
        for x, y in zip(arguments, moved, strict=True):
            if _is_on_host(x):
                x.copy_(tensors.on_host(y, {}))

    return launch


def _is_on_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device != META


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a host tensor from its first element to its last one."""
    elements = extent(tensor.size(), tensor.stride())
    return tensor.detach().as_strided((elements,), (1,)).view(torch.uint8)


def _on(handle: Any, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.empty_strided(sizes, strides, dtype=dtype, device=META)
    tensor.untyped_storage().keel_memory = handle  # type: ignore[attr-defined]
    return tensor
