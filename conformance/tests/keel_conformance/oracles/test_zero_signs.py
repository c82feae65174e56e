"""The sign of a zero is decided where an operator only moves elements."""

from __future__ import annotations

import pytest
import torch

from keel.opset import MEMBERS
from keel_conformance.cases.case import Case, Inputs
from keel_conformance.oracles import zero_signs
from keel_conformance.oracles.judge import judge, target_of

X = torch.tensor([[-0.0, 1.0], [0.0, -2.0]])


@pytest.mark.parametrize(
    ("name", "args", "decided"),
    [
        ("neg", (X,), True),
        ("embedding", (X, torch.tensor([1, 0])), True),
        ("stack", ([X, X],), True),
        ("relu", (X,), False),
        ("amax", (X,), False),
        ("softmax", (X, 1, False), False),
        ("silu", (X,), False),
    ],
)
def test_movement_decides_signs_and_arithmetic_does_not(name: str, args: tuple[object, ...], decided: bool) -> None:
    assert zero_signs.are_decided(MEMBERS[name], target_of(name, ""), Inputs(args)) is decided


def test_a_composite_that_moves_elements_fails_if_it_loses_a_sign() -> None:
    op, inputs = target_of("embedding", ""), Inputs((X, torch.tensor([0, 1])))
    case = Case("embedding", "indexing", "op", "core", str(op), "f32")
    right = op(*inputs.args)
    assert judge(case, inputs, (right,)).status == "pass"
    assert judge(case, inputs, (right + 0.0,)).status == "fail"


def test_a_zero_that_fills_may_have_either_sign() -> None:
    x = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    op, inputs = target_of("tril", ""), Inputs((x, 0))
    case = Case("tril", "shape", "op", "core", str(op), "f32")
    assert judge(case, inputs, (x * torch.ones(2, 2).tril(),)).status == "pass"


def test_only_zeros_of_floats_differ_in_their_sign() -> None:
    add, stack = MEMBERS["add"], MEMBERS["stack"]
    plus, minus = torch.tensor([0.0]), torch.tensor([-0.0])
    assert zero_signs.differ(add, plus, minus) and zero_signs.differ(add, minus, plus)
    assert zero_signs.differ(stack, plus, minus) and not zero_signs.differ(stack, minus, plus)
    assert not zero_signs.differ(add, torch.tensor([1.0]), minus)
    plus8, minus8 = plus.to(torch.float8_e4m3fn), minus.to(torch.float8_e4m3fn)
    assert zero_signs.differ(add, plus8, minus8) and not zero_signs.differ(add, minus8, minus8)
    assert not zero_signs.differ(add, torch.tensor([0]), torch.tensor([0]))
