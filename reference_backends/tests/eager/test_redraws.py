"""Draws that are repeated, on a device that PyTorch's own operators do not know: its tensors here are the host's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from keel import KeelError
from keel_eager.redraws import runnable

higher = torch.ops.higher_order
X = torch.full((40,), 0.5)


OWN = torch.Generator()


@torch.library.custom_op("keel_redraws::draw", mutates_args=())
def draw(x: Tensor) -> Tensor:
    """From a generator of the device's own."""
    return torch.rand(x.shape, generator=OWN)


DRAWS = {"own": torch.ops.keel_redraws.draw.default, "fallback to the host": torch.ops.aten.bernoulli.default}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module as ``torch.get_device_module`` gives it."""
    found = SimpleNamespace(
        get_rng_state=lambda device: OWN.get_state(), set_rng_state=lambda state, device: OWN.set_state(state)
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: found)
    return found


def graph(op: Callable[..., Any], *, saved: bool) -> Callable[..., Any]:
    """A draw on ``meta``, as a forward or a backward graph has it."""
    graph = fx.Graph()
    values = [graph.placeholder(name) for name in ("x", "state")[: 1 + saved]]
    call = graph.call_function(
        higher.run_with_rng_state if saved else higher.run_and_save_rng_state, (*reversed(values[1:]), op, values[0])
    )
    drawn, state = torch.empty(40, device="meta"), torch.empty(8, dtype=torch.uint8)
    call.meta["val"] = drawn if saved else (state, drawn)
    graph.output((call,))
    return runnable(fx.GraphModule({}, graph))


@pytest.mark.parametrize("op", DRAWS.values(), ids=DRAWS)
def test_the_same_is_drawn_again(device: SimpleNamespace, op: Callable[..., Any]) -> None:
    ((state, first),) = graph(op, saved=False)(X)
    (second,) = graph(op, saved=False)(X)
    before = device.get_rng_state(None), torch.get_rng_state()
    (again,) = graph(op, saved=True)(X, state)
    assert torch.equal(again, first) and not torch.equal(second[1], first)
    assert torch.equal(device.get_rng_state(None), before[0]) and torch.equal(torch.get_rng_state(), before[1])


def test_the_graph_that_is_given_is_left_as_it_was(device: SimpleNamespace) -> None:
    op = torch.ops.aten.bernoulli.default
    plain = fx.Graph()
    call = plain.call_function(higher.run_and_save_rng_state, (op, plain.placeholder("x")))
    call.meta["val"] = (torch.empty(8), torch.empty(40, device="meta"))
    plain.output((call,))
    runnable(fx.GraphModule({}, plain))
    assert call.target is higher.run_and_save_rng_state and call.args[0] is op


def test_a_device_without_a_random_state_is_an_error(device: SimpleNamespace) -> None:
    del device.set_rng_state
    with pytest.raises(KeelError) as raised:
        graph(DRAWS["own"], saved=False)
    assert raised.value.code == "compile-raised"
    assert raised.value.reasons == {"torch.meta": "It has no set_rng_state."}
