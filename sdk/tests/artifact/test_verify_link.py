"""Link programs whose values do not fit are refused before any of it is made a function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from keel.artifact.verify_link import verify_link
from keel.documents import Malformed
from keel.runtime.contract_checks import PartContract
from keel.runtime.link_program import LinkProgram, SizeCall, Value
from keel.runtime.part_interface import PartInterface

PROGRAM = LinkProgram(
    inputs=("x",),
    constants=("w",),
    lazy=frozenset(),
    sizes=(SizeCall("n", max, (Value("y"), 2)),),
    results=(Value("y"), [Value("n")], None),
)


def contract(inputs: int, outputs: int) -> PartContract:
    types: tuple[Any, ...] = (torch.float32,)
    none: frozenset[Any] = frozenset()
    return PartContract(
        "cpp", "p0", types * inputs, types * outputs, ("y",) * outputs, (None,) * outputs, (none,) * outputs,
        (none,) * outputs,
    )  # fmt: skip


PART = PartInterface("p0", ("x", "w"), ("y",), "p0", contract(2, 1))


def test_a_program_whose_values_fit_is_right() -> None:
    verify_link(PROGRAM, [PART])


@pytest.mark.parametrize(
    ("program", "part", "why"),
    [
        ({"inputs": ("w",)}, {}, "'w' is defined twice"),
        ({"inputs": ("z",)}, {}, "'x' is used before it is defined"),
        ({"sizes": ()}, {}, "'n' is used before it is defined"),
        ({"results": (Value("v"),)}, {}, "'v' is used before it is defined"),
        ({}, {"outputs": ("x",), "promised": contract(2, 1)}, "'x' is defined twice"),
        ({}, {"promised": contract(1, 1)}, "not of 2 inputs and 1 outputs"),
        ({}, {"promised": contract(2, 2)}, "not of 2 inputs and 1 outputs"),
    ],
)
def test_a_program_whose_values_do_not_fit_is_refused(program: dict[str, Any], part: dict[str, Any], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        verify_link(replace(PROGRAM, **program), [replace(PART, **part)])
