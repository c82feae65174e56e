"""The check of a loaded graph's arguments: the graph was traced for certain types, and others are refused.

A wrong size would not always fail by itself: a mean that was traced over 12 elements divides by 12. The check is plain
Python over sizes, so that Dynamo turns it into guards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, prod
from typing import Any

import torch
from torch import fx

from keel.errors import KeelError
from keel.serialize.codec import Data, NotSerializable, decode, dtype_named
from keel.symbols import FUNCTIONS
from keel.torch_adapter import Tree, flat, unflatten

_VALUES: Mapping[str, Callable[..., Any]] = {name: row.value for name, row in FUNCTIONS.items()} | {
    # Functions that Dynamo can trace on symbolic sizes.
    "Rational": Fraction,
    "Add": lambda *a: sum(a),
    "Mul": lambda *a: prod(a),
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Max": max,
    "Min": min,
    "Identity": lambda a: a,
    "IntTrueDiv": operator.truediv,
    "CeilToInt": ceil,
    "FloorToInt": floor,
    "floor": floor,
    "ceiling": ceil,
    "ModularIndexing": lambda a, b, n: a // b % n,
    "CeilDiv": lambda a, b: -(-a // b),
}


@dataclass(frozen=True)
class InputGuard:
    """The check before a call, as a forward pre-hook. It returns the arguments with the strides of tracing, and copies
    the arguments that have others.

    ``names`` are the names of the flat inputs. ``fixed`` has the values that some inputs must have, by number, and
    ``types`` the types of the others. ``written`` are the inputs that the graph writes to. ``tree`` describes how
    arguments are nested.
    """

    names: tuple[str, ...]
    fixed: Mapping[int, Any]
    types: Mapping[int, Data]
    ranges: Mapping[str, tuple[int | None, int | None]]
    written: frozenset[str]
    tree: Tree | None

    def __call__(self, module: fx.GraphModule, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        values = flat(args, kwargs) if self.tree is not None else [*args, *kwargs.values()]
        if len(values) != len(self.names):
            raise _misfit("The call", f"It has {len(values)} arguments, not {len(self.names)}.")
        for i, value in self.fixed.items():
            if type(values[i]) is not type(value) or values[i] != value:
                raise _misfit(self.names[i], f"It is {values[i]!r}, not {value!r}, which the graph was traced for.")
        known: dict[str, int] = {}
        for i, want in self.types.items():
            _bind(self.names[i], want, values[i], known)
        for i, want in self.types.items():
            _check(self.names[i], want, values[i], known)
        for name, value in known.items():
            lower, upper = self.ranges.get(name, (None, None))
            if (lower is not None and value < lower) or (upper is not None and value > upper):
                raise _misfit(name, f"The size is {value}, not between {_end(lower)} and {_end(upper)}.")
        moved = {i: _laid_out(self.names[i], want, values[i], known) for i, want in self.types.items()}
        if all(moved[i] is values[i] for i in moved):
            return None
        if wrong := [self.names[i] for i in moved if self.names[i] in self.written and moved[i] is not values[i]]:
            raise _misfit(
                wrong[0], "The graph writes to it, so it must have the strides that the graph was traced for."
            )
        inputs = [moved.get(i, value) for i, value in enumerate(values)]
        return (tuple(inputs), {}) if self.tree is None else unflatten(self.tree, inputs)


def _end(bound: int | None) -> str:
    return "infinity" if bound is None else str(bound)


def entry(graph: Data, symbols: Mapping[str, Data], tree: Tree | None) -> InputGuard:
    """Makes the check for the inputs of a saved graph.  Raises NotSerializable."""
    inputs = graph["inputs"]
    fixed = {i: decode(want["fixed"], _no_node, _no_node) for i, want in enumerate(inputs) if "fixed" in want}
    types = {}
    for i, want in enumerate(inputs):
        if "fixed" not in want:
            types[i] = (
                {**want["out"], "dtype": dtype_named(want["out"]["dtype"])} if "dtype" in want["out"] else want["out"]
            )
    return InputGuard(
        tuple(want["name"] for want in inputs),
        fixed,
        types,
        {name: (facts["lower"], facts["upper"]) for name, facts in symbols.items()},
        frozenset(name for name, _ in graph["writes"]),
        tree,
    )


def _no_node(name: str) -> fx.Node:
    raise NotSerializable(f"{name} is not a value.")


def _bind(name: str, want: Data, argument: Any, known: dict[str, int]) -> None:
    """Yields the symbols that are a size or a number by themselves."""
    if "dtype" not in want:
        pairs = [(next(iter(want.values())), argument)]
    elif not isinstance(argument, torch.Tensor):
        raise _misfit(name, f"It is {type(argument).__name__}, not a tensor.")
    elif argument.dim() != len(want["shape"]):
        raise _misfit(name, f"It has {argument.dim()} dimensions, not {len(want['shape'])}.")
    else:
        pairs = list(zip(want["shape"], argument.shape, strict=True))
    for size, value in pairs:
        if isinstance(size, str) and size not in known:
            known[size] = value


def _check(name: str, want: Data, value: Any, known: Mapping[str, int]) -> None:
    if "dtype" not in want:
        expected = value_of(next(iter(want.values())), known)
        if expected is not None and value != expected:
            raise _misfit(name, f"It is {value}, not {expected}.")
        return
    if value.dtype != want["dtype"]:
        raise _misfit(name, f"Its dtype is {value.dtype}, not {want['dtype']}.")
    if value.device.type != torch.device(want["device"]).type:
        raise _misfit(name, f"Its device is {value.device}, not {want['device']}.")
    for d, size in enumerate(want["shape"]):
        expected = value_of(size, known)
        if expected is not None and value.shape[d] != expected:
            raise _misfit(name, f"Its size in dimension {d} is {value.shape[d]}, not {expected}.")


def _laid_out(name: str, want: Data, tensor: Any, known: Mapping[str, int]) -> Any:
    """Returns ``tensor``, or a copy of it with the expected strides."""
    if "dtype" not in want:
        return tensor
    strides = [value_of(s, known) for s in want["strides"]]
    if all(n <= 1 or s is None or s == t for n, s, t in zip(tensor.shape, strides, tensor.stride(), strict=True)):
        return tensor
    solid = [t if s is None else s for s, t in zip(strides, tensor.stride(), strict=True)]
    return torch.empty_strided(tensor.shape, solid, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def value_of(data: Data, known: Mapping[str, int]) -> Any:
    """Returns the value of an expression, or None if it has unknown symbols."""
    if isinstance(data, str):
        return known.get(data)
    if not isinstance(data, list):
        return data
    args = [value_of(a, known) for a in data[1:]]
    return None if None in args or data[0] not in _VALUES else _VALUES[data[0]](*args)


def _misfit(name: str, why: str) -> KeelError:
    return KeelError("bad-input", "The arguments do not fit the saved graph.", {name: why})
