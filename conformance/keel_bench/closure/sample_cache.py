"""An OpInfo's samples, drawn once for each seed; those of two seeds differ in values and in nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from keel import universe


@dataclass
class Draws:
    """``most`` samples of the OpInfo on ``device``, spread evenly; None draws all. ``grad`` asks for those that promise
    gradients.
    """

    name: str
    grad: bool
    most: int | None
    device: str = "cpu"
    drawn: dict[int, list[universe.Example]] = field(default_factory=dict)

    def of(self, seed: int) -> list[universe.Example]:
        if seed not in self.drawn:
            self.drawn[seed] = universe.examples(
                self.name, grad=self.grad, most=self.most, seed=seed, device=self.device
            )
        return self.drawn[seed]

    def alike(self, i: int, seed: int) -> universe.Example | None:
        """Sample ``i`` of seed 0 with the values of another; None if they make it another sample."""
        example, others = self.of(0)[i], self.of(seed)
        return others[i] if i < len(others) and kind_of(others[i]) == kind_of(example) else None


def kind_of(example: universe.Example) -> str:
    """What a trace of it depends on."""
    layouts = [(x.stride(), x.requires_grad) if x.layout == torch.strided else str(x.layout) for x in example.inputs]
    return f"{example.title} {layouts}"
