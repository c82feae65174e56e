"""The constants of a saved graph: makes plain tensors for the file, and tensors from its table and bytes.

``torch.save`` writes ``constants.pt``. ``pickled`` reads it as a table and bytes, without unpickling. The table gives
the storage of each tensor, and the place in it. So tensors that share memory still share it, and a tensor with two
names stays one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from keel.documents import Item, Malformed
from keel.errors import KeelError
from keel.serialize.codec import DTYPES

MOST = 1 << 14
"""The most tensors that a saved graph may have."""
_LARGEST = (1 << 62) - 1


def plain(constants: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the constants as plain tensors, without attributes and hooks and with a lazy conjugation resolved.

    Raises KeelError[bad-graph] for a tensor subclass, for a quantized or sparse tensor, and for more than ``MOST``
    constants.
    """
    if len(constants) > MOST:
        raise KeelError(
            "bad-graph", "The graph cannot be saved.", {"constants": f"There are {len(constants)}, more than {MOST}."}
        )
    made: dict[int, torch.Tensor] = {}
    for name, value in constants.items():
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_quantized or value.layout != torch.strided:
            raise KeelError(
                "bad-graph",
                "The graph cannot be saved.",
                {name: f"It is a {type(value).__name__} of layout {value.layout}, not a plain tensor."},
            )
        if id(value) not in made:
            bare = value.detach().resolve_conj().resolve_neg()
            made[id(value)] = (
                torch.nn.Parameter(bare, value.requires_grad)
                if isinstance(value, torch.nn.Parameter)
                else bare.requires_grad_(value.requires_grad)
            )
    return {name: made[id(value)] for name, value in constants.items()}


def unpacked(table: Item, held: Sequence[bytes]) -> dict[str, torch.Tensor]:
    """Returns the tensors by name.  Raises Malformed."""
    parts = table.record(("memory", "tensors", "names"))
    memory = [_memory(item, content) for item, content in zip(parts["memory"].items(MOST), held, strict=True)]
    tensors = [_tensor(item, memory) for item in parts["tensors"].items(MOST)]
    return {name: tensors[item.integer(0, len(tensors) - 1)] for name, item in parts["names"].table(MOST).items()}


def _memory(item: Item, held: bytes) -> torch.Tensor:
    fields = item.record(("bytes", "device"))
    if fields["device"].value == "meta":  # it has no bytes
        return torch.empty(fields["bytes"].integer(0, _LARGEST), dtype=torch.uint8, device="meta")
    if fields["bytes"].integer(0, _LARGEST) != len(held):
        item.refuse(f"It has {len(held)} bytes, not {fields['bytes'].value}.")
    return _placed(held, fields["device"])


def _placed(held: bytes, device: Item) -> torch.Tensor:
    """Copies bytes to a new tensor on a device, aligned as PyTorch aligns its own."""
    flat = torch.empty(len(held), dtype=torch.uint8)
    if held:
        flat.copy_(torch.from_numpy(np.frombuffer(bytearray(held), dtype=np.uint8)))
    try:
        return flat.to(device.text())
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, ValueError) as e:
        raise Malformed(device.place, f"This machine has no device {device.value}.") from e


def _tensor(item: Item, memory: list[torch.Tensor]) -> torch.Tensor:
    """Makes a tensor that is a view of one of ``memory`` and stays within it.  Raises Malformed."""
    fields = item.record(("memory", "dtype", "shape", "strides", "offset", "parameter", "requires_grad", "conjugate"))
    place = memory[fields["memory"].integer(0, len(memory) - 1)]
    dtype = DTYPES[fields["dtype"].one_of([*DTYPES], "a dtype")]
    shape = [n.integer(0, _LARGEST) for n in fields["shape"].items(64)]
    strides = [n.integer(0, _LARGEST) for n in fields["strides"].items(64, len(shape))]
    offset = fields["offset"].integer(0, _LARGEST)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    end = (last + 1 if 0 not in shape else offset) * dtype.itemsize
    if end > place.numel() or any(n > _LARGEST for n in (last, end)):
        item.refuse(f"It ends at byte {end} of a storage of {place.numel()} bytes.")
    wants, is_parameter = fields["requires_grad"].flag(), fields["parameter"].flag()
    if wants and not (dtype.is_floating_point or dtype.is_complex):
        fields["requires_grad"].refuse(f"A tensor of dtype {dtype} cannot require a gradient.")
    try:
        made = torch.empty(0, dtype=dtype, device=place.device)
        made.set_(place.untyped_storage(), offset, shape, strides)
        if fields["conjugate"].flag():
            made = made.conj().resolve_conj()
        return torch.nn.Parameter(made, wants) if is_parameter else made.requires_grad_(wants)
    except (RuntimeError, NotImplementedError, TypeError) as e:
        raise Malformed(item.place, str(e).partition("\n")[0]) from e
