"""Optimization fuel: stops fusing after a number of fusions, so that bisection finds the one that breaks a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Fuel:
    """At most ``left`` fusions are made; None sets no limit.  ``spent`` counts those that were made."""

    left: int | None = None
    spent: int = 0

    def take(self) -> bool:
        """True if one more fusion is allowed, which is then counted."""
        if self.left is not None and self.spent >= self.left:
            return False
        self.spent += 1
        return True
