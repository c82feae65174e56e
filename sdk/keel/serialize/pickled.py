"""Reads the constants of a file, which ``torch.save`` pickled, without unpickling anything.

``torch.save`` of a dict of tensors uses a few of pickle's instructions and names a few functions. These are read as
data, one by one; any other instruction or name is refused. ``pickletools`` decodes the instructions and runs none.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from keel.documents import Malformed
from keel.serialize.archive import members
from keel.serialize.codec import DTYPES, Data
from keel.serialize.constants import MOST

_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}


_MEMBERS = MOST + 16
"""The most members: ``torch.save`` writes one for each storage, and a few of its own."""
_INSTRUCTIONS = 64 * MOST
"""The most instructions: ``torch.save`` uses about 45 for a tensor."""
_DIMENSIONS = 64


class _Name(str):
    """The full name of a function or class.  It is never looked up."""


@dataclass(frozen=True)
class _Storage:
    """The storage of a tensor: its dtype, its member of the archive, its device and its length."""

    dtype: str
    key: str
    device: str
    bytes: int


class _Tensor(dict[str, Any]):
    """A tensor's row in the table that ``constants.unpacked`` reads."""


def unpickled(content: bytes) -> tuple[Data, list[bytes]]:
    """Returns the table that ``constants.unpacked`` takes, and the bytes of each storage.  Raises Malformed."""
    parts = members(io.BytesIO(content), len(content), _MEMBERS)
    tops = {name.partition("/")[0] for name in parts}
    if len(tops) != 1:
        raise Malformed("constants.pt", "torch.save did not write it.")
    top = tops.pop()
    if parts.get(f"{top}/byteorder", b"little") != b"little":
        raise Malformed("constants.pt", "Its bytes are not little-endian.")
    try:
        data = _read(parts[f"{top}/data.pkl"])
        return _table(data, {name.removeprefix(f"{top}/data/"): held for name, held in parts.items()})
    except Malformed:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as e:
        raise Malformed("constants.pt", f"torch.save did not write it: {type(e).__name__}: {e}"[:200]) from e


def _table(data: Any, storages: Mapping[str, bytes]) -> tuple[Data, list[bytes]]:
    if type(data) is not dict or not all(type(n) is str and isinstance(t, _Tensor) for n, t in data.items()):
        raise Malformed("constants.pt", "It is not a dict of tensors by name.")
    numbers: dict[str, int] = {}
    memory: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    tensors: dict[int, int] = {}
    for value in data.values():
        if id(value) in tensors:
            continue
        storage = value["storage"]
        if storage.key not in numbers:
            numbers[storage.key] = len(memory)
            memory.append({"bytes": storage.bytes, "device": storage.device})
        tensors[id(value)] = len(rows)
        rows.append({**{k: v for k, v in value.items() if k != "storage"}, "memory": numbers[storage.key]})
    table = {"memory": memory, "tensors": rows, "names": {name: tensors[id(value)] for name, value in data.items()}}
    return table, [storages.get(key, b"") for key in numbers]


# -- instructions -----------------------------------------------------------------------------------------------------


def _read(code: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    for count, (instruction, argument, _) in enumerate(pickletools.genops(code)):
        if count > _INSTRUCTIONS:
            raise ValueError(f"it has more than {_INSTRUCTIONS} instructions")
        match instruction.name:
            case "PROTO":
                pass
            case "STOP":
                (value,) = stack
                return value
            case "MARK":
                marks.append(len(stack))
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_TUPLE":
                stack.append(())
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(instruction.name == "NEWTRUE")
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND" | "APPENDS":
                more = _above(stack, marks.pop() if instruction.name == "APPENDS" else len(stack) - 1)
                if type(stack[-1]) is not list:
                    raise ValueError("it appends to a value that is not a list")
                stack[-1].extend(more)
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                stack.append(argument)
            case "GLOBAL":
                stack.append(_Name(str(argument).replace(" ", ".").replace("._utils._", ".")))
            case "BINPUT" | "LONG_BINPUT":
                memo[int(argument)] = stack[-1]  # type: ignore[arg-type]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[int(argument)])  # type: ignore[arg-type]
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(instruction.name[-1])
                held = tuple(stack.pop() for _ in range(count))
                stack.append(held[::-1])
            case "TUPLE":
                stack.append(tuple(_above(stack, marks.pop())))
            case "SETITEM" | "SETITEMS":
                pairs = _above(stack, marks.pop() if instruction.name == "SETITEMS" else len(stack) - 2)
                if type(stack[-1]) is not dict or not all(type(key) is str for key in pairs[::2]):
                    raise ValueError("it sets an item of a value that is not a dict with names as keys")
                stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
            case "BINPERSID":
                stack.append(_storage(*stack.pop()))
            case "REDUCE":
                arguments, name = stack.pop(), stack.pop()
                if type(arguments) is not tuple or type(name) is not _Name:
                    raise ValueError("it calls a value that is not a function")
                stack.append(_CALLS[name](*arguments))
            case other:
                raise ValueError(f"it has the instruction {other}")
    raise ValueError("it does not end")


def _above(stack: list[Any], at: int) -> list[Any]:
    """Pops the values above a mark."""
    held = stack[at:]
    del stack[at:]
    return held


def _storage(word: str, kind: _Name, key: str, device: str, count: int) -> _Storage:
    name = kind.removeprefix("torch.storage.").removeprefix("torch.")
    if word != "storage" or type(key) is not str or type(device) is not str or type(count) is not int:
        raise ValueError("a persistent id does not refer to a storage")
    return _Storage(_STORAGES[name], key, device, count * DTYPES[_STORAGES[name]].itemsize)


def _row(
    storage: _Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    hooks: Any,
    metadata: Any = None,
) -> _Tensor:
    if not isinstance(storage, _Storage) or hooks != {} or metadata not in (None, {}, {"conj": True}):
        raise ValueError("a tensor has hooks or attributes")
    if not all(type(numbers) is tuple and len(numbers) <= _DIMENSIONS for numbers in (shape, strides)):
        raise ValueError("a tensor has no sizes or strides")
    return _Tensor(
        storage=storage,
        dtype=storage.dtype,
        shape=[*shape],
        strides=[*strides],
        offset=offset,
        parameter=False,
        requires_grad=requires_grad,
        conjugate=bool(metadata),
    )


def _row_of_dtype(
    storage: _Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    hooks: Any,
    dtype: _Name,
    metadata: Any = None,
) -> _Tensor:
    row = _row(storage, offset, shape, strides, requires_grad, hooks, metadata)
    name = dtype.removeprefix("torch.")
    if not isinstance(dtype, _Name) or name not in DTYPES:
        raise ValueError("a tensor has no dtype")
    return _Tensor({**row, "dtype": name})


def _parameter(held: _Tensor, requires_grad: bool, hooks: Any, attributes: Any = None) -> _Tensor:
    if not isinstance(held, _Tensor) or hooks != {}:
        raise ValueError("a parameter does not hold a tensor")
    return _Tensor({**held, "parameter": True, "requires_grad": requires_grad})


_CALLS: Mapping[str, Callable[..., Any]] = {
    "torch.rebuild_tensor_v2": _row,
    "torch.rebuild_tensor_v3": _row_of_dtype,
    "torch.rebuild_parameter": _parameter,
    "torch.rebuild_parameter_with_state": _parameter,
    "collections.OrderedDict": lambda: {},
}
