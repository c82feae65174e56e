"""Chains of calls that a backend runs as one: where they are, and where something else reads what is between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from keel.cost import Pattern
from keel.graph.patterns import fused_calls, match_patterns

X = torch.ones(4, 4)
LINEAR = Pattern(("contraction", "aten.relu"))


def names(fn: Callable[..., Any], *patterns: Pattern) -> list[list[str]]:
    graph = make_fx(fn, tracing_mode="fake")(X).graph
    return [[node.name for node in found.nodes] for found in match_patterns(graph, patterns)]


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (lambda x: (x @ x).relu(), [["mm", "relu"]]),
        (lambda x: (x @ x).t().unsqueeze(0).relu() + 1, [["mm", "t", "unsqueeze", "relu"]]),
        (lambda x: ((x @ x).relu() @ x).relu(), [["mm", "relu"], ["mm_1", "relu_1"]]),
        (lambda x: (x.sin() @ x.cos()).sin().relu(), []),
        (lambda x: (lambda y: (y.relu(), y))(x @ x), []),  # the graph returns what is between
        (lambda x: (lambda y: y.relu() + y)(x @ x), []),  # something else reads it
        (lambda x: (lambda y: y.t().relu() + y.t())(x @ x), []),
    ],
    ids=["next", "views", "twice", "not next", "returned", "read", "read through a view"],
)
def test_chains_are_found_where_nothing_else_reads_what_is_between(fn: Any, found: list[list[str]]) -> None:
    assert names(fn, LINEAR) == found


def test_the_first_pattern_counts_and_no_call_is_in_two() -> None:
    long, short = Pattern(("aten.sin", "aten.cos", "aten.exp")), Pattern(("pointwise", "pointwise"))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().exp().tanh().abs()

    assert names(fn, long, short) == [["sin", "cos", "exp"], ["tanh", "abs_1"]]
    assert names(fn, short, long) == [["sin", "cos"], ["exp", "tanh"]]


def test_what_draws_random_numbers_is_in_none() -> None:
    assert names(lambda x: torch.rand_like(x).sin(), Pattern(("random", "aten.sin"))) == []


def test_which_operands_come_from_the_call_before() -> None:
    graph = make_fx(lambda x: (lambda y: torch.addmm(x, y, y))(x.sin()), tracing_mode="fake")(X).graph
    [found] = match_patterns(graph, [Pattern(("aten.sin", "aten.addmm"))])
    assert [c.inner for c in fused_calls(found.nodes, {})] == [(), ((1, 0), (2, 0))]
