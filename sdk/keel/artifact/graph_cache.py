"""The cache of compiled graphs, so that a graph is legalized, placed, lowered and rendered once on a machine.

Entries are in the cache of compiled code, with its checksums and permissions. A failure of the cache costs time and
never changes a result: a graph whose entry cannot be used is compiled.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy
import torch

from keel.artifact.compiled_graph import graph_from_data, graph_to_data, guards_from_data
from keel.artifact.graph_key import graph_key
from keel.cache import Cache
from keel.interrupts import is_interrupt
from keel.runtime.link import CompiledPart, link
from keel.runtime.link_program import LinkProgram
from keel.runtime.part_context import common_context
from keel.runtime.part_interface import BuiltPart
from keel.serialize.codec import NotSerializable
from keel.settings import Settings
from keel.torch_adapter import Boxed, Captured, add_guards

CACHE = Cache("graph")
SWITCH = "KEEL_GRAPH_CACHE"
"""The environment variable that turns the cache off if it is 0."""
_log = logging.getLogger("keel.compiler")


@dataclass(frozen=True)
class CacheEntry:
    """The entry of a captured graph under its key."""

    captured: Captured
    settings: Settings
    key: tuple[str, ...] = field(repr=False)

    def load(self) -> tuple[Boxed, list[CompiledPart]] | None:
        """The compiled graph and its parts; None if there is no entry, or if it cannot be used."""
        try:
            return self._loaded()
        except BaseException as raised:
            if is_interrupt(raised):
                raise
            _log.info("%s graph: its entry in the cache cannot be used. %s", self.captured.kind, raised)
            return None

    def _loaded(self) -> tuple[Boxed, list[CompiledPart]] | None:
        content = CACHE.get(self.key)
        if content is None:
            return None
        data = json.loads(zlib.decompress(content))
        settings, captured = self.settings, self.captured
        if not add_guards(captured.fake_mode, guards_from_data(data)):
            return None
        ctx = common_context(captured, spends_memory=settings.spends_memory)
        last = () if settings.strict else tuple(b for b in settings.backends if b.last_resort)
        program, parts = graph_from_data(data, settings.backends, ctx, dict(settings.options), last)
        return link(program, parts, captured.constants), parts

    def store(self, program: LinkProgram, parts: Sequence[BuiltPart], guards: Sequence[sympy.Basic]) -> None:
        """Stores a compiled graph. Does nothing if a value in it cannot be saved."""
        try:
            data = graph_to_data(program, parts, guards)
        except NotSerializable as why:
            _log.info("%s graph: it is not kept for the next process. %s", self.captured.kind, why)
            return
        CACHE.put(self.key, zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1))


def cache_entry(captured: Captured, settings: Settings) -> CacheEntry | None:
    """The entry of a graph; None if it cannot have one, or the cache is off."""
    if os.environ.get(SWITCH) == "0" or os.environ.get("KEEL_DUMP") or torch.compiler.config.force_disable_caches:
        return None
    try:
        return CacheEntry(captured, settings, graph_key(captured, settings))
    except BaseException as why:
        if is_interrupt(why):
            raise
        _log.info("%s graph: it is not kept for the next process. %s", captured.kind, why)
        return None
