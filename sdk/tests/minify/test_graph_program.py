"""Graphs become programs with the same results, and parts of programs get what they need as inputs."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.errors import KeelError
from keel.minify.failure import captured
from keel.minify.graph_program import called_again, evaluate, function_of, program_of, with_calls
from keel.minify.reduce import values_of

X, W = torch.randn(4, 6), torch.randn(6, 6)


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a, b = torch.split(x @ w, 3, dim=1)
    return torch.relu(a).reshape(x.shape[0] * 3) + b.sum()


def test_a_graph_becomes_a_program() -> None:
    gm = make_fx(layers, tracing_mode="symbolic")(X, W)
    program = program_of(gm, (X, W))
    assert torch.equal(evaluate(program, X, W)[0], layers(X, W))
    assert program_of(captured(program).gm, program.inputs[0]).size == program.size


def test_what_other_calls_computed_becomes_inputs() -> None:
    program = program_of(make_fx(layers)(X, W), (X, W))
    values = values_of(program)
    relu = next(call.name for call in program.calls if "relu" in call.op)
    part = with_calls(program, {relu}, values)
    assert part is not None and part.size == 1 and len(part.params) == 1
    assert torch.equal(evaluate(part, *part.inputs[0])[0], values[0][relu])
    assert with_calls(program, set(), values) is None


def test_a_program_is_called_with_other_values_in_between() -> None:
    program = program_of(make_fx(layers)(X, W), (X, W))
    once, thrice = program, called_again(program)
    assert len(once.inputs) == 1 and len(thrice.inputs) == 3 and not torch.equal(thrice.inputs[1][0], X)


def test_only_operators_are_called() -> None:
    with pytest.raises(KeelError, match="no operator"):
        function_of("aten.nothing.default")
    with pytest.raises(KeelError, match="not an overload"):
        function_of("aten.add")
