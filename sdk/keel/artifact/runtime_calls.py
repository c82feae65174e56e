"""Library calls as data: what the C++ runtime passes to libtorch's stable C interface.

An operator is called by its name through PyTorch's dispatcher, which takes no ``Scalar``. The C functions that libtorch
has for some operators take numbers instead, and return sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from keel.artifact.runtime_tables import DEVICES, Scope, Tables, dtype_name
from keel.schedule.tensor_graph import Slot
from keel.serialize.codec import Data, NotSerializable
from keel.symbols import kind_of
from keel.symbols.functions import Kind
from keel.torch_adapter import StableArgument, StableCall, is_operator, stable_call
from keel.types import SymType, operator_name

C_FUNCTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "aten.mm.out": ("mm_out", ("out", "self", "mat2")),
    "aten.bmm.out": ("bmm_out", ("out", "self", "mat2")),
    "aten.addmm.out": ("addmm_out", ("out", "self", "mat1", "mat2", "beta", "alpha")),
    "aten.baddbmm.out": ("baddbmm_out", ("out", "self", "batch1", "batch2", "beta", "alpha")),
    "aten.add.Tensor": ("add_Tensor", ("self", "other", "alpha")),
    "aten.sub.Tensor": ("add_Tensor", ("self", "other", "-alpha")),  # which is how PyTorch subtracts
}
"""The C functions of operators on each device, with their arguments in order. The runtime has the same table."""
_NUMBERS: Mapping[str, Kind] = {"int": "int", "float": "float", "bool": "bool", "SymInt": "int"}


class Calls:
    """Writes the library calls of one part. ``tensor`` returns the slot of a tensor by its number in the part, and
    ``is_real`` tells if its elements are known to be floats. The C functions are those of the ``device``.
    """

    def __init__(
        self,
        tables: Tables,
        scope: Scope,
        tensor: Callable[[int], int],
        is_real: Callable[[int], bool],
        device: str = "cpu",
    ) -> None:
        self.tables, self.scope, self.tensor, self.is_real, self.device = tables, scope, tensor, is_real, device

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[int]
    ) -> Data:
        """A call of an operator. ``results`` are the slots of its results, -1 for those that are dropped. Raises
        NotSerializable for what the stable interface cannot pass.
        """
        name = operator_name(function) if is_operator(function) else getattr(function, "__qualname__", str(function))
        if (known := stable_call(function)) is None:
            raise NotSerializable(f"The C++ runtime cannot call {name}, which is not an operator with a schema.")
        bound = dict(zip((a.name for a in known.arguments), args, strict=False)) | dict(kwargs)
        values = {a.name: (a, bound.get(a.name, a.default)) for a in known.arguments}
        self._check_promotion(name, known, values)
        called: dict[str, Data] = {"operator": name, "results": list(results)}
        if (special := C_FUNCTIONS.get(name)) is not None:
            passed = [_signed(each, values) for each in special[1]]
            return called | {
                "function": f"aoti_torch_{self.device}_{special[0]}",
                "args": [self._argument(a, v, name) for a, v in passed],
            }
        if scalars := [a.name for a in known.arguments if _is_scalar(a)]:
            raise NotSerializable(
                f"The C++ runtime cannot call {name}: libtorch's stable interface does not pass its {scalars[0]}, "
                f"which may be an integer or a float."
            )
        _check_results(name, known, results)
        passed = [self._argument(a, v, name) for a, v in values.values()]
        return called | {"name": known.name, "overload": known.overload, "args": passed, "returns": [*known.results]}

    def _check_promotion(self, name: str, known: StableCall, values: Mapping[str, Any]) -> None:
        """Raises NotSerializable for a float in the place of a tensor where it may be added to integers, say. PyTorch
        promotes these by rules that a tensor of the float does not follow.
        """
        operands = [value for a, value in values.values() if a.type in ("Tensor", "Tensor?")]
        has_float = any(isinstance(v, float) or (isinstance(v, SymType) and v.kind == "float") for v in operands)
        if has_float and not all(self.is_real(v.number) for v in operands if isinstance(v, Slot)):
            raise NotSerializable(f"The C++ runtime cannot pass a float to {name} with a tensor of integers.")

    def _argument(self, argument: StableArgument, value: Any, name: str) -> Data:
        kind = argument.type.replace("SymInt", "int")
        if _is_scalar(argument):
            kind = "float"  # the C functions take a double
        if kind.endswith("[]") and argument.length and not isinstance(value, list | tuple):
            value = [value] * argument.length
        try:
            return [kind, self._value(kind, value)]
        except (TypeError, ValueError) as e:
            why = str(e) if isinstance(e, NotSerializable) else f"It is {value!r:.80}, not {argument.type}."
            raise NotSerializable(f"The C++ runtime cannot pass {argument.name} to {name}: {why}") from e

    def _value(self, kind: str, value: Any) -> Data:
        if kind.endswith("?"):
            return None if value is None else self._value(kind[:-1], value)
        if kind.endswith("[]"):
            return [self._value(kind[:-2], each) for each in value]
        if kind == "Tensor":
            return self._tensor(value)
        if kind in _NUMBERS and isinstance(value, bool | int | float | SymType):
            value = value.expr if isinstance(value, SymType) else value
            return self.tables.number(value, self.scope, _NUMBERS[kind])
        match kind, value:
            case "ScalarType", torch.dtype():
                return dtype_name(value)
            case "Layout", torch.layout() if value is torch.strided:
                return "strided"
            case "MemoryFormat", torch.memory_format():
                return str(value).removeprefix("torch.")
            case "Device", torch.device() if value.type in DEVICES:
                return value.type
            case "str", str():
                return value
        raise TypeError

    def _tensor(self, value: Any) -> Data:
        if isinstance(value, Slot):
            return self.tensor(value.number)
        if isinstance(value, int | float | SymType):  # a tensor without dimensions, which promotes no other tensor
            expr = value.expr if isinstance(value, SymType) else value
            kind = value.kind if isinstance(value, SymType) else kind_of(value)
            return {kind: self.tables.number(expr, self.scope, kind)}
        raise TypeError


def _signed(name: str, values: Mapping[str, tuple[StableArgument, Any]]) -> tuple[StableArgument, Any]:
    """An argument, with the other sign if there is one before its name."""
    argument, value = values[name.removeprefix("-")]
    if not name.startswith("-"):
        return argument, value
    return argument, SymType(-value.expr, value.kind) if isinstance(value, SymType) else -value


def _is_scalar(argument: StableArgument) -> bool:
    """True for an argument that is an integer or a float, as the caller likes."""
    return argument.type.rstrip("?[]") == "Scalar"


def _check_results(name: str, known: StableCall, results: Sequence[int]) -> None:
    """Raises NotSerializable for results that the runtime does not take."""
    several = known.results == ("Tensor[]",)
    if not several and len(results) not in (0, len(known.results)):
        raise NotSerializable(f"The C++ runtime cannot take the results of {name}.")
    for kind, result in zip(known.results, results, strict=False):
        if result >= 0 and not several and kind != "Tensor":
            raise NotSerializable(f"The C++ runtime cannot take a result of {name}, which is a {kind}.")
