"""A placement: parts in launch order, each with its owner, and the reasons why other backends refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keel.plugin import Backend, Fusion, Refusal

Refusals = Mapping[str, Mapping[str, Refusal]]
"""By node name, then by backend name."""


@dataclass(frozen=True)
class Part:
    """Calls that one backend compiles together: the names of their nodes, in graph order, and the fusions that it
    claimed among them.
    """

    name: str
    owner: Backend
    nodes: tuple[str, ...]
    fusions: tuple[Fusion, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} on {self.owner.name}: {', '.join(self.nodes)}"


@dataclass(frozen=True)
class CostEstimate:
    """The claim of a placement by cost: it takes ``seconds`` by the data sheets, and no placement takes less than
    ``bound``. ``tick`` is the unit, in seconds, that prices were rounded to.
    """

    seconds: float
    bound: float
    tick: float

    @property
    def gap(self) -> float:
        """The fraction of the cost by which it may be above the optimum."""
        return max(0.0, 1 - self.bound / self.seconds) if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Plan:
    """``parts`` in launch order; ``backends`` in order of preference; ``refusals`` of the calls of the graph; ``claim``
    is None unless the placement is by cost.
    """

    parts: tuple[Part, ...]
    backends: tuple[Backend, ...]
    refusals: Refusals
    claim: CostEstimate | None = None

    @property
    def owner_of(self) -> dict[str, Backend]:
        """The backend of each call, by node name."""
        return {node: part.owner for part in self.parts for node in part.nodes}

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data, as KEEL_DUMP writes it."""
        cost = {} if self.claim is None else {"cost": {"seconds": self.claim.seconds, "bound": self.claim.bound}}
        return {
            "backends": [b.name for b in self.backends],
            **cost,
            "parts": [
                {"name": p.name, "owner": p.owner.name, "nodes": list(p.nodes)}
                | ({"fusions": [{"name": f.name, "nodes": list(f.calls)} for f in p.fusions]} if p.fusions else {})
                for p in self.parts
            ],
            "refusals": {node: {who: str(why) for who, why in by.items()} for node, by in self.refusals.items() if by},
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))
