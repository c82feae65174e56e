"""How files name the functions that a compiled program calls. No file holds code, and names are looked up in tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from keel.plugin import Extern
from keel.schedule.packed_call import ARITHMETIC, PackedCall, Recipe
from keel.serialize.codec import Data, NotSerializable
from keel.serialize.save import NUMBERS
from keel.torch_adapter import is_operator, operator_named
from keel.types import operator_name

Function = Callable[..., Any]
Inner = Callable[[Any], Any]
"""``to_data`` or ``from_data`` for the values inside a function."""

_NUMBERS = {function: name for name, function in NUMBERS.items()}


class FunctionNames:
    """The names of functions: arithmetic on numbers, operators, the ``externs`` of a loop target, and packed calls of
    these.
    """

    def __init__(self, externs: Mapping[str, Extern]) -> None:
        self.externs = externs
        self._runs = {id(each.run): name for name, each in externs.items()}
        self._outs = {id(each.out): name for name, each in externs.items() if each.out is not None}
        self._packed = {id(each.packed): name for name, each in externs.items() if each.packed is not None}

    def to_data(self, function: Function, inner: Inner) -> Data:
        """The name of a function. Raises NotSerializable if it has none."""
        if (name := self._runs.get(id(function))) is not None:
            return {"extern": name}
        if (name := self._outs.get(id(function))) is not None:
            return {"extern_out": name}
        if isinstance(function, PackedCall):
            return {"packed": self._packed_data(function, inner)}
        if (name := _NUMBERS.get(function)) is not None:
            return {"number": name}
        if is_operator(function):
            return {"operator": operator_name(function)}
        raise NotSerializable(f"{getattr(function, '__name__', function)!r:.80} cannot be saved: it has no name.")

    def from_data(self, data: Data, inner: Inner) -> Function:
        """The function of a name. Raises NotSerializable if no function has the name."""
        match data:
            case {"extern": str(name)} if name in self.externs:
                return self.externs[name].run
            case {"extern_out": str(name)} if name in self.externs and (out := self.externs[name].out) is not None:
                return out
            case {"packed": {"extern": str(name)} as call} if name in self.externs:
                return self._packed_call(name, call, inner)
            case {"number": str(name)} if name in NUMBERS:
                return NUMBERS[name]
            case {"operator": str(name)} if (operator := operator_named(name)) is not None:
                return operator
        raise NotSerializable(f"{data!r:.80} does not name a function.")

    def _packed_data(self, call: PackedCall, inner: Inner) -> Data:
        if (name := self._packed.get(id(call.form))) is None:
            raise NotSerializable("A packed call is not of an extern of the target.")
        return {
            "extern": name,
            "rest": inner(call.rest),
            "calls": [[self.to_data(f, inner), inner(args), inner(kwargs)] for f, args, kwargs in call.recipe.calls],
            "outputs": inner(call.recipe.outputs),
            "folded": list(call.folded),
            "adds": call.adds,
            "then": None if call.then is None else [self.to_data(call.then[0], inner), call.then[1]],
        }

    def _packed_call(self, name: str, data: Mapping[str, Data], inner: Inner) -> PackedCall:
        form = self.externs[name].packed
        match data:
            case {
                "rest": rest,
                "calls": list(calls),
                "outputs": outputs,
                "folded": list(folded),
                "adds": bool(adds),
                "then": None | [_, str()] as then,
            } if form is not None and all(each in ARITHMETIC for each in folded):
                recipe = Recipe(tuple(self._recipe_call(call, inner) for call in calls), inner(outputs))
                after = None if then is None else (self.from_data(then[0], inner), then[1])
                return PackedCall(form, inner(rest), recipe, tuple(folded), adds, after)
        raise NotSerializable(f"The packed call of {name} is malformed.")

    def _recipe_call(self, data: Data, inner: Inner) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
        match data:
            case [function, list(args), kwargs]:
                return self.from_data(function, inner), inner(args), inner(kwargs)
        raise NotSerializable("A call of a packed call is malformed.")
