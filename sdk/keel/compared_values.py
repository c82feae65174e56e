"""The values that a comparison shows, and the operators that it finds wrong, as data."""

from __future__ import annotations

from dataclasses import dataclass

from keel.error_budgets import Judgment


@dataclass(frozen=True)
class ComparedValue:
    """A value of a part: its node, operator, module and line, and the judgment on it. ``error`` and ``reference`` are
    the errors of the backend and of the reference, relative to the size of the whole value. ``is_inside`` says that the
    part was compiled with more outputs to get it.
    """

    graph: int
    kind: str
    part: str
    backend: str
    name: str
    operator: str
    module: str
    line: str | None
    is_inside: bool
    judgment: Judgment
    reference: float

    @property
    def error(self) -> float:
        return self.judgment.norm


@dataclass(frozen=True)
class WrongOperator:
    """The first operator of a part that is over its budget, and a sentence about its result. ``is_fused`` says that it
    is so only where it is fused with calls before it.
    """

    graph: int
    kind: str
    part: str
    backend: str
    operator: str
    name: str
    module: str
    line: str | None
    sentence: str
    is_fused: bool
