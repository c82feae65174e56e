"""Optimisation fuel: stop fusing after so many fusions, to find by bisection the one that breaks a result."""

from __future__ import annotations

from dataclasses import dataclass

META = "keel.fuel"
"""The key of ``gm.meta`` under which a part's graph carries the Fuel of the whole graph."""


@dataclass
class Fuel:
    """``left`` fusions may still be made; None is without end. ``spent`` counts those that were."""

    left: int | None = None
    spent: int = 0

    def take(self) -> bool:
        """Whether one more fusion may be made; counts it if so."""
        if self.left is not None and self.spent >= self.left:
            return False
        self.spent += 1
        return True
