"""Lets backends prepare, while a graph is captured, what they need for every graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from threading import Thread
from typing import Any

from keel.plugin import Backend

_log = logging.getLogger(__name__)


def warm_up(backends: Iterable[Backend]) -> None:
    """Calls the ``warm_up`` of each backend that has one, each on a thread of its own and once per process. Does not
    wait for them. What one raises is logged: the backend meets the cause again when it compiles.
    """
    for backend in backends:
        if backend.warm_up is not None:
            _start(backend.name, backend.warm_up)


@lru_cache(maxsize=64)
def _start(name: str, function: Callable[[], Any]) -> None:
    def run() -> None:
        try:
            function()
        except Exception as raised:
            _log.info("%s could not warm up: %s: %s", name, type(raised).__name__, raised)

    Thread(target=run, name=f"keel-warm-up-{name}", daemon=True).start()
