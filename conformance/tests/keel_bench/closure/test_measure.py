"""What is measured of one OpInfo, in this process: closed, typed, accurate, or why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from keel_bench.closure.jobs import Job, Row
from keel_bench.closure.measure import measure

# The catalog is part of PyTorch's test suite, which emits warnings.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    was = torch.get_num_threads()
    yield
    torch.set_num_threads(was)


def row(name: str, mode: str = "forward", dynamic: bool = False, **more: bool) -> Row:
    return measure(Job("opinfo", name, mode, dynamic, samples=2, **more), lambda doing: None)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("name", ["sin", "mul", "nn.functional.linear"])
def test_what_is_closed_typed_and_accurate_says_so(name: str, mode: str, dynamic: bool) -> None:
    found = row(name, mode, dynamic)
    assert found.closed and found.samples == found.traced
    assert (found.outside, found.wrong, found.untraced) == ({}, [], {})
    assert found.typed and not found.mistyped and not found.untyped
    assert found.judged and found.worst <= 2 and not found.inaccurate
    assert any(n.startswith("aten.") for n in found.ends_in)


def test_training_needs_more_than_forward() -> None:
    assert "aten.cos.default" not in row("sin").ends_in
    assert "aten.cos.default" in row("sin", "training").ends_in


def test_what_pytorch_does_not_trace_has_its_reason() -> None:
    found = row("equal")
    assert not found.traced and not found.closed
    assert any("DataDependent" in reason for reason in found.untraced)


def test_what_the_operator_set_leaves_out_has_its_sentence() -> None:
    found = row("to_sparse")
    assert (found.traced, found.refused, found.wrong) == (0, 2, []) and not found.closed
    assert list(found.left_out) == ["of layout sparse_coo, and opset 1.0 leaves out sparse layouts."]


def test_what_draws_random_numbers_is_not_compared() -> None:
    found = row("bernoulli")
    assert not found.judged and any("random" in reason for reason in found.unjudged)


def test_what_has_no_defined_values_is_not_compared() -> None:
    found = row("empty_like")
    assert not found.judged and list(found.unjudged) == ["Its values are whatever the memory held."]


def test_numbers_may_be_left_out() -> None:
    assert row("sin", numbers=False).judged == 0
