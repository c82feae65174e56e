"""A compiled graph as data: its link program, and each part with what its backend needs to make it again.

A part of a loop target is its launch program and the text of its kernels. Any other part is its graph, and the bytes
that its backend made of the compiled part, if it can. Constants are not part of it, and machine code is not, either:
``Attachments`` of ``read_part`` has what a package adds.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy

from keel.artifact.function_names import FunctionNames
from keel.artifact.read_part import NOTHING, Attachments, ReadPart, reading
from keel.artifact.records import Known, Names, from_data, symbols_from, to_data
from keel.artifact.verify_link import verify_link
from keel.documents import Malformed, shallow
from keel.interrupts import is_interrupt
from keel.plugin import Backend, CompileContext, LoopTarget
from keel.runtime.contract_checks import Run
from keel.runtime.launch import LoopPart
from keel.runtime.link import CompiledPart
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_interface import BuiltPart
from keel.runtime.prepared_constants import PreparedPart
from keel.serialize.codec import Data
from keel.serialize.part_data import part_data
from keel.settings import Settings


def inline(content: bytes) -> Data:
    """Bytes as JSON."""
    return base64.b64encode(content).decode()


def packed(data: Data) -> bytes:
    """The bytes of a compiled graph."""
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1)


def unpacked(content: bytes) -> Data:
    """The data of a compiled graph, of what ``packed`` returned. Raises Malformed."""
    with reading("graph"):
        return shallow(json.loads(zlib.decompress(content)), "graph")


def graph_to_data(
    program: LinkProgram,
    parts: Sequence[BuiltPart],
    guards: Sequence[sympy.Basic] = (),
    keep: Callable[[bytes], Data] = inline,
) -> Data:
    """A compiled graph as JSON. ``guards`` are the conditions on sizes that compiling it added. The bytes that a
    backend makes of a part become what ``keep`` returns of them. Raises NotSerializable if a value in it cannot be
    saved.
    """
    names = Names(FunctionNames({}), {}, {})
    return {
        "link": to_data(program, names),
        "guards": to_data(tuple(guards), names),
        "parts": [_part_data(part, names, keep) for part in parts],
        "symbols": names.symbols,  # the last key, because the values above fill it
    }


def _part_data(part: BuiltPart, names: Names, keep: Callable[[bytes], Data]) -> Data:
    at, owner = part.interface, part.graph.part.owner
    data: dict[str, Data] = {
        "name": at.name,
        "inputs": list(at.inputs),
        "outputs": list(at.outputs),
        "label": at.label,
        "promised": to_data(at.promised, names),
        "owner": owner.name,
        "nodes": list(part.graph.part.nodes),
        "sizes": to_data(part.ctx.sizes, names),
        "fusions": to_data(part.ctx.fusions, names),
        "device": None if part.ctx.device is None else str(part.ctx.device),
        "overwrites": dict(part.ctx.overwrites),
        "donated": sorted(part.ctx.donated),
    }
    if at.computed is not None:
        data["computed"] = to_data(at.computed, names)
    if at.views is not None:
        data["views"] = {"inputs": list(at.views.inputs), "graph": part_data(at.views.graph)}
    if at.casts:
        data["casts"] = True
    if owner.target is not None and (loop_part := part.loop_part) is not None:
        return data | {"loops": _loop_data(owner.target, loop_part, names)}
    return data | {"graph": part_to_data(part) | _saved(owner, part.compiled, keep)}


def part_to_data(part: BuiltPart) -> dict[str, Data]:
    """The graph of a part, of which its backend can compile it again. Raises NotSerializable."""
    return {"inputs": list(part.graph.inputs), "outputs": list(part.graph.outputs), "graph": part_data(part.graph.gm)}


def _loop_data(target: LoopTarget, part: LoopPart, names: Names) -> Data:
    numbers = {kernel: k for k, kernel in enumerate(part.program.kernels())}
    return {
        "program": to_data(part.program, Names(FunctionNames(target.externs), numbers, names.symbols)),
        "kernels": [[str(source.kernel), source.text] for source in part.sources],
        "constants": list(part.constants),
    }


def _saved(owner: Backend, compiled: Run, keep: Callable[[bytes], Data]) -> dict[str, Data]:
    """The bytes that the backend of a part makes of it. A backend that raises compiles the part again instead."""
    if owner.serialize is None:
        return {}
    try:
        saved = owner.serialize(compiled.prepared if isinstance(compiled, PreparedPart) else compiled)
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        return {}
    return {"saved": keep(saved)} if isinstance(saved, bytes) else {}


# -- from data --------------------------------------------------------------------------------------------------------


def guards_from_data(data: Data) -> tuple[sympy.Basic, ...]:
    """The conditions on sizes under which the compiled graph may run."""
    guards: tuple[sympy.Basic, ...] = from_data(data["guards"], _known(data), "guards")
    return guards


@dataclass(frozen=True)
class ReadGraph:
    """A compiled graph that was read and verified, of whose parts no backend has got anything yet."""

    program: LinkProgram
    parts: tuple[ReadPart, ...]
    last_resorts: tuple[Backend, ...]

    def compiled(self, attached: Attachments = NOTHING) -> list[CompiledPart]:
        """The parts that their backends make of this. Raises Malformed for bytes that are missing, and what a backend
        raises.
        """
        return [part.compiled(attached, self.last_resorts) for part in self.parts]


def read_graph(data: Data, settings: Settings, ctx: CompileContext) -> ReadGraph:
    """The compiled graph that ``graph_to_data`` wrote. ``ctx`` is what all parts know, with the constants of the graph.
    Raises Malformed, and KeelError[opset-version] if this PyTorch lacks an operator.
    """
    with reading("link"):
        known = _known(data)
        program = from_data(data["link"], known, "link")
    if not isinstance(program, LinkProgram):
        raise Malformed("link", "It is not a link program.")
    by_name = {backend.name: backend for backend in settings.backends}
    options, read = dict(settings.options), []
    for k, each in enumerate(data["parts"]):
        if (owner := by_name.get(each["owner"])) is None:
            raise Malformed(f"parts[{k}].owner", "No backend in use has this name.")
        with reading(f"parts[{k}]"):
            read.append(ReadPart.of(each, owner, known, ctx, options))
    verify_link(program, [part.interface for part in read])
    return ReadGraph(program, tuple(read), tuple(settings.last_resorts))


def _known(data: Data) -> Known:
    """What names stand for outside of loop-level parts."""
    return Known(FunctionNames({}), (), symbols_from(data["symbols"]))
