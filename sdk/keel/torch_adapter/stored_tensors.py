"""The tensors of a model among the inputs of a captured graph: parameters, buffers and tensors in attributes."""

from __future__ import annotations

import re
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

StoredKind = Literal["parameter", "buffer", "constant"]
_STEP = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")
"""A step of the expression by which Dynamo reaches a tensor: ``L['self']._modules['layer']._parameters['weight']``."""
_TABLES = {"_modules", "_parameters", "_buffers"}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor that a graph gets in every call. ``name`` is its name in the model, as in a state dict, or empty.

    ``tensor`` is a weak reference to what the graph was captured with. Calls write new contents to it if ``written``.
    """

    kind: StoredKind
    name: str
    tensor: weakref.ref[torch.Tensor]
    written: bool = False

    def value(self) -> torch.Tensor | None:
        """The tensor, without its gradient; None if it is gone."""
        tensor = self.tensor()
        with unset_fake_temporarily():
            return None if tensor is None else tensor.detach()


Stored = Mapping[int, StoredTensor]
"""Stored tensors by the number of the input of Dynamo's graph."""


def stored_tensors(gm: torch.nn.Module, example_inputs: Sequence[Any]) -> dict[int, StoredTensor]:
    """The tensors among the inputs of Dynamo's graph that belong to the model. Values that Dynamo does not say the
    origin of are left out, and so are the fake ones of a graph that is captured again.
    """
    results: dict[int, StoredTensor] = {}
    if not isinstance(gm, fx.GraphModule):  # a function that is traced without Dynamo
        return results
    for i, (node, value) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=False)):
        source = getattr(node.meta.get("grapharg"), "source", None)
        if source is None or not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            continue
        path = _path(source)
        kind: StoredKind = "buffer" if "_buffers" in path else "constant"
        kind = "parameter" if isinstance(value, torch.nn.Parameter) else kind
        results[i] = StoredTensor(kind, _name(path), weakref.ref(value))
    return results


def _path(source: Any) -> list[str]:
    """The steps from a variable of the program to a value."""
    name = source.name() if callable(source.name) else source.name  # a method before 2.10
    return [next(filter(None, groups), "") for groups in _STEP.findall(str(name))]


def _name(path: Sequence[str]) -> str:
    """The name in a state dict: what follows the variable that holds the model; the variable, if nothing follows."""
    start = next((i for i, step in enumerate(path) if step in _TABLES), 1)
    return ".".join(step for step in path[start:] or path if step not in _TABLES)


def stored_by_name(gm: fx.GraphModule, static: Sequence[int], stored: Stored) -> dict[str, StoredTensor]:
    """Stored tensors by the placeholder of AOTAutograd's graph, whose inputs with the numbers ``static`` have the same
    memory in every call.
    """
    context = TracingContext.try_get()
    infos = context.fw_metadata.input_info if context and context.fw_metadata else []
    placeholders = gm.graph.find_nodes(op="placeholder")
    results = {}
    for i in static:
        node = placeholders[i]
        number = getattr(node.meta.get("desc"), "idx", None)  # which input of Dynamo's graph it is
        if (known := stored.get(number)) is None:  # type: ignore[arg-type]
            continue
        writes = i >= len(infos) or infos[i].mutates_data or infos[i].mutates_metadata
        results[node.name] = replace(known, written=writes)
    return results
