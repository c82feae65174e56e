"""Values that are computed from parameters once, and again after a parameter has changed."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from keel.torch_adapter.captured_work import captured_work
from keel.torch_adapter.modes import without_autocast, without_modes

Value = TypeVar("Value")
_WORDS: dict[int, Any] = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}


class _State:
    """A tensor as it was: the object, its version, its address, and some of its bits."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = weakref.ref(tensor)
        self.version = tensor._version
        self.address = tensor.data_ptr()
        self.words = [(word, word.value) for word in _probes(tensor)]

    def is_still(self, tensor: torch.Tensor) -> bool:
        if self.tensor() is not tensor or self.version != tensor._version or self.address != tensor.data_ptr():
            return False
        return all(word.value == value for word, value in self.words)

    def is_current(self) -> bool:
        """True if the tensor still exists, as it was."""
        tensor = self.tensor()
        return tensor is not None and self.is_still(tensor)


def _probes(tensor: torch.Tensor) -> list[Any]:
    """Three words in the memory of a tensor; none if the host cannot read it."""
    if tensor.device.type != "cpu":
        return []
    word, count = _WORDS.get(tensor.element_size()), tensor.numel()
    if word is None or not count or not tensor.is_contiguous():
        return []
    return [word.from_address(tensor.data_ptr() + k * tensor.element_size()) for k in {0, count // 2, count - 1}]


class LastingValue(Generic[Value]):
    """The value of ``compute`` for some tensors, which is computed again if one of them has changed.

    PyTorch counts the writes to a tensor as its version. A write through ``tensor.data`` is not counted, so three
    elements of each tensor on the host are compared as well. Tensors without a version (those of inference mode) are
    never recognized. Several threads may ask at once. A device graph that is captured uses the value as it is, and is
    not replayed after a tensor has changed.
    """

    def __init__(self, compute: Callable[..., Value]):
        self.compute = compute
        self.known: tuple[list[_State], Value] | None = None

    def of(self, *tensors: torch.Tensor) -> Value:
        graph = captured_work()
        if (known := self.known) is not None:
            for state, tensor in zip(known[0], tensors, strict=True):
                if not state.is_still(tensor):
                    break
            else:
                if graph is not None:
                    graph.held.append(known[1])
                    graph.conditions += [state.is_current for state in known[0]]
                return known[1]
        if graph is not None:  # computed in each replay
            with without_modes(), without_autocast(), torch.inference_mode(False), torch.no_grad():
                return self.compute(*tensors)
        self.known = None  # frees the old value before the new one is made
        recognized = not any(t.is_inference() for t in tensors)
        with without_modes(), without_autocast(), torch.inference_mode(False), torch.no_grad():
            before = [_State(t) for t in tensors] if recognized else []
            value = self.compute(*tensors)
        if recognized:
            self.known = before, value
        return value
