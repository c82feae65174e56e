"""Packed library calls as data: what is computed from the parameters, what is folded in, and how the form runs."""

from __future__ import annotations

from typing import Any

from keel.artifact.runtime_calls import Calls
from keel.artifact.runtime_tables import Scope, Tables
from keel.schedule.packed_call import PackedCall
from keel.schedule.tensor_graph import Slot
from keel.serialize.codec import Data, NotSerializable
from keel.symbols import kind_of
from keel.torch_adapter import packed_convolution, packed_linear
from keel.types import SymType, leaves

_FORMS = {packed_linear: "linear", packed_convolution: "convolution"}


def packed_call(call: PackedCall, parameters: int, tables: Tables, scope: Scope) -> Data:
    """A packed call of this number of parameters. In its recipe these are the values 0, 1 ..., and the results of calls
    follow. Raises NotSerializable if the form is not one of Keel's.
    """
    form = _FORMS.get(call.form.run)
    if form is None:
        raise NotSerializable("The C++ runtime has no packed form but those of oneDNN and MKL.")
    if any(isinstance(value, SymType) for value in leaves([*call.rest])):
        raise NotSerializable("The C++ runtime has no packed call with a symbolic argument.")
    calls = Calls(tables, scope, int, lambda number: True)
    recipe = [
        calls.call(function, args, kwargs, [parameters + k])
        for k, (function, args, kwargs) in enumerate(call.recipe.calls)
    ]
    data: dict[str, Data] = {
        "form": form,
        "channels": call.form.facts.channels,
        "parameters": parameters,
        "recipe": recipe,
        "outputs": [_output(value, tables, scope) for value in call.recipe.outputs],
        "folded": [name.split(".")[1] for name in call.folded],  # add, sub, mul or div
        "adds": call.adds,
        "then": None if call.then is None else [call.then[1], calls.call(call.then[0], (Slot(0),), {}, [1])],
    }
    if form == "convolution":
        stride, padding, dilation, _, _, groups = call.rest
        data |= {"stride": _two(stride), "padding": _two(padding), "dilation": _two(dilation), "groups": groups}
    return data


def _output(value: Any, tables: Tables, scope: Scope) -> Data:
    if isinstance(value, Slot):
        return value.number
    return None if value is None else {kind_of(value): tables.number(value, scope)}


def _two(sizes: Any) -> list[int]:
    return [*sizes] * (1 if len(sizes) == 2 else 2)
