"""What Dynamo reports of graph breaks and recompilations, with the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel.torch_adapter import DynamoFacts


def backend(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = x.sin() * self.calls
        print(end="")
        return y.cos()


def in_a_block(x: Tensor) -> Tensor:
    for _ in range(2):
        with torch.no_grad():
            x = x.sin()
            print(end="")
    return x


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def facts_of(fn: Callable[..., Any], calls: int) -> DynamoFacts:
    facts = DynamoFacts()
    compiled = torch.compile(fn, backend=backend)
    for _ in range(calls):
        with facts.collecting():
            compiled(torch.randn(3))
    return facts


@pytest.mark.slow
def test_breaks_and_recompilations_have_the_users_lines() -> None:
    facts = facts_of(Counting(), 2)
    first = facts.breaks[0]
    assert first.line.endswith('   print(end="")') and "test_dynamo_facts.py:" in first.line
    assert "`print`" in first.reason and first.hint.startswith("Avoid") and not first.is_skipped
    [again] = [c for c in facts.compilations if c.reason]
    assert again.function == "forward" and again.reason == "self.calls == 0" and again.seconds > 0
    assert again.line.endswith("   self.calls += 1") and again.number.endswith("/1")


@pytest.mark.slow
def test_a_function_that_is_skipped_is_a_break() -> None:
    [skipped] = facts_of(in_a_block, 1).breaks
    assert skipped.is_skipped and skipped.line.endswith('   print(end="")')


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_function_that_is_compiled_too_often_is_a_break() -> None:
    facts = facts_of(Counting(), 11)
    [skipped] = [b for b in facts.breaks if b.is_skipped]
    assert "too many times" in skipped.reason and skipped.line.endswith("   self.calls += 1")


@pytest.mark.slow
def test_what_is_compiled_elsewhere_does_not_count() -> None:
    facts, compiled = DynamoFacts(), torch.compile(Counting(), backend=backend)
    compiled(torch.randn(3))
    with facts.collecting():
        torch.ones(3).sin()
    assert facts == DynamoFacts()
