"""The constants of a compiled graph in the file of a package, and from it: each in row-major order, under the hash of
its bytes, so that equal constants are stored once and packages can share a file of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch

from keel.documents import Item, Malformed
from keel.packages.package_file import PackageWriter
from keel.runtime.result_casts import with_strides
from keel.serialize.codec import DTYPES, NotSerializable
from keel.torch_adapter import real_tensors

FOLDER = "weights/"
_LARGEST = 1 << 48
KINDS = ("parameter", "buffer", "constant")


@dataclass(frozen=True)
class Weight:
    """A constant of a package: its ``name`` in the model, its type, and the ``member`` with its elements.

    Weights of the same number ``tensor`` are one tensor, under several names. ``placeholder`` is its name in the
    compiled graph. Calls write to it if it is ``written``. A weight can be replaced unless something was computed from
    its value when the program was compiled.
    """

    name: str
    placeholder: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    tensor: int
    member: str
    written: bool
    replaceable: bool

    def as_json(self) -> dict[str, Any]:
        """The weight as plain data."""
        return asdict(self) | {"shape": list(self.shape), "strides": list(self.strides)}

    @staticmethod
    def of(item: Item) -> Weight:
        """The weight that an item of a manifest describes. Raises Malformed."""
        fields = item.record(tuple(Weight.__dataclass_fields__))
        shape = tuple(n.integer(0, _LARGEST) for n in fields["shape"].items(64))
        strides = tuple(n.integer(0, _LARGEST) for n in fields["strides"].items(64, len(shape)))
        if prod(shape) > _LARGEST:
            fields["shape"].refuse("It has too many elements.")
        texts = {name: fields[name].text(1 << 12) for name in ("name", "placeholder", "device", "member")}
        return Weight(
            **texts,
            kind=fields["kind"].one_of(KINDS, "a kind of weight"),
            dtype=fields["dtype"].one_of([*DTYPES], "a dtype"),
            shape=shape,
            strides=strides,
            tensor=fields["tensor"].integer(0, _LARGEST),
            written=fields["written"].flag(),
            replaceable=fields["replaceable"].flag(),
        )

    @property
    def bytes(self) -> int:
        """The size of its elements."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


def member_of(tensor: torch.Tensor) -> tuple[str, memoryview]:
    """The name and the bytes of a tensor's elements, in row-major order."""
    with real_tensors():
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        content = plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else memoryview(b"")
    return FOLDER + hashlib.sha256(content).hexdigest(), content


def numbered(tensors: Mapping[str, torch.Tensor], written: Iterable[str]) -> dict[str, int]:
    """A number for each tensor, by name; names of the same tensor have the same number. Raises NotSerializable if a
    tensor that the program writes to shares memory with a part of another one, or if a tensor has no plain elements.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    result, memory = {}, dict[str, Any]()
    for name, tensor in tensors.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise NotSerializable(f"The weight {name} is a {type(tensor).__name__} of layout {tensor.layout}.")
        if tensor.is_quantized:
            raise NotSerializable(f"The weight {name} is a quantized tensor.")
        storage = tensor.untyped_storage().data_ptr()
        place = (tensor.dtype, storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        result[name] = numbers.setdefault(place if tensor.numel() else (name,), len(numbers))
        memory[name] = storage if tensor.numel() else name
    for name in written:
        others = [other for other in memory if memory[other] == memory[name] and result[other] != result[name]]
        if others:
            raise NotSerializable(f"The program writes to {name}, which shares memory with {others[0]}.")
    return result


def add_weights(
    writer: PackageWriter,
    tensors: Mapping[str, torch.Tensor],
    describe: Callable[[str], Mapping[str, Any]],
    written: Iterable[str],
) -> list[Weight]:
    """Adds the members of tensors, which are by placeholder. ``describe`` returns the name, the kind and the
    replaceability of one. Raises NotSerializable.
    """
    weights = []
    members = dict[int, str]()
    for placeholder, number in numbered(tensors, written).items():
        tensor = tensors[placeholder]
        if number not in members:
            members[number], content = member_of(tensor)
            writer.add(members[number], content)
        weights.append(
            Weight(
                **describe(placeholder),
                placeholder=placeholder,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                strides=tuple(tensor.stride()),
                device=str(tensor.device),
                tensor=number,
                member=members[number],
            )
        )
    return weights


def tensor_of(weight: Weight, content: memoryview) -> torch.Tensor:
    """The tensor of a weight: a view of ``content``, which must be writable, if it is row-major and on the host, else a
    copy. Raises Malformed.
    """
    dtype = DTYPES[weight.dtype]
    if len(content) != weight.bytes:
        raise Malformed(weight.name, f"It has {len(content)} bytes, not {weight.bytes}.")
    try:
        flat = torch.frombuffer(content, dtype=dtype) if len(content) else torch.empty(0, dtype=dtype)
        made = flat.reshape(weight.shape)
        steps = zip(weight.shape, weight.strides, made.stride(), strict=True)
        if all(n <= 1 or step == other for n, step, other in steps):
            made = made.as_strided(weight.shape, weight.strides)
        else:
            made = with_strides(made, weight.strides)
        return made.to(torch.device(weight.device))
    except (RuntimeError, ValueError, AssertionError, NotImplementedError) as e:
        raise Malformed(weight.name, str(e).partition("\n")[0]) from e
