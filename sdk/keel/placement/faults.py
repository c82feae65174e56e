"""The error of an unreliable backend, which costs the backend and not the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from keel.errors import KeelError
from keel.plugin import Backend


class Fault(Exception):
    """A backend is at fault, and the graph can be placed again without its answers. ``error`` is raised under
    ``strict``; ``sheet`` says that only its data sheet is unreliable.
    """

    def __init__(self, backend: str, error: KeelError, *, sheet: bool = False) -> None:
        super().__init__(str(error))
        self.backend, self.error, self.sheet = backend, error, sheet

    @property
    def instead(self) -> str:
        """A sentence about what Keel does instead."""
        return (
            f"The graph is placed as if {self.backend} had no data sheet."
            if self.sheet
            else f"The graph is compiled without {self.backend}."
        )

    def without(self, backends: Sequence[Backend]) -> tuple[Backend, ...]:
        """Returns the backends without this one, or with it but without its data sheet."""
        if self.sheet:
            return tuple(replace(b, cost=None) if b.name == self.backend else b for b in backends)
        return tuple(b for b in backends if b.name != self.backend)
