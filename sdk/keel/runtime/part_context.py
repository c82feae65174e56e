"""The context of each part of a graph: what its backend may know in addition to the part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from keel.fuel import Fuel
from keel.graph.tensor_devices import devices_of
from keel.placement.part_graphs import PartGraph
from keel.plugin import Backend, CompileContext, Constant, SizeRange
from keel.plugin.graph_claims import complete_fusions
from keel.torch_adapter import Captured, facts_of


@dataclass(frozen=True)
class PartContexts:
    """Makes the contexts of the parts of one graph. ``common`` is what they share, with the constants of the whole
    graph. ``options`` are those that the user set, by ``backend.option``.
    """

    common: CompileContext
    options: Mapping[str, Any]

    def of(self, graph: PartGraph) -> CompileContext:
        """The context of a part, for its backend."""
        inputs = {name: self.common.constants[name] for name in graph.inputs if name in self.common.constants}
        devices = devices_of(graph.graph)
        return replace(
            self.common,
            constants=inputs,
            options=options_of(graph.part.owner, self.options),
            device=next(iter(devices)) if len(devices) == 1 else None,
            sizes=_sizes(graph),
            fusions=complete_fusions(graph.part.fusions, graph.graph),
        )

    def with_common(self, **changes: Any) -> PartContexts:
        """The contexts with ``changes`` of what all parts share."""
        return replace(self, common=replace(self.common, **changes))


def options_of(backend: Backend, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the options that a backend declares, by their short names: what the user chose, or the default."""
    return {o.name: chosen.get(f"{backend.name}.{o.name}", o.default) for o in backend.options}


def _sizes(graph: PartGraph) -> dict[str, SizeRange]:
    """What PyTorch knows of the symbols in the inputs of a part."""
    values = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    dims = [d for v in values for d in ((*v.shape, *v.stride()) if isinstance(v, torch.Tensor) else (v,))]
    return {
        name: SizeRange(
            low=0 if facts.lower is None else facts.lower,
            high=facts.upper,
            typical=None if facts.hint is None else int(facts.hint),
        )
        for name, facts in facts_of(dims).items()
        if facts.kind == "int"
    }


def common_context(
    captured: Captured, *, dump: Path | None = None, fuel: int | None = None, spends_memory: bool = False
) -> CompileContext:
    """What the parts of a captured graph have in common."""
    return CompileContext(
        dump=dump,
        fuel=Fuel(fuel),
        lasting=_lasting(captured),
        spends_memory=spends_memory,
        constants=constants_of(captured),
    )


def _lasting(captured: Captured) -> frozenset[str]:
    """The names of an inference graph's inputs that are parameters and buffers, and of its constants."""
    if captured.kind != "inference":
        return frozenset()
    inputs = [n.name for n in captured.gm.graph.find_nodes(op="placeholder")]
    return frozenset((*captured.constants, *(inputs[i] for i in captured.static)))


def constants_of(captured: Captured) -> dict[str, Constant]:
    """The constants of an inference graph, by placeholder. Graphs of training have none: their parameters change."""
    if captured.kind != "inference":
        return {}
    result = {n: Constant(kind="constant", value=t) for n, t in captured.constants.items() if n not in captured.stored}
    for name, each in captured.stored.items():
        if each.written:
            continue
        value = captured.constants.get(name) if captured.frozen else None
        result[name] = Constant(kind=each.kind, name=each.name, value=value)
    return result
