"""A part of a compiled graph, from data in two stages: it is read and verified, and then its backend makes it again.

No backend gets anything of a graph before all of it was read, so no machine code of a damaged one is loaded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from keel.artifact.function_names import FunctionNames
from keel.artifact.records import Known, from_data
from keel.documents import Malformed
from keel.errors import KeelError, first_line
from keel.interrupts import is_interrupt
from keel.loop_level import build_part
from keel.loops.parser import parse
from keel.placement.part_graphs import PartGraph
from keel.placement.placement import Part
from keel.plugin import Backend, CodeObject, CompileContext, LoopTarget, Source, with_context
from keel.runtime.compile_parts import compiled_part, runnable_part
from keel.runtime.contract_checks import PartContract, Run
from keel.runtime.launch import LoopPart
from keel.runtime.launch_program import LaunchProgram
from keel.runtime.launch_verify import verify_program
from keel.runtime.link import CompiledPart
from keel.runtime.part_context import options_of
from keel.runtime.part_interface import PartInterface
from keel.runtime.result_views import ResultViews
from keel.serialize.codec import Data
from keel.serialize.part_data import part_from
from keel.torch_adapter import real_tensors


@contextmanager
def reading(place: str) -> Iterator[None]:
    """While the block runs, any error is one of the data at ``place``. Raises Malformed, and KeelError[opset-version].

    PyTorch and sympy may raise anything for values that no graph has.
    """
    try:
        yield
    except Malformed as wrong:
        if wrong.place.startswith(place):
            raise
        inner = wrong.place if wrong.place[:1] in ("", ".", "[") else f".{wrong.place}"
        raise Malformed(place + inner, wrong.why) from wrong
    except KeelError as error:
        if error.code == "opset-version":
            raise
        raise Malformed(place, error.what) from error
    except Exception as error:
        raise Malformed(place, f"{type(error).__name__}: {error}".partition("\n")[0][:300]) from error


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


@dataclass(frozen=True)
class SavedPart:
    """The graph of a part, and what its backend made of it: ``attached.read`` returns the bytes of ``saved``."""

    graph: PartGraph
    saved: Data | None


@dataclass(frozen=True)
class ReadPart:
    """A part that was read and verified: its launch program, or its graph."""

    owner: Backend
    interface: PartInterface
    ctx: CompileContext
    nodes: tuple[str, ...]
    content: LoopPart | SavedPart

    @staticmethod
    def of(data: Data, owner: Backend, known: Known, ctx: CompileContext, options: Mapping[str, Any]) -> ReadPart:
        """The part of this data. Raises Malformed, and other errors for data that was not checked."""

        def record(key: str) -> Any:
            return from_data(data[key], known, key)

        nodes, device = tuple(data["nodes"]), data["device"]
        ctx = replace(
            ctx,
            constants={name: ctx.constants[name] for name in data["inputs"] if name in ctx.constants},
            options=options_of(owner, options),
            device=None if device is None else torch.device(device),
            sizes=record("sizes"),
            fusions=record("fusions"),
            overwrites=data["overwrites"],
            donated=frozenset(data.get("donated", ())),
        )
        interface = _interface(data, record)
        if "loops" in data:
            return ReadPart(owner, interface, ctx, nodes, _loops(data["loops"], owner, known))
        part = Part(interface.name, owner, nodes, ctx.fusions)
        return ReadPart(owner, interface, ctx, nodes, _graph(data["graph"], part))

    def compiled(self, attached: Attachments, last: Sequence[Backend]) -> CompiledPart:
        """The part that its backend makes of this, with its checks. Raises Malformed for the bytes of the backend that
        are missing, and KeelError if the backend raises.
        """
        try:
            run = self._made(attached, last)
        except (KeelError, Malformed):
            raise
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            what = f"{self.owner.name} could not make part {self.interface.name} of a saved graph again."
            raise KeelError("compile-raised", what, {self.owner.name: first_line(raised)}) from raised
        return self.interface.linked(run)

    def _made(self, attached: Attachments, last: Sequence[Backend]) -> Run:
        try:
            return self._loaded(attached, last)
        except KeelError as raised:
            if raised.code not in ("not-here", "bad-artifact") or attached.part_graph is None:
                raise
            return self._compiled_again(attached.part_graph, last)

    def _loaded(self, attached: Attachments, last: Sequence[Backend]) -> Run:
        if isinstance(self.content, SavedPart):
            return self._deserialized(self.content, attached, last)
        assert self.owner.target is not None, "a part with loops has a loop target"
        with real_tensors():
            return build_part(self.owner.target, self.content, self.ctx, attached.code.get(self.interface.name))

    def _deserialized(self, part: SavedPart, attached: Attachments, last: Sequence[Backend]) -> Run:
        if part.saved is None or self.owner.deserialize is None:
            return compiled_part(part.graph, self.ctx, None, last)
        if self.owner.name in attached.stale:
            raise KeelError(
                "bad-artifact",
                f"Part {self.interface.name} cannot be loaded.",
                {self.owner.name: "The installed version of it is not the one that compiled the part."},
            )
        with reading(self.interface.name):
            content = attached.read(part.saved)
        with real_tensors():
            run = with_context(self.owner.deserialize, self.ctx)(content)
        return runnable_part(run, part.graph, self.ctx, last)

    def _compiled_again(self, part_graph: Callable[[str], Data], last: Sequence[Backend]) -> Run:
        with reading(self.interface.name):
            data = part_graph(self.interface.name)
            part = _graph(data, Part(self.interface.name, self.owner, self.nodes, self.ctx.fusions))
        return compiled_part(part.graph, self.ctx, None, last)


def _interface(data: Data, record: Callable[[str], Any]) -> PartInterface:
    views, contracts = data.get("views"), [record(key) for key in ("promised", "computed") if key in data]
    if not all(isinstance(each, PartContract) for each in contracts):
        raise Malformed("promised", "It is not the contract of a part.")
    return PartInterface(
        data["name"],
        tuple(data["inputs"]),
        tuple(data["outputs"]),
        data["label"],
        contracts[0],
        contracts[1] if contracts[1:] else None,
        None if views is None else ResultViews(part_from(views["graph"], typed=False), tuple(views["inputs"])),
        data.get("casts", False),
    )


def _loops(data: Data, owner: Backend, known: Known) -> LoopPart:
    target: LoopTarget | None = owner.target
    if target is None:
        raise Malformed("owner", f"{owner.name} is not a loop target.")
    sources = [Source(parse(kernel), text) for kernel, text in data["kernels"]]
    kernels = [source.kernel for source in sources]
    program = from_data(data["program"], Known(FunctionNames(target.externs), kernels, known.symbols), "program")
    if not isinstance(program, LaunchProgram):
        raise Malformed("program", "It is not a launch program.")
    verify_program(program)
    constants = tuple(data.get("constants", ()))
    if not all(k in range(len(program.inputs)) for k in constants):
        raise Malformed("constants", "It names inputs that the part does not have.")
    sources = [*dict.fromkeys(sources)]  # two kernels may have become one when they were fitted to the target
    if len(sources) != len(program.kernels()):
        raise Malformed("kernels", f"There are {len(sources)}, and the program launches {len(program.kernels())}.")
    return LoopPart(program, tuple(sources), constants)


def _graph(data: Data, part: Part) -> SavedPart:
    gm, inputs, outputs = part_from(data["graph"]), tuple(data["inputs"]), tuple(data["outputs"])
    results: Any = gm.graph.output_node().args[0]
    if len(gm.graph.find_nodes(op="placeholder")) != len(inputs) or len(results) != len(outputs):
        raise Malformed("graph", f"It is not of {len(inputs)} inputs and {len(outputs)} outputs.")
    if not all(isinstance(each, fx.Node) for each in results):
        raise Malformed("graph.results", "They are not values of the graph.")
    graph = PartGraph(part, gm.graph, dict(gm.named_children()), inputs, outputs)
    return SavedPart(graph, data.get("saved"))
