"""A training run of the decoder in one process: its losses, the time of its steps, and the memory that they take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

MOST_WARM_UP = 10
"""Steps that are not timed; half of the steps in a shorter run."""
LEARNING_RATE = 3e-4
MIB = 2**20


@dataclass
class TrainingRun:
    """``forward`` gives the loss of one of the ``batches``, which are repeated. ``before_update`` is called between the
    backward pass and the optimizer. In ``bf16``, forward runs under autocast.
    """

    model: nn.Module
    forward: Callable[..., Tensor]
    batches: Sequence[tuple[Tensor, Tensor]]
    device: str
    bf16: bool = True
    before_update: Callable[[], None] = lambda: None
    done: int = field(default=0, init=False)
    optimizer: Any = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def step(self) -> Tensor:
        """The loss, which the host does not wait for."""
        autocast = torch.autocast(self.device, dtype=torch.bfloat16) if self.bf16 else nullcontext()
        with autocast:
            loss = self.forward(*self.batches[self.done % len(self.batches)])
        loss.backward()
        self.before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        return loss.detach()

    def run(self, steps: int) -> tuple[Tensor, dict[str, Any]]:
        """The loss of each step; and the median ``ms`` of a step and the ``peak_mib`` allocated on the device (None on
        a CPU), both after the warm-up.
        """
        clock = DeviceClock() if self.device == "cuda" else HostClock()
        warm_up = min(MOST_WARM_UP, steps // 2)
        losses = []
        for step in range(steps):
            if step == warm_up:
                clock.forget()
            clock.mark()
            losses.append(self.step())
        clock.mark()
        return torch.stack(losses), {"ms": statistics.median(clock.intervals()), "peak_mib": clock.peak_mib()}


def allocated_mib(device: str) -> float:
    """What tensors take on the device now, in MiB; 0 for a CPU."""
    return torch.cuda.memory_allocated() / MIB if device == "cuda" else 0.0


class HostClock:
    """Marks times on a CPU, where a step has ended when it returns."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def forget(self) -> None:
        self.marks.clear()

    def mark(self) -> None:
        self.marks.append(1e3 * time.perf_counter())

    def intervals(self) -> list[float]:
        """Milliseconds between marks."""
        return [b - a for a, b in zip(self.marks, self.marks[1:], strict=False)]

    def peak_mib(self) -> float | None:
        return None


class DeviceClock:
    """Marks times on a GPU, and does not wait for any until the end: steps follow each other as in training."""

    def __init__(self) -> None:
        self.marks: list[torch.cuda.Event] = []

    def forget(self) -> None:
        self.marks.clear()
        torch.cuda.reset_peak_memory_stats()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def intervals(self) -> list[float]:
        """Milliseconds between marks."""
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:], strict=False)]

    def peak_mib(self) -> float | None:
        return torch.cuda.max_memory_allocated() / MIB
