"""Compiled programs as data: they come back equal, and anything else is refused with its place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.artifact.function_names import FunctionNames
from keel.artifact.records import Known, Names, from_data, symbols_from, to_data
from keel.documents import Malformed
from keel.loop_level import compile_part
from keel.loops import parse
from keel.plugin import Fusion
from keel.runtime.launch import LoopPart
from keel.serialize.codec import NotSerializable
from keel.torch_adapter import tidied
from keel_cpp import target

from ..line import trace

R = torch.randn
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "kernels": (lambda x, y: (x.exp() + y, x.sum(0)), (R(4, 9), R(4, 9)), False),
    "library": (lambda x, w: ((x @ w).relu() @ w,), (R(4, 4), R(4, 4)), False),
    "symbolic": (lambda x, w: ((x @ w).relu()[1:], x.shape[0] // 2), (R(6, 4), R(4, 4)), True),
    "checked": (lambda x, i: (x[i],), (R(6, 3), torch.tensor([0, 5])), False),
}


def loop_part(name: str) -> LoopPart:
    fn, inputs, symbolic = PROGRAMS[name]
    captured = tidied(trace(fn, *inputs, symbolic=symbolic), "inference")
    return compile_part(target, captured.gm).loop_part  # type: ignore[attr-defined, no-any-return]


def written(part: LoopPart) -> tuple[Any, Known]:
    symbols: dict[str, dict[str, bool]] = {}
    numbers = {kernel: k for k, kernel in enumerate(part.program.kernels())}
    data = to_data(part.program, Names(FunctionNames(target.externs), numbers, symbols))
    data = json.loads(json.dumps(data))
    kernels = [parse(str(kernel)) for kernel in part.program.kernels()]
    return data, Known(FunctionNames(target.externs), kernels, symbols_from(json.loads(json.dumps(symbols))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_launch_program_comes_back_equal(name: str) -> None:
    part = loop_part(name)
    data, known = written(part)
    assert from_data(data, known) == part.program


def test_fusions_come_back_equal() -> None:
    fusions = (Fusion("gate", ("sigmoid", "mul"), 1e-6), Fusion("norm", ("add", "native_layer_norm")))
    data = json.loads(json.dumps(to_data(fusions, Names(FunctionNames({}), {}, {}))))
    assert from_data(data, Known(FunctionNames({}), [], {})) == fusions


def test_a_value_of_another_type_is_refused_with_its_place() -> None:
    data, known = written(loop_part("library"))
    data["LaunchProgram"]["tensors"][1]["TensorType"]["shape"] = "all"
    with pytest.raises(Malformed, match="another type than TensorType has there") as refused:
        from_data(data, known, "parts[0]")
    assert refused.value.place == "parts[0].tensors[1].shape"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"LaunchProgram": {"code": "1"}}, "no field 'code'"),
        ({"Popen": {"args": "true"}}, "does not encode an argument"),
        ({"function": {"operator": "os.system.default"}}, "does not name a function"),
        ({"function": {"extern": "aten.mm"}}, "does not name a function"),
        ({"kernel": -1}, "does not encode an argument"),
        ({"size": ["system", 1]}, "is not a size"),
        ({"size": "s9"}, "is not a size"),
        ({"Slot": {}}, "missing"),
    ],
)
def test_what_is_not_in_the_list_is_refused(data: Any, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        from_data(data, Known(FunctionNames({}), [], {}))


def test_damaged_programs_are_refused_or_are_programs() -> None:
    draw = random.Random(0)
    originals = [written(loop_part(name)) for name in PROGRAMS]
    for _ in range(400):
        data, known = draw.choice(originals)
        data = json.loads(json.dumps(data))
        places = [*_places(data)]
        for inside, key in draw.choices(places, k=draw.randint(1, 3)):
            inside[key] = draw.choice([None, -1, "x", [], {}, 2**70, {"dict": [[1]]}, draw.choice(places)[0]])
        try:
            from_data(data, known)
        except Malformed:
            continue


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in the data, as a list or an object and a key."""
    for key in range(len(data)) if isinstance(data, list) else [*data] if isinstance(data, dict) else ():
        yield data, key
        yield from _places(data[key])


def test_functions_without_a_name_cannot_be_saved() -> None:
    def mine(x: Tensor) -> Tensor:
        return x

    with pytest.raises(NotSerializable, match="'mine' cannot be saved"):
        to_data(mine, Names(FunctionNames({}), {}, {}))
