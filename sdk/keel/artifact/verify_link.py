"""What must hold of a link program and of the parts that it joins, checked before any of it is made a function."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from keel.documents import Malformed, shown
from keel.runtime.link_program import LinkProgram, Value
from keel.runtime.part_interface import PartInterface
from keel.types import leaves


def verify_link(program: LinkProgram, parts: Sequence[PartInterface]) -> None:
    """Raises Malformed unless each value is defined once, before it is used, and each part has types for its values."""
    known: set[str] = set()
    _define((*program.inputs, *program.constants), known, "link.inputs")
    for k, part in enumerate(parts):
        place = f"parts[{k}]"
        _use(part.inputs, known, f"{place}.inputs")
        _define(part.outputs, known, f"{place}.outputs")
        _verify_interface(part, place)
    for size in program.sizes:
        _use(_names((size.args, *size.kwargs.values())), known, "link.sizes")
        _define((size.name,), known, "link.sizes")
    _use(_names(program.results), known, "link.results")


def _verify_interface(part: PartInterface, place: str) -> None:
    """The contract of a part is of its inputs and outputs, and so is that of its backend if there are no views."""
    inputs, outputs, promised = len(part.inputs), len(part.outputs), part.promised
    each = (promised.outputs, promised.names, promised.lines, promised.shares, promised.bases)
    if len(promised.inputs) != inputs or any(len(values) != outputs for values in each):
        raise Malformed(f"{place}.promised", f"It is not of {inputs} inputs and {outputs} outputs.")
    if part.views is None:
        return
    placeholders = len(part.views.graph.graph.find_nodes(op="placeholder"))
    if len(part.views.inputs) > placeholders or not all(i < inputs for i in part.views.inputs):
        raise Malformed(f"{place}.views", "It gets inputs that the part does not have.")


def _names(values: Any) -> list[str]:
    return [leaf.name for leaf in leaves(values) if isinstance(leaf, Value)]


def _use(names: Collection[str], known: Collection[str], place: str) -> None:
    for name in names:
        if name not in known:
            raise Malformed(place, f"{shown(name)} is used before it is defined.")


def _define(names: Collection[str], known: set[str], place: str) -> None:
    for name in names:
        if name in known:
            raise Malformed(place, f"{shown(name)} is defined twice.")
        known.add(name)
