"""How many parts of a graph are compiled, and how many of their kernels are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PartsCompiled:
    """``done`` of the ``parts`` of a graph are compiled, and ``built`` of their ``kernels``. Kernels count from when
    their part is scheduled.
    """

    parts: int
    done: int = 0
    kernels: int = 0
    built: int = 0


Report = Callable[[PartsCompiled], None]


def no_report(progress: PartsCompiled) -> None:
    """Reports nothing."""


class PartCounter:
    """Counts parts and kernels, and reports each change."""

    def __init__(self, parts: int, report: Report):
        self._state, self._report = PartsCompiled(parts), report

    def scheduled(self, work: Any) -> None:
        """The first stage of a part has returned ``work``, whose attribute ``kernels`` is their number if it has
        kernels.
        """
        self._change(kernels=getattr(work, "kernels", 0))

    def compiled(self, work: Any = None) -> None:
        """A part is compiled, whose first stage had returned ``work`` if it has two."""
        self._change(done=1, built=getattr(work, "kernels", 0))

    def _change(self, done: int = 0, kernels: int = 0, built: int = 0) -> None:
        was = self._state
        self._state = PartsCompiled(was.parts, was.done + done, was.kernels + kernels, was.built + built)
        self._report(self._state)
