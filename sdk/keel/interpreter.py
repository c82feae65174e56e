"""Avoids overhead of the Python interpreter while a graph is compiled."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def no_collection() -> Iterator[None]:
    """A context without cyclic garbage collection. Reference counting works as always.

    Compiling makes millions of objects and keeps most of them, and a full collection goes through every object of the
    process, PyTorch's own half a million among them, several times in one compilation.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


ROOM = 1 << 16
"""Words of the interpreter's stack, a few hundred calls deep."""


def in_one_chunk(fn: Callable[P, R]) -> Callable[P, R]:
    """Wraps ``fn`` so that the frames of the calls below it are in one chunk of memory.

    CPython (3.11 and later) keeps frames in chunks of 16 KiB that it maps when a call does not fit and unmaps when that
    returns.  Deep below Dynamo, where a compiler runs, loops cross such a border again and again, and each time the
    system finds new pages: a tenth of all the time.  A chunk is as large as the frame that it is made for needs, to the
    next power of two: a frame that claims half of a large one leaves the other half to the calls below it.
    """
    if sys.implementation.name != "cpython":
        return fn

    @wraps(fn)
    def roomy(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    made: Any = roomy
    made.__code__ = made.__code__.replace(co_stacksize=ROOM)
    return roomy
