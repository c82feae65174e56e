"""Which graphs are captured on a device, when, and what a captured graph depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from keel.runtime.arena import Arenas
from keel.torch_adapter import Captured, LastingValue
from keel.torch_adapter.captured_work import captured_work, noting_captured_work
from keel.torch_adapter.device_graphs import devices, later, why_not
from keel.torch_adapter.replays import graph_type
from keel.torch_adapter.trace import trace


@pytest.mark.parametrize("undecided", [0, 1, 2, 5])
def test_recording_waits_for_the_first_call_and_for_all_that_decide(undecided: int) -> None:
    calls: list[str] = []

    def first(args: list[Any]) -> str:
        calls.append("plain")
        return "plain"

    def made() -> Any:
        calls.append("made")
        return lambda args: "recorded"

    run = later(first, lambda: len(calls) >= undecided, made)
    plain = max(1, undecided)
    assert [run([]) for _ in range(8)] == ["plain"] * plain + ["recorded"] * (8 - plain)
    assert calls == ["plain"] * plain + ["made"]


def reason(fn: Callable[..., Any], *inputs: Tensor) -> str | None:
    """Why the work of a function cannot be captured."""
    graphs = list[Captured]()

    def compiler(captured: Captured) -> Any:
        graphs.append(captured)
        return lambda args: captured.gm(*args)

    with torch.no_grad():
        trace(fn, inputs, compiler)
    return why_not(graphs[0], devices(graphs[0].gm))


def test_work_that_can_be_captured() -> None:
    assert reason(lambda x: (x.sin().sum(), torch.rand_like(x)), torch.randn(3)) is None


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (lambda x: (x.to("meta"),), "It has tensors on cpu and meta."),
        (lambda x: (x.nonzero(),), "The type of %nonzero depends on values."),
    ],
    ids=["devices", "sizes"],
)
def test_work_that_cannot_be_captured(fn: Callable[..., Any], sentence: str) -> None:
    found = reason(fn, torch.randn(3))
    assert found is not None and found.endswith(sentence)


def test_the_host_has_no_graphs() -> None:
    assert graph_type(torch.device("cpu")) is None


def test_a_graph_depends_on_the_tensors_of_lasting_values() -> None:
    value, weight = LastingValue(torch.clone), torch.randn(3)
    first = value.of(weight)
    with noting_captured_work() as work:
        assert value.of(weight) is first
    assert captured_work() is None
    assert any(held is first for held in work.held) and all(condition() for condition in work.conditions)
    weight.add_(1)
    assert not all(condition() for condition in work.conditions)


def test_a_graph_computes_values_that_do_not_last() -> None:
    value, weight = LastingValue(torch.clone), torch.randn(3)
    with noting_captured_work() as work:
        inside = value.of(weight)
    assert value.of(weight) is not inside and not work.conditions


def test_a_graph_has_arenas_of_its_own() -> None:
    made = list[list[Any]]()
    arenas = Arenas(lambda key: made.append([key]) or made[-1])  # type: ignore[func-returns-value]
    arenas.give((3,), arenas.take((3,)))
    with noting_captured_work():
        inside = arenas.take((3,))
        arenas.give((3,), inside)
    assert arenas.take((3,)) is made[0] and inside is made[1] and len(made) == 2
