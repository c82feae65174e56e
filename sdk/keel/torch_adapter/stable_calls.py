"""Operators as libtorch's stable C interface calls them: by name, with the types of arguments that the schema has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload


@dataclass(frozen=True)
class StableArgument:
    """An argument of an operator. ``type`` is written as in schemas: ``Tensor``, ``int[]?``, ``ScalarType``. A list of
    ``length`` equal numbers may be passed as one number.
    """

    name: str
    type: str
    default: Any
    length: int | None


@dataclass(frozen=True)
class StableCall:
    """An operator's name and overload, as in ``aten::mm`` and ``out``, with the types of its arguments and results."""

    name: str
    overload: str
    arguments: tuple[StableArgument, ...]
    results: tuple[str, ...]


def stable_call(op: Callable[..., Any]) -> StableCall | None:
    """What a call of an operator says; None if it has no schema."""
    if not isinstance(op, OpOverload):
        return None
    schema = op._schema
    arguments = tuple(
        StableArgument(a.name, _text(str(a.real_type)), a.default_value, getattr(a, "N", None))
        for a in schema.arguments
    )
    return StableCall(
        schema.name, schema.overload_name, arguments, tuple(_text(str(r.real_type)) for r in schema.returns)
    )


def _text(type: str) -> str:
    """``Optional[List[int]]`` as ``int[]?``."""
    for word, mark in (("Optional[", "?"), ("List[", "[]")):
        if type.startswith(word) and type.endswith("]"):
            return _text(type.removeprefix(word)[:-1]) + mark
    return {"number": "Scalar"}.get(type, type)
