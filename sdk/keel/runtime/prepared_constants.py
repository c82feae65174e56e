"""Parts whose backends take their constants in a form of their own, made once per version of the constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from keel.plugin import Constant, PreparedConstants
from keel.torch_adapter import LastingValue


class PreparedPart:
    """A compiled part, as a function of all its inputs, that prepares the constants among them when they are new.
    ``inputs`` are the names of its placeholders.
    """

    def __init__(self, prepared: PreparedConstants, inputs: Sequence[str], constants: Mapping[str, Constant]) -> None:
        self.prepare, self.run = prepared.prepare, prepared.run
        self._names = tuple(name for name in inputs if name in constants)
        self._constants = tuple(i for i, name in enumerate(inputs) if name in constants)
        self._others = tuple(i for i, name in enumerate(inputs) if name not in constants)
        self._frozen = all(constants[name].value is not None for name in self._names)
        self._state = LastingValue(self._prepared)
        self._known: list[Any] = []

    def _prepared(self, *tensors: torch.Tensor) -> Any:
        return self.prepare(dict(zip(self._names, tensors, strict=True)))

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        results: Sequence[Any] = self.run(self._constant_state(inputs), *[inputs[i] for i in self._others])
        return results

    def _constant_state(self, inputs: Sequence[Any]) -> Any:
        if not self._frozen:
            return self._state.of(*[inputs[i] for i in self._constants])
        if not self._known:
            self._known.append(self._state.of(*[inputs[i] for i in self._constants]))
        return self._known[0]
