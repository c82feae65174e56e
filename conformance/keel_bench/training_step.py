"""One inference or training step of a model, and every tensor that it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from keel_conformance.models import InDouble, ModelCase

MODES = ("inference", "training")


@dataclass(frozen=True)
class Step:
    """What is run, and where: ``mode`` of MODES, ``precision`` "fp32" or "bf16" (float32 parameters, autocast)."""

    mode: str = "inference"
    precision: str = "fp32"
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.mode} {self.precision}"

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()


def run(step: Step, case: ModelCase, forward: Callable[..., Any]) -> Any:
    """The output of one step of ``case`` through ``forward``; in training, gradients are left on the parameters."""
    if step.mode == "inference":
        with torch.no_grad(), step.autocast():
            return forward(*case.args, **case.kwargs)
    with step.autocast():
        out = forward(*case.args, **case.kwargs, **case.targets)
    case.loss(out).backward()
    return out


def prepare(step: Step, case: ModelCase) -> ModelCase:
    """The case with its model in the step's mode and no gradients on it."""
    case.model.train(step.mode == "training")
    case.model.zero_grad(set_to_none=True)
    return case


def leavings(step: Step, case: ModelCase, out: Any) -> dict[str, Tensor]:
    """All that a step leaves: outputs; in training also gradients and the floating buffers it may have changed."""
    left = {f"output{path}": t.detach() for path, t in tensors(out)}
    if step.mode == "training":
        left |= {f"gradient of {n}": p.grad for n, p in case.model.named_parameters() if p.grad is not None}
        left |= {f"buffer {n}": b for n, b in case.model.named_buffers() if b.is_floating_point()}
    return left


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The floating tensors in a nest of mappings and sequences, each with the path that leads to it."""
    match value:
        case Tensor() if value.is_floating_point():
            yield path, value
        case Mapping():
            for key, item in value.items():
                yield from tensors(item, f"{path}.{key}")
        case tuple() | list():
            for i, item in enumerate(value):
                yield from tensors(item, f"{path}[{i}]")


def reference(step: Step, case: ModelCase) -> dict[str, Tensor]:
    """What the step leaves when everything is computed in float64, without autocast."""
    return in_double(step, case.twin(torch.float64))


def in_double(step: Step, wide: ModelCase) -> dict[str, Tensor]:
    """The same of a case that is in float64 already, and is the caller's to change."""
    prepare(step, wide)
    with InDouble():
        return leavings(step, wide, run(Step(step.mode, device=step.device), wide, wide.model))
