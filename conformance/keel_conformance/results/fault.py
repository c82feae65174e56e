"""Breaches of the contract that are seen without a look at numbers: memory that is written or shared, other types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal[
    "argument written",
    "surroundings written",
    "result changed",
    "argument shared",
    "result shared",
    "count",
    "type",
    "device",
    "dtype",
    "sizes",
    "layout",
    "strides",
]
WRITTEN: frozenset[Kind] = frozenset({"argument written", "surroundings written"})
_CLAUSES: Mapping[Kind, str] = {
    "argument written": "contract.mutation.C1",
    "surroundings written": "contract.mutation.C5",
    "result changed": "contract.calls.C2",
    "argument shared": "contract.aliases.C4",
    "result shared": "contract.aliases.C1",
    "device": "contract.layouts.C4",
}
"""The clause of the contract that each kind breaks, of those that a single one forbids."""


@dataclass(frozen=True)
class Fault:
    """``kind`` is for code, ``sentence`` for readers. ``result`` is the result that is wrong, of call ``call``.
    ``other`` is the result that it shares memory with, None where that is of another case; it is of call
    ``other_call``, or of the same call if that is None.
    """

    kind: Kind
    sentence: str
    result: int | None = None
    call: int = 0
    other: int | None = None
    other_call: int | None = None

    @property
    def clause(self) -> str:
        """The clause of the contract that is broken; empty where none stands for it alone."""
        retained = self.kind == "result shared" and self.other_call is not None
        return "contract.calls.C2" if retained else _CLAUSES.get(self.kind, "")

    @property
    def figures(self) -> dict[str, Any]:
        """What a verdict keeps of it."""
        places = {"result": self.result, "call": self.call, "other": self.other, "other_call": self.other_call}
        return {"fault": self.kind, **{k: n for k, n in places.items() if n is not None}}

    def of_call(self, call: int) -> Fault:
        """The same fault, of that call."""
        return replace(self, call=call, sentence=f"Call {call}: {self.sentence}")
