"""What happens around the calls of a program, as data and back."""

from __future__ import annotations

from collections.abc import Collection

from keel.artifact.function_names import FunctionNames
from keel.artifact.graph_grammar import check_boundary
from keel.artifact.read_part import reading
from keel.artifact.records import Known, Names, fields_from, symbols_from, to_data
from keel.documents import Malformed, shown
from keel.runtime.call_boundary import CallBoundary
from keel.runtime.link_program import LinkProgram
from keel.serialize.codec import Data
from keel.serialize.part_data import part_data, part_from

_FIELDS = ("names", "types", "fixed", "ranges", "graph_inputs", "end_inputs", "guards")


def boundary_to_data(boundary: CallBoundary) -> Data:
    """A boundary as JSON. Raises NotSerializable if it has a value that cannot be saved."""
    names = Names(FunctionNames({}), {}, {})
    return {
        **{name: to_data(getattr(boundary, name), names) for name in _FIELDS},
        "end": part_data(boundary.end),
        "symbols": names.symbols,  # the last key, because the values above fill it
    }


def boundary_from_data(data: Data) -> CallBoundary:
    """The boundary that ``boundary_to_data`` wrote. Raises Malformed, and KeelError[opset-version] if this PyTorch
    lacks an operator.
    """
    check_boundary(data, _FIELDS, "boundary")
    with reading("boundary"):
        known = Known(FunctionNames({}), (), symbols_from(data["symbols"]))
        fields = fields_from(CallBoundary, {name: data[name] for name in _FIELDS}, known)
        boundary = CallBoundary(**fields, end=part_from(data["end"], typed=False))
    _verify_leaves(boundary)
    return boundary


def _verify_leaves(boundary: CallBoundary) -> None:
    """Each argument has a type or a value, and the graph takes arguments that there are."""
    leaves = range(len(boundary.names))
    if sorted((*boundary.types, *boundary.fixed)) != [*leaves]:
        raise Malformed("boundary.types", f"They are not those of {len(leaves)} arguments.")
    if not all(i in leaves for i in boundary.graph_inputs):
        raise Malformed("boundary.graph_inputs", f"It names an argument that is not one of {len(leaves)}.")
    values, placeholders = len(boundary.end_inputs), len(boundary.end.graph.find_nodes(op="placeholder"))
    if values != placeholders:
        raise Malformed("boundary.end_inputs", f"There are {values} for a graph that takes {placeholders}.")


def verify_boundary(boundary: CallBoundary, program: LinkProgram, stored: Collection[str]) -> None:
    """Raises Malformed unless the boundary is one of this program, whose constants are ``stored``."""
    if len(boundary.graph_inputs) != len(program.inputs):
        raise Malformed("boundary.graph_inputs", f"The graph takes {len(program.inputs)} values.")
    if lacking := [name for name in program.constants if name not in stored]:
        raise Malformed("package.json.weights", f"It lacks {shown(lacking[0])}.")
    sides = {"argument": boundary.names, "input": boundary.names, "result": program.results}
    for side, which in boundary.end_inputs:
        known = stored if side == "stored" else range(len(sides[side]))
        if which not in known:
            raise Malformed("boundary.end_inputs", f"There is no {side} {shown(which)}.")
