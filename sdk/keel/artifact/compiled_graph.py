"""A compiled graph as data: its link program, and each part with what its backend needs to make it again.

A part of a loop target is its launch program and the text of its kernels. Any other part is its graph, and the bytes
that its backend made of the compiled part, if it can. Constants are not part of it, and machine code is not, either:
``Attachments`` has what a package adds.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch

from keel.artifact.function_names import FunctionNames
from keel.artifact.records import Known, Names, from_data, symbols_from, to_data
from keel.documents import Malformed
from keel.errors import KeelError
from keel.interrupts import is_interrupt
from keel.loop_level import build_part
from keel.loops.parser import parse
from keel.placement.part_graphs import PartGraph
from keel.placement.placement import Part
from keel.plugin import Backend, CodeObject, CompileContext, LoopTarget, Source, with_context
from keel.runtime.compile_parts import compiled_part, runnable_part
from keel.runtime.contract_checks import Run
from keel.runtime.launch import LoopPart
from keel.runtime.launch_program import LaunchProgram
from keel.runtime.launch_verify import verify_program
from keel.runtime.link import CompiledPart
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_context import options_of
from keel.runtime.part_interface import BuiltPart, PartInterface
from keel.runtime.prepared_constants import PreparedPart
from keel.runtime.result_views import ResultViews
from keel.serialize.codec import Data
from keel.serialize.part_data import part_data, part_from
from keel.settings import Settings
from keel.torch_adapter import real_tensors


def inline(content: bytes) -> Data:
    """Bytes as JSON."""
    return base64.b64encode(content).decode()


@dataclass(frozen=True)
class Attachments:
    """What a compiled graph is loaded with, besides its data. ``read`` returns the bytes that ``keep`` of
    ``graph_to_data`` wrote. The kernels of a part are in its machine ``code``, by the name of the part, and are built
    if it has none. What backends in ``stale`` made is not used. Such a part, and one whose machine code this machine
    cannot run, is compiled from its graph, which ``part_graph`` returns as ``part_to_data`` wrote it; without
    ``part_graph`` it is an error.
    """

    read: Callable[[Data], bytes] = base64.b64decode
    code: Mapping[str, Sequence[CodeObject]] = field(default_factory=dict)
    stale: Collection[str] = ()
    part_graph: Callable[[str], Data] | None = None


NOTHING = Attachments()


def packed(data: Data) -> bytes:
    """The bytes of a compiled graph."""
    return zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1)


def unpacked(content: bytes) -> Data:
    """The data of a compiled graph, of what ``packed`` returned."""
    return json.loads(zlib.decompress(content))


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


def graph_from_data(
    data: Data, settings: Settings, ctx: CompileContext, attached: Attachments = NOTHING
) -> tuple[LinkProgram, list[CompiledPart]]:
    """The compiled graph that ``graph_to_data`` wrote. ``ctx`` is what all parts know, with the constants of the graph.
    Raises Malformed, and what a backend raises.
    """
    known = _known(data)
    program = from_data(data["link"], known, "link")
    if not isinstance(program, LinkProgram):
        raise Malformed("link", "It is not a link program.")
    by_name = {backend.name: backend for backend in settings.backends}
    options, last = dict(settings.options), settings.last_resorts
    parts = []
    for k, each in enumerate(data["parts"]):
        if (owner := by_name.get(each["owner"])) is None:
            raise Malformed(f"parts[{k}].owner", "No backend in use has this name.")
        parts.append(_Loading(each, owner, known, attached, f"parts[{k}]").part(ctx, options, last))
    return program, parts


def _known(data: Data) -> Known:
    """What names stand for outside of loop-level parts."""
    return Known(FunctionNames({}), (), symbols_from(data["symbols"]))


class _Loading:
    """Makes one part of its data."""

    def __init__(self, data: Data, owner: Backend, known: Known, attached: Attachments, place: str) -> None:
        self.data, self.owner, self.known, self.attached, self.place = data, owner, known, attached, place

    def part(self, ctx: CompileContext, options: Mapping[str, Any], last: Sequence[Backend]) -> CompiledPart:
        data, device = self.data, self.data["device"]
        ctx = replace(
            ctx,
            constants={name: ctx.constants[name] for name in data["inputs"] if name in ctx.constants},
            options=options_of(self.owner, options),
            device=None if device is None else torch.device(device),
            sizes=self.record("sizes"),
            fusions=self.record("fusions"),
            overwrites=data["overwrites"],
            donated=frozenset(data.get("donated", ())),
        )
        try:
            run = self.loops(ctx) if "loops" in data else self.graph(data["graph"], ctx, last)
        except KeelError as raised:
            if raised.code not in ("not-here", "bad-artifact") or self.attached.part_graph is None:
                raise
            run = self.graph(self.attached.part_graph(data["name"]), ctx, last)
        return self.interface().linked(run)

    def record(self, key: str) -> Any:
        return from_data(self.data[key], self.known, f"{self.place}.{key}")

    def interface(self) -> PartInterface:
        data, views = self.data, self.data.get("views")
        return PartInterface(
            data["name"],
            tuple(data["inputs"]),
            tuple(data["outputs"]),
            data["label"],
            self.record("promised"),
            self.record("computed") if "computed" in data else None,
            None if views is None else ResultViews(part_from(views["graph"], typed=False), tuple(views["inputs"])),
            data.get("casts", False),
        )

    def loops(self, ctx: CompileContext) -> Run:
        target, data = self.owner.target, self.data["loops"]
        if target is None:
            raise Malformed(self.place, f"{self.owner.name} is not a loop target.")
        sources = [Source(parse(kernel), text) for kernel, text in data["kernels"]]
        kernels = [source.kernel for source in sources]
        known = Known(FunctionNames(target.externs), kernels, self.known.symbols)
        program = from_data(data["program"], known, f"{self.place}.program")
        if not isinstance(program, LaunchProgram):
            raise Malformed(self.place, "It has no launch program.")
        verify_program(program)
        constants = tuple(data.get("constants", ()))
        if not all(k in range(len(program.inputs)) for k in constants):
            raise Malformed(f"{self.place}.constants", "It names inputs that the part does not have.")
        with real_tensors():
            # Two kernels may have become one when they were fitted to the target.
            code = self.attached.code.get(self.data["name"])
            part = LoopPart(program, tuple(dict.fromkeys(sources)), constants)
            return build_part(target, part, ctx, code)

    def graph(self, data: Data, ctx: CompileContext, last: Sequence[Backend]) -> Run:
        saved = data.get("saved")
        gm = part_from(data["graph"])
        part = Part(self.data["name"], self.owner, tuple(self.data["nodes"]), ctx.fusions)
        bodies = dict(gm.named_children())
        graph = PartGraph(part, gm.graph, bodies, tuple(data["inputs"]), tuple(data["outputs"]))
        if saved is None or self.owner.deserialize is None:
            return compiled_part(graph, ctx, None, last)
        if self.owner.name in self.attached.stale:
            raise KeelError(
                "bad-artifact",
                f"Part {part.name} cannot be loaded.",
                {self.owner.name: "The installed version of it is not the one that compiled the part."},
            )
        with real_tensors():
            run = with_context(self.owner.deserialize, ctx)(self.attached.read(saved))
        return runnable_part(run, graph, ctx, last)
