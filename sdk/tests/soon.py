"""What must not take minutes: a guard, and no measurement."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 5.0
"""Seconds of this thread. What is tried takes a fraction of one, and minutes where it grows with a square."""


@contextmanager
def soon() -> Iterator[None]:
    """Fails if what is done within takes this thread more than ``LIMIT``, garbage of other tests not counted."""
    collects = gc.isenabled()
    gc.disable()
    began = time.thread_time()
    try:
        yield
    finally:
        taken = time.thread_time() - began
        if collects:
            gc.enable()
    assert taken < LIMIT
