"""What Keel logs of each graph: a line for readers, and an attribute ``keel`` of the record for programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from keel.torch_adapter import Kind

COMPILED, LOADED = "compiled", "loaded"
NOT_KEPT, NOT_LOADED = "not kept in the cache", "not loaded from the cache"
_log = logging.getLogger("keel.compiler")


def log_graph(kind: Kind, result: str, line: str, seconds: Mapping[str, float] | None = None, why: str = "") -> None:
    """Logs ``line``. The attribute of the record has the kind of the graph, its ``result`` (COMPILED, LOADED, NOT_KEPT
    or NOT_LOADED) and the reason of that, and the seconds of each stage.
    """
    facts = {"graph": kind, "result": result, "seconds": dict(seconds or {}), "why": why}
    _log.info("%s graph: %s", kind, line, extra={"keel": facts})


def stages_text(seconds: Mapping[str, float]) -> str:
    """``legalize 0.10 s, place 0.02 s``."""
    return ", ".join(f"{stage} {took:.2f} s" for stage, took in seconds.items())
