"""What a run of a case left behind: a list of named facts, as plain data and tensors that go through a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Fact = tuple[str, str, Any]
"""Its name, unique in the run; the clause that a difference breaks; its value: a tensor, or plain data."""


@dataclass(frozen=True)
class Observation:
    """``error`` is what ended the run before its end, in a line; ``parts`` how many pieces of programs the backend
    compiled (None: nobody counted); ``seconds`` what the run took, compiling included.
    """

    facts: tuple[Fact, ...]
    error: str = ""
    parts: int | None = None
    seconds: float = 0.0

    def save(self, file: Path) -> None:
        torch.save({"facts": list(self.facts), "error": self.error, "parts": self.parts, "seconds": self.seconds}, file)

    @staticmethod
    def load(file: Path) -> Observation:
        """What ``save`` wrote.  Reads data alone: a file cannot make it run anything."""
        held = torch.load(file, weights_only=True)
        return Observation(tuple(held["facts"]), held["error"], held["parts"], held["seconds"])


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """The tensors and numbers of a nested value, each with its path (``[0].weight``), in order."""
    match value:
        case Tensor():
            return [(path, value)]
        case Mapping():
            return [leaf for k, v in value.items() for leaf in leaves(v, f"{path}.{k}")]
        case str() | bytes():
            return [(path, value)]
        case Sequence():
            return [leaf for k, v in enumerate(value) for leaf in leaves(v, f"{path}[{k}]")]
        case None | bool() | int() | float():
            return [(path, value)]
    if hasattr(value, "to_tuple"):  # outputs of transformers
        return [leaf for k, v in value.items() for leaf in leaves(v, f"{path}.{k}")]
    return [(path, type(value).__name__)]


def snapshot(x: Tensor) -> Tensor:
    """A copy that shares nothing with ``x`` and does not remember where it came from."""
    return x.detach().clone(memory_format=torch.contiguous_format)


def layout(x: Tensor) -> dict[str, Any]:
    """Everything about a tensor but its values; strides along dimensions of more than one element only."""
    strides = [s if n > 1 else 0 for n, s in zip(x.shape, x.stride(), strict=True)] if x.numel() else []
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "device": x.device.type,
        "strides": strides,
    }


def same(a: Tensor, b: Tensor) -> bool:
    """Whether all elements are equal, NaN equal to NaN and -0 to 0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())
