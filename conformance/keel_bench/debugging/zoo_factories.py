"""Models of the zoo as factories that a command line names: ``zoo_factories:bert``, ``zoo_factories:bert.training``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from keel_conformance.models import ModelCase

from ..models import model_zoo

TRAINING = ".training"


class Loss(nn.Module):
    """A model in training, with its loss as the only result."""

    def __init__(self, case: ModelCase) -> None:
        super().__init__()
        self.model, self.loss = case.model.train(), case.loss

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a call of the model."""
        return self.loss(self.model(*args, **kwargs))


def made(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The model of a name with its arguments. Raises KeyError for an unknown name."""
    case = model_zoo.build(name.removesuffix(TRAINING))
    if name.endswith(TRAINING):
        return Loss(case), tuple(case.args), {**case.kwargs, **case.targets}
    return case.model, tuple(case.args), dict(case.kwargs)


def __getattr__(name: str) -> Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]:
    if name.removesuffix(TRAINING) not in model_zoo.NAMES:
        raise AttributeError(name)
    return lambda: made(name)
