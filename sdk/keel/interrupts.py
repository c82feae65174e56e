"""Distinguishes exceptions of plugins, which Keel handles, from the user's, which it must never swallow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any


def is_interrupt(raised: BaseException) -> bool:
    """True if an exception that left a plugin's code is the user's: Ctrl-C, or an exception of a signal handler
    (SystemExit on SIGTERM, a time limit). Anything else is the plugin's, even SystemExit and other subclasses of
    BaseException.
    """
    if isinstance(raised, KeyboardInterrupt):
        return True
    handlers = set(_handlers())
    trace = raised.__traceback__
    while trace is not None and handlers:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _handlers() -> Iterator[CodeType]:
    """The code of the signal handlers that are written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if not callable(handler) or isinstance(handler, signal.Handlers):
            continue
        handler = getattr(handler, "func", handler)  # of functools.partial
        handler = getattr(handler, "__func__", handler)  # of a method
        for function in (handler, vars(type(handler)).get("__call__")):
            if isinstance(code := getattr(function, "__code__", None), CodeType):
                yield code
