"""Calls of training graphs that may be written out, so that backward can compute a part of them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from keel.errors import KeelError
from keel.graph.calls import call_of
from keel.graph.decompose import decompose_call
from keel.plugin import Backend
from keel.refusals import CannotSay, answer
from keel.spec import broken
from keel.spec.opset import decomposition_of
from keel.torch_adapter import NotRecorded, fake_mode_of_value, has_effect, is_overload, is_random
from keel.types import Call


@dataclass
class Decompositions:
    """Decomposes calls for ``backends``. Equal calls are decomposed once."""

    backends: Sequence[Backend]
    made: dict[Any, fx.Graph | None] = field(default_factory=dict)

    def __call__(self, node: fx.Node) -> fx.Graph | None:
        """The decomposition of a call that loop-level backends make kernels for. None for a call that a backend takes
        whole, since it may take no piece of it; and for a call without a decomposition.
        """
        try:
            call = call_of(node)
        except KeelError:  # a value that has no type, such as a sparse tensor
            return None
        if call is None or not is_overload(call.op) or has_effect(call.op) or is_random(call.op):
            return None
        if call.key not in self.made:
            self.made[call.key] = self._decomposed(node, call)
        return self.made[call.key]

    def _decomposed(self, node: fx.Node, call: Call) -> fx.Graph | None:
        able = [b for b in self.backends if not b.last_resort]
        if broken(call) is not None or not any(b.target for b in able) or any(_takes(b, call) for b in able):
            return None
        decomposition = decomposition_of(call.op)
        try:
            mode = fake_mode_of_value(node.meta["val"])
            return None if decomposition is None else decompose_call(node, decomposition, mode)
        except NotRecorded:
            return None


def _takes(backend: Backend, call: Call) -> bool:
    try:
        return answer(backend, call) is None
    except CannotSay:  # legalize says so
        return False
