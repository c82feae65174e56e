"""Checks hold in all cases but the negative ones, which eager PyTorch stops at."""

from __future__ import annotations

import pytest
import torch

from keel_conformance.cases.domains import assertions, domain_of
from keel_conformance.cases.inputs import draw_inputs
from keel_conformance.cases.plan import plan
from keel_conformance.cases.values import SeededValues
from keel_conformance.oracles.judge import target_of


@pytest.mark.parametrize("name", assertions.BUILD.declared)
def test_what_holds_gives_its_token(name: str) -> None:
    cases = [c for c in plan(ops=(name,), profile="strict") if c.kind == "op"]
    assert len(cases) >= 60
    for case in cases[::7]:
        inputs = draw_inputs(case, 0)
        found = target_of(name, case.overload)(*inputs.args, **inputs.kwargs)
        token = inputs.tensors[-1]
        assert found.data_ptr() != token.data_ptr() or not token.numel()
        torch.testing.assert_close(found, token, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", assertions.BUILD.declared)
def test_what_does_not_hold_stops(name: str) -> None:
    domain = domain_of(name)
    assert domain is not None and domain.invalid_calls
    for negative in domain.invalid_calls:
        assert negative.violates in [c.text for c in domain.op.clauses]
        inputs = negative.make(SeededValues("some case"))
        with pytest.raises((RuntimeError, AssertionError)):
            target_of(name, negative.overload)(*inputs.args, **inputs.kwargs)


def test_a_number_may_be_its_bound() -> None:
    numbers = {(n, low, high) for n, low, high in assertions.BOUNDS.values()}
    assert any(n == low for n, low, _ in numbers) and any(n == high for n, _, high in numbers)
