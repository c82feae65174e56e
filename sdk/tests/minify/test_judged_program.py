"""Rounding is allowed, and what is larger is named."""

from __future__ import annotations

import torch

from keel.minify.graph_program import Call, Program, Value, evaluate
from keel.minify.judged_program import budgets, wrong_result

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
PROGRAM = Program(
    ("x",),
    (Call("s", "aten._softmax.default", (Value("x"), -1, False)), Call("m", "aten.argmax.default", (Value("s"), -1))),
    ("s", "m"),
    ((X,),),
)
RANDOM = Program(("x",), (Call("d", "aten.bernoulli.default", (Value("x"),)),), ("d",), ((torch.full((64,), 0.5),),))


def test_eager_results_and_rounded_ones_are_right() -> None:
    right = evaluate(PROGRAM, X)
    assert wrong_result(PROGRAM, (X,), right) is None
    assert wrong_result(PROGRAM, (X,), [right[0] * (1 + 2**-23), right[1]]) is None


def test_a_wrong_element_is_named() -> None:
    right = evaluate(PROGRAM, X)
    off = right[0].clone()
    off[2, 3] += 1e-3
    judgment = wrong_result(PROGRAM, (X,), [off, right[1]])
    assert (
        judgment is not None and judgment.output == 0 and "element [2, 3]" in judgment.sentence and not judgment.is_nan
    )
    other = wrong_result(PROGRAM, (X,), [right[0], right[1] + 1])
    assert other is not None and other.output == 1
    off[2, 3] = torch.nan
    judgment = wrong_result(PROGRAM, (X,), [off, right[1]])
    assert judgment is not None and judgment.is_nan


def test_budgets_are_small_where_rounding_is() -> None:
    floats, integers = budgets(PROGRAM, (X,))
    assert 0 < float((floats.bound / floats.reference).max()) < 1e-4
    assert not integers.bound.any() and torch.equal(integers.reference, evaluate(PROGRAM, X)[1])


def test_random_results_are_not_wrong_result() -> None:
    assert wrong_result(RANDOM, RANDOM.inputs[0], [torch.full((64,), 7.0)]) is None
