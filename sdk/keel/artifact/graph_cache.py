"""The cache of compiled graphs, so that a graph is legalized, placed, lowered and rendered once on a machine.

Entries are in the cache of compiled code, with its checksums and permissions. A failure of the cache costs time and
never changes a result: a graph whose entry cannot be used is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import sympy
import torch

from keel.artifact.compiled_graph import graph_to_data, guards_from_data, packed, read_graph, unpacked
from keel.artifact.graph_key import graph_key
from keel.artifact.graph_log import NOT_KEPT, NOT_LOADED, log_graph
from keel.artifact.saved_graph import SavedFacts, cannot_save, reason_of, saved_state
from keel.cache import Cache
from keel.cache.store import recorded_by
from keel.interrupts import is_interrupt
from keel.runtime.link import CompiledPart, link
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_context import common_context
from keel.runtime.part_interface import BuiltPart
from keel.settings import Settings
from keel.torch_adapter import Boxed, Captured, Saveable, add_guards, is_saved_by_force

CACHE = Cache("graph")
_NOT_CODE = ("graph-", "compilers-")
"""How the names of entries begin that are not compiled code."""
SWITCH = "KEEL_GRAPH_CACHE"
"""The environment variable that turns the cache off if it is 0. If it is ``torch``, PyTorch saves all graphs."""


@dataclass(frozen=True)
class CacheEntry:
    """The entry of a captured graph under its key. If the cache is off, the graph is only made a form that PyTorch can
    save.
    """

    captured: Captured
    settings: Settings
    key: tuple[str, ...] = field(repr=False)
    seconds: float
    """How long it took to make the key."""
    is_on: bool = True
    libraries: dict[str, bytes] = field(default_factory=dict, repr=False)
    """The entries of the cache that were used while the graph was compiled or loaded, by name, if PyTorch saves it."""

    def recording(self) -> AbstractContextManager[None]:
        """A context in which ``libraries`` are recorded."""
        return recorded_by(self._record) if self.captured.is_saved else nullcontext()

    def _record(self, name: str, data: bytes) -> None:
        if not name.startswith(_NOT_CODE):
            self.libraries[name] = data

    def load(self) -> tuple[Boxed, list[CompiledPart]] | None:
        """The compiled graph and its parts; None if there is no entry, or if it cannot be used."""
        try:
            content = CACHE.get(self.key) if self.is_on else None
            return None if content is None else self._loaded(content)
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            log_graph(self.captured.kind, NOT_LOADED, f"{NOT_LOADED}. {raised}", why=str(raised))
            return None

    def _loaded(self, content: bytes) -> tuple[Boxed, list[CompiledPart]] | None:
        data, captured = unpacked(content), self.captured
        if not add_guards(captured.fake_mode, guards_from_data(data)):
            return None
        ctx = common_context(captured, spends_memory=self.settings.spends_memory)
        graph = read_graph(data, self.settings, ctx)
        parts = graph.compiled()
        return self._saveable(link(graph.program, parts, captured.constants), content), parts

    def stored(
        self, run: Boxed, program: LinkProgram, parts: Sequence[BuiltPart], guards: Sequence[sympy.Basic]
    ) -> Boxed:
        """Stores a compiled graph, unless a value in it cannot be saved. Returns ``run``, in a form that PyTorch can
        save if it wants that.
        """
        try:
            data = graph_to_data(program, parts, guards)
        except BaseException as why:
            if is_interrupt(why):
                raise
            _not_kept(self.captured, why)
            return run
        content = packed(data)
        if self.is_on:
            CACHE.put(self.key, content)
        return self._saveable(run, content)

    def _saveable(self, run: Boxed, content: bytes) -> Boxed:
        if not self.captured.is_saved:
            return run
        facts = SavedFacts.of(self.captured, self.settings)
        return Saveable(run, partial(saved_state, facts, content, self.libraries))


def cache_entry(captured: Captured, settings: Settings) -> CacheEntry | None:
    """The entry of a graph; None if it cannot have one, or if nothing would use it. Raises KeelError[bad-artifact] if
    the user asked PyTorch to save it, and it cannot be saved.
    """
    began, is_on = perf_counter(), is_cache_on()
    if not is_on and not captured.is_saved:
        return None
    try:
        key = graph_key(captured, settings)
    except BaseException as why:
        if is_interrupt(why):
            raise
        _not_kept(captured, why)
        return None
    return CacheEntry(captured, settings, key, perf_counter() - began, is_on)


def _not_kept(captured: Captured, why: BaseException) -> None:
    """Says why a graph is not kept. Raises KeelError[bad-artifact] if the user asked PyTorch to save it."""
    if captured.is_saved and is_saved_by_force():
        raise cannot_save(captured.kind, reason_of(why)) from why
    log_graph(captured.kind, NOT_KEPT, f"{NOT_KEPT}. {why}", why=str(why))


def is_cache_on() -> bool:
    """True if compiled graphs are kept in the cache."""
    off = os.environ.get(SWITCH) == "0" or os.environ.get("KEEL_DUMP") or torch.compiler.config.force_disable_caches
    return not off


def in_pytorch_cache() -> bool:
    """True if the user wants inference graphs in PyTorch's cache, too, so that cache artifacts carry them."""
    return os.environ.get(SWITCH) == "torch"
