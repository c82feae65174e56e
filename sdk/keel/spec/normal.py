"""The normal form: one call for all that mean the same.

A primitive absorbs several overloads, promotes dtypes, broadcasts, and counts dimensions from either end. In its normal
form a call uses the member's first overload that has the parameters it needs; its tensor operands have the dtype that
it computes in and the sizes of the result, written out as conversions and expansions; dimensions count from the front.
Operands without dimensions, and Python numbers, stay as they are: they broadcast to anything, from any device. Of
matrices in batches the batches are broadcast.

A call that is not in normal form is made of one that is, as a composite is made of its pieces: a backend that takes it
as it stands gets it so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from keel import torch_adapter
from keel.spec.bind import bind, bound
from keel.spec.op import Op, Overload
from keel.spec.opset import OPSET, decomposition_of
from keel.spec.rules import Shape, broadcast_shapes, canonical
from keel.types import Call, SymType, TensorType

aten = torch.ops.aten
Decomposition = Callable[..., Any]
DIMS = ("dim", "dims", "dim0", "dim1", "dim2", "axis")
"""Parameters that hold dimensions of ``self``."""


def descent(call: Call) -> Decomposition | None:
    """What a call is written out as where nobody takes it: its normal form, or the decomposition of its operator; None
    if there is neither.
    """
    return normal_form(call) or decomposition_of(call.op)


def is_normal(call: Call) -> bool:
    """Whether a primitive's call is in its normal form."""
    return normal_form(call) is None


def evens(call: Call) -> bool:
    """Whether the normal form makes batches equal that are not, as a precondition may want them."""
    op = OPSET.get(call.op)
    return op is not None and bool(op.own) and not is_normal(call)


def normal_form(call: Call) -> Decomposition | None:
    """A function of the call's arguments that makes the normal form of it; None for a call that is in it, and for all
    but primitives.
    """
    op = OPSET.get(call.op)
    if op is None or op.kind != "primitive" or not torch_adapter.is_overload(call.op):
        return None
    args = bind(call)
    target = _target(op, args)
    dims = {name: now for name in DIMS if (now := _from_the_front(args, name, op)) != args.get(name)}
    dtype = op.compute.of(args) if op.compute is not None else None
    operands = [name for name in op.operands if isinstance(args.get(name), TensorType)]
    shape = broadcast_shapes([_parted(op, name, args[name].shape)[0] for name in operands])
    converted = [name for name in operands if dtype is not None and args[name].dtype != dtype]
    expanded = [name for name in operands if args[name].rank and _parted(op, name, args[name].shape)[0] != shape]
    if target is call.op and not (dims or converted or expanded):
        return None

    def normal(*arguments: Any, **keywords: Any) -> Any:
        values = {**bound(call.op, arguments, keywords), **dims}
        together = broadcast_shapes([_parted(op, name, tuple(values[name].shape))[0] for name in operands])
        for name in converted:
            values[name] = aten._to_copy.default(values[name], dtype=dtype)
        for name in operands if expanded else ():  # sizes that are 1 by a guard are written as 1
            sizes = (*together, *_parted(op, name, tuple(values[name].shape))[1])
            if values[name].dim() and _written(values[name].shape) != _written(sizes):
                values[name] = aten.expand.default(values[name], sizes)
        return _call(target, values)

    return normal


def _parted(op: Op, name: str, shape: Shape) -> tuple[Shape, Shape]:
    """The sizes of an operand that are broadcast, and those of its own."""
    at = len(shape) - op.own.get(name, 0)
    return shape[:at], shape[at:]


def _written(sizes: Sequence[Any]) -> list[Any]:
    return [torch_adapter.dim_of(n) for n in sizes]


def _target(op: Op, args: Mapping[str, Any]) -> Overload:
    """The first overload that takes the arguments given."""
    return next(t for t in op.targets if takes(t, args))


def overload_of(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Overload:
    """The first overload of a member that can be called with these arguments.  Raises LookupError if none can."""
    for target in op.targets:
        places = [p.name for p in torch_adapter.parameters(target) if not p.keyword_only]
        if len(args) <= len(places) and takes(target, {**dict(zip(places, args, strict=False)), **kwargs}):
            return target
    raise LookupError(f"No overload of {op.name} takes {args}, {kwargs}.")


def takes(target: Overload, args: Mapping[str, Any]) -> bool:
    """Whether an overload has every parameter to which an argument was given, and takes tensors or numbers there."""
    results = {p.name: p for p in torch_adapter.parameters(target)}
    return all(name in results and _suits(results[name], value) for name, value in args.items() if value is not None)


def _suits(p: torch_adapter.Parameter, value: Any) -> bool:
    if isinstance(value, torch.Tensor | TensorType):
        return p.tensor
    return p.number or not isinstance(value, int | float | complex | SymType)


def _rank(args: Mapping[str, Any], op: Op) -> int:
    """How many dimensions there are to name: the operand's, or that of operands in a list; one more for a new one."""
    tensors = [t for t in (args.get("self"), *(args.get("tensors") or ())) if isinstance(t, TensorType)]
    return max((t.rank for t in tensors), default=0) + op.new_dims


def _from_the_front(args: Mapping[str, Any], name: str, op: Op) -> Any:
    rank = _rank(args, op)
    match args.get(name):
        case bool() as value:
            return value
        case int() as value:
            return canonical(value, rank) if value < 0 else value
        case list() | tuple() as values if all(isinstance(v, int) for v in values):
            return type(values)(canonical(v, rank) if v < 0 else v for v in values)
        case other:
            return other


def _call(target: Overload, values: Mapping[str, Any]) -> Any:
    """``target`` with values by parameter name, those that equal the default left out."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    parameters = torch_adapter.parameters(target)
    last = max((i for i, p in enumerate(parameters) if not p.keyword_only and _is_given(values, p)), default=-1)
    for i, p in enumerate(parameters):
        value = values.get(p.name, p.default)
        if p.several and isinstance(value, int):
            value = [value]
        if not p.keyword_only and i <= last:
            positional.append(value)
        elif p.keyword_only and _is_given(values, p):
            keywords[p.name] = value
    return target(*positional, **keywords)


def _is_given(values: Mapping[str, Any], p: torch_adapter.Parameter) -> bool:
    value = values.get(p.name, p.default)
    return p.required or isinstance(value, torch.Tensor) or not (type(value) is type(p.default) and value == p.default)
