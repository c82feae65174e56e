"""The arguments of nodes and the types of their results, as JSON and back.

JSON's own values stand for themselves. Any other value is an object with one key, which names its kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from keel.torch_adapter import Fakes, Symbolic, expression_data, is_operator, operator_named
from keel.types import Call

Data = Any


# A name from a file is looked up in tables, never in torch itself, since torch imports modules by attribute access.
DTYPES: Mapping[str, torch.dtype] = {n: v for n, v in vars(torch).items() if isinstance(v, torch.dtype)}
LAYOUTS: Mapping[str, torch.layout] = {n: v for n, v in vars(torch).items() if isinstance(v, torch.layout)}
MEMORY_FORMATS: Mapping[str, torch.memory_format] = {
    n: v for n, v in vars(torch).items() if isinstance(v, torch.memory_format)
}


class NotSerializable(ValueError):
    """A sentence that says why a value cannot be saved, or why data does not encode a value."""


def encode(value: Any) -> Data:
    """Encodes an argument as JSON.  Raises NotSerializable."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case complex():
            return {"complex": [encode(value.real), encode(value.imag)]}
        case fx.Node():
            return {"graph": str(value.target)} if value.op == "get_attr" else {"node": value.name}
        case tuple() if type(value) is tuple:
            return {"tuple": [encode(v) for v in value]}
        case list() | tuple():
            return [encode(v) for v in value]
        case dict():
            return {"dict": [[encode(k), encode(v)] for k, v in value.items()]}
        case slice():
            return {"slice": [encode(v) for v in (value.start, value.stop, value.step)]}
        case torch.dtype() | torch.layout() | torch.memory_format():
            return {type(value).__name__: str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
    if is_operator(value):
        return {"operator": Call(value, (), {}, ()).name}
    raise NotSerializable(f"A {type(value).__name__} cannot be saved.")


def decode(data: Data, node: Callable[[str], fx.Node], graph: Callable[[str], fx.Node]) -> Any:
    """Returns the argument that ``encode`` encoded. Nodes and inner graphs are looked up by name. Raises
    NotSerializable.
    """

    def inner(values: Any) -> list[Any]:
        return [decode(v, node, graph) for v in values]

    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return inner(data)
        case {"float": "inf" | "-inf" | "nan" as text}:
            return float(text)
        case {"complex": [real, imag]}:
            return complex(*inner([real, imag]))
        case {"node": str(name)}:
            return node(name)
        case {"graph": str(name)}:
            return graph(name)
        case {"tuple": list(values)}:
            return tuple(inner(values))
        case {"dict": list(items)}:
            return dict(inner(item) for item in items)
        case {"slice": [start, stop, step]}:
            return slice(*inner([start, stop, step]))
        case {"device": str(name)}:
            return torch.device(name)
        case {"operator": str(name)} if (operator := operator_named(name)) is not None:
            return operator
        case {"dtype": str(name)}:
            return dtype_named(name)
        case {"layout": str(name)}:
            return _constant(name, LAYOUTS)
        case {"memory_format": str(name)}:
            return _constant(name, MEMORY_FORMATS)
    raise NotSerializable(f"{data!r} does not encode an argument.")


def _constant(name: str, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise NotSerializable(f"This PyTorch has no torch.{name}.")
    return known[name]


def dtype_named(name: str) -> torch.dtype:
    """Returns the dtype of a name such as ``float32``.  Raises NotSerializable."""
    dtype: torch.dtype = _constant(name, DTYPES)
    return dtype


# -- what a node computes ---------------------------------------------------------------------------------------------


def encode_type(value: Any) -> Data:
    """Encodes the type of a node's result, from ``meta["val"]``.  Raises NotSerializable."""
    match value:
        case None:
            return None
        case tuple() | list():
            return [encode_type(v) for v in value]
        case torch.Tensor():
            if value.layout is not torch.strided:
                raise NotSerializable(f"A tensor of layout {value.layout} has no strides.")
            return {
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": [_size(n) for n in value.shape],
                "strides": [_size(s) for s in value.stride()],
                "offset": _size(value.storage_offset()),
                "device": str(value.device),
            }
        case bool() | torch.SymBool():
            return {"bool": _size(value)}
        case int() | torch.SymInt():
            return {"int": _size(value)}
        case float() | torch.SymFloat():
            return {"float": _size(value)}
    raise NotSerializable(f"It computes a {type(value).__name__}.")


def _size(value: Any) -> Data:
    try:
        return expression_data(value) if isinstance(value, Symbolic) else encode(value)
    except ValueError as e:
        raise NotSerializable(str(e)) from e


def decode_type(data: Data, fakes: Fakes) -> Any:
    """Makes a fake value of an encoded type.  Raises NotSerializable."""
    try:
        match data:
            case None:
                return None
            case list():
                return [decode_type(d, fakes) for d in data]
            case {
                "dtype": str(dtype),
                "shape": list(shape),
                "strides": list(strides),
                "offset": offset,
                "device": str(device),
            }:
                return fakes.tensor(dtype_named(dtype), shape, strides, offset, torch.device(device))
            case {"bool": bool(value)}:
                return value
            case {"float": {"float": str(value)}}:
                return float(value)
            case {"bool": value}:
                return fakes.number(value, "bool")
            case {"int": value}:
                return fakes.number(value)
            case {"float": value}:
                return fakes.number(value, "float")
    except (ValueError, RuntimeError) as e:
        raise NotSerializable(str(e)) from e
    raise NotSerializable(f"{data!r} does not encode a type.")


def values_of(data: Mapping[str, Any]) -> list[Any]:
    """Yields the names of all nodes among encoded arguments, in order."""
    match data:
        case {"node": str(name)}:
            return [name]
        case dict():
            return [n for v in data.values() for n in values_of(v)]
        case list():
            return [n for v in data for n in values_of(v)]
    return []
