"""Arguments as Python text that makes them again to the bit, the signs of zeros and where they lie included.

Texts use ``torch``, and ``inf`` and ``nan`` of ``math``; those of large tensors also ``unpack`` (see ``UNPACK``).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

HOST = "cpu"
SMALL = 64
"""Elements of memory that are written out; more of them are packed."""
UNPACK = (
    "def unpack(text, dtype):",
    "    data = bytearray(zlib.decompress(base64.b85decode(text)))",
    "    return torch.frombuffer(data, dtype=torch.uint8).view(dtype)",
)
"""What a script needs for texts that call ``unpack``, in addition to ``base64`` and ``zlib``."""
FILL = 77
"""Stands in gaps between the elements of tensors that have no NaN."""


def text_of(value: Any, names: Mapping[int, str] | None = None, device: str = HOST) -> str:
    """An expression for a value, its tensors on ``device``; a tensor whose ``id`` is in ``names`` is named.  Raises
    ValueError if it has none.
    """
    match value:
        case Tensor():
            named = (names or {}).get(id(value))
            return named if named is not None else tensor(value, device=device)
        case None | bool() | int() | str():
            return repr(value)
        case float():
            return repr(value)  # inf and nan are names
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(value)
        case torch.device():
            return f"torch.device({str(value)!r})"
        case list():
            return "[" + ", ".join(text_of(v, names, device) for v in value) + "]"
        case tuple():
            return "(" + ", ".join(text_of(v, names, device) for v in value) + ("," if len(value) == 1 else "") + ")"
        case Mapping():
            return "{" + ", ".join(f"{k!r}: {text_of(v, names, device)}" for k, v in value.items()) + "}"
    raise ValueError(f"A {type(value).__name__} has no text.")


def tensor(x: Tensor, *, strides: bool = True, device: str = HOST) -> str:
    """An expression for a tensor on ``device``, with its ``strides`` and its offset, or in row-major order."""
    x = x.detach().resolve_conj().resolve_neg().cpu()
    if x.layout != torch.strided or x.is_quantized:
        raise ValueError(f"A tensor of the layout {x.layout} has no text.")
    shape = tuple(x.shape)
    if not x.numel():
        return f"torch.empty_strided({shape}, {x.stride()}, dtype={x.dtype}{_on_device(device)})"
    if not strides or (x.is_contiguous() and not x.storage_offset()):
        return _row_major(x.contiguous(), shape, device)
    memory = _memory(x)
    offset = f", {x.storage_offset()}" if x.storage_offset() else ""
    return f"{_row_major(memory, tuple(memory.shape), device)}.as_strided({shape}, {x.stride()}{offset})"


def on(device: str) -> str:
    """What is called of a tensor on the host for one on ``device``; nothing for the host."""
    return "" if device == HOST else f".to({device!r})"


def _on_device(device: str) -> str:
    return "" if device == HOST else f", device={device!r}"


def _row_major(x: Tensor, shape: tuple[int, ...], device: str) -> str:
    if (
        x.numel() > 8
        and bool((same := x.flatten()[:1] == x.flatten()).all())
        and same.numel()
        and not bool((x == 0).any())
    ):
        return f"torch.full({shape}, {text_of(x.flatten()[0].item())}, dtype={x.dtype}{_on_device(device)})"
    if x.numel() <= SMALL and x.dtype not in _BITS:
        return f"torch.tensor({_listed(x.tolist())}, dtype={x.dtype}{_on_device(device)})"
    raw = x.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    packed = base64.b85encode(zlib.compress(raw, 9)).decode()
    return f"unpack('{packed}', {x.dtype})" + (f".reshape({shape})" if len(shape) != 1 else "") + on(device)


_BITS = frozenset(d for name in ("float8_e8m0fnu", "float4_e2m1fn_x2") if (d := getattr(torch, name, None)) is not None)


def _listed(value: Any) -> str:
    return "[" + ", ".join(map(_listed, value)) + "]" if isinstance(value, list) else text_of(value)


def _memory(x: Tensor) -> Tensor:
    """All that lies between the start of the memory and the last element; gaps are NaN, or FILL."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    memory = torch.full((x.storage_offset() + span,), 0, dtype=torch.int8).to(x.dtype)
    memory.fill_(float("nan") if x.is_floating_point() or x.is_complex() else x.dtype != torch.bool and FILL)
    at = torch.arange(len(memory)).as_strided(x.shape, x.stride(), x.storage_offset()).flatten()
    memory[at] = x.reshape(-1)
    return memory
