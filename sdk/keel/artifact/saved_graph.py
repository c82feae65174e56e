"""Compiled graphs that PyTorch saves: in its AOTAutograd cache, in cache artifacts and by ``aot_compile``.

PyTorch pickles them. What it gets of Keel is text, bytes and tensors: the compiled graph as data, the mutations that
follow it, and what its parts know of their constants. PyTorch's files are as trustworthy as PyTorch takes them to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import fx

from keel.artifact.compiled_graph import read_graph, unpacked
from keel.artifact.graph_grammar import MOST, check_compiled, checked_for_saving
from keel.artifact.graph_key import compiled_by, settings_key
from keel.artifact.graph_log import LOADED, log_graph, stages_text
from keel.artifact.read_part import reading
from keel.cache.store import digest, put_missing
from keel.documents import Item, Malformed, parsed, shown
from keel.errors import KeelError, first_line
from keel.interrupts import is_interrupt
from keel.plugin import CompileContext, Constant
from keel.runtime.link import link
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_context import common_context, constants_of
from keel.serialize.codec import Data, NotSerializable, decode, encode
from keel.serialize.grammar import is_value_name
from keel.settings import Settings, read_settings
from keel.torch_adapter import (
    Boxed,
    Captured,
    Kind,
    Mutations,
    Saves,
    StoredKind,
    copy_of,
    finished,
    is_saved_by_force,
    operator_named,
)

_SETTINGS: ContextVar[Settings | None] = ContextVar("the settings of graphs that are restored", default=None)


@contextmanager
def restoring_with(settings: Settings) -> Iterator[None]:
    """While the block runs, restored graphs have the backends of ``settings``. Otherwise they have the installed
    backends of the names that were saved.
    """
    token = _SETTINGS.set(settings)
    try:
        yield
    finally:
        _SETTINGS.reset(token)


def saves_of(settings: Settings) -> Saves | None:
    """How PyTorch saves graphs that are compiled with these settings; None if it does not. Raises
    KeelError[bad-artifact] if the user wants them saved, and they cannot be.
    """
    why = "Its constants are frozen." if settings.freeze else None
    why = f"The mode {settings.mode} records graphs on the device." if settings.replays_graphs else why
    tag = ""
    try:
        tag = digest((*settings_key(settings), str(torch.backends.mkldnn.enabled)))
    except BaseException as raised:  # of a plugin's fingerprint, too
        if is_interrupt(raised):
            raise
        why = reason_of(raised)
    if why is None:
        return Saves(tag, restored)
    if is_saved_by_force():
        raise cannot_save("compiled", why)
    return None


def reason_of(raised: BaseException) -> str:
    """Why a graph cannot be saved: the sentence of Keel, or what a plugin raised."""
    return str(raised) if isinstance(raised, NotSerializable) else first_line(raised)


def cannot_save(kind: str, why: str) -> KeelError:
    """The error for a graph that the user asked PyTorch to save."""
    return KeelError("bad-artifact", f"The {kind} graph cannot be saved.", {"keel": why})


# -- to a state -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedFacts:
    """What is saved of a captured graph and its settings, besides the compiled graph. ``constants`` are its tensors;
    ``stored`` has the kind and the name of each other tensor of the model, by placeholder.
    """

    kind: Kind
    constants: Mapping[str, torch.Tensor]
    lasting: tuple[str, ...]
    stored: Mapping[str, tuple[StoredKind, str]]
    mode: str
    backends: tuple[str, ...]
    options: Mapping[str, Any]
    key: str

    @staticmethod
    def of(captured: Captured, settings: Settings) -> SavedFacts:
        """The facts of a captured graph. Raises NotSerializable if the settings cannot be saved."""
        constants = constants_of(captured)
        return SavedFacts(
            captured.kind,
            dict(captured.constants),
            tuple(sorted(common_context(captured).lasting)),
            {name: (each.kind, each.name) for name, each in constants.items() if each.value is None},
            settings.mode,
            tuple(backend.name for backend in settings.backends),
            {"strict": settings.strict, **dict(settings.options)},
            digest(compiled_by(settings.backends)),
        )


def saved_state(
    facts: SavedFacts, content: bytes, libraries: Mapping[str, bytes], mutations: Mutations | None
) -> dict[str, Any]:
    """What PyTorch saves of a compiled graph. ``content`` is the entry of the graph in the cache, and ``libraries`` are
    the entries of its compiled kernels. Raises NotSerializable.
    """
    checked_for_saving(unpacked(content), "graph")
    after = None if mutations is None else json.dumps(_mutations_data(mutations))
    return {**vars(facts), "graph": content, "libraries": dict(libraries), "mutations": after}


def _mutations_data(mutations: Mutations) -> Data:
    graph = mutations.program.graph
    return {
        "inputs": list(mutations.inputs),
        "values": mutations.values,
        "copied": list(mutations.copied),
        "shares": mutations.shares,
        "overwrites": [list(pair) for pair in mutations.overwrites],
        "placeholders": [node.name for node in graph.find_nodes(op="placeholder")],
        "calls": [
            [node.name, _COPY if node.target is copy_of else encode(node.target), encode(node.args)]
            for node in graph.nodes
            if node.op == "call_function"
        ],
    }


_COPY = "copy"

# -- from a state -----------------------------------------------------------------------------------------------------


def restored(state: Mapping[str, Any]) -> Boxed:
    """The compiled graph of a state. Raises KeelError[bad-artifact] if it was compiled by another Keel, PyTorch or
    backend, or on another machine; errors of ``resolve`` if a backend is not installed; and what a backend raises.
    """
    began = perf_counter()
    settings = _SETTINGS.get() or _settings(state)
    if digest(compiled_by(settings.backends)) != state["key"]:
        raise KeelError(
            "bad-artifact",
            f"A saved {state['kind']} graph does not fit this process.",
            {"saved": "It was compiled by another version of Keel, PyTorch or a backend, or on another machine."},
            do="Compile the model here, and save it again.",
        )
    for name, content in state["libraries"].items():
        put_missing(name, content)
    constants: dict[str, torch.Tensor] = state["constants"]
    known = {name: Constant(kind=kind, name=path) for name, (kind, path) in state["stored"].items()}
    if state["kind"] == "inference":
        known |= {n: Constant(kind="constant", value=t) for n, t in constants.items() if n not in known}
    ctx = CompileContext(lasting=frozenset(state["lasting"]), spends_memory=settings.spends_memory, constants=known)
    try:
        data = unpacked(state["graph"])
        check_compiled(data, "graph")
        graph = read_graph(data, settings, ctx)
        mutations = None if state["mutations"] is None else _mutations(parsed(state["mutations"], "mutations"))
        _verify_ends(graph.program, mutations, constants)
        parts = graph.compiled()
    except Malformed as wrong:
        what = f"A saved {state['kind']} graph cannot be loaded."
        raise KeelError("bad-artifact", what, {wrong.place: wrong.why}, do="Compile the model again.") from wrong
    run = finished(link(graph.program, parts, constants), state["kind"], mutations)
    seconds = {"load": perf_counter() - began}
    log_graph(state["kind"], LOADED, f"saved by PyTorch; {stages_text(seconds)}", seconds)
    return run


def _settings(state: Mapping[str, Any]) -> Settings:
    return read_settings(state["mode"], {**state["options"], "backends": state["backends"]})


def _mutations(data: Data) -> Mutations:
    """The mutations that ``_mutations_data`` wrote. Raises Malformed."""
    fields = Item(data, "mutations").record(
        ("inputs", "values", "copied", "shares", "overwrites", "placeholders", "calls")
    )
    graph, nodes = fx.Graph(), dict[str, fx.Node]()
    for item in fields["placeholders"].items():
        name = _new_name(item, nodes)
        nodes[name] = graph.placeholder(name)
    for item in fields["calls"].items():
        first, target, args = item.items(count=3)
        name = _new_name(first, nodes)
        with reading(item.place):
            values = decode(args.value, nodes.__getitem__, nodes.__getitem__)
            nodes[name] = graph.call_function(_function(target.value), tuple(values))
    graph.output(None)
    overwrites = [pair.items(count=2) for pair in fields["overwrites"].items()]
    return Mutations(
        fx.GraphModule({}, graph),
        _positions(fields["inputs"]),
        fields["values"].integer(0, MOST),
        _positions(fields["copied"]),
        fields["shares"].flag(),
        tuple((result.integer(0, MOST), i.integer(0, MOST)) for result, i in overwrites),
    )


def _verify_ends(program: LinkProgram, mutations: Mutations | None, constants: Collection[str]) -> None:
    """Raises Malformed unless the program has its constants, and the mutations are of its inputs and results."""
    if lacking := [name for name in program.constants if name not in constants]:
        raise Malformed("graph.link.constants", f"There is no constant {shown(lacking[0])}.")
    if mutations is None:
        return
    inputs, results = len(program.inputs) + len(program.constants), len(program.results)
    placeholders = len(mutations.program.graph.find_nodes(op="placeholder"))
    if not all(i < inputs for i in mutations.inputs) or mutations.values > results:
        raise Malformed("mutations", f"They are not of a graph with {inputs} inputs and {results} results.")
    if placeholders != len(mutations.inputs) + mutations.values:
        raise Malformed("mutations.placeholders", f"There are {placeholders}, which do not fit the inputs and values.")
    if not all(i in mutations.inputs and result < results for result, i in mutations.overwrites):
        raise Malformed("mutations.overwrites", "They name an input or a result that the mutations do not have.")


def _positions(item: Item) -> tuple[int, ...]:
    return tuple(each.integer(0, MOST) for each in item.items())


def _new_name(item: Item, known: Collection[str]) -> str:
    """The name of a value, which becomes a name in the source that PyTorch writes for a graph."""
    if not is_value_name(item.value) or item.value in known:
        item.refuse("It is not a new name.")
    return str(item.value)


def _function(target: Data) -> Callable[..., Any]:
    """What a call of mutations calls. Raises NotSerializable."""
    match target:
        case str() if target == _COPY:
            return copy_of
        case {"operator": str(name)} if (operator := operator_named(name)) is not None:
            return operator
    raise NotSerializable(f"This PyTorch has no {target!r:.80}.")
