"""Replaces sizes and numbers that kernels cannot compute by symbols, whose values the host computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from keel.symbols import HostNumbers
from keel.types import Call, SymType, TensorType, as_dim


def hosted_type(type: Any, host: HostNumbers) -> Any:
    """Returns a type with symbols of ``host`` in its sizes or its number, and anything else unchanged."""
    if isinstance(type, TensorType):
        if type.is_static:
            return type
        sizes, strides = (tuple(as_dim(host.integer(d)) for d in dims) for dims in (type.shape, type.strides))
        return type if (sizes, strides) == (type.shape, type.strides) else replace(type, shape=sizes, strides=strides)
    if isinstance(type, SymType):
        form = {"int": host.integer, "float": host.real, "bool": host.truth}[type.kind](type.expr)
        return type if form is type.expr else SymType(form, type.kind)
    return type


def hosted(call: Call, host: HostNumbers) -> Call:
    """Returns ``call`` with symbols of ``host`` in the types of its arguments and results."""
    if call.is_static:
        return call

    def inner(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(inner, value))
        return hosted_type(value, host)

    args, kwargs, out = inner(tuple(call.args)), {k: inner(v) for k, v in call.kwargs.items()}, inner(call.out)
    return call if (args, out) == (call.args, call.out) and kwargs == call.kwargs else Call(call.op, args, kwargs, out)
