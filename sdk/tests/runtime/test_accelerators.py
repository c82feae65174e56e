"""What is asked of accelerators: PyTorch's interface answers, and other devices are not asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from keel.runtime.accelerators import is_capturing, synchronize

CPU, GPU = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))


def test_accelerators_are_waited_for_and_nothing_else(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    synchronize([CPU, GPU, torch.device("meta")])
    assert waited == [GPU]
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    synchronize([CPU, GPU])
    assert waited == [GPU]


@pytest.mark.parametrize("stream", [SimpleNamespace(is_capturing=lambda: True), SimpleNamespace()], ids=["new", "old"])
def test_streams_say_that_they_are_captured(here: None, monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert is_capturing([CPU, GPU])
    assert not is_capturing([CPU])


def test_a_device_without_graphs_captures_nothing(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch, "get_device_module", lambda device: SimpleNamespace())
    assert not is_capturing([GPU])
