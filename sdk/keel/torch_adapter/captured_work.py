"""What a device graph depends on that is not among its kernels, noted while the graph is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CapturedWork:
    """A device graph may be replayed while all functions in ``conditions`` return True. Those in ``after_replay`` are
    called after each replay; they may raise, but not wait. ``held`` is what the kernels use and must not be freed.
    """

    conditions: list[Callable[[], bool]] = field(default_factory=list)
    after_replay: list[Callable[[], None]] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)


_CURRENT: ContextVar[CapturedWork | None] = ContextVar("the device graph that is captured", default=None)


def captured_work() -> CapturedWork | None:
    """What is noted of the device graph that this thread captures now; None if it captures none."""
    return _CURRENT.get()


@contextmanager
def noting_captured_work() -> Iterator[CapturedWork]:
    """A context in which the calling thread captures a device graph. Yields what is noted of it."""
    token = _CURRENT.set(work := CapturedWork())
    try:
        yield work
    finally:
        _CURRENT.reset(token)
