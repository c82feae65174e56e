"""What happens around the calls of a program, as data and back."""

from __future__ import annotations

from keel.artifact.function_names import FunctionNames
from keel.artifact.records import Known, Names, from_data, symbols_from, to_data
from keel.documents import Malformed
from keel.runtime.call_boundary import CallBoundary
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
    """The boundary that ``boundary_to_data`` wrote. Raises Malformed."""
    if not isinstance(data, dict) or not {*_FIELDS, "end", "symbols"} <= data.keys():
        raise Malformed("boundary", "It is not what happens around a call.")
    known = Known(FunctionNames({}), (), symbols_from(data["symbols"]))
    fields = {name: from_data(data[name], known, f"boundary.{name}") for name in _FIELDS}
    return CallBoundary(**fields, end=part_from(data["end"], typed=False))
