"""Compiled graphs that PyTorch saves: in its AOTAutograd cache, in cache artifacts and by ``aot_compile``.

PyTorch pickles them. What it gets of Keel is text, bytes and tensors: the compiled graph as data, the mutations that
follow it, and what its parts know of their constants. PyTorch's files are as trustworthy as PyTorch takes them to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import fx

from keel.artifact.compiled_graph import graph_from_data, unpacked
from keel.artifact.graph_key import compiled_by, settings_key
from keel.artifact.graph_log import LOADED, log_graph, stages_text
from keel.cache.store import digest, put_missing
from keel.errors import KeelError, first_line
from keel.interrupts import is_interrupt
from keel.plugin import CompileContext, Constant
from keel.runtime.link import link
from keel.runtime.part_context import common_context, constants_of
from keel.serialize.codec import Data, NotSerializable, decode, encode
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
    program, parts = graph_from_data(unpacked(state["graph"]), settings, ctx)
    mutations = None if state["mutations"] is None else _mutations(json.loads(state["mutations"]))
    run = finished(link(program, parts, constants), state["kind"], mutations)
    seconds = {"load": perf_counter() - began}
    log_graph(state["kind"], LOADED, f"saved by PyTorch; {stages_text(seconds)}", seconds)
    return run


def _settings(state: Mapping[str, Any]) -> Settings:
    return read_settings(state["mode"], {**state["options"], "backends": state["backends"]})


def _mutations(data: Mapping[str, Any]) -> Mutations:
    graph, nodes = fx.Graph(), dict[str, fx.Node]()
    for name in data["placeholders"]:
        nodes[name] = graph.placeholder(name)
    for name, target, args in data["calls"]:
        function: Callable[..., Any] | None = copy_of if target == _COPY else operator_named(target["operator"])
        if function is None:
            raise NotSerializable(f"This PyTorch has no {target['operator']}.")
        nodes[name] = graph.call_function(function, tuple(decode(args, nodes.__getitem__, nodes.__getitem__)))
    graph.output(None)
    return Mutations(
        fx.GraphModule({}, graph),
        tuple(data["inputs"]),
        data["values"],
        tuple(data["copied"]),
        data["shares"],
        tuple((result, i) for result, i in data["overwrites"]),
    )
