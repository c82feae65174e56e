"""Arguments at addresses of their own, between red zones: a write to them or beside them is found afterwards.

The memory before and after each tensor, and in its gaps, is filled with poison, which is NaN in floating dtypes. A
kernel that reads there returns wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..devices import HOST
from ..results.fault import Fault

ZONE = 512
"""Bytes of poison on either side."""
LINE = 64
"""Bytes to which allocators align; a tensor keeps its distance to such an address."""
NAN_BYTES, OTHER_BYTES = 0xFF, 0xA5
"""What poison consists of: NaN in all floating dtypes; elsewhere, numbers that are conspicuous and no valid index."""


@dataclass(frozen=True)
class GuardedTensor:
    """One tensor. ``raw`` is all its memory, zones included, and ``before`` a copy of it from before the call."""

    name: str
    tensor: Tensor
    raw: Tensor
    before: Tensor

    @property
    def interval(self) -> tuple[int, int]:
        return self.raw.data_ptr(), self.raw.data_ptr() + self.raw.numel()

    def fault(self) -> Fault | None:
        """What was written to that must not be."""
        if torch.equal(self.raw, self.before):
            return None
        at = (self.raw != self.before).nonzero().flatten().cpu()
        start = self.tensor.data_ptr() - self.raw.data_ptr()
        end = start + span(self.tensor) * self.tensor.element_size()
        places = [(at < start, "before"), (at >= end, "after")]
        where = next((f"{word} the memory of" for hits, word in places if bool(hits.any())), None)
        if where is None and not is_dense(self.tensor):
            offsets = set(((at - start) // self.tensor.element_size()).tolist())
            own = set(_elements(self.tensor).tolist())
            where = None if offsets & own else "in the gaps of"
        sentence = f"It wrote {'to' if where is None else where} argument {self.name} ({len(at)} bytes)."
        return Fault("argument written" if where is None else "surroundings written", sentence)


@dataclass(frozen=True)
class GuardedArguments:
    """The arguments of one call, its tensors guarded."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    guards: tuple[GuardedTensor, ...]

    def faults(self) -> list[Fault]:
        return [fault for guard in self.guards if (fault := guard.fault())]


def guard_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], device: str = HOST, *, entire_storage: bool = False
) -> GuardedArguments:
    """The same arguments, each tensor with its shape, strides and alignment in fresh memory on ``device``.

    ``entire_storage`` copies all the memory that a tensor lies in, without zones: for operators that address it
    (as_strided).
    """
    visited: dict[int, GuardedTensor] = {}

    def place(value: Any, name: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.layout != torch.strided or value.is_quantized:
            return value.clone().to(device)
        if id(value) not in visited:
            visited[id(value)] = (guard_storage if entire_storage else guard_tensor)(value, name, device)
        return visited[id(value)].tensor

    moved = tuple(map_leaves(place, a, str(k)) for k, a in enumerate(args))
    named = {k: map_leaves(place, a, k) for k, a in kwargs.items()}
    return GuardedArguments(moved, named, tuple(visited.values()))


def map_leaves(change: Callable[[Any, str], Any], value: Any, name: str) -> Any:
    """``value`` with each leaf of its lists, tuples and mappings changed; a leaf is named by where it is."""
    match value:
        case list() | tuple():
            return type(value)([map_leaves(change, v, f"{name}[{k}]") for k, v in enumerate(value)])
        case dict():
            return {k: map_leaves(change, v, f"{name}[{k}]") for k, v in value.items()}
    return change(value, name)


def guard_tensor(original: Tensor, name: str, device: str = HOST) -> GuardedTensor:
    """A tensor like ``original``, alone in fresh memory."""
    original = original.detach().resolve_conj().resolve_neg()
    size, length = original.element_size(), span(original)
    shift = original.storage_offset() * size % LINE
    poison = NAN_BYTES if original.is_floating_point() or original.is_complex() else OTHER_BYTES
    count = -(-(ZONE + shift + length * size + ZONE) // LINE) * LINE
    raw = torch.full((count,), poison, dtype=torch.uint8, device=device)
    start = (ZONE + shift) // size
    typed = raw.view(original.dtype)
    if original.numel():
        source, target = _memory(original).to(device), typed[start : start + length]
        if is_dense(original):
            target.copy_(source)
        else:
            elements = _elements(original).to(device)
            target[elements] = source[elements]
    tensor = typed.as_strided(original.shape, original.stride(), start)
    return GuardedTensor(name, tensor, raw, raw.clone())


def guard_storage(original: Tensor, name: str, device: str = HOST) -> GuardedTensor:
    """A tensor like ``original`` in a copy of all the memory that it lies in, which is watched and has no zones."""
    original = original.detach()
    count = original.untyped_storage().nbytes() // original.element_size()
    memory = original.as_strided((count,), (1,), 0).to(device, copy=True)
    raw = memory.view(torch.uint8)
    return GuardedTensor(
        name, memory.as_strided(original.shape, original.stride(), original.storage_offset()), raw, raw.clone()
    )


def snapshot(result: Any) -> Any:
    """A copy of a result on the host, with its strides, and no more memory than it spans; another value as it is."""
    if not isinstance(result, Tensor) or result.layout != torch.strided or result.is_quantized:
        return result
    result = result.detach()
    if not result.numel():
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
    if result.is_conj() or result.is_neg():  # what is computed of it has no gaps and repeats nothing
        memory = torch.zeros(span(result), dtype=result.dtype)
        memory[_elements(result)] = result.resolve_conj().resolve_neg().reshape(-1).cpu()
        return memory.as_strided(result.shape, result.stride(), 0)
    return _memory(result).to("cpu", copy=True).as_strided(result.shape, result.stride(), 0)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two results are equal to the last bit, NaN and signs of zero included."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and (a == b or (a != a and b != b))
    if (a.dtype, a.shape, a.layout) != (b.dtype, b.shape, b.layout):
        return False
    if a.layout != torch.strided or a.is_quantized:
        return torch.equal(a.to_dense(), b.to_dense())
    return torch.equal(_bits(a), _bits(b))


def span(t: Tensor) -> int:
    """How many elements lie between the first and the last one of a tensor, both included."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0


def is_dense(t: Tensor) -> bool:
    """Whether a tensor has all the elements that it spans, each once."""
    expected = 1
    for step, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n > 1):
        if step != expected:
            return False
        expected *= n
    return True


def overlaps(intervals: Sequence[tuple[int, int, Any]]) -> Iterator[tuple[Any, Any]]:
    """The owners of those intervals, of addresses, that share some; an owner in several overlaps is listed for each."""
    open_: list[tuple[int, Any]] = []
    for start, end, owner in sorted(intervals, key=lambda i: (i[0], i[1])):
        open_ = [(e, o) for e, o in open_ if e > start]
        yield from ((o, owner) for _, o in open_)
        open_.append((end, owner))


def _memory(t: Tensor) -> Tensor:
    return t.as_strided((span(t),), (1,), t.storage_offset())


def _elements(t: Tensor) -> Tensor:
    """Where its elements lie, counted from the first."""
    return torch.arange(span(t)).as_strided(t.shape, t.stride()).reshape(-1)


def _bits(t: Tensor) -> Tensor:
    plain = t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.view(-1).view(torch.uint8)
