"""A lasting value is computed again after a tensor has changed, however that was done, and only then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from keel.torch_adapter import LastingValue


def counted() -> tuple[LastingValue[torch.Tensor], list[int]]:
    calls: list[int] = []

    def compute(*tensors: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.stack([t.double().sum() for t in tensors])

    return LastingValue(compute), calls


def test_it_is_computed_once() -> None:
    value, calls = counted()
    tensors = torch.randn(3, 4), torch.randn(5).to(torch.bfloat16), torch.empty(0)
    first = value.of(*tensors)
    assert value.of(*tensors) is first
    assert len(calls) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_(1),
        lambda t: t.data.add_(1),
        lambda t: t.set_(torch.randn(3, 4)),
        lambda t: setattr(t, "data", torch.randn(3, 4)),
    ],
)
def test_a_change_is_seen(change: Callable[[torch.Tensor], object]) -> None:
    value, calls = counted()
    tensor = torch.randn(3, 4)
    value.of(tensor)
    change(tensor)
    assert float(value.of(tensor)) == float(tensor.double().sum())
    assert len(calls) == 2


def test_another_tensor_is_another_value() -> None:
    value, calls = counted()
    one = torch.ones(3)
    value.of(one)
    value.of(one.detach())
    assert len(calls) == 2


def test_tensors_of_inference_mode_are_not_recognized() -> None:
    value, calls = counted()
    with torch.inference_mode():
        tensor = torch.ones(3)
        value.of(tensor)
        tensor.add_(1)
        assert float(value.of(tensor)) == 6.0
    assert len(calls) == 2


def test_what_is_computed_in_inference_mode_can_be_used_outside() -> None:
    value, _ = counted()
    tensor = torch.ones(3)
    with torch.inference_mode():
        assert not value.of(tensor).is_inference()
